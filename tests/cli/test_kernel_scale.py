"""`initscope kernel` in tiles: plans, folders, resuming, and one clear message for what does not go together."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from initscope import scale
from initscope.cli import main
from initscope.data import load
from initscope.networks import kernel, parse

NET = "conv3(8, padding=circular) relu gap"
SMALL = ["--count", "10", "--size", "6", "--channels", "1"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["kernel", NET, *SMALL, *arguments], prog_name="initscope")


def expected() -> torch.Tensor:
    return kernel(parse(NET), load("gaussian", count=10, size=6, channels=1, seed=0).images.float())


def test_a_folder_is_written_and_resumed(tmp_path: Path) -> None:
    out = tmp_path / "K.zarr"
    first = run("--out", str(out), "--tile", "3", "--json")
    assert first.exit_code == 0, first.output
    document = json.loads(first.stdout)
    assert (document["tiles"], document["computed"], document["found"], document["tile"]) == (10, 10, 0, 3)
    assert torch.equal(scale.open_kernel(out).tensor(), expected())
    assert document["summary"]["mean"] == pytest.approx(expected().double().mean().item(), rel=1e-6)
    assert "10 x 10 kernel: 10 tiles of at most 3 x 3, 1 worker, at most" in first.stderr
    scale.open_kernel(out).store.record_path(1, 2).unlink()
    again = run("--out", str(out), "--resume")
    assert again.exit_code == 0, again.output
    assert "1, 9 were complete" in again.stdout
    assert torch.equal(scale.open_kernel(out).tensor(), expected())


def test_a_summary_from_the_records_is_that_of_the_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.loads(run("--out", str(tmp_path / "a.zarr"), "--tile", "3", "--json").stdout)["summary"]
    monkeypatch.setattr("initscope.cli.kernel_scale._MOST_READ", 5)
    parts = json.loads(run("--out", str(tmp_path / "b.zarr"), "--tile", "3", "--json").stdout)["summary"]
    for name in ("min", "mean", "max"):
        assert parts[name] == pytest.approx(whole[name], rel=1e-12)
    assert parts["condition"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "{}/K.npy", "--workers", "2"], "name it K.zarr"),
        (["--out", "{}/K.npy", "--resume"], "name it K.zarr"),
        (["--out", "{}/K.h5"], "expected a .npy, .npz or .zarr file"),
        ([], "--out: is missing"),
        (["--out", "{}/K.zarr", "--workers", "2", "--scheduler", "tcp://127.0.0.1:1"], "choose one"),
        (["--out", "{}/K.zarr", "--memory", "1MB"], "a worker needs about"),
        (["--out", "{}/no/K.zarr"], "mkdir -p"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, arguments: list[str], words: str) -> None:
    result = run(*(argument.format(tmp_path) for argument in arguments))
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()[-1]) > 10
    assert not list(tmp_path.iterdir())


def test_another_job_is_refused(tmp_path: Path) -> None:
    out = str(tmp_path / "K.zarr")
    assert run("--out", out, "--tile", "3").exit_code == 0
    taken = run("--out", out)
    assert (taken.exit_code, "add --resume" in taken.stderr) == (2, True)
    other = run("--out", out, "--resume", "--seed", "1", "--tile", "4")
    assert other.exit_code == 2
    assert "other inputs; tile 4, there 3" in other.stderr


def test_a_plan_computes_nothing(tmp_path: Path) -> None:
    result = run("--plan", "--count", "60000", "--workers", "64", "--tile", "250", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["tiles"], document["workers"], document["pairs"]) == (28920, 64, 1800030000)
    assert document["hours_on_cores"]["1"] == pytest.approx(document["pairs"] * document["pair_seconds"] / 3600)
    text = run("--plan", "--count", "60000").stdout
    assert "on 256 cores" in text
    assert "60000 x 60000, 1,800,030,000 pairs" in text
    assert not list(tmp_path.iterdir())


def test_a_disk_that_takes_no_more(tmp_path: Path) -> None:
    """Files may not grow beyond 50 kB, which the inputs need less than and a chunk more."""
    out = tmp_path / "K.zarr"
    options = ["--count", "300", "--size", "4", "--channels", "1", "--tile", "150", "--out", str(out)]
    code = "from initscope.cli import main; main(prog_name='initscope')"
    done = subprocess.run(
        [sys.executable, "-c", code, "kernel", NET, *options],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "INITSCOPE_NO_NUMBA": "1"},
    )
    assert done.returncode == 2, done.stderr
    assert "cannot write tile (0, 0) (File too large)" in done.stderr
    assert "resume" in done.stderr
    assert scale.open_kernel(out, partial=True).records() == []
    assert not list(out.rglob("*.part"))


def test_an_interrupt_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "K.zarr"
    options = ["--count", "400", "--size", "12", "--channels", "1", "--tile", "4", "--out", str(out)]
    code = "from initscope.cli import main; main(prog_name='initscope')"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "kernel", NET, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        while not list(out.glob("kernel/records/*.json")):
            assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "add --resume to go on" in errors
    kept = scale.open_kernel(out, partial=True)
    assert 0 < len(kept.records()) < len(kept.job.tiles())
    assert set(kept.missing()).isdisjoint((r["row"], r["column"]) for r in kept.records())
