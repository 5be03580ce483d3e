"""`--batch file.py:function` of `check` and `fix`: models with several inputs, targets, loaders, and one clear error."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from initscope.cli import main
from initscope.probe import check

SOURCE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.out = nn.Linear(6, 16), nn.Linear(4, 16), nn.Linear(16, 3)
    def forward(self, left, right):
        return self.out(torch.tanh(self.left(left) + self.right(right)))

def plain():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))

def deep():
    return nn.Sequential(*[m for _ in range(16) for m in (nn.Linear(6, 6), nn.ReLU())], nn.Linear(6, 3))

def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))

def both(): return numbers(8, 6), numbers(8, 4)
def named(): return {"left": numbers(8, 6), "right": numbers(8, 4)}
def tensor(): return numbers(8, 6)
def labelled(): return numbers(8, 6), torch.arange(8) % 3
def loader(): return DataLoader(TensorDataset(*labelled()), batch_size=4)
def stream(): yield labelled()
def wrong_labels(): return numbers(8, 6), torch.arange(8)
def asks(size): return numbers(size, 6)
def raises(): raise FileNotFoundError("no data today")
def nothing(): return None
def single(): return numbers(1, 6)
number = 3
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="initscope")


def found(command: str, model: str, batch: str, *options: str) -> Any:
    result = run(command, f"own.py:{model}", "--batch", f"own.py:{batch}", "--seeds", "1", "--json", *options)
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("model", "batch", "samples", "loss"),
    [
        ("Two", "both", 8, "random direction"),
        ("Two", "named", 8, "random direction"),
        ("plain", "tensor", 8, "random direction"),
        ("plain", "labelled", 8, "cross-entropy"),
        ("plain", "loader", 4, "cross-entropy"),
        ("plain", "stream", 8, "cross-entropy"),
    ],
)
def test_every_kind_of_batch(model: str, batch: str, samples: int, loss: str) -> None:
    document = found("check", model, batch)
    assert (document["samples"], document["loss"], document["failure"]) == (samples, loss, None)
    assert document["data"] == f"own.py:{batch}, {samples} samples of 6"


def test_it_is_what_the_library_says() -> None:
    space: dict[str, Any] = {}
    exec(SOURCE, space)
    same = check(space["Two"], space["both"](), seeds=1)
    document = found("check", "Two", "both")
    assert [row["angle_deg"] for row in document["layers"]] == [layer.angle_deg for layer in same.layers]


def test_built_in_models_take_its_shape() -> None:
    result = run("check", "mlp:2:16", "--batch", "own.py:loader", "--seeds", "1")
    assert result.exit_code in (0, 1), result.output
    assert "mlp:2:16 on own.py:loader, 4 samples of 6" in result.stdout


def test_targets_are_learned_and_named_losses_use_them() -> None:
    document = found("fix", "plain", "labelled", "--train-steps", "2")
    assert document["before"]["loss"] == "cross-entropy"
    assert document["training"]["steps"] == 2
    assert found("check", "plain", "labelled", "--loss", "cross-entropy")["loss"] == "cross-entropy"
    drawn = found("fix", "plain", "tensor", "--train-steps", "2")
    assert drawn["before"]["loss"] == "cross-entropy with random targets"


def test_commands_to_paste_name_the_batch() -> None:
    document = found("check", "deep", "tensor")
    commands = [r["command"] for r in document["remedies"] if r["changes"] == "weights"]
    assert commands
    assert all("--batch own.py:tensor" in command and "--samples" not in command for command in commands)
    again = run(*shlex.split(commands[0])[1:], "--quiet")
    assert again.exit_code in (0, 1), again.output


WRONG = {
    "data": (["plain", "--batch", "own.py:tensor", "--data", "photos", "--size", "8"],
             "--batch: does not go with --size, --data: the function returns the whole batch; leave one of them out"),
    "samples": (["plain", "--batch", "own.py:tensor", "--samples", "16"], "--batch: does not go with --samples: "),
    "shape": (["plain", "--batch", "own.py:tensor", "--shape", "6"], "--batch: does not go with --shape: "),
    "ints": (["plain", "--batch", "own.py:tensor", "--ints", "5:6"], "--batch: does not go with --ints: "),
    "centre": (["plain", "--batch", "own.py:tensor", "--centre"], "--batch: does not go with --centre: "),
    "arguments": (["plain", "--batch", "own.py:asks"], "--batch: own.py:asks needs arguments (size)"),
    "raises": (["plain", "--batch", "own.py:raises"],
               "--batch: own.py:raises raised FileNotFoundError: no data today; call it by itself to see where"),
    "no function": (["plain", "--batch", "own.py:number"], "--batch: own.py:number is a int, expected a function"),
    "no such name": (["plain", "--batch", "own.py:tensors"], "--batch: own.py has no 'tensors'; did you mean tensor?"),
    "no name": (["plain", "--batch", "tensor"], "--batch: got 'tensor'"),
    "nothing": (["plain", "--batch", "own.py:nothing"], "batch: got a NoneType"),
    "one sample": (["plain", "--batch", "own.py:single"], "expected at least 2 samples on the first axis"),
    "labels": (["plain", "--batch", "own.py:wrong_labels"], "labels reach from 0 to 7, the model has 3 outputs"),
}  # fmt: skip


@pytest.mark.parametrize("command", ["check", "fix"])
@pytest.mark.parametrize("name", WRONG)
def test_one_clear_error(name: str, command: str) -> None:
    (model, *rest), said = WRONG[name]
    result = run(command, f"own.py:{model}", *rest)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_randomness_of_the_caller_stays() -> None:
    state = torch.random.get_rng_state()
    found("check", "plain", "loader")
    assert torch.equal(torch.random.get_rng_state(), state)
