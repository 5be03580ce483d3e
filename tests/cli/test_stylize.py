"""`initscope stylize`: files that come out, seeds, interrupts, and refusals that leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from initscope.cli import main
from initscope.data import load
from initscope.images import read_picture, write_picture

FAST = ("--channels", "8", "--size", "32", "--steps", "4", "--device", "cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, image in zip(
        ("content.png", "style.jpg", "other.png"), load("photos", count=3, size=48).images, strict=True
    ):
        write_picture(image, tmp_path / name)
    return tmp_path


def run(folder: Path, *arguments: str, names: tuple[str, ...] = ("content.png", "style.jpg")) -> Result:
    paths = [str(folder / name) for name in names]
    return CliRunner().invoke(main, ["stylize", *paths, *FAST, *arguments], prog_name="initscope")


def created(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"content.png", "style.jpg", "other.png"}


def test_a_picture_and_a_table(folder: Path) -> None:
    result = run(folder, "-o", str(folder / "out.png"))
    assert result.exit_code == 0, result.output
    assert tuple(read_picture(folder / "out.png").shape) == (1, 3, 32, 32)
    assert "style loss" in result.stdout
    assert result.stderr == f"wrote {folder / 'out.png'}\n"
    assert created(folder) == {"out.png"}


def test_json(folder: Path) -> None:
    result = run(folder, "-o", str(folder / "out.png"), "--json", "-q", "--blend", "1,3", "--seed", "7",
                 names=("content.png", "style.jpg", "other.png"))  # fmt: skip
    found: Any = json.loads(result.stdout)
    assert found["schema"] == "initscope.stylize/1"
    assert (found["blend"], found["seed"], found["steps"], found["interrupted"]) == ([0.25, 0.75], 7, 4, False)
    assert 0 < found["style_loss"] < 1
    assert result.stderr == ""


def test_a_sheet_of_seeds(folder: Path) -> None:
    result = run(folder, "-o", str(folder / "sheet.png"), "--seed", "3..5", "--json")
    assert result.exit_code == 0, result.output
    assert created(folder) == {"sheet.png", "sheet_seed3.png", "sheet_seed4.png", "sheet_seed5.png"}
    found = json.loads(result.stdout)["results"]
    assert [one["seed"] for one in found] == [3, 4, 5]
    pictures = [read_picture(folder / f"sheet_seed{seed}.png") for seed in (3, 4, 5)]
    assert float((pictures[0] - pictures[1]).abs().mean()) > 0.005


def test_every_few_steps(folder: Path) -> None:
    result = run(
        folder, "-o", str(folder / "out.png"), "--save-every", "2", "--method", "pixels", "--optimizer", "adam"
    )
    assert result.exit_code == 0, result.output
    assert created(folder) == {"out.png", "out_0002.png", "out_0004.png"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "none/out.png"), "does not exist"),
        (("-o", "out.gif"), "has '.gif'"),
        (("-o", "out.png", "--seed", "5..1"), "--seed: got '5..1'"),
        (("-o", "out.png", "--seed", "0..99"), "at most 24"),
        (("-o", "out.png", "--blend", "a"), "--blend: got 'a'"),
        (("-o", "out.png", "--size", "8"), "too few to have a style"),
        (("-o", "out.png", "--size", "60000"), "of memory"),
        (("-o", "out.png", "--memory", "1kB"), "of memory"),
        (("-o", "out.png", "--init", "nothing"), "init: got 'nothing'"),
        (("-o", "out.png", "--seed", "0..1", "--save-every", "2"), "is for one seed"),
        (("-o", "out.jpg", "--seed", "0..1"), "a sheet is .png or .svg; name it out.png"),
        (("-o", "style.jpg"), "is a picture that is read"),
        (("-o", "out.png", "--rate", "0"), "expected a finite number above 0"),
        (("-o", "out.png", "--style-weight", "0", "--content-weight", "0"), "both count for nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals_leave_nothing_behind(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    result = run(folder, arguments[0], str(folder / arguments[1]), *arguments[2:])
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert created(folder) == set()


def test_broken_pictures(folder: Path) -> None:
    (folder / "other.png").write_bytes((folder / "content.png").read_bytes()[:200])
    for names in (("other.png", "style.jpg"), ("content.png", "other.png"), ("missing.png", "style.jpg")):
        result = run(folder, "-o", str(folder / "out.png"), names=names)
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith("error: ")
        assert created(folder) == set()


def test_trained_filters_that_are_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INITSCOPE_WEIGHTS", str(folder))
    paths = [str(folder / name) for name in ("content.png", "style.jpg")]
    arguments = ["stylize", *paths, "--encoder", "pretrained", "--size", "32", "-o", str(folder / "out.png")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, result.output
    assert created(folder) == set()


def test_interrupt_keeps_a_whole_picture(folder: Path) -> None:
    out = folder / "out.png"
    paths = [str(folder / name) for name in ("content.png", "style.jpg")]
    arguments = [*paths, "--channels", "8", "--size", "32", "--steps", "1000000", "--save-every", "5", "-o", str(out)]
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from initscope.cli import main; main()"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, "stylize", *arguments], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment
    )  # fmt: skip
    try:
        limit = time.monotonic() + 120
        while not (folder / "out_0005.png").exists() and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert tuple(read_picture(out).shape) == (1, 3, 32, 32)
    assert not [path for path in folder.iterdir() if path.name.endswith(".part")]
    assert b"interrupted" in errors
