"""`initscope train-decoder`: the files of a run, a real kill, Ctrl-C, wrong use."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file

from initscope.cli import main
from initscope.images import load_decoder

# A training in one thread; a slow one says when it begins step 13, and waits there.
SLOW = """
import sys, time
import initscope.images.training.loop as loop
kept = loop._Job.step
def step(self, number):
    if number == 13:
        print("step 13", file=sys.stderr, flush=True)
        time.sleep(0.5)
    return kept(self, number)
if sys.argv.pop(1) == "slow":
    loop._Job.step = step
import torch
torch.set_num_threads(1)
from initscope.cli import main
main(prog_name="initscope")
"""
SMALL = [
    "train-decoder", "--depth", "1_2", "--channels", "4", "--size", "12", "--count", "10", "--held-out", "4",
    "--batch", "4", "--steps", "30", "--rate", "0.01", "--save-every", "5", "--evaluate-every", "10",
]  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*SMALL, *arguments], prog_name="initscope")


def document(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def start(kind: str, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SLOW, kind, *SMALL, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def one_thread() -> Iterator[None]:
    """As many threads as the other process has: sums in another order end in other bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def checkpoint(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoint.safetensors")


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """SIGKILL in step 13: the same command ends with the bytes of a run that nobody killed."""
    killed = start("slow", tmp_path / "killed")
    assert killed.stderr is not None
    assert "step 13" in killed.stderr.readline()
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert len(checkpoint(tmp_path / "killed")["losses"]) == 10
    resumed = start("quick", tmp_path / "killed")
    with one_thread():
        assert run("--out", str(tmp_path / "whole")).exit_code == 0
    output, errors = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, errors
    assert "from 10 on" in output
    first, second = checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "killed")
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    decoders = [(tmp_path / name / "decoder.safetensors").read_bytes() for name in ("whole", "killed")]
    assert decoders[0] == decoders[1]


def test_an_interrupt_saves_and_ends_with_130(tmp_path: Path) -> None:
    process = start("slow", tmp_path)
    assert process.stderr is not None
    assert "step 13" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert len(checkpoint(tmp_path)["losses"]) == 14  # the step that was begun is finished and kept
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def test_tables_json_and_files_say_the_same(tmp_path: Path) -> None:
    found = document("--out", str(tmp_path / "run"))
    assert found["schema"] == "initscope.train-decoder/1"
    assert len(found["losses"]) == 30
    assert found["losses"][-1] < found["losses"][0]
    assert [step for step, _ in found["held_out"]] == [0, 10, 20, 30]
    again = run("--out", str(tmp_path / "run"))  # everything is there already
    assert f"{found['held_out'][-1][1]:.5f}" in again.stdout
    assert "from 30 on" in again.stdout
    assert load_decoder(tmp_path / "run").layout.depth == "1_2"


def test_grey_and_colour_arrays_and_crops(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (14, 16, 20), dtype=np.uint8)
    np.savez(tmp_path / "grey.npz", images=pixels)
    data = ["--data", f"npz:{tmp_path / 'grey.npz'}", "--size", "16", "--steps", "3"]
    found = document(*data, "--crop", "8", "--out", str(tmp_path / "run"))
    assert not found["features"]["cached"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--encoder", "pretrained", "--weights", "nowhere", "--channels", "4"], "--channels: is for random encoders"),
        (["--weights", "nowhere"], "--weights: are for --encoder pretrained"),
        (["--data", "npz:missing.npz"], "missing.npz"),
        (["--rate", "-1"], "rate: got -1.0"),
        (["--law", "nonsense"], "unknown weight law"),
        (["--depth", "9"], "depth: got '9'"),
        (["--crop", "13"], "crop: is 13"),
        (["--memory", "1kB"], "needs about"),
    ],
)
def test_wrong_use_is_one_message(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = run(*arguments, "--out", str(tmp_path / "run"))
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stdout == ""


def test_pretrained_filters_that_are_missing(tmp_path: Path) -> None:
    arguments = ["train-decoder", "--encoder", "pretrained", "--weights", str(tmp_path), "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "vgg16.safetensors does not exist; make it: python benchmarks/pretrained.py" in result.stderr
