"""Every example in README and docs runs and prints what the page shows."""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from initscope.probe import Thresholds, check
from initscope.probe.findings import KINDS
from probe.planted import PLANTED

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_run(page: Path) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile(str(page), module_relative=False, optionflags=flags)
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_files_named_as_evidence_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`(tests/[\w/]+\.py)`", page.read_text()):
            assert (ROOT / name).exists(), name


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="signatures print differently in other versions of Python")
def test_the_api_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("make_api", ROOT / "docs" / "make_api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "api.md").read_text() == module.page(), "run python docs/make_api.py"


def _findings_tables() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The two tables of docs/check.md about findings: the cells behind each kind."""
    text = (ROOT / "docs" / "check.md").read_text()
    text = text[text.index("## The findings") : text.index("## How far to trust it")]
    first: dict[str, list[str]] = {}
    second: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        kind = cells[0].strip("`")
        if line.startswith("| `"):
            (second if kind in first else first)[kind] = cells[1:]
    return first, second


def test_every_kind_of_finding_is_explained() -> None:
    first, second = _findings_tables()
    assert tuple(first) == tuple(second) == KINDS


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    shown = re.findall(
        r"`(\w+)` ([\d.]+), ([\d.]+|inf)", "\n".join(cells[2] for cells in _findings_tables()[1].values())
    )
    limits = Thresholds()
    assert {name for name, _, _ in shown} == set(Thresholds.__dataclass_fields__)
    for name, warn, fail in shown:
        assert (float(warn), float(fail)) == getattr(limits, name), name


@pytest.mark.filterwarnings("ignore")
def test_the_evidence_of_findings_is_on_the_page() -> None:
    documented = {kind: set(re.findall(r"`(\w+)`", cells[3])) for kind, cells in _findings_tables()[1].items()}
    change = {"shape", "factor", "rate_per_layer", "layers"}
    told = {row.kind: row for row in PLANTED.values() if row.kind is not None}
    for row in told.values():
        for f in check(row.build(), row.batch(), seeds=1, theory=False, **row.options).findings:
            more = change if f.kind in ("collapse", "activation-scale", "gradient-scale") else set()
            assert set(f.evidence) <= documented[f.kind] | more, f
