"""Damage to what initscope writes and reads back: stored kernels, checkpoints, trained decoders, records of papers."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import torch
from torch import Tensor

import initscope as iscope
from fuzz.harness import Case, Target, damaged
from initscope import scale
from initscope.images import Encoder, Recipe, load_decoder, train_decoder
from initscope.papers import record as records
from initscope.papers.item import Check, Sampled
from initscope.papers.record import Record


def _damage_one(whole: Path, copy: Path, rng: random.Random, name: str = "*") -> None:
    """A fresh copy of a folder with one file damaged, or gone."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    victim = rng.choice(sorted(path for path in copy.rglob(name) if path.is_file()))
    if rng.random() < 0.05:
        victim.unlink()
    else:
        victim.write_bytes(damaged(victim.read_bytes(), rng))


def _stores(folder: Path) -> Case:
    net = iscope.parse("conv3(8, padding=circular) relu gap")
    x = torch.randn(5, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    expected = scale.kernel_to(net, x, folder / "whole.zarr", tile=2).open().tensor()
    copy = folder / "copy.zarr"

    def case(rng: random.Random) -> str:
        _damage_one(folder / "whole.zarr", copy, rng)
        if rng.random() < 0.5:
            found, outcome = scale.open_kernel(copy).tensor(), "unharmed"
        else:
            run = scale.kernel_to(net, x, copy, resume=True)
            found, outcome = run.open().tensor(), "computed again" if run.computed else "unharmed"
        assert torch.equal(found, expected), "another matrix, and no word about it"
        return outcome

    return case


def _train(out: Path) -> dict[str, Tensor]:
    pixels = torch.rand(3, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    recipe = Recipe(steps=3, batch=2, save_every=1)
    encoder = Encoder("vgg16", "1_1", channels=2)
    return dict(train_decoder(encoder, pixels, None, recipe, out=out).decoder.state_dict())


def _checkpoints(folder: Path) -> Case:
    whole, copy = folder / "whole", folder / "copy"
    expected = _train(whole)
    for path in whole.iterdir():
        if path.suffix != ".safetensors":
            path.unlink()

    def case(rng: random.Random) -> str:
        kind = rng.choice(("decoder", "checkpoint"))
        _damage_one(whole, copy, rng, f"{kind}.safetensors")
        found = dict(load_decoder(copy).state_dict()) if kind == "decoder" else _train(copy)
        assert all(torch.equal(found[name], value) for name, value in expected.items()), "another decoder, silently"
        return "unharmed"

    return case


def _records(folder: Path) -> Case:
    whole, copy = folder / "whole", folder / "copy"
    check = Check("a claim", True, "0.5", 0.51, Sampled(0.5, 0.01, 100))
    kept = Record(
        "overparam/fig1", "A figure", "what it says", "normal", 0, (check,), {"curve": [0.25, None]}, ("a note",),
        ("MNIST",), "<svg></svg>", 1.5, digest="0" * 64,
    )  # fmt: skip
    records.save(kept, whole)
    expected = records.read(whole, kept.key)
    assert expected is not None

    def case(rng: random.Random) -> str:
        _damage_one(whole, copy, rng)
        found = records.read(copy, kept.key)
        assert found is None or found == expected, "another record, and no word about it"
        return "not taken for finished" if found is None else "unharmed"

    return case


TARGETS = (
    Target(
        "stores",
        "stored kernels with a damaged file",
        "the same matrix, computed again if needed, or a refusal",
        _stores,
    ),
    Target(
        "checkpoints", "damaged checkpoints and decoders", "the same decoder to the bit, or a refusal", _checkpoints
    ),
    Target("records", "damaged records of papers", "the same record, or the item is run again", _records),
)
