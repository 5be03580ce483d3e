"""The page of a run: one file, offline, everything escaped, figures that keep their own identifiers."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from initscope.papers import Plan, Record, Sampled, Source, claim, run_item
from initscope.report import papers_page, papers_table, tally, write_papers_page
from initscope.report.papers_table import exact_text, sampled_text
from papers.fakes import failing, item


@pytest.fixture(scope="module")
def records() -> list[Record]:
    how = Plan(Source(), size="quick")
    made = [run_item(item(key), how) for key in ("nachum2022/fig1a", "overparam/fig1")]
    return [*made, run_item(item("overparam/fig2", failing), how)]


class Tags(HTMLParser):
    """Balanced tags, all ids, all links."""

    VOID = ("meta", "link", "br", "path", "use", "image", "rect", "circle")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [value] if (value := found.get("id")) else []
        self.links += [value] if tag == "a" and (value := found.get("href")) else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_tags_ids_and_links_hold_together(records: list[Record]) -> None:
    tags = Tags()
    tags.feed(papers_page(records, pending=["overparam/thm1"]))
    assert tags.open == []
    assert len(tags.ids) == len(set(tags.ids))
    inside = {link[1:] for link in tags.links if link.startswith("#")}
    assert inside <= set(tags.ids)
    assert {"overparam-fig1", "nachum2022-fig1a", "overparam-fig2"} <= set(tags.ids)


def test_nothing_is_fetched(records: list[Record]) -> None:
    page = papers_page(records)
    assert "default-src 'none'" in page
    assert not re.search(
        r'(?:src|href)="(?:https?:)?//', page.replace('xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    )
    assert "<script" not in page


def test_words_are_escaped(records: list[Record]) -> None:
    page = papers_page(records)
    assert "a &lt;b&gt; &amp; c" in page
    assert "because of &lt;it&gt;" in page
    assert "<b>" not in page


def test_every_number_of_the_table_is_there(records: list[Record]) -> None:
    page = papers_page(records)
    for words in ("0.97", "0.9701", "0.9712 [0.9692, 0.9732]", "a note", "Size quick, seed 0", "a fault in the item"):
        assert words in page
    assert "3 items, 6 statements: 2 agree, 2 do not, 2 open; 1 failed" in page


def test_figures_refer_to_their_own_parts(records: list[Record]) -> None:
    page = papers_page(records)
    names = set(re.findall(r'\bid="([^"]+)"', page))
    used = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', page)
    assert {one or two for one, two in used} <= names


def test_pending_items_are_named(records: list[Record]) -> None:
    page = papers_page(records, pending=["overparam/thm1", "overparam/thm2"])
    assert "Still to run: 2." in page
    assert "overparam/thm1, overparam/thm2" in page
    assert "Still to run" not in papers_page(records)


def test_the_page_is_written_whole(tmp_path: Path, records: list[Record]) -> None:
    path = write_papers_page(records, tmp_path)
    assert path == tmp_path / "index.html"
    assert path.read_text() == papers_page(records)
    assert list(tmp_path.iterdir()) == [path]


def test_sizes_and_stand_ins_stand_at_the_top(records: list[Record]) -> None:
    page = papers_page([records[0], replace(records[1], size="normal", given=("a &b in place of MNIST", "CIFAR-10"))])
    top = page[: page.index("<nav")]
    assert "Sizes: quick (1 item), normal (1 item)." in top
    assert "printed figures stay open: a &amp;b in place of MNIST." in top
    assert "stay open" not in papers_page(records)


def test_no_records_make_an_empty_page() -> None:
    assert "0 items, 0 statements" in papers_page([])
    assert tally([]) == "0 items, 0 statements: 0 agree, 0 do not, 0 open"


@pytest.mark.parametrize(
    ("sampled", "text"),
    [
        (Sampled(0.97312, 0.001, 1000), "0.9731 [0.9712, 0.9751]"),
        (Sampled(1234.5, 100.0, 1000), "1234 [1038, 1431]"),
        (Sampled(1e-9, 1e-10, 1000), "1e-09 [8.04e-10, 1.2e-09]"),
        (Sampled(0.5, 0.0, 10), "0.5"),
        (Sampled(float("nan"), 0.1, 10), "-"),
        (None, "-"),
    ],
)
def test_intervals_show_two_digits_of_their_width(sampled: Sampled | None, text: str) -> None:
    assert sampled_text(claim("x", True, sampled=sampled)) == text


def test_exact_numbers() -> None:
    assert [exact_text(v) for v in (None, float("nan"), 750.0, 1 / 3)] == ["-", "-", "750", "0.33333"]


def test_the_terminal_table_has_a_line_for_each_check(records: list[Record]) -> None:
    assert papers_table(records).row_count == 7
