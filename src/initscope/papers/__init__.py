"""Every figure, table and theorem of four papers as a function that returns data, checks and a picture."""

from initscope.papers.desk import REAL_SETS, Source, choose_source
from initscope.papers.item import Check, Desk, Erratum, Item, Outcome, Sampled, claim, compare, undecided
from initscope.papers.published import published
from initscope.papers.record import Record
from initscope.papers.record import read as read_record
from initscope.papers.registry import PAPERS, errata, find, find_all, items
from initscope.papers.runner import Plan, run_item, run_items

__all__ = [
    "PAPERS",
    "REAL_SETS",
    "Check",
    "Desk",
    "Erratum",
    "Item",
    "Outcome",
    "Plan",
    "Record",
    "Sampled",
    "Source",
    "choose_source",
    "claim",
    "compare",
    "errata",
    "find",
    "find_all",
    "items",
    "published",
    "read_record",
    "run_item",
    "run_items",
    "undecided",
]
