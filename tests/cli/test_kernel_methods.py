"""`initscope kernel`: tangent kernels, in files and in tiles, and sketches with their errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from initscope import scale
from initscope.cli import main
from initscope.data import load
from initscope.finite import sketch_kernel
from initscope.finite.sketch import PAIRS
from initscope.networks import kernel, parse, tangent_kernel

NET = "2x(conv3(8) relu) gap dense(1)"
SMALL = ["--count", "7", "--size", "6", "--channels", "2"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["kernel", NET, *SMALL, *arguments], prog_name="initscope")


def images() -> torch.Tensor:
    return load("gaussian", count=7, size=6, channels=2, seed=0).images.float()


@pytest.mark.parametrize("parametrization", [None, "ntk", "standard"])
def test_a_tangent_kernel_in_a_file(tmp_path: Path, parametrization: str | None) -> None:
    out = tmp_path / "T.npz"
    given = [] if parametrization is None else ["--parametrization", parametrization]
    result = run("--quantity", "tangent", *given, "--out", str(out), "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    name = parametrization or "ntk"
    assert (document["quantity"], document["parametrization"], document["method"]) == ("tangent", name, "exact")
    expected = tangent_kernel(parse(NET), images(), parametrization=name)  # type: ignore[arg-type]
    with np.load(out, allow_pickle=False) as stored:
        assert np.array_equal(stored["kernel"], expected.numpy())
    assert document["summary"]["smallest_eigenvalue"] > 0
    assert document["summary"]["off_diagonal_cosine"] is not None
    assert "7 x 7 tangent kernel: 28 pairs" in result.stderr


@pytest.mark.parametrize("parametrization", ["ntk", "standard"])
def test_a_tangent_kernel_in_tiles(tmp_path: Path, parametrization: str) -> None:
    """Written twice, once in parts: the same digits as from one call for each tile."""
    out = tmp_path / "T.zarr"
    asked = ["--quantity", "tangent", "--parametrization", parametrization, "--out", str(out), "--tile", "3"]
    first = run(*asked, "--json")
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["computed"] == 6
    x, net = images(), parse(NET)
    found = scale.open_kernel(out)
    for row, column in found.job.tiles():
        left, right = x[found.job.span(row)], x[found.job.span(column)]
        tile = tangent_kernel(net, left, None if row == column else right, parametrization=parametrization)  # type: ignore[arg-type]
        assert torch.equal(found[found.job.span(row), found.job.span(column)], tile)
    found.store.record_path(0, 2).unlink()
    again = run(*asked, "--resume")
    assert "1, 5 were complete" in again.stdout, again.output
    other = {"ntk": "standard", "standard": "ntk"}[parametrization]
    refused = run("--quantity", "tangent", "--parametrization", other, "--out", str(out), "--resume")
    assert refused.exit_code == 2
    assert f"parametrization {other}, there {parametrization}" in refused.stderr


def test_a_plan_of_a_tangent_kernel() -> None:
    result = run("--plan", "--quantity", "tangent", "--count", "6000", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["quantity"], document["pairs"]) == ("tangent", 18003000)
    assert document["pair_seconds"] > 0


def test_a_sketch_in_a_file(tmp_path: Path) -> None:
    out = tmp_path / "K.npz"
    result = run("--method", "sketch", "--work", "32", "--level", "0.9", "--seed", "4", "--out", str(out), "--json")
    assert result.exit_code == 0, result.output
    x = load("gaussian", count=7, size=6, channels=2, seed=4).images.float()
    expected = sketch_kernel(parse(NET), x, work=32, seed=4)
    with np.load(out, allow_pickle=False) as stored:
        assert np.array_equal(stored["kernel"], expected.value.float().numpy())
        assert np.array_equal(stored["stderr"], expected.stderr.numpy())
        assert (int(stored["draws"]), str(stored["method"])) == (PAIRS, "sketch")
        assert float(stored["level"]) == 0.9
        exact = kernel(parse(NET), x.double()).numpy()
        assert (np.abs(stored["kernel"] - exact) <= stored["error"]).all()
    sketch = json.loads(result.stdout)["sketch"]
    assert (sketch["work"], sketch["draws"], sketch["level"]) == (32, PAIRS, 0.9)
    assert sketch["largest_error"] == pytest.approx(float(expected.reach(0.9).max()), rel=1e-4)
    assert 0 < sketch["median_relative_error"] <= sketch["largest_relative_error"]
    text = run("--method", "sketch", "--work", "16", "--out", str(tmp_path / "K.npy"))
    assert text.exit_code == 0, text.output
    assert "error, confidence 0.95" in text.stdout
    assert "product, sketched" in text.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--parametrization", "standard"], "--parametrization: got standard, and the quantity product has none"),
        (["--work", "16"], "--work: got 16, and an exact kernel has no error"),
        (["--level", "0.9"], "add --method sketch"),
        (["--method", "sketch", "--quantity", "cosine"], "a sketch is of products, got --quantity cosine"),
        (["--method", "sketch", "--quantity", "tangent"], "use --method exact"),
        (["--method", "sketch", "--plan"], "has no tiles, got --plan"),
        (["--method", "sketch", "--out", "K.zarr"], "write an .npz file"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, arguments: list[str], words: str) -> None:
    given = arguments if "--out" in arguments else [*arguments, "--out", str(tmp_path / "K.npz")]
    result = run(*given)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("network", "asked", "words"),
    [
        ("conv3 bn relu gap", ["--quantity", "tangent"], "batch norm"),
        ("conv3 tanh gap", ["--method", "sketch"], "is for convolutions and leaky ReLUs"),
    ],
)
@pytest.mark.parametrize("name", ["K.npz", "K.zarr"])
def test_networks_that_have_none(tmp_path: Path, network: str, asked: list[str], words: str, name: str) -> None:
    if "sketch" in asked and name == "K.zarr":
        words = "has no tiles"
    result = CliRunner().invoke(main, ["kernel", network, *SMALL, *asked, "--out", str(tmp_path / name)])
    assert result.exit_code == 2
    assert words in result.stderr
    assert not list(tmp_path.iterdir())
