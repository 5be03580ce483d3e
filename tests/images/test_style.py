"""Style transfer: statistics against their definitions, the tie against its definition, the search, and bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from initscope.data import load
from initscope.errors import BadInput
from initscope.images import Encoder, Stylized, compare_pictures, judge_style, layout, read_picture, stylize
from initscope.images.style import statistics
from initscope.images.style.decoding import first_stages, fit_decoder
from initscope.images.style.lbfgs import LBFGS
from initscope.images.style.recipe import choose_scales, fit_size, stage_sizes, transfer_bytes
from initscope.images.style.search import search
from initscope.images.style.setup import blend_weights, with_hues
from initscope.images.style.spaces import fit_patches, reach_of
from initscope.images.style.statistics import ContentTerm, StyleTerm, second_moments, style_statistics

SMALL: dict[str, Any] = {"channels": 8, "size": None, "steps": 6}


def photos(count: int = 2, size: int = 32) -> list[Tensor]:
    return list(load("photos", count=count, size=size, seed=5).images)


def stylized(**options: Any) -> Stylized:
    content, style = photos()
    return stylize(content, style, **{**SMALL, **options})


def maps(channels: int = 6, size: int = 9, seed: int = 0) -> Tensor:
    return torch.rand(1, channels, size, size + 2, generator=torch.Generator().manual_seed(seed))


def test_gram_and_moments_by_loops() -> None:
    a, s = maps(seed=1), maps(seed=2)

    def gram(x: Tensor) -> Tensor:
        return torch.einsum("chw,dhw->cd", x[0], x[0]) / x[0, 0].numel()

    expected = (gram(a) - gram(s)).square().sum() / gram(s).square().sum()
    assert float(style_statistics("gram", s).distance(a)) == pytest.approx(float(expected), rel=1e-5)
    both = [(x.mean((2, 3)), x.std((2, 3), correction=0)) for x in (a, s)]
    error = sum((x - y).square().sum() for x, y in zip(*both, strict=True))
    size = sum(x.square().sum() for x in both[1])
    assert float(style_statistics("moments", s).distance(a)) == pytest.approx(float(error / size), rel=1e-4)


def test_whitened_distance_does_not_depend_on_how_channels_are_mixed() -> None:
    """An orthogonal change of the channels changes nothing; a new scale of all of them neither."""
    a, s = maps(seed=1), maps(seed=2)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))[0] * 7.5
    turned = [torch.einsum("dc,nchw->ndhw", turn, x) for x in (a, s)]
    plain = float(style_statistics("whitened", s).distance(a))
    assert float(style_statistics("whitened", turned[1]).distance(turned[0])) == pytest.approx(plain, rel=1e-3)
    assert plain > 1e-3


def test_whitening_sees_what_a_gram_matrix_hides_behind_a_common_mean() -> None:
    a, s = maps(seed=1) - 0.5, 3 * (maps(seed=2) - 0.5)  # textures of very different strength
    far = {
        kind: [float(style_statistics(kind, s + m).distance(a + m)) for m in (0, 20)] for kind in ("gram", "whitened")
    }
    assert far["gram"][1] < 1e-3 * far["gram"][0]
    assert far["whitened"][1] == pytest.approx(far["whitened"][0], rel=0.05)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("centred", [False, True])
def test_second_moments_and_their_gradient(order: Any, centred: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_ROWS", 7)  # several blocks, the last one shorter
    map = torch.cat([maps(4, 3, seed=1), maps(4, 3, seed=2)]).double().contiguous(memory_format=order).requires_grad_()
    origin = torch.tensor([0.5, 0.0, -1.0, 2.0], dtype=torch.float64) if centred else None
    square, middle = second_moments(map, origin)
    rows = map.movedim(1, -1).reshape(-1, 4) - (0 if origin is None else origin)
    torch.testing.assert_close(square, rows.T @ rows / len(rows))
    torch.testing.assert_close(middle, rows.mean(0))
    assert torch.autograd.gradcheck(lambda x: second_moments(x, origin), map)


@pytest.mark.parametrize("history", [1, 3, 10])
def test_lbfgs_takes_the_steps_of_the_two_loop_recursion(history: int) -> None:
    """PyTorch's own, on a function that is no parabola and has directions of negative curvature."""
    random = torch.Generator().manual_seed(0)
    matrix = torch.randn(40, 40, generator=random, dtype=torch.float64) / 6
    start = torch.randn(4, 10, generator=random, dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        return (matrix @ x.flatten() - 1).square().sum() + 2 * (2 * x).cos().sum()

    own, other = (start.clone().requires_grad_() for _ in range(2))
    search = LBFGS(own, 0.7, history)
    reference = torch.optim.LBFGS([other], 0.7, 1, history_size=history, tolerance_grad=0, tolerance_change=0)

    def closure() -> Tensor:
        reference.zero_grad()
        found = loss(other)
        found.backward()  # type: ignore[no-untyped-call]
        return found

    for _ in range(25):
        own.grad = None
        loss(own).backward()  # type: ignore[no-untyped-call]
        search.step()
        reference.step(closure)  # type: ignore[arg-type]
        torch.testing.assert_close(own.detach(), other.detach(), rtol=1e-7, atol=1e-7)


def test_terms_are_in_units_of_the_content() -> None:
    content, style = maps(seed=1), maps(seed=2)
    term = StyleTerm("whitened", style, content, 0.25)
    assert float(term(content)) == pytest.approx(0.25, rel=1e-5)
    assert float(term(style)) == pytest.approx(0, abs=1e-6)
    flat = content.mean((2, 3), keepdim=True).expand_as(content)
    assert float(ContentTerm(content)(flat)) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(("arch", "depth"), [("vgg16", 1), ("vgg16", 2), ("alexnet", 1)])
def test_reach_is_where_features_depend_on_pixels(arch: str, depth: int) -> None:
    plan = layout(arch, depth, channels=4)
    encoder = Encoder(plan, pooling="average", slope=1.0)  # nothing is dead
    reach, stride, before = reach_of(plan)
    picture = torch.rand(1, 3, 64, 64, requires_grad=True)
    features = encoder(picture)
    place = features.shape[-1] // 2
    features[..., place, place].sum().backward()
    assert picture.grad is not None
    rows = picture.grad.abs().sum((0, 1, 3)).nonzero().flatten()
    first = place * stride - before
    assert (int(rows[0]), int(rows[-1])) == (first, first + reach - 1)


def test_patches_are_the_encoder_where_it_is_linear() -> None:
    """Without activations Conv1 is linear in the picture, and least squares finds it; zeros count twice at the border."""
    plan = layout("vgg16", 1, channels=5)
    encoder = Encoder(plan, slope=1.0, seed=3)
    pictures = list(torch.rand(4, 1, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    fitted = fit_patches(encoder, plan, pictures)
    change = 0.1 * torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    exact = encoder(change)
    assert float((fitted(change) - exact)[..., 2:-2, 2:-2].norm() / exact.norm()) < 0.02
    assert fitted.explained > 0.999


@pytest.mark.parametrize("optimizer", ["lbfgs", "adam"])
def test_search_finds_a_minimum_and_keeps_the_best(optimizer: Any) -> None:
    point = torch.tensor([3.0, -2.0, 5.0], requires_grad=True)
    aim = torch.tensor([1.0, 1.0, 1.0])

    def terms() -> tuple[Tensor, Tensor]:
        return (point - aim).square().sum(), point.square().sum()

    found = search(point, terms, (1.0, 3.0), steps=300, optimizer=optimizer, rate=0.1 if optimizer == "adam" else None)
    torch.testing.assert_close(point.detach(), aim / 4, atol=1e-3, rtol=0)
    totals = [one.content + 3 * one.style for one in found.losses]
    assert len(totals) == 301
    assert found.steps == 300
    with torch.no_grad():
        content, style = (float(term) for term in terms())
    assert content + 3 * style == pytest.approx(min(totals), rel=1e-5)


def test_search_starts_again_where_it_went_too_far() -> None:
    point = torch.tensor([2.0], requires_grad=True)

    def terms() -> tuple[Tensor, Tensor]:
        return (point**4 - 3 * point**2 + point).sum() + 10, torch.zeros(())

    found = search(point, terms, (1.0, 1.0), steps=60, rate=8.0)
    assert bool(point.isfinite().all())
    assert float(terms()[0].detach()) < 10
    assert found.best.content == pytest.approx(float(terms()[0].detach()))


def test_the_losses_told_are_those_of_the_picture_shown() -> None:
    """A rate at which the search only ever gets worse: the first point stays the best."""
    found = stylized(rate=1e9, steps=3)
    assert (found.content_loss, found.style_loss) == (0.0, pytest.approx(1.0, rel=1e-4))
    assert found.losses[1].style > 1e6


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "pixels"},
        {"tie": "free"},
        {"loss": "gram"},
        {"loss": "moments"},
        {"optimizer": "adam", "steps": 12},
        {"decoder": "matched"},
        {"tie": "free", "loss": "gram", "decoder": "random", "pooling": "max"},
        {"depth": 2},
        {"arch": "alexnet", "style_layers": [1, 2], "content_layers": [2]},
        {"init": "noise", "steps": 30},
        {"init": "style"},
    ],
    ids=str,
)
def test_every_way_comes_nearer_to_the_style(options: dict[str, Any]) -> None:
    size = {"arch": 64}.get(next(iter(options), ""), 32)
    content, style = photos(2, size)
    found = stylize(content, style, **{**SMALL, **options})
    assert found.image.shape == content.shape
    assert float(found.image.min()) >= 0
    assert float(found.image.max()) <= 1
    if "init" not in options:
        assert found.losses[0].content == pytest.approx(0, abs=0.1)
        assert found.style_loss < 0.9 < found.losses[0].style < 1.1
    else:
        assert found.style_loss + found.content_loss < found.losses[0].style + found.losses[0].content
    assert found.to_dict()["steps"] == found.steps


def test_the_same_seed_gives_the_same_picture_and_another_another() -> None:
    one, two, other = (stylized(seed=seed).image for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert float((one - other).abs().mean()) > 0.005


def test_the_scale_of_the_weights_changes_no_picture() -> None:
    one, two = (stylized(law=law, seed=3).image for law in ("gaussian_fixed(0.001)", "gaussian_fixed(0.1)"))
    torch.testing.assert_close(one, two, atol=0.02, rtol=0)


def test_more_weight_more_style() -> None:
    found = [stylized(style_weight=weight, steps=25) for weight in (0.1, 3.0, 100.0)]
    assert found[0].style_loss > found[1].style_loss > found[2].style_loss
    assert found[0].content_loss < found[1].content_loss < found[2].content_loss
    nothing = stylized(style_weight=0.0, channels=64)
    content = photos()[0][None]
    assert float(compare_pictures(nothing.image[None], content).ssim[0]) > 0.95


def test_blend_of_styles() -> None:
    content, one, two = photos(3)
    alone = stylize(content, one, **SMALL).image
    assert torch.equal(stylize(content, [one, two], blend=[2, 0], **SMALL).image, alone)
    assert not torch.equal(stylize(content, [one, two], **SMALL).image, alone)
    assert blend_weights(None, 4) == [0.25] * 4


def test_hues_are_kept() -> None:
    """Differences between channels are those of the content, wherever nothing is clipped."""
    content = 0.3 + 0.2 * torch.rand(1, 3, 32, 32)
    found = with_hues(0.3 + 0.2 * torch.rand(1, 3, 32, 32), content)
    torch.testing.assert_close(found[:, 0] - found[:, 2], content[:, 0] - content[:, 2])
    plain, kept = stylized(), stylized(preserve_color=True)
    assert not torch.equal(plain.image, kept.image)
    assert kept.style_loss == plain.style_loss


def test_sizes_grey_and_shapes() -> None:
    content, style = photos(2, 48)
    found = stylize(content[:1, :, :37], style, channels=8, size=40, steps=2)
    assert tuple(found.image.shape) == (3, 40, 31)
    assert fit_size((480, 640), 256) == (192, 256)
    assert stage_sizes(layout("vgg16", 5), (33, 64)) == [(33, 64), (17, 32), (9, 16), (5, 8), (3, 4)]
    assert choose_scales(layout("vgg16", 5), (32, 32), 1, None, None).style == (1, 2, 3, 4)


@pytest.mark.parametrize("kind", ["least-squares", "matched", "random"])
def test_decoders_give_the_picture_back(kind: Any) -> None:
    plan = layout("vgg16", 5, channels=64)
    encoder = Encoder(plan, seed=2)
    head = layout("vgg16", 1, channels=64)
    picture = photos(1, 48)[0][None]
    decode = fit_decoder(kind, encoder, head, [picture], law=encoder.law, seed=0, allowed=2**30)
    with torch.no_grad():
        found = decode(first_stages(encoder, head)(picture), (48, 48)).clamp(0, 1)
    ssim = float(compare_pictures(found, picture).ssim[0])
    assert ssim > {"least-squares": 0.98, "matched": 0.5, "random": 0.2}[kind]


def test_interrupt_keeps_what_was_found() -> None:
    content, style = photos()
    seen: list[int] = []

    def stop(done: int, total: int) -> None:
        seen.append(done)
        if done == 4:
            raise KeyboardInterrupt

    found = stylize(content, style, **{**SMALL, "steps": 100}, progress=stop, keep_on_interrupt=True)
    assert found.interrupted
    assert seen == [1, 2, 3, 4]
    assert found.style_loss < 1
    with pytest.raises(KeyboardInterrupt):
        stylize(content, style, **{**SMALL, "steps": 100}, progress=stop)


def test_watching() -> None:
    seen: dict[int, Tensor] = {}
    found = stylized(steps=7, every=3, watch=lambda step, picture: seen.update({step: picture}))
    assert list(seen) == [3, 6]
    assert all(picture.shape == found.image.shape for picture in seen.values())


def test_the_judge_is_another_network() -> None:
    content, style = photos()
    vgg = Encoder("vgg16", 5, channels=8, seed=9)
    found = stylize(content, style, channels=16, size=None, steps=30)
    before, after = (judge_style(p, content, style, encoder=vgg) for p in (content, found.image))
    assert before.content == 0
    assert before.style == pytest.approx(1, rel=1e-4)
    assert after.content > 0
    assert after.style < 1
    with pytest.raises(BadInput, match="another shape"):
        judge_style(content[:, :20], content, style, encoder=vgg)


def test_a_style_that_is_the_content_changes_nothing() -> None:
    content = photos()[0]
    found = stylize(content, content, **{**SMALL, "channels": 64})
    assert float(compare_pictures(found.image[None], content[None]).ssim[0]) > 0.95


def test_flat_pictures_are_finite() -> None:
    grey = torch.full((3, 32, 32), 0.5)
    for content, style in ((grey, photos()[0]), (photos()[0], grey), (grey, grey)):
        assert bool(stylize(content, style, **SMALL).image.isfinite().all())


BAD: list[tuple[dict[str, Any], str]] = [
    ({"method": "magic"}, "method: got 'magic'"),
    ({"loss": "l1"}, "loss: got 'l1'"),
    ({"encoder": "trained"}, "encoder: got 'trained'"),
    ({"optimizer": "sgd"}, "optimizer: got 'sgd'"),
    ({"decoder": "neural"}, "decoder: got 'neural'"),
    ({"init": "zeros"}, "init: got 'zeros'"),
    ({"steps": 0}, "steps: got 0"),
    ({"style_weight": -1.0}, "style_weight: got -1.0"),
    ({"style_weight": float("nan")}, "style_weight: got nan"),
    ({"blend": [1.0, 2.0]}, "blend: 2 weights for 1 styles"),
    ({"blend": [0.0]}, "not all of them 0"),
    ({"size": 10}, "too few to have a style"),
    ({"depth": 5}, "depth: got 5"),
    ({"depth": 4, "size": 256}, "tie='free'"),
    ({"style_layers": [7]}, "style_layers: got 7"),
    ({"style_layers": []}, "names no stage"),
    ({"size": 30000}, "needs about"),
    ({"memory": "1 MB"}, "needs about"),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_input(options: dict[str, Any], words: str) -> None:
    content, style = photos()
    with pytest.raises(BadInput, match=words.replace("(", r"\(")):
        stylize(content, style, **{**SMALL, **options})


def test_refusal_names_a_size_that_fits() -> None:
    content, style = photos()
    with pytest.raises(BadInput, match=r"size (\d+) fits") as refused:
        stylize(content, style, channels=8, size=4096, steps=1, memory="1 GiB")
    side = int(str(refused.value).partition("size ")[2].split()[0])
    plan = layout("vgg16", 5, channels=8)
    assert transfer_bytes(plan, (side, side), 1, 5, 3 * side**2, "lbfgs") <= 2**30
    assert 500 < side < 4096


_MEASURE = """
import json, sys, torch
from pathlib import Path
from initscope.images import stylize
torch.set_num_threads(1)
options = json.loads(sys.argv[1])
pictures = torch.rand(2, 3, 192, 192)
stylize(*pictures[..., :32, :32], size=None, steps=2, channels=8, **options)
before = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
found = stylize(*pictures, size=None, steps=12, **options)
print(found.memory, (int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the unit of the peak differs")
@pytest.mark.parametrize(
    "options", [{}, {"tie": "free", "loss": "gram", "pooling": "max"}, {"method": "pixels", "loss": "moments"}]
)
def test_the_peak_stays_within_the_estimate(options: dict[str, str]) -> None:
    words = [sys.executable, "-c", _MEASURE, json.dumps(options)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    estimated, peak = (int(word) for word in done.stdout.split())
    assert estimated / 4 < peak <= estimated


def test_pictures_that_cannot_be_read(tmp_path: Path) -> None:
    text = tmp_path / "photo.jpg"
    text.write_text("no picture")
    with pytest.raises(BadInput, match=r"photo\.jpg: cannot be read as an image"):
        stylize(text, photos()[0], **SMALL)
    with pytest.raises(BadInput, match="does not exist"):
        stylize(photos()[0], tmp_path / "none.png", **SMALL)


def test_result_can_be_saved(tmp_path: Path) -> None:
    found = stylized()
    assert torch.allclose(read_picture(found.save(tmp_path / "out.png"))[0], found.image, atol=0.5 / 255 + 1e-6)
