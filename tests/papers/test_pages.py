"""The committed pages say what the errata and the kept run say."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from initscope.papers import Plan, Source, errata, items, run_items

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_papers", DOCS / "make_papers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["papers.md", "errata.md"])
def test_pages_are_up_to_date(maker: ModuleType, name: str) -> None:
    made = maker.pages(json.loads((DOCS / "papers.json").read_text()))
    assert (DOCS / name).read_text() == made[DOCS / name], "run python docs/make_papers.py"


def test_the_kept_run_has_every_item_at_normal_size() -> None:
    run = json.loads((DOCS / "papers.json").read_text())
    assert list(run) == [item.key for item in items()], "run make papers"
    assert {found["size"] for found in run.values()} == {"normal"}


def test_how_long_a_run_takes_is_said_once_and_by_the_run(maker: ModuleType) -> None:
    head, made = (DOCS / "papers.md").read_text().split(maker.MARK)
    assert not re.search(r"\b(hour|minute)s?\b", head)
    run = json.loads((DOCS / "papers.json").read_text())
    assert f"{sum(found['seconds'] for found in run.values()):,.0f} seconds (" in made


def test_every_slip_stands_on_the_page() -> None:
    page = (DOCS / "errata.md").read_text()
    for slips in errata().values():
        for slip in slips:
            assert slip.where.replace("|", "\\|") in page


def test_collected_runs_make_tables(maker: ModuleType, tmp_path: Path) -> None:
    chosen = [item for item in items() if item.key == "overparam/lemma6"]
    list(run_items(chosen, Plan(Source(), size="quick", folder=tmp_path)))
    run = maker.collect(tmp_path)
    text = maker.results(run)
    assert '<a id="overparam-lemma6"></a>`overparam/lemma6`' in text
    assert "1 item, 1 statement: 1 agree" in text


def test_bars_do_not_break_a_table(maker: ModuleType) -> None:
    assert maker.cell("|h|/|x|") == "\\|h\\|/\\|x\\|"
    assert maker.cell("\\|h\\|") == "\\|h\\|"
