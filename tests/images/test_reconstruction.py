"""What `reconstruct` returns, its theory against the bounds room, and decoders against what they should find."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

import initscope as iscope
from initscope.bounds import angle_to_input, angle_to_limit, convergence_image
from initscope.errors import BadInput
from initscope.images import Encoder, contact_sheet, layout, limit_network, reconstruct
from initscope.images.decoding import Matched, combine
from initscope.weights import Gaussian, He, Laplace, Orthogonal, Uniform


def picture(seed: int, *shape: int) -> torch.Tensor:
    """Smooth, as photographs are."""
    rough = torch.rand(1, shape[0], 4, 5, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(rough, size=shape[1:], mode="bicubic")[0].clamp(0, 1)


def test_same_seed_same_picture() -> None:
    image = picture(0, 3, 24, 30)
    a, b, c = (reconstruct(image, channels=8, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(a.image, b.image)
    assert not torch.equal(a.image, c.image)
    assert a.image.shape == (3, 24, 30)
    assert 0 <= float(a.image.min()) <= float(a.image.max()) <= 1
    assert iscope.reconstruct is reconstruct


def test_result_as_json() -> None:
    found = reconstruct(picture(0, 1, 20, 20), channels=8, variant="average")
    told = json.loads(json.dumps(found.to_dict()))
    assert told["shape"] == [1, 20, 20]
    assert told["theory"]["output_angle"] == found.theory.output_angle
    assert told["law"] == "gaussian(2/fan_in)"


def test_the_image_is_inverted_where_ssim_was_negative() -> None:
    image = picture(1, 3, 24, 24)
    kinds = {reconstruct(image, channels=8, seed=seed).inverted for seed in range(8)}
    assert kinds == {True, False}
    for seed in range(8):
        found = reconstruct(image, channels=8, seed=seed)
        again = iscope.images.compare_pictures(found.image[None], image[None])
        assert found.ssim == pytest.approx(float(again.ssim[0]), abs=1e-5)


@pytest.mark.parametrize(("depth", "pooling"), [("1_1", "max"), (1, "max"), (2, "l2"), (2, "average")])
def test_theory_is_that_of_the_bounds_room(depth: Any, pooling: Any) -> None:
    image = picture(2, 3, 12, 16)
    found = reconstruct(image, depth=depth, channels=400, variant="average", pooling=pooling).theory
    net = limit_network(layout("vgg16", depth, channels=400), He(), pooling=pooling)
    limit = convergence_image(net, image[None])
    assert found.limit is not None
    torch.testing.assert_close(found.limit, limit.image[0])
    exact = angle_to_input(net, image[None])
    assert found.input_angle == pytest.approx(math.degrees(math.acos(float(exact.cosine.value))))
    assert found.output_angle is not None
    if pooling == "average":
        assert "average" in found.why["output_bound"]
        return
    bounds = angle_to_limit(net, image[None])
    if float(bounds.sharper.value) < 1:
        assert found.sharper_bound == pytest.approx(math.degrees(math.asin(float(bounds.sharper.value))))
        assert found.output_angle < found.sharper_bound
    else:
        assert "vacuous" in found.why["sharper_bound"]


@pytest.mark.parametrize("law", [He(), Gaussian(0.01, "none")])
@pytest.mark.parametrize(("depth", "pooling"), [(1, "max"), (2, "l2"), (2, "average")])
def test_wide_networks_come_near_the_limit_scale_included(law: Any, depth: int, pooling: Any) -> None:
    """The mean over seeds of <f, f*>/|f*|² is 1 but for terms of order 1/N: E z is below z* by (K2/8N) a layer, about."""
    image = picture(3, 3, 8, 8)
    found = [
        reconstruct(image, depth=depth, channels=300, variant="average", pooling=pooling, law=law, seed=seed)
        for seed in range(6)
    ]
    limit = found[0].theory.limit
    assert limit is not None
    ratios = torch.tensor([float((r.output[0] * limit).sum() / limit.square().sum()) for r in found])
    assert abs(float(ratios.mean()) - 1) < 4 * float(ratios.std()) / math.sqrt(6) + 5 / 8 * 4 * depth / 300
    assert all(r.theory.output_angle is not None and r.theory.output_angle < 10 for r in found)


def test_what_has_no_theory_says_why() -> None:
    image = picture(4, 3, 18, 18)

    def why(**options: Any) -> dict[str, str]:
        found = reconstruct(image, channels=4, **options).theory
        for name in ("input_angle", "input_bound", "output_angle", "output_bound", "sharper_bound"):
            assert (getattr(found, name) is None) == (name in found.why), name
        assert (found.limit is None) == ("limit" in found.why)
        return found.why

    assert "mean zero" in why()["output_angle"]
    assert "max pooling has no known limit" in why(depth=2)["limit"]
    assert "does not divide into windows of 4x4" in why(depth=3, pooling="l2", variant="average")["limit"]
    assert "strided" in why(arch="alexnet")["limit"]
    assert "isotropic" in why(law=Uniform(2.0), variant="average")["limit"]
    assert "fitted" in why(decoder="least-squares")["limit"]
    assert "matched" in why(decoder="matched")["limit"]
    assert (
        "independent" in why(law=Orthogonal(), variant="average")["output_bound"]
        or "depend" in why(law=Orthogonal(), variant="average")["output_bound"]
    )
    assert "vacuous" in why(variant="average")["output_bound"]


def test_black_picture() -> None:
    found = reconstruct(torch.zeros(3, 16, 16), channels=4, variant="average")
    assert bool((found.image == 0).all())
    assert found.theory.limit is None
    assert "zeros" in found.theory.why["limit"]
    assert "the output is constant" in found.notes


@pytest.mark.parametrize(
    ("law", "depth"), [(He(), "1_1"), (He(), 1), (Laplace(2.0), 1), (Uniform(2.0), "1_1"), (Orthogonal(), "1_1")]
)
def test_matched_filters_are_right_on_the_average(law: Any, depth: Any) -> None:
    """The mean over filters is the picture itself, the edges included."""
    image = picture(5, 3, 6, 7)[None]
    draws = []
    with torch.no_grad():
        for seed in range(400):
            encoder = Encoder("vgg16", depth, channels=30, law=law, seed=seed)
            draws.append(Matched(encoder)(encoder(image), (6, 7)))
    stack = torch.cat(draws)
    z = (stack.mean(0) - image[0]) / (stack.std(0) / math.sqrt(len(stack)))
    assert float(z.abs().max()) < 4.5  # of 126 numbers
    share = (stack * image).flatten(1).sum(1) / image.square().sum()
    error = float(share.std()) / math.sqrt(len(stack))
    assert abs(float(share.mean()) - 1) < 4 * error < 0.1


def test_matched_filters_find_the_picture_as_they_grow() -> None:
    image = picture(6, 3, 16, 16)
    errors = [
        float((reconstruct(image, channels=n, decoder="matched", seed=0).output - image).norm()) for n in (16, 1024)
    ]
    assert errors[1] < errors[0] / 4  # 1/sqrt(64) = 1/8, with room for the draw


@pytest.mark.parametrize("depth", [1, 2])
def test_least_squares_against_numpy(depth: int) -> None:
    image = picture(7, 3, 24, 20)
    found = reconstruct(image, depth=depth, channels=7, decoder="least-squares")
    encoder = Encoder("vgg16", depth, channels=7)
    block = encoder.layout.stride
    features = encoder(image[None])[0].flatten(1).T.double().numpy()
    a = np.concatenate([features, np.ones((len(features), 1))], 1)
    y = torch.nn.functional.pixel_unshuffle(image[None], block)[0].flatten(1).T.double().numpy()
    fitted = a @ np.linalg.lstsq(a, y, rcond=None)[0]
    error = ((fitted - y) ** 2).sum()
    ours = float((found.output - image).double().square().sum())
    assert error <= ours <= error * 1.001 + 1e-6
    assert f"{(7 + 1) * 3 * block**2:,} numbers were fitted" in found.notes


def test_least_squares_on_other_pictures() -> None:
    image, others = picture(8, 3, 32, 32), [picture(seed, 3, 32, 40) for seed in (9, 10, 11)]
    itself = reconstruct(image, channels=32, decoder="least-squares")
    other = reconstruct(image, channels=32, decoder="least-squares", examples=others)
    random = reconstruct(image, channels=32)
    assert itself.psnr >= other.psnr > random.psnr
    grey = reconstruct(image[:1], channels=32, decoder="least-squares", examples=others)
    assert grey.image.shape == (1, 32, 32)
    with pytest.raises(BadInput, match="no pictures to fit on"):
        reconstruct(image, decoder="least-squares", examples=[])


def test_combining_turns_outputs_to_one_side() -> None:
    random = torch.Generator().manual_seed(0)
    truth = torch.rand(1, 1, 12, 12, generator=random)
    noise = [torch.randn(1, 1, 12, 12, generator=random) * 0.3 for _ in range(20)]
    outputs = [sign * (truth + n) for n, sign in zip(noise, [1.0, -1.0] * 10, strict=True)]
    found = combine(torch.cat([*outputs, truth + 0.2 * noise[0]], 1), 1)
    correlation = torch.corrcoef(torch.stack([found.flatten(), truth.flatten()]))[0, 1]
    assert float(correlation) > 0.95


def test_several_decoders_beat_one_on_the_average() -> None:
    images = [picture(seed, 3, 32, 32) for seed in range(4)]

    def mean(**options: Any) -> float:
        found = [reconstruct(image, channels=16, seed=seed, **options).ssim for image in images for seed in range(4)]
        return float(np.mean(np.array(found, dtype=float)))

    assert mean(decoder="averaged", decoders=12) > mean() + 0.1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"decoder": "magic"}, "choose from random, averaged"),
        ({"variant": "mean"}, "choose from paper, average"),
        ({"decoder": "matched", "variant": "average"}, "only random ones have an averaging variant"),
        ({"decoder": "averaged", "decoders": 0}, "expected 1 to 1000"),
        ({"tone": "gamma"}, "choose from range"),
        ({"pooling": "sum", "depth": 2}, "choose from max"),
        ({"law": Gaussian(1e12, "none"), "depth": 3}, "overflow in this network"),
        ({"memory": "lots"}, "write for example 2GiB"),
    ],
)
def test_wrong_use(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        reconstruct(picture(0, 3, 16, 16), **{"channels": 8, **options})


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    reconstruct(picture(0, 3, 16, 16), channels=4, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 1), (1, 1)]


def test_contact_sheets() -> None:
    image = picture(12, 3, 32, 24)
    sheet = contact_sheet(image, "channels", [2, 8, 32])
    assert [r.settings["channels"] for r in sheet.results] == [2, 8, 32]
    svg = sheet.picture.svg()
    assert svg.count("<image") == 4
    assert "32 channels: SSIM" in svg
    assert len(contact_sheet(image, "depth", channels=4).results) == 5
    assert [r.settings["kernel"] for r in contact_sheet(image, "kernel", depth="1_1").results] == [1, 3, 5, 7, 11]
    for over, options, said in (
        ("seed", {}, "choose from depth, channels, kernel"),
        ("depth", {"depth": 2}, "leave depth= out"),
        ("kernel", {"values": []}, "0 pictures"),
    ):
        with pytest.raises(BadInput, match=said):
            contact_sheet(image, over, **options)  # type: ignore[arg-type]
