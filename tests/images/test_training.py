"""Training of decoders: against a plain loop, exact resumption, what is cached, what is refused."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.images import Decoder, Encoder, Recipe, TrainedDecoder, load_decoder, loss_curves, train_decoder
from initscope.images.training.batches import Order, crop_windows
from initscope.images.training.loop import _check_memory
from initscope.images.training.state import CHECKPOINT

SMALL = Recipe(steps=6, batch=4, rate=1e-2, evaluate_every=2, save_every=2)


def pictures(count: int, size: tuple[int, int] = (9, 12), seed: int = 0) -> Tensor:
    return torch.rand(count, 3, *size, generator=torch.Generator().manual_seed(seed))


def small(arch: str = "vgg16", depth: Any = 2) -> Encoder:
    return Encoder(arch, depth, channels=4, seed=1)


def equal(a: TrainedDecoder, b: TrainedDecoder) -> bool:
    """To the bit: losses, held-out losses, and all weights."""
    theirs = b.decoder.state_dict()
    same = all(torch.equal(value, theirs[name]) for name, value in a.decoder.state_dict().items())
    return same and torch.equal(a.losses, b.losses) and a.held_out == b.held_out


@pytest.mark.parametrize(("arch", "depth"), [("vgg16", 2), ("alexnet", 2)])
@pytest.mark.parametrize("crop", [None, 8])
def test_the_loop_is_adam_on_the_squared_error(arch: str, depth: int, crop: int | None) -> None:
    """The same in a few plain lines: order of images, schedule, weight decay, loss, memory orders of large kernels."""
    recipe = replace(SMALL, crop=crop, decay=0.1, rate=1e-3)
    encoder, images = small(arch, depth), pictures(10, (16, 20))
    found = train_decoder(encoder, images, None, recipe)
    decoder = Decoder(encoder.layout, slope=0.2, bias=True, seed=0)
    adam = torch.optim.Adam(decoder.parameters(), 1e-3, (0.9, 0.999), weight_decay=0.1)
    order = Order(10, 4, 0)
    losses = []
    for step in range(6):
        adam.param_groups[0]["lr"] = 1e-3 * (1 if step < 3 else 0.5 if step < 4 else 0.25)
        rows = order.rows(step)
        x = images[rows] if crop is None else crop_windows(images, rows, crop, 0, step)
        loss = (decoder(encoder(x), (x.shape[2], x.shape[3])) - x).square().sum() / 4
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item() / x[0].numel())
    torch.testing.assert_close(found.losses, torch.tensor(losses, dtype=torch.float64), rtol=1e-4, atol=0)
    for ours, theirs in zip(found.decoder.parameters(), decoder.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_held_out_losses_are_what_the_decoder_gives() -> None:
    encoder, images, others = small(), pictures(8), pictures(5, seed=9)
    found = train_decoder(encoder, images, others, SMALL)
    assert [step for step, _ in found.held_out] == [0, 2, 4, 6]
    with torch.no_grad():
        wanted = (found.decoder(encoder(others), (9, 12)) - others).square().mean()
    assert math.isclose(found.held_out[-1][1], float(wanted), rel_tol=1e-5)
    constant = (others - images.mean((0, 2, 3), keepdim=True)).square().mean()
    assert found.constant_loss is not None
    assert math.isclose(found.constant_loss, float(constant), rel_tol=1e-5)


class Killed(BaseException):
    """Not an error that anybody handles."""


@pytest.mark.parametrize(
    ("arch", "settings", "at"),
    [("vgg16", {}, 1), ("vgg16", {}, 3), ("vgg16", {"crop": 7}, 5), ("alexnet", {"scale_features": True}, 5)],
    ids=["before the first checkpoint", "whole", "crops", "scaled"],
)
def test_a_run_that_was_cut_off_goes_on_to_the_same_bits(
    tmp_path: Path, arch: str, settings: dict[str, Any], at: int
) -> None:
    recipe = replace(SMALL, **settings)
    encoder, images, others = small(arch), pictures(7, (16, 16)), pictures(3, (16, 16), seed=9)

    def stop(done: int, total: int) -> None:
        if done == at:
            raise Killed

    with pytest.raises(Killed):
        train_decoder(encoder, images, others, recipe, out=tmp_path / "cut", progress=stop)
    assert not (tmp_path / "cut" / "run.json").exists()
    resumed = train_decoder(encoder, images, others, recipe, out=tmp_path / "cut")
    assert resumed.started == at // 2 * 2  # checkpoints come every two steps
    assert equal(resumed, train_decoder(encoder, images, others, recipe))
    again = train_decoder(encoder, images, others, recipe, out=tmp_path / "cut")
    assert again.started == recipe.steps
    assert equal(again, resumed)
    assert not [path.name for path in (tmp_path / "cut").iterdir() if path.name.startswith(".")]


def test_another_run_is_not_gone_on_with(tmp_path: Path) -> None:
    encoder, images = small(), pictures(6)
    train_decoder(encoder, images, None, SMALL, out=tmp_path)
    with pytest.raises(BadInput, match=r"rate was 0.01 and is 0.02.*--restart"):
        train_decoder(encoder, images, None, replace(SMALL, rate=0.02), out=tmp_path)
    with pytest.raises(BadInput, match="its encoder or its images are others"):
        train_decoder(encoder, pictures(6, seed=5), None, SMALL, out=tmp_path)
    with pytest.raises(BadInput, match="its encoder or its images are others"):
        train_decoder(Encoder("vgg16", 2, channels=4, seed=2), images, None, SMALL, out=tmp_path)
    with pytest.raises(BadInput, match="its layers are others"):
        train_decoder(Encoder("vgg16", 2, channels=5, seed=1), images, None, SMALL, out=tmp_path)
    fresh = train_decoder(encoder, images, None, replace(SMALL, rate=0.02), out=tmp_path, restart=True)
    assert fresh.started == 0
    (tmp_path / CHECKPOINT).write_bytes(b"half")
    with pytest.raises(BadInput, match="is no checkpoint"):
        train_decoder(encoder, images, None, SMALL, out=tmp_path)


@pytest.mark.parametrize("scale", [False, True])
def test_the_files_of_a_run(tmp_path: Path, scale: bool) -> None:
    encoder, images, others = small("alexnet", 1), pictures(8), pictures(4, seed=9)
    found = train_decoder(
        encoder, images, others, replace(SMALL, scale_features=scale), out=tmp_path, about={"who": "me"}
    )
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"checkpoint.safetensors", "decoder.safetensors", "run.json", "loss.svg", "samples.png"}
    said = json.loads((tmp_path / "run.json").read_text())
    assert said["who"] == "me"
    assert said["losses"] == pytest.approx(found.losses.tolist(), rel=1e-5)
    assert said["recipe"]["betas"] == [0.9, 0.999]
    assert (found.scale != 1) == scale
    decoder = load_decoder(tmp_path)  # for features as they are, whatever they were divided by in training
    with torch.no_grad():
        loss = float((decoder(encoder(others), (9, 12)) - others).square().mean())
    assert math.isclose(loss, found.held_out[-1][1], rel_tol=1e-4)
    with pytest.raises(BadInput, match="is no trained decoder"):
        load_decoder(tmp_path / CHECKPOINT)


def test_what_is_kept_and_why() -> None:
    encoder, images = small(), pictures(8)
    once = train_decoder(encoder, images, None, replace(SMALL, steps=2))
    assert not once.cached
    assert "twice" in once.why
    assert train_decoder(encoder, images, None, SMALL).cached
    crops = train_decoder(encoder, images, None, replace(SMALL, crop=5))
    assert not crops.cached
    assert "crops" in crops.why


def test_features_that_do_not_fit_are_worked_out_again() -> None:
    encoder, images = Encoder("vgg16", "1_1", channels=4, seed=1), pictures(200, (24, 24))
    plenty = train_decoder(encoder, images, None, replace(SMALL, batch=40))
    step = _check_memory(encoder, replace(SMALL, batch=40), (24, 24), 2**40)
    tight = train_decoder(encoder, images, None, replace(SMALL, batch=40), memory=step + 100_000)
    assert plenty.cached
    assert not tight.cached
    assert "left for them" in tight.why
    torch.testing.assert_close(plenty.losses, tight.losses, rtol=1e-4, atol=0)
    with pytest.raises(BadInput, match="needs about"):
        train_decoder(encoder, images, None, SMALL, memory="100 kB")


def test_scaled_features_make_the_scale_of_the_weights_irrelevant() -> None:
    recipe = replace(SMALL, scale_features=True)
    losses = [
        train_decoder(Encoder("vgg16", 1, channels=4, law=law, seed=1), pictures(8), None, recipe).losses
        for law in ("gaussian_fixed(1)", "gaussian_fixed(0.0001)")
    ]
    torch.testing.assert_close(*losses, rtol=1e-3, atol=0)


def test_every_image_comes_once_in_a_round() -> None:
    order = Order(10, 4, seed=3)
    seen = torch.cat([order.rows(step) for step in range(5)]).tolist()
    assert Counter(seen) == Counter([*range(10), *range(10)])
    assert Order(10, 4, seed=3).rows(3).tolist() == seen[12:16]
    assert sorted(Order(3, 7, seed=0).rows(0).tolist()[:6]) == [0, 0, 1, 1, 2, 2]


def test_windows_lie_inside_and_reach_the_edges() -> None:
    grid = torch.arange(20.0).view(1, 1, 4, 5).expand(1, 3, 4, 5)
    corners = {int(crop_windows(grid, torch.tensor([0]), 3, 0, step)[0, 0, 0, 0]) for step in range(200)}
    assert corners == {0, 1, 2, 5, 6, 7}


def test_curves_say_what_they_show() -> None:
    found = train_decoder(small(), pictures(8), pictures(4, seed=9), SMALL)
    svg = loss_curves({"one": [found], "two": [found, found]}, "A title").svg()
    assert "A title" in svg
    assert "two, held out" in svg


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": 0}, "steps"),
        ({"batch": 1.5}, "batch"),
        ({"rate": -1.0}, "rate"),
        ({"rate": math.nan}, "rate"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"decay": -1.0}, "decay"),
        ({"milestones": (2.0,)}, "milestones"),
        ({"drop": 0}, "drop"),
        ({"crop": 0}, "crop"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Recipe(**change)


def test_wrong_images_are_refused(tmp_path: Path) -> None:
    encoder = small()
    wrong = {
        "shape": pictures(4)[0],
        "expected \\(n, 3": torch.rand(4, 1, 9, 9),
        "float64": pictures(4).double(),
        "0 to 1": pictures(4) * 255,
    }
    for said, images in wrong.items():
        with pytest.raises(BadInput, match=said):
            train_decoder(encoder, images, None, SMALL)
    with pytest.raises(BadInput, match="held_out"):
        train_decoder(encoder, pictures(4), pictures(2) - 1, SMALL)
    with pytest.raises(BadInput, match="crop"):
        train_decoder(encoder, pictures(4), None, replace(SMALL, crop=10))
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot write"):
        train_decoder(encoder, pictures(4), None, SMALL, out=tmp_path / "file")


def test_a_loss_that_runs_away_is_said() -> None:
    with pytest.raises(BadInput, match=r"loss is .* in step .*--scale-features"):
        train_decoder(Encoder("vgg16", 2, channels=4, law="gaussian_fixed(1e18)"), pictures(4), None, SMALL)
