"""Errors in the words of the interface that was used: options on the command line, arguments in Python."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from initscope import parse, predict
from initscope.cli import main
from initscope.cli.words import translated
from initscope.data import load
from initscope.errors import BadInput


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.savez(tmp_path / "four.npz", images=np.random.default_rng(0).random((4, 3, 8, 8), dtype=np.float32))
    np.savez(tmp_path / "vectors.npz", x=np.random.default_rng(0).random((20, 8), dtype=np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


SAID = {
    "check mlp --data npz:four.npz --samples 6": "npz:four.npz: 6 images asked for, 4 there; use --samples 4 or less",
    "fix mlp --data npz:four.npz --samples 6": "npz:four.npz: 6 images asked for, 4 there; use --samples 4 or less",
    "check mlp --data npz:vectors.npz --size 8":
        "npz:vectors.npz: holds vectors, not images; leave --size and --channels out",
    "check mlp --channels 2": "photos: --channels 2; use --channels 1 (grey) or 3 (RGB)",
    "check mlp --data photoz": "--data: unknown name 'photoz'; did you mean 'photos'?",
    "check mlp:2:8 --size 8 --samples 4 --seeds 1 --loss cross": "--loss: got 'cross'; write one of random-direction",
    "fix mlp:2:8 --size 8 --samples 4 --train-steps 2 --lr -1":
        "fix: --lr is -1.0, expected a positive number; pass for example --lr 0.01, or leave it out to try several",
    "fix mlp:2:8 --size 8 --samples 4 --seeds 1 --train-steps 2 --loss random-direction":
        "none that fit the output; pass (inputs, targets), --batch or --loss",
    "predict 'conv3 relu' --data npz:four.npz --pairs 600":
        "npz:four.npz: 4 images make 6 different pairs, 600 asked for; use --pairs 6 or less",
    "predict 'conv3 relu gap' --memory 1000": "1000 B are allowed; use smaller images, or raise --memory",
    "predict 'conv3(width=0) relu'": "\n    conv3(width=0) relu\n                ^\nwidth is '0'",
    "simulate 'conv3 relu' --until -1":
        "simulate: --until is -1.0, expected a width greater than 0; pass for example --until 0.01, or leave it out",
    "simulate 'conv3 relu' --level 2": "--level: got 2.0, expected a number between 0 and 1; pass for example --level 0.95",
    "simulate 'conv3 gap' --gradients --head 1": "--loss: cross-entropy needs two or more classes, outputs have shape (1,); "
        "add --head 10",
    "simulate relu --gradients --pairs 2": "simulate: the network has no weights; add a dense or conv layer",
    "kernel 'conv3 relu' --data npz:four.npz --count 9 --out k.npy": "9 images asked for, 4 there; use --count 4 or less",
    "kernel 'conv3 relu gap' --count 4 --memory 1kB --out k.npy": "use smaller or fewer inputs, or raise --memory",
    "kernel 'conv3 relu gap' --count 8 --tile 4 --memory 1kB --out k.zarr": "use a smaller --tile or raise --memory",
    "width --epsilon 2": "width: --epsilon is 2.0, expected a number between 0 and 1, both excluded; "
        "pass for example --epsilon 0.05",
    "width --width 100,200 --depth 3": "width: got 2 widths and depth 3; leave --depth out with a list of widths",
    "width --width 100 --fan in": "needs the number of inputs; pass --inputs, or use --fan out",
    "train-decoder --out decoder --crop 999 --count 2 --steps 1 --memory 1GiB": "; raise --memory, or use a smaller --batch",
}  # fmt: skip


@pytest.mark.parametrize("line", SAID)
def test_the_command_line_speaks_of_options(line: str) -> None:
    result = CliRunner().invoke(main, shlex.split(line), prog_name="initscope")
    assert result.exit_code == 2, result.output
    assert SAID[line] in result.stderr
    assert result.stdout == ""


def test_python_speaks_of_arguments() -> None:
    with pytest.raises(BadInput, match=r"use count=4 or less$"):
        load("npz:four.npz", count=6)
    x = torch.ones(2, 3, 8, 8)
    with pytest.raises(BadInput, match=r"or raise memory=$"):
        predict(parse("conv3 relu gap"), x, x + 1, memory=1000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("use count=4 or less", "use --samples 4 or less"),
        ("use loss='mse', or lr=1e-3", "use --loss mse, or --lr 1e-3"),
        ('pass target.long(), or loss="squared-error"', "pass target.long(), or --loss squared-error"),
        ("pass loss=... to say it", "pass --loss to say it"),
        ("add resume=True to go on", "add --resume to go on"),
        ("raise memory=, or use fewer", "raise --memory, or use fewer"),
        ("pass lr=None to try several", "leave --lr out to try several"),
        ("lr is -1, expected more", "--lr is -1, expected more"),
        ("pass lr >= 2: one has none", "pass --lr >= 2: one has none"),
        ("kernel_loss=3, discount=2, loss==3, x.loss=3", "kernel_loss=3, discount=2, loss==3, x.loss=3"),
        ("use padding='zero'", "use padding='zero'"),
        ("the loss is 3", "the loss is 3"),
    ],
)
def test_arguments_become_options(text: str, said: str) -> None:
    flags = ("loss", "lr", "memory", "resume")
    options = {"count": "--samples", **{name: f"--{name}" for name in flags}}
    assert translated(BadInput("somewhere", text, text), options) == ("somewhere", said, said)


def test_what_a_model_says_is_quoted() -> None:
    error = BadInput("model", "it stopped: got loss=3", "use loss='mse'")
    assert translated(error, {"loss": "--loss"}) == ("model", "it stopped: got loss=3", "use --loss mse")
