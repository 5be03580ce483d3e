"""`initscope papers`: the list, runs, tables, JSON, pages, wrong use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from initscope.cli import main, papers
from initscope.papers import items, registry
from papers.fakes import failing, item

QUICK = "overparam/lemma6"  # takes a tenth of a second


@pytest.fixture(autouse=True)
def _no_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INITSCOPE_DATA", raising=False)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two items of one paper, the second of which fails."""
    made = [item("overparam/good", sets=("cifar10",)), item("overparam/bad", failing)]
    monkeypatch.setattr(registry, "_items_of", lambda paper: made if paper == "overparam" else [])
    items.cache_clear()
    yield
    items.cache_clear()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["papers", *arguments], prog_name="initscope")


def document(*arguments: str, code: int = 0) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_the_list_names_every_item() -> None:
    result = run("list")
    assert result.exit_code == 0, result.output
    assert all(one.key in result.stdout for one in items())
    listed = document("list")
    assert listed["schema"] == "initscope.papers.list/1"
    assert [one["key"] for one in listed["items"]] == [one.key for one in items()]


def test_a_run_prints_the_table_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("run", QUICK, "--quick")
    assert result.exit_code == 0, result.output
    for word in ("published", "exact", "sampled, 95 %", "agrees?", QUICK, "yes", "1 item, 1 statement: 1 agree"):
        assert word in result.stdout
    assert not list(tmp_path.iterdir())


def test_json_is_what_the_library_says(fakes: None) -> None:
    found = document("run", "overparam/good", "--quick", "--seed", "7")
    assert (found["schema"], found["size"], found["seed"]) == ("initscope.papers.run/1", "quick", 7)
    (one,) = found["items"]
    assert one["data"] == {"seed": 7, "size": "quick"}
    assert [check["agrees"] for check in one["checks"]] == [True, False, None]
    assert one["checks"][0]["sampled"] == {"value": 0.9712, "stderr": 0.001, "draws": 100}


def test_a_folder_gets_figures_data_and_a_page(tmp_path: Path, fakes: None) -> None:
    out = tmp_path / "deep" / "out"
    result = run("run", "overparam/good", "--out", str(out), "--quick")
    assert result.exit_code == 0, result.output
    assert sorted(p.relative_to(out).as_posix() for p in out.rglob("*.*")) == [
        "index.html", "overparam/good.json", "overparam/good.svg",
    ]  # fmt: skip
    assert f"wrote {out / 'index.html'}" in result.stderr
    assert "note: photographs of the same shape in place of CIFAR-10" in result.stderr


def test_results_of_another_size_or_seed_are_announced_before_they_are_replaced(tmp_path: Path, fakes: None) -> None:
    again = ("run", "overparam/good", "--out", str(tmp_path))
    assert "replaced" not in run(*again).stderr
    assert "replaced" not in run(*again).stderr
    told = run(*again, "--quick").stderr
    assert f"note: 1 finished item in {tmp_path} (size normal with seed 0) will be replaced" in told
    assert "(size quick with seed 0) will be replaced" in run(*again, "--quick", "--seed", "4").stderr


def test_stand_ins_and_sizes_are_said_at_the_end_and_on_the_page(tmp_path: Path) -> None:
    result = run("run", "nachum2022/fig1c", QUICK, "--quick", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    words = "photographs of the same shape in place of CIFAR-10"
    assert result.stdout.splitlines()[-3:-1] == [
        "size: quick", f"not the sets that the papers used, printed figures stay open: {words}"
    ]  # fmt: skip
    page = (tmp_path / "index.html").read_text()
    assert page.index("Size: quick.") < page.index("<nav")
    assert page.index(f"printed figures stay open: {words}.") < page.index("<nav")
    slope = json.loads((tmp_path / "nachum2022/fig1c.json").read_text())["checks"][0]
    assert (slope["published"], slope["agrees"]) == ("0.97", None)
    assert words in slope["why"]


def test_an_item_that_crashes_is_exit_code_1_and_the_rest_runs(tmp_path: Path, fakes: None) -> None:
    result = run("run", "all", "--out", str(tmp_path), "--quick", "--workers", "0")  # workers do not know the fakes
    assert result.exit_code == 1, result.output
    assert "failed: overparam/bad: ZeroDivisionError: a fault in the item" in result.stderr
    assert "2 items, 3 statements: 1 agree, 1 do not, 1 open; 1 failed" in result.stdout
    page = (tmp_path / "index.html").read_text()
    assert 'id="overparam-good"' in page
    assert "a fault in the item" in page
    assert not (tmp_path / "overparam/bad.json").exists()


def test_the_page_keeps_what_earlier_runs_left(tmp_path: Path, fakes: None) -> None:
    run("run", "overparam/good", "--out", str(tmp_path), "--quick")
    run("run", "overparam/bad", "--out", str(tmp_path), "--quick")
    page = (tmp_path / "index.html").read_text()
    assert 'id="overparam-good"' in page
    assert 'id="overparam-bad"' in page


def test_disagreement_is_not_a_failure(fakes: None) -> None:
    assert run("run", "overparam/good", "--quick").exit_code == 0


def test_full_says_first_how_long(fakes: None) -> None:
    result = run("run", "overparam/good", "--full")
    assert "full size takes about 3 minutes on two cores (overparam/good 3)" in result.stderr
    assert run("run", "overparam/good", "--full", "--quiet").stderr == ""


def test_full_of_finished_items_takes_no_time(tmp_path: Path, fakes: None) -> None:
    run("run", "overparam/good", "--full", "--out", str(tmp_path))
    assert "none of these items takes longer" in run("run", "overparam/good", "--full", "--out", str(tmp_path)).stderr


def test_workers_find_what_one_process_finds(tmp_path: Path) -> None:
    keys = [QUICK, "nachum2022/remark1", "overparam/lemma1"]
    alone = document("run", *keys, "--quick")
    shared = document("run", *keys, "--quick", "--workers", "2", "--out", str(tmp_path))
    for one, other in zip(alone["items"], shared["items"], strict=True):
        assert one["key"] == other["key"]
        assert one["checks"] == other["checks"]
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.json")}
    assert document("run", *keys, "--quick", "--workers", "2", "--out", str(tmp_path)) == shared
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.json")} == written
    assert len(written) == 3


def test_a_whole_run_has_two_workers_unless_they_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(papers, "_spread", lambda workers, scheduler: asked.append(workers))
    monkeypatch.setattr(papers, "_run", lambda *given: [])
    monkeypatch.setattr(papers.os, "cpu_count", lambda: 2)
    for arguments in (["all"], ["all", "--workers", "0"], ["overparam"], [QUICK], ["all", "--scheduler", "tcp://h:1"]):
        assert run("run", *arguments, "--quick").exit_code == 0
    assert asked == [2, 0, 0, 0, 0]


WRONG = {
    "no key": (["run"], "Missing argument"),
    "unknown item": (["run", "overparam/fig99"], "no item 'overparam/fig99'; did you mean overparam/fig"),
    "one unknown among many": (["run", QUICK, "nonsense"], "no item 'nonsense'"),
    "both sizes": (["run", QUICK, "--quick", "--full"], "leave one of them out"),
    "two kinds of workers": (["run", QUICK, "--workers", "1", "--scheduler", "tcp://h:1"], "choose one"),
    "fewer than no workers": (["run", QUICK, "--workers", "-1"], "expected a whole number"),
    "missing data": (["run", QUICK, "--data", "nowhere"], "--data: no folder 'nowhere'"),
    "data without sets": (["run", QUICK, "--data", "."], "holds none of the papers' sets"),
    "unknown source": (["run", QUICK, "--data", "potos:1"], "--data: no folder 'potos:1'"),
    "unwritable": (["run", QUICK, "--out", "/proc/none/out"], "cannot create /proc/none/out"),
    "a file as folder": (["run", QUICK, "--out", "file"], "file is a file, expected a folder"),
    "unknown command": (["walk"], "No such command"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_exit_code_2_and_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    arguments, said = WRONG[name]
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stdout == ""
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
