"""`initscope width`: the numbers of the library, side by side, as JSON and as a figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from initscope.bounds import failure_probability, width_for, width_for_subspace
from initscope.cli import main
from initscope.figures import FailureCurve, failure_curves


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["width", *arguments], prog_name="initscope")


def document(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_widths_side_by_side() -> None:
    result = run("--depth", "10", "--epsilon", "0.5", "--delta", "0.05")
    assert result.exit_code == 0, result.output
    heading = next(line for line in result.stdout.splitlines() if "Theorem 1 " in line)
    assert heading.split("  ")[0].strip() == "exact"
    numbers = next(line for line in result.stdout.splitlines() if "38,179" in line).split()
    assert numbers == ["750", "38,179", "1,828", "42,596", "750"]
    assert "0.0498887" in result.stdout
    assert "weights independent N(0, 2/fan-out)" in result.stdout
    assert "asymptotic" in result.stdout
    assert result.stderr == ""


def test_json_is_what_the_library_says() -> None:
    found = document("--depth", "3", "--epsilon", "0.4", "--delta", "0.1", "--samples", "5", "--subspace", "2")
    assert found["schema"] == "initscope.width/1"
    expected = json.loads(json.dumps(width_for(3, 0.4, 0.1, 5).to_dict()))
    assert {key: found[key] for key in expected} == expected
    assert found["subspace"] == json.loads(json.dumps(width_for_subspace(2, 3, 0.4, 0.1).to_dict()))


def test_every_layer_and_gain() -> None:
    found = document("--depth", "4", "--every-layer", "--gain", "1.95")
    assert found["exact"]["value"] == width_for(4, 0.5, 0.05, gain=1.95, every_layer=True).exact.value
    assert found["theorem1"] is None
    assert "Theorem 1" not in run("--depth", "4", "--gain", "1.95").stdout


def test_one_layer_and_subspace_table() -> None:
    result = run("--epsilon", "0.5", "--subspace", "3")
    assert result.exit_code == 0, result.output
    for word in ("Lemma 2", "199.35", "printed", "repaired", "chained", "not proved", "3-dimensional subspace"):
        assert word in result.stdout


def test_failure_of_a_given_network() -> None:
    found = document("--width", "100,200,100", "--epsilon", "0.5")
    assert found["exact"]["value"] == failure_probability([100, 200, 100], None, 0.5).exact.value
    result = run("--width", "760", "--depth", "10")
    assert result.exit_code == 0, result.output
    assert "0.0486914" in result.stdout
    assert "Theorem 1, at most" in result.stdout
    fan_in = document("--width", "50,50", "--fan", "in", "--inputs", "20", "--samples", "2")
    expected = failure_probability([50, 50], None, 0.5, 2, inputs=20, fan="in").exact.value
    assert fan_in["exact"]["value"] == expected
    assert "union of exact" in run("--width", "50", "--samples", "2").stdout


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_figure(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"width.{suffix}"
    result = run("--depth", "2", "--figure", str(path))
    assert result.exit_code == 0, result.output
    assert str(path) in result.stderr
    content = path.read_bytes()
    assert content.startswith(b"<svg" if suffix == "svg" else b"\x89PNG")
    if suffix == "svg":
        assert len(content) < 50_000
        value = width_for(2, 0.5, 0.05).exact.value
        assert f"exact: {value} units".encode() in content
        assert b"bound of Theorem 1" in content


def test_drawn_curves_are_the_given_numbers() -> None:
    picture = failure_curves([FailureCurve("exact", [10, 30, 100], [0.5, 0.1, 0.01], 45)], 0.05, "One layer")
    axes = picture.figure.axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines["exact"].get_ydata()) == [0.5, 0.1, 0.01]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert any(list(line.get_xdata()) == [45] for line in axes.get_lines())


WRONG = {
    "epsilon": (["--epsilon", "2"], "epsilon is 2.0"),
    "delta": (["--delta", "0"], "delta is 0.0"),
    "depth": (["--depth", "0"], "depth is 0"),
    "samples": (["--samples", "0"], "samples is 0"),
    "width": (["--width", "0"], "width is 0"),
    "widths": (["--width", "10,ten"], "write 400, or 784,400,100"),
    "depths": (["--width", "10,20", "--depth", "3"], "2 widths and depth 3"),
    "impossible": (["--depth", "10", "--gain", "1"], "no width is enough"),
    "fan": (["--fan", "in"], "add --width"),
    "subspace": (["--subspace", "0"], "dimension is 0"),
    "subspace gain": (["--subspace", "2", "--gain", "1.9"], "leave --gain out"),
    "figure": (["--figure", "f.pdf"], ".svg or .png"),
    "figure and width": (["--width", "10", "--figure", "f.svg"], "does not go with --width"),
    "inputs": (["--width", "10", "--fan", "in"], "inputs"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_exit_code_2_and_says_why(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, said = WRONG[name]
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output
    assert not list(tmp_path.iterdir())
