"""Reproduced figures and statements as a terminal table: published, exact, sampled with its interval, agrees?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from initscope.papers import Check, Item, Record
from initscope.papers.desk import SIZES, stand_ins
from initscope.report.wording import MISSING

HEADINGS = ("statement", "published", "exact", "sampled, 95 %", "agrees?")
_STYLES = {"yes": "green", "no": "red", "open": "yellow"}


def verdict_word(check: Check) -> str:
    """What stands below "agrees?": yes, no, or open where nothing could be compared."""
    return "open" if check.agrees is None else "yes" if check.agrees else "no"


def exact_text(value: float | None) -> str:
    """
    >>> exact_text(0.96881234), exact_text(38178.0), exact_text(None), exact_text(1.25e-9)
    ('0.96881', '38178', '-', '1.25e-09')
    """
    return MISSING if value is None or math.isnan(value) else f"{value:.5g}"


def sampled_text(check: Check) -> str:
    """Value and interval, with two digits of the half width; what was measured without one says so.

    >>> from initscope.papers import Sampled
    >>> sampled_text(Check("slope", True, sampled=Sampled(0.97312, 0.001, draws=1000)))
    '0.9731 [0.9712, 0.9751]'
    >>> sampled_text(Check("loss, largest ratio", True, measured=0.1331289))
    '0.133, no interval'
    """
    if check.measured is not None:
        return f"{check.measured:.3g}, no interval"
    if check.sampled is None or math.isnan(check.sampled.value):
        return MISSING
    value, (low, high) = check.sampled.value, check.sampled.interval()
    half = (high - low) / 2
    if not (math.isfinite(half) and half > 0):
        return exact_text(value)
    if not 1e-4 <= max(abs(value), half) < 1e6:
        return f"{value:.3g} [{low:.3g}, {high:.3g}]"
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return f"{value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"


def papers_table(records: Sequence[Record]) -> Table:
    """One line for each check, item by item."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("item", no_wrap=True)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == HEADINGS[0] else "right")
    for record in records:
        if record.failed:
            table.add_row(record.key, Text(f"failed: {record.problem}", style="red"), "", "", "", Text("failed", "red"))
        for place, check in enumerate(record.checks):
            word = verdict_word(check)
            said = Text(check.says)
            if check.why:
                said.append(f"\n{check.why}", style="dim")
            cells = (check.published or MISSING, exact_text(check.exact), sampled_text(check))
            table.add_row("" if place else record.key, said, *cells, Text(word, style=_STYLES[word]))
        table.add_section()
    return table


def papers_list(items: Sequence[Item]) -> Table:
    """Every item with its claim and the data it asks for."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("item", no_wrap=True)
    for heading in ("what", "data", "--full"):
        table.add_column(heading)
    for item in items:
        minutes = "" if item.full_minutes is None else f"{item.full_minutes:g} min"
        what = Text(item.title).append(f"\n{item.says}", style="dim")
        table.add_row(item.key, what, ", ".join(item.sets), minutes)
    return table


def tally(records: Sequence[Record]) -> str:
    """One sentence on how many statements agree.

    >>> tally([])
    '0 items, 0 statements: 0 agree, 0 do not, 0 open'
    """
    words = [verdict_word(check) for record in records for check in record.checks]
    failed = sum(record.failed for record in records)
    text = (
        f"{_counted(len(records), 'item')}, {_counted(len(words), 'statement')}: "
        f"{words.count('yes')} agree, {words.count('no')} do not, {words.count('open')} open"
    )
    return f"{text}; {failed} failed" if failed else text


def circumstances(records: Sequence[Record]) -> list[str]:
    """At which size the items ran, and which pictures stood in for which sets.

    >>> circumstances([Record("a/b", "", "", "quick", 0, given=("MNIST", "photos in place of CIFAR-10"))])
    ['size: quick', 'not the sets that the papers used, printed figures stay open: photos in place of CIFAR-10']
    """
    counts = {size: count for size in SIZES if (count := sum(record.size == size for record in records))}
    lines = [f"size: {size}" for size in counts]
    if len(counts) > 1:
        each = (f"{size} ({_counted(count, 'item')})" for size, count in counts.items())
        lines = [f"sizes: {', '.join(each)}"]
    found = stand_ins(words for record in records for words in record.given)
    if found:
        lines.append(f"not the sets that the papers used, printed figures stay open: {'; '.join(found)}")
    return lines


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
