"""`check` and `fix` on the command line: exit codes, JSON as the contract has it, pages, one clear error."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file

from initscope.cli import main
from initscope.data import load
from initscope.probe import check
from initscope.probe.builtin import builtin_model

SMALL = ["--size", "8", "--samples", "4", "--seeds", "1"]
SOURCE = """
import torch
from torch import nn

def good():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.Tanh(), nn.Linear(64, 10))

def raises():
    raise RuntimeError("no weights today")

def nan():
    model = good()
    with torch.no_grad():
        model[1].weight[0, 0] = float("nan")
    return model

def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(8))

def half():
    return good().bfloat16()

class Forgets(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 4)
    def forward(self, x):
        return self.head(self.memory(x.flatten(1, 2))[0][:, -1] * 1e-4)

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(torch.randn(16, 192))
    def forward(self, x):
        return nn.functional.linear(x, 1e-5 * self.raw)

class Computed(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.head = Scaled(), nn.Linear(16, 4)
    def forward(self, x):
        return self.head(self.enter(x.flatten(1)))

def empty():
    return nn.Sequential(nn.Flatten(), nn.ReLU())

def stops():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(63, 10))

def text():
    return "a model"

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(50, 16), nn.Linear(16, 3)
    def forward(self, tokens):
        return self.out(self.table(tokens).mean(1))

ready = good()
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(SOURCE)
    images = np.random.default_rng(0).random((6, 3, 8, 8), dtype=np.float32)
    np.savez(tmp_path / "good.npz", images=images)
    images[1, 0, 0, 0] = np.nan
    np.savez(tmp_path / "nan.npz", images=images)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="initscope")


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_is_the_contract_and_what_the_library_says() -> None:
    result = run("check", "mlp:2:32", *SMALL, "--json")
    assert result.exit_code == 0, result.output
    document = strict(result.stdout)
    assert document["schema"] == "initscope.check/2"
    contract = {"verdict", "first_bad_layer", "layers", "blame", "remedies", "seeds", "seconds", "notes"}
    contract |= {"score", "score_parts", "findings", "draws", "initial_loss"}
    assert contract <= set(document)
    fields = {
        "name", "op", "shape", "norm_ratio", "grad_norm_ratio", "cosine_mean", "cosine_predicted", "angle_deg",
        "effective_rank", "dead_fraction", "status", "reason",
    }  # fmt: skip
    assert all(fields <= set(row) for row in document["layers"])
    images = load("photos", count=4, size=8, seed=0).images
    same = check(builtin_model("mlp:2:32", (3, 8, 8)), images, seeds=1, seed=0)
    assert [row["name"] for row in document["layers"]] == [layer.name for layer in same.layers]
    for row, layer in zip(document["layers"], same.layers, strict=True):
        assert row["angle_deg"] == pytest.approx(layer.angle_deg, rel=1e-4)
        assert row["norm_ratio"] == pytest.approx(layer.norm_ratio, rel=1e-5)
    assert document["model"] == "mlp:2:32"
    assert document["data"] == "photos 3x8x8"


def test_a_failing_model_is_exit_code_1_with_remedies_and_a_page(here: Path) -> None:
    result = run("check", "plain-cnn:16:8", *SMALL, "--html", "report.html")
    assert result.exit_code == 1, result.output
    assert result.stdout.startswith("FAIL  plain-cnn:16:8 on photos 3x8x8: Samples end up ")
    assert "\nscore 0.0" in result.stdout
    assert "Remedies, each tried on a copy" in result.stdout
    command = next(line for line in result.stdout.splitlines() if line.startswith("  initscope fix "))
    assert result.stderr.strip().endswith("wrote report.html")
    page = (here / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "Remedies, by measured effect" in page
    again = run(*shlex.split(command)[1:], "--quiet")  # the command can be pasted
    assert again.exit_code in (0, 1), again.output
    assert again.stderr == ""


def test_commands_to_paste_draw_the_same_networks() -> None:
    asked = ["--size", "8", "--samples", "4", "--seed", "5", "--seeds", "2", "--device", "cpu"]
    document = strict(run("check", "mlp:12:32", *asked, "--json").stdout)
    commands = [r["command"] for r in document["remedies"] if r["changes"] == "weights"]
    assert commands
    assert all("--seed 5" in command and "--seeds 2" in command for command in commands)
    fixed = strict(run(*shlex.split(commands[0])[1:], "--json", "--quiet").stdout)
    assert fixed["before"]["seeds"] == 2
    assert [r["angle_deg"] for r in fixed["before"]["layers"]] == [r["angle_deg"] for r in document["layers"]]


@pytest.mark.parametrize("command", ["check", "fix"])
def test_a_model_in_half_precision_gets_data_in_half_precision(command: str) -> None:
    result = run(command, "net.py:half", *SMALL, "--json", "--quiet")
    assert result.exit_code in (0, 1), result.output
    document = strict(result.stdout)
    found = document if command == "check" else document["before"]
    assert found["failure"] is None
    assert [row["op"] for row in found["layers"]] == ["flatten", "linear", "tanh", "linear"][-len(found["layers"]) :]


def test_layers_that_no_remedy_changes_are_told() -> None:
    told = "1 of 2 weight layers stay as they are: enter (computed from other parameters)"
    result = run("check", "net.py:Computed", *SMALL)
    assert told in result.stdout
    assert told in run("fix", "net.py:Computed", *SMALL).stdout
    assert strict(run("fix", "net.py:Computed", *SMALL, "--json").stdout)["note"] == told
    assert "stay as they are" not in run("check", "net.py:Forgets", *SMALL).stdout


@pytest.mark.parametrize("debug", ["", "1"])
def test_an_error_that_nobody_expected_is_not_a_verdict(debug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a slip\nin two lines")

    monkeypatch.setattr("initscope.probe.check", broken)
    monkeypatch.setenv("INITSCOPE_DEBUG", debug)
    result = run("check", "mlp:2:16", *SMALL)
    assert result.exit_code == 70
    assert result.stdout == ""
    assert "error: unexpected KeyError: " in result.stderr
    assert ("Traceback" in result.stderr) == bool(debug)
    assert debug or len(result.stderr.splitlines()) == 1


def test_without_remedies_and_all_layers() -> None:
    short = run("check", "plain-cnn:16:8", *SMALL, "--no-remedies")
    full = run("check", "plain-cnn:16:8", *SMALL, "--no-remedies", "--all")
    assert short.exit_code == full.exit_code == 1
    assert "Remedies" not in short.stdout
    folded = [[line for line in text.stdout.splitlines() if line.startswith("… ")] for text in (short, full)]
    assert folded[0]
    assert folded[1] == []
    assert sum("conv2d" in line for line in full.stdout.splitlines()[1:]) == 16


@pytest.mark.parametrize(
    "arguments",
    [
        ["net.py:good", "--data", "npz:good.npz", "--samples", "6"],
        ["net.py:ready", *SMALL],
        ["net.py:Words", "--ints", "50:12", "--seeds", "1"],
        ["net.py:good", "--shape", "192", "--samples", "5", "--eval", "--loss", "cross-entropy"],
        ["mlp:2", "--shape", "7", "--loss", "squared-error", "--seeds", "2", "--seed", "3"],
        ["bn-cnn:2:8", *SMALL, "--centre", "--data", "dead-leaves", "--device", "cpu"],
    ],
    ids=lambda a: a[0],
)
def test_users_models_and_other_data(arguments: list[str]) -> None:
    result = run("check", *arguments, "--json", "--quiet", "--no-remedies")
    assert result.exit_code in (0, 1), result.output
    assert result.stderr == ""
    document = strict(result.stdout)
    assert (document["verdict"] == "fail") == (result.exit_code == 1)
    assert document["failure"] is None
    assert all(row["angle_deg"] is not None for row in document["layers"])


WRONG = {
    "wrong shape": (["check", "net.py:good", "--size", "9"], "192"),
    "nan data": (["check", "net.py:good", "--data", "npz:nan.npz", "--samples", "6"], "NaN"),
    "nan weights": (["check", "net.py:nan", *SMALL], "1.weight holds NaN or infinite weights"),
    "no shape yet": (["check", "net.py:lazy", *SMALL, "--samples", "8"], "1.weight has no shape yet"),
    "no parameters": (["check", "net.py:empty", *SMALL], "no parameters"),
    "factory raises": (["check", "net.py:raises", *SMALL], "RuntimeError: no weights today"),
    "no model": (["check", "net.py:text", *SMALL], "str"),
    "not importable": (["check", "no.such.package:build"], "there is no module no"),
    "not importable by fix": (["fix", "no.such.package:build"], "there is no module no"),
    "no attribute": (["check", "net.py:god"], "did you mean good?"),
    "one sample": (["check", "mlp", "--samples", "1"], "x>=2"),
    "shape": (["check", "mlp", "--shape", "3xx2"], "3x224x224"),
    "huge shape": (["check", "mlp", "--shape", "100000x100000"], "do not fit"),
    "ints": (["check", "mlp", "--ints", "50"], "VOCAB:LENGTH"),
    "two kinds of data": (["check", "mlp", "--ints", "5:5", "--shape", "5"], "give one of"),
    "data and shape": (["check", "mlp", "--data", "photos", "--shape", "5"], "give one of"),
    "shape and size": (["check", "mlp", "--shape", "5", "--size", "5"], "leave them out"),
    "loss": (["check", "mlp", *SMALL, "--loss", "croos-entropy"], "cross-entropy"),
    "page folder": (["check", "mlp", "--html", "no/report.html"], "mkdir -p no"),
    "save folder": (["fix", "mlp", "--save", "no/w.safetensors"], "mkdir -p no"),
    "remedy": (["fix", "mlp:2:16", *SMALL, "--remedy", "prayer"], "choose from"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_exit_code_2_and_one_message(name: str, here: Path) -> None:
    before = sorted(path.name for path in here.iterdir() if path.name != "__pycache__")
    arguments, said = WRONG[name]
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output
    assert sorted(path.name for path in here.iterdir() if path.name != "__pycache__") == before


def test_a_model_that_stops_shows_how_far_it_came() -> None:
    result = run("check", "net.py:stops", *SMALL)
    assert result.exit_code == 2
    assert "relu" in result.stdout
    assert "error: model: it does not run on this batch: 3: RuntimeError" in result.stderr
    document = strict(run("check", "net.py:stops", *SMALL, "--json").stdout)
    assert document["verdict"] == "fail"
    assert document["failure"].startswith("3: RuntimeError")
    assert [row["op"] for row in document["layers"]] == ["linear", "relu"]


def test_fix_applies_saves_trains_and_shows(here: Path) -> None:
    arguments = ["fix", "mlp:16:32", *SMALL, "--save", "w.safetensors", "--html", "fix.html", "--train-steps", "3"]
    result = run(*arguments, "--json", "--quiet")
    assert result.exit_code in (0, 1), result.output
    document = strict(result.stdout)
    assert document["schema"] == "initscope.fix/1"
    assert document["before"]["verdict"] == "fail"
    assert len(document["applied"]) == 1
    assert len(document["training"]["after"]["losses"]) == 3
    assert document["after"]["layers"][0]["grad_norm_ratio"] > 10 * document["before"]["layers"][0]["grad_norm_ratio"]
    weights = load_file(here / "w.safetensors")
    assert set(weights) == set(builtin_model("mlp:16:32", (3, 8, 8))().state_dict())
    page = (here / "fix.html").read_text()
    assert "Training loss" in page
    assert "Steps before" in page


def test_fix_in_words() -> None:
    result = run("fix", "mlp:16:32", *SMALL)
    assert result.exit_code in (0, 1), result.output
    assert result.stdout.startswith("FAIL  mlp:16:32 on photos 3x8x8 before: Samples end up ")
    assert "after: " in result.stdout
    assert "\x1b" not in result.stdout
    healthy = run("fix", "net.py:good", "--shape", "192", "--seeds", "1")
    assert healthy.exit_code == 0, healthy.output
    assert "stay as they are" in healthy.stdout


def test_a_model_built_at_import_is_seeded_and_untouched() -> None:
    """The module stays loaded after the command: its weights are still those that the seed gives."""
    state = torch.random.get_rng_state()
    assert run("check", "net.py:ready", *SMALL, "--seed", "5").exit_code in (0, 1)
    assert run("fix", "net.py:ready", *SMALL, "--seed", "5").exit_code in (0, 1)
    assert torch.equal(torch.random.get_rng_state(), state)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        fresh: dict[str, Any] = {}
        exec(SOURCE, fresh)
    used = sys.modules["initscope_user_net"].ready
    for name, weight in fresh["ready"].state_dict().items():
        assert torch.equal(used.state_dict()[name], weight)
    assert all(p.grad is None for p in used.parameters())
    assert used.training
