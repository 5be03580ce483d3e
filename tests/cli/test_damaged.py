"""Damaged files, full disks and second starts on the command line: exit code 2 and one line each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from files.disks import full_disk
from initscope.cli import main
from initscope.files import locked
from initscope.scale.kernels import lock_path

KERNEL = ["kernel", "conv3(4) relu gap", "--data", "gaussian", "--count", "6", "--size", "4", "--tile", "2"]
TRAIN = [
    "train-decoder",
    "--data",
    "gaussian",
    "--count",
    "3",
    "--held-out",
    "0",
    "--size",
    "6",
    "--depth",
    "1_1",
    "--channels",
    "2",
    "--steps",
    "2",
    "--batch",
    "2",
]


def refused(*arguments: str) -> str:
    """The one line of a command that ends with exit code 2."""
    done: Result = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == 2, done.output
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert "Traceback" not in done.stderr
    return lines[0]


@pytest.mark.parametrize("place", [6, 7, 8, 9, 12, 20, 40, 60])
def test_a_damaged_npy_header(tmp_path: Path, place: int) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones((4, 8), np.float32))
    content = bytearray(path.read_bytes())
    content[place] ^= 0x55
    path.write_bytes(content)
    assert f"npz:{path}" in refused("check", "mlp", "--data", f"npz:{path}", "--samples", "2")


@pytest.mark.parametrize("damage", ["chunk", "metadata", "gone", "other"])
def test_resume_with_damaged_inputs(tmp_path: Path, damage: str) -> None:
    out = tmp_path / "K.zarr"
    assert CliRunner().invoke(main, [*KERNEL, "--out", str(out)]).exit_code == 0
    (out / "kernel" / "records" / "0.0.json").unlink()
    metadata = out / "inputs" / "zarr.json"
    if damage == "chunk":
        chunk = next(path for path in sorted((out / "inputs" / "c").rglob("*")) if path.is_file())
        chunk.write_bytes(chunk.read_bytes()[:-3])
    elif damage == "metadata":
        metadata.write_bytes(metadata.read_bytes()[:40])
    elif damage == "gone":
        metadata.unlink()
    else:
        metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "data_type": "complex128"}))
    assert "start again" in refused(*KERNEL, "--out", str(out), "--resume")


def test_every_file_of_a_store_is_checked(tmp_path: Path) -> None:
    out = tmp_path / "K.zarr"
    assert CliRunner().invoke(main, [*KERNEL, "--out", str(out)]).exit_code == 0
    group = (out / "zarr.json").read_text()
    (out / "zarr.json").write_text(group.replace('"tile": 2', '"tile": 0'))
    assert "is damaged: its checksum does not match" in refused(*KERNEL, "--out", str(out), "--resume")
    (out / "zarr.json").write_text(group)
    record = out / "kernel" / "records" / "0.1.json"
    record.write_text(record.read_text().replace('"undefined": 0', '"undefined": 1'))
    done = CliRunner().invoke(main, [*KERNEL, "--out", str(out), "--resume", "--json"])
    assert done.exit_code == 0
    assert json.loads(record.read_text())["undefined"] == 0


def test_second_starts_are_refused(tmp_path: Path) -> None:
    store, folder = tmp_path / "K.zarr", tmp_path / "run"
    with locked(lock_path(store), "out", "testing"):  # it is being made, and is not there yet
        assert f"another run is writing to {store}" in refused(*KERNEL, "--out", str(store))
    folder.mkdir()
    with locked(folder / ".lock", "out", "testing"):
        assert f"--out: another run is training in {folder}" in refused(*TRAIN, "--out", str(folder))
    assert CliRunner().invoke(main, [*KERNEL, "--out", str(store)]).exit_code == 0
    assert CliRunner().invoke(main, [*TRAIN, "--out", str(folder)]).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["K.zarr", "run"]
    assert not (folder / ".lock").exists()


def test_a_damaged_checkpoint(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, [*TRAIN, "--out", str(tmp_path)]).exit_code == 0
    path = tmp_path / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    said = refused(*TRAIN, "--out", str(tmp_path))
    assert "is damaged: its checksum does not match its content; choose another folder, or start anew" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["fix", "mlp:4:64", "--shape", "64", "--seeds", "1", "--save", "{out}/w.safetensors"],
        ["check", "mlp:2", "--shape", "8", "--seeds", "1", "--html", "{out}/page.html"],
        ["kernel", "dense relu dense", "--data", "gaussian", "--count", "40", "--size", "4", "--out", "{out}/k.npy"],
        ["kernel", "dense relu dense", "--data", "gaussian", "--count", "40", "--size", "4", "--out", "{out}/k.npz"],
        [*KERNEL, "--out", "{out}/K.zarr"],
        [*TRAIN, "--out", "{out}"],
        ["width", "--figure", "{out}/w.svg"],
    ],
    ids=lambda arguments: " ".join((arguments[0], arguments[-1])),
)
def test_a_full_disk(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, arguments: list[str]) -> None:
    torch.manual_seed(0)
    if arguments[0] == "kernel":  # compiled loops are cached in files too, at the first call
        elsewhere = tmp_path_factory.mktemp("before") / Path(arguments[-1]).name
        assert CliRunner().invoke(main, [*arguments[:-1], str(elsewhere)]).exit_code == 0
    with full_disk(256):
        said = refused(*(argument.replace("{out}", str(tmp_path)) for argument in arguments))
    assert "cannot write" in said
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_results_that_cannot_be_printed(more: list[str]) -> None:
    start = [sys.executable, "-c", "from initscope.cli import main; main(prog_name='initscope')"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*start, "width", *more], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: output: cannot be read or written (No space left on device)")
    assert len(done.stderr.splitlines()) == 1
