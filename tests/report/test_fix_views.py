"""A repaired model as a user meets it: repr, print, notebooks, the page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from initscope.probe import Fixed
from initscope.report.notebook import html_fragment, html_table, html_title, terminal_text
from report.reports import bad, layer, remedy, report


@pytest.fixture
def applied() -> Fixed:
    used = remedy(applied=True)
    before = report([bad("<b>"), bad("second", 1e-5)], remedies=(used, remedy("zero-sum")))
    after = report([layer("<b>"), layer("second")])
    return Fixed(nn.Identity(), before, after, (used,), "he-fan-in: fail -> healthy", None, 1.0)


@pytest.fixture
def unchanged() -> Fixed:
    healthy = report([layer("first"), layer("second")])
    return Fixed(nn.Identity(), healthy, healthy, (), "the model is healthy; the weights stay as they are", None, 1.0)


def test_repr_is_one_short_line(applied: Fixed, unchanged: Fixed) -> None:
    assert repr(applied) == "Fixed(he-fan-in, fail -> healthy)"
    assert repr(unchanged) == "Fixed(nothing applied, healthy)"


def test_print_is_what_the_command_prints(applied: Fixed, unchanged: Fixed) -> None:
    text = str(applied)
    assert text.startswith("FAIL  before: ")
    assert "HEALTHY  after: " in text
    assert "he-fan-in: fail -> healthy" in text
    assert "\x1b" not in text
    assert all(line == line.rstrip() and len(line) <= 100 for line in text.splitlines())
    assert str(unchanged).splitlines()[-1] == "The model is healthy; the weights stay as they are."


def test_notebook_shows_the_first_screen(applied: Fixed) -> None:
    page = applied._repr_html_()
    assert '<span class="badge fail">fail</span>before: ' in page
    assert '<span class="badge healthy">healthy</span>after: ' in page
    assert page.count("<svg") >= 2
    assert "he-fan-in (applied)" in page
    assert "<b>" not in page
    assert not re.search(r"https?://(?!www\.w3\.org)", page), "nothing is fetched"


def test_notebook_shows_an_unchanged_model(unchanged: Fixed) -> None:
    page = unchanged._repr_html_()
    assert "before" not in page
    assert "the weights stay as they are" in page


def test_two_cells_share_no_identifiers(applied: Fixed) -> None:
    """Figures refer to their own clip paths: a second cell must not change those of the first."""
    first, second = applied._repr_html_(), replace(applied, after=report([layer("<b>"), layer("other")]))._repr_html_()
    names = [set(re.findall(r'\sid="([^"]+)"', page)) for page in (first, second)]
    assert names[0]
    assert not names[0] & names[1]
    for page, own in zip((first, second), names, strict=True):
        assert set(re.findall(r"url\(#([^)]+)\)", page)) <= own


def test_page_is_written(applied: Fixed, tmp_path: Path) -> None:
    assert applied.to_html(tmp_path / "fixed.html").read_text().startswith("<!DOCTYPE html>")


def test_terminal_text_has_neither_codes_nor_trailing_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert terminal_text("[red]one[/red]   \n\ntwo  ", width=20) == "one\n\ntwo"


def test_fragment_escapes_text_and_keeps_markup() -> None:
    page = html_fragment("a < b", html_title("<i>"), html_table(("layer", "x"), [("<u>", "1\n2")]), "")
    assert "<p>a &lt; b</p>" in page
    assert "&lt;i&gt;" in page
    assert '<th scope="row" class="left">&lt;u&gt;</th><td>1<br>2</td>' in page
    assert "<p></p>" not in page
