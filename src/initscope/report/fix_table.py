"""A repaired model in the terminal: what was done, and each layer before and after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from initscope.figures import shorten
from initscope.probe import Fixed, LayerReport
from initscope.report.check_table import STYLES, check_view, verdict_line
from initscope.report.console import shown
from initscope.report.remedy_words import remedies_table
from initscope.report.tables import house_table
from initscope.report.wording import angle_text, number_text

Pair = tuple[LayerReport, LayerReport]
_COLUMNS = ("layer", "op", "norm", "after", "grad", "after", "angle", "after", "status", "after")
_EDGE = 2


def fix_view(fixed: Fixed, *, width: int, everything: bool = False, title: str = "") -> RenderableType:
    """The two verdicts, the remedies that were tried, the layers before and after, and what to do next."""
    fixed, title = shown(fixed), shown(title)
    if not fixed.applied:
        parts = [check_view(fixed.before, width=width, everything=everything, title=title)]
        note = [Text(fixed.note)] if fixed.note else []
        return Group(*parts, *_tried(fixed), *note, Text(fixed.message[:1].upper() + fixed.message[1:] + "."))
    lines: list[RenderableType] = [
        verdict_line(fixed.before, f"{title} before" if title else "before"),
        verdict_line(fixed.after, "after"),
        Text(),
        pairs_table(fixed, width=width, everything=everything),
        *_tried(fixed),
    ]
    lines += [Text(line) for line in fixed.summary().splitlines()]
    return Group(*lines)


def pairs_table(fixed: Fixed, *, width: int, everything: bool = False) -> Table:
    """A line per layer: each number before, then after; stretches of the same two statuses are folded."""
    pairs = list(zip(fixed.before.layers, fixed.after.layers, strict=False))
    rows = [_cells(entry) for entry in _folded(pairs, everything)]
    needs = [max([len(name), *(row[i].cell_len for row in rows)]) for i, name in enumerate(_COLUMNS)]
    gap = 2 if sum(needs) + 2 * len(needs) <= width else 1
    left = max(width - sum(needs[2:]) - gap * (len(needs) - 1), 14)
    op = min(needs[1], max(6, left - needs[0]))
    table = house_table("")
    table.title, table.show_edge, table.padding = None, False, (0, gap - 1, 0, 0)
    for i, name in enumerate(_COLUMNS):
        table.add_column(name, justify="left" if i < 2 or i > 7 else "right", no_wrap=True)
    for row in rows:
        row[0].plain, row[1].plain = shorten(row[0].plain, min(needs[0], left - op)), shorten(row[1].plain, op)
        table.add_row(*row)
    return table


def _tried(fixed: Fixed) -> list[RenderableType]:
    remedies = fixed.before.remedies
    return [Text(), remedies_table(remedies)] if remedies else []


def _folded(pairs: Sequence[Pair], everything: bool) -> Iterator[Pair | int]:
    for _, group in groupby(pairs, key=lambda pair: (pair[0].status, pair[1].status)):
        stretch = list(group)
        hidden = len(stretch) - _EDGE - 1
        if everything or hidden < 2:
            yield from stretch
            continue
        yield from stretch[:_EDGE]
        yield hidden
        yield stretch[-1]


def _cells(entry: Pair | int) -> list[Text]:
    if isinstance(entry, int):
        return [Text(f"… {entry} more", style="dim"), *(Text() for _ in _COLUMNS[1:])]
    old, new = entry
    return [
        Text(old.name),
        Text(old.op),
        Text(number_text(old.norm_ratio), style="dim"),
        Text(number_text(new.norm_ratio)),
        Text(number_text(old.grad_norm_ratio), style="dim"),
        Text(number_text(new.grad_norm_ratio)),
        Text(angle_text(old.angle_deg), style="dim"),
        Text(angle_text(new.angle_deg)),
        Text(old.status, style=STYLES[old.status]),
        Text(new.status, style=STYLES[new.status]),
    ]
