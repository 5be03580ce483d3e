"""A run of paper items as one HTML page that needs nothing else: tables, figures, notes, and which data was used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from initscope import __version__
from initscope.files import write_atomically
from initscope.papers import PAPERS, Check, Record
from initscope.report.drawings import own_names
from initscope.report.papers_table import HEADINGS, circumstances, exact_text, sampled_text, tally, verdict_word

TITLE = "Figures, tables and theorems of four papers, run again"
FILE = "index.html"


@dataclass(frozen=True)
class Group:
    """The items of one paper."""

    name: str
    title: str
    records: tuple[Record, ...]


def write_papers_page(records: Sequence[Record], folder: Path, *, pending: Sequence[str] = ()) -> Path:
    """Write the page into the folder of a run; a reader never meets half of it."""
    text = papers_page(records, pending=pending).encode()
    write_atomically(folder / FILE, lambda file: file.write(text), "--out")
    return folder / FILE


def papers_page(records: Sequence[Record], *, pending: Sequence[str] = ()) -> str:
    """The page as text; `pending` names the items that are still to be run."""
    environment, style = _environment()
    groups = [Group(name, title, tuple(r for r in records if _paper(r) == name)) for name, title in PAPERS.items()]
    text = environment.get_template("papers.html").render(
        title=TITLE,
        groups=[group for group in groups if group.records],
        tally=tally(records),
        circumstances=circumstances(records),
        pending=pending,
        headings=HEADINGS,
        version=__version__,
        style=Markup(style),
    )
    return text.lstrip()


def anchor(key: str) -> str:
    """The name of an item's section on the page.

    >>> anchor("pooling/thm4-1")
    'pooling-thm4-1'
    """
    return key.replace("/", "-")


def _paper(record: Record) -> str:
    return record.key.partition("/")[0]


def _counts(record: Record) -> list[tuple[str, int]]:
    words = [verdict_word(check) for check in record.checks]
    return [(word, words.count(word)) for word in ("yes", "no", "open") if word in words]


def _drawing(record: Record) -> Markup:
    # The words in it were escaped when it was drawn; only files that this run vouches for come here.
    return Markup(own_names(record.svg or "", anchor(record.key)))


def _cells(check: Check) -> tuple[str, str, str]:
    return check.published or "-", exact_text(check.exact), sampled_text(check)


@cache
def _environment() -> tuple[Environment, str]:
    loader = PackageLoader("initscope.report", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(anchor=anchor, counts=_counts, drawing=_drawing, cells=_cells, verdict=verdict_word)
    style = "".join(loader.get_source(environment, name)[0] for name in ("page.css", "papers.css"))
    return environment, style
