"""Before long work, stderr says what it will take; work that does not fit into memory is refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from initscope.cli import main
from initscope.cli.common import Settings, progress_bar, staging
from initscope.networks import planning
from initscope.probe.progress import CostModel

SMALL = ["mlp:2:16", "--size", "8", "--samples", "8", "--seeds", "1"]
SOURCE = "import torch\ndef batch(): return torch.randn(8, 3, 8, 8)\n"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="initscope")


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: object, **__: object) -> CostModel:
        return CostModel(seconds=(100.0, 0.0), bytes=(3.0 * 2**30, 0.0), steps=0, units=0)

    monkeypatch.setattr("initscope.probe.progress.cost_model", found)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(("command", "said"), [("check", "about 3 min, 3.0 GiB"), ("fix", "about 45 min, 3.0 GiB")])
def test_long_work_is_announced(command: str, said: str) -> None:
    result = run(command, *SMALL)
    assert result.exit_code in (0, 1), result.output
    assert result.stderr.splitlines()[0] == said
    assert said not in result.stdout
    assert run(command, *SMALL, "--quiet").stderr == ""


@pytest.mark.parametrize("command", ["check", "fix"])
def test_short_work_is_not(command: str) -> None:
    assert run(command, *SMALL).stderr == ""


@pytest.mark.parametrize("command", ["check", "fix"])
def test_too_little_memory_is_refused_before_the_batch_is_loaded(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "free_memory", lambda device: 2**30)
    result = run(command, "mlp:4:64", "--size", "8", "--samples", "100000")
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    said = result.stderr.strip()
    assert said.startswith("error: --samples: 100,000 samples need about ")
    assert "of memory, 1.0 GiB are free; use --samples " in said
    assert 100 < int(said.split()[-3]) < 100_000


def test_a_users_batch_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(planning, "free_memory", lambda device: 1000)
    result = run("check", "mlp:2:16", "--batch", "own.py:batch")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --batch: 8 samples need about ")
    assert result.stderr.strip().endswith("; use a smaller model or smaller inputs")


def test_stages_move_the_bar() -> None:
    with progress_bar(Settings(json=False, seed=0, device="cpu", quiet=True)) as bar:
        job = bar.add_task("check", total=None)
        advance = staging(bar, job)
        advance("seed 2 of 3", 0.5)
        task = bar.tasks[0]
        assert (task.description, task.completed, task.total) == ("seed 2 of 3", 0.5, 1.0)
        advance("done", 1.7)
        assert task.completed == 1.0


def test_a_containers_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(planning, "_container_memory", lambda: 5000)
    assert planning.free_memory(torch.device("cpu")) == 5000
    monkeypatch.setattr(planning, "_container_memory", lambda: None)
    monkeypatch.setattr(planning, "_system_memory", lambda: None)
    assert planning.free_memory(torch.device("cpu")) > 2**30
