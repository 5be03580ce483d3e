"""`initscope simulate`: tables, JSON, gradients, figures, wrong use, interrupts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from initscope.cli import main
from initscope.data import load, load_pairs
from initscope.finite import simulate, simulate_gradients
from initscope.networks import parse, predict

SMALL = ["--data", "photos", "--pairs", "2", "--size", "8"]
NET = "conv3 relu gap"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments], prog_name="initscope")


def document(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(result.stdout, parse_constant=refuse)


@pytest.mark.parametrize("average", ["moments", "networks"])
def test_json_is_what_the_library_says(average: Any) -> None:
    found = document(NET, *SMALL, "--seed", "3", "--draws", "6", "--average", average, "--level", "0.9")
    assert found["schema"] == "initscope.simulate/1"
    assert found["seeds"] == {"data": 3, "networks": 3}
    assert (found["draws"], found["until"], found["reached"], found["average"]) == (6, None, None, average)
    pairs = load_pairs("photos", pairs=2, size=8, seed=3)
    ours = simulate(parse(NET), pairs.x.float(), pairs.y.float(), draws=6, seed=3, average=average)
    exact = predict(parse(NET), pairs.x.float(), pairs.y.float(), seed=3)
    for row, layer, truth in zip(found["layers"], ours.layers, exact.layers, strict=True):
        assert row["name"] == layer.name
        assert row["cosine_mean"] == pytest.approx(layer.cosine.value.mean().item(), rel=1e-6)
        assert row["cosine_margin"] == pytest.approx(layer.cosine.reach(0.9).mean().item(), rel=1e-4, abs=1e-12)
        assert row["exact"]["cosine_mean"] == pytest.approx(truth.cosine.mean().item(), rel=1e-6)
    # He weights: a convolution doubles the mean square of a unit.
    assert found["layers"][1]["exact"]["norm_ratio"] == pytest.approx(2**0.5, rel=1e-6)
    ratio = found["layers"][1]
    assert abs(ratio["norm_ratio"] - 2**0.5) < 4 * ratio["norm_ratio_margin"]


def test_the_table_has_exact_and_sampled_columns() -> None:
    result = run(NET, *SMALL, "--draws", "4")
    assert result.exit_code == 0, result.output
    for word in ("input", "1 conv3", "2 relu", "3 gap", "exact", "sampled, 95 %", "±", "4 networks"):
        assert word in result.stdout
    assert "exact prediction" not in result.stdout
    assert result.stderr == ""


def test_until_is_reported_and_missed_with_a_warning() -> None:
    found = document("dense(50)", *SMALL, "--until", "0.2", "--no-exact")
    assert (found["until"], found["reached"]) == (0.2, True)
    assert found["widest"] <= 0.2
    assert found["layers"][0]["exact"] is None
    result = run("dense(5)", *SMALL, "--until", "0.0001", "--draws", "10")
    assert result.exit_code == 0, result.output
    assert "not yet 0.0001; raise --draws" in result.stderr
    assert run("dense(5)", *SMALL, "--until", "0.0001", "--draws", "10", "--quiet").stderr == ""


def test_simulated_and_missing_predictions_are_noted() -> None:
    result = run("conv3 maxpool2", *SMALL, "--draws", "3")
    assert "from 2 maxpool2 on the prediction is simulated" in result.stdout
    without = run("cat(conv3(2)|conv3(4)) conv3(6, groups=2)", *SMALL, "--draws", "3")
    assert without.exit_code == 0, without.output
    assert "no exact prediction: conv3" in without.stdout
    assert document("cat(conv3(2)|conv3(4)) conv3(6, groups=2)", *SMALL, "--draws", "3")["no_exact"]


def test_gradients_json_is_what_the_library_says() -> None:
    found = document("dense(20) relu dense(20)", *SMALL, "--gradients", "--draws", "5", "--head", "4", "--seed", "2")
    assert found["schema"] == "initscope.simulate.gradients/1"
    assert (found["loss"], found["head"], found["draws"]) == ("cross-entropy", 4, 5)
    x = load("photos", count=2, size=8, seed=2).images.float()
    ours = simulate_gradients(parse("dense(20) relu dense(20)"), x, head=4, draws=5, seed=2)
    assert [row["name"] for row in found["layers"]] == [layer.name for layer in ours.layers]
    for row, layer in zip(found["layers"], ours.layers, strict=True):
        assert row["weight_ratio"] == pytest.approx(layer.weight.value.mean().item(), rel=1e-6)
        assert row["weight_ratio_max"] == pytest.approx(layer.weight.value.max().item(), rel=1e-6)
        assert row["output_ratio"] == pytest.approx(layer.output.value.mean().item(), rel=1e-6)


def test_gradients_table() -> None:
    result = run("dense(20) relu dense(3)", *SMALL, "--gradients", "--draws", "4", "--head", "0", "--loss", "mse")
    assert result.exit_code == 0, result.output
    for word in ("1 dense(20)", "3 dense(3)", "|dL/dW| / |δ||x|", "mse, 4 networks", "min .. max"):
        assert word in result.stdout


@pytest.mark.parametrize("exact", ["--exact", "--no-exact"])
def test_figure_is_written(tmp_path: Path, exact: str) -> None:
    path = tmp_path / "figure.svg"
    result = run(NET, *SMALL, "--draws", "3", "--figure", str(path), exact)
    assert result.exit_code == 0, result.output
    assert path.read_text().startswith("<svg")
    assert str(path) in result.stderr


WRONG = {
    "no draws": (["--draws", "0"], "0 is not in the range"),
    "one draw": (["--draws", "1"], "1 is not in the range"),
    "until zero": (["--until", "0"], "until is 0.0, expected a width greater than 0"),
    "until text": (["--until", "narrow"], "not a valid float"),
    "level": (["--level", "95"], "level: got 95.0, expected a number between 0 and 1"),
    "average": (["--average", "median"], "'median' is not one of"),
    "memory": (["--memory", "1B"], "allowed"),
    "figure suffix": (["--figure", "f.pdf"], ".svg or .png"),
    "figure of gradients": (["--gradients", "--figure", "f.svg"], "leave one of them out"),
    "no vectors": (["--gradients", "--head", "0"], "add --head 10"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_exit_code_2_and_says_why(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, said = WRONG[name]
    result = run("conv3 relu", *SMALL, *arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stdout == ""
    assert not list(tmp_path.iterdir())


def test_an_interrupt_ends_the_process_soon_with_130() -> None:
    """A thousand networks that take a while each: the signal does not wait for them."""
    code = (
        "import sys, initscope.finite.stopping as s\nkept = s.drawing\n"
        "def told(*a):\n    print('begun', file=sys.stderr, flush=True)\n    return kept(*a)\n"
        "s.drawing = told\nfrom initscope.cli import main\nmain(prog_name='initscope')"
    )
    arguments = ["simulate", "20x(conv3(64) relu)", "--size", "32", "--draws", "1000", "--no-exact"]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "begun" in process.stderr.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors


def test_the_users_thread_setting_survives() -> None:
    threads = torch.get_num_threads()
    assert run(NET, *SMALL, "--draws", "3").exit_code == 0
    assert torch.get_num_threads() == threads
