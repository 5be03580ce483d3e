"""A checked model in the terminal: the verdict, what contracts the angles, and a line per layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from initscope.figures import shorten
from initscope.probe import LayerReport, Report
from initscope.report.console import shown
from initscope.report.tables import house_table
from initscope.report.wording import (
    MISSING,
    advice_text,
    angle_text,
    draws_text,
    facts,
    finding_text,
    followed_text,
    interval_text,
    note_texts,
    number_text,
    percent_text,
    predicted_text,
    prediction,
    resolution_text,
    score_text,
    shape_text,
    tags,
    verdict_text,
)

STYLES = {"healthy": "green", "note": "cyan", "warn": "yellow", "fail": "bold red"}
WIDE = 110  # columns from which the shape, the rank and the interval have their place
_WIDE_COLUMNS = (
    "layer", "op", "shape", "norm", "grad", "angle", "rank", "dead", "cosine", "theory", "interval", "status",
)  # fmt: skip
_NARROW_COLUMNS = tuple(name for name in _WIDE_COLUMNS if name not in ("shape", "rank", "interval"))
_TEXTS = ("layer", "op", "shape", "interval", "status")
_SHORT = {"gradient": "grad", "saturated": "satur"}
_FEW = 2  # findings of a layer in a narrow table
_EDGE = 2  # layers shown at the start of a stretch of like layers, one at its end
_BLOCKS = ("█", "▓", "▒", "░")
_COLOURS = ("red", "blue", "green", "magenta", "cyan", "yellow", "white")


def check_view(report: Report, *, width: int, everything: bool = False, title: str = "") -> RenderableType:
    """All of a report for a console of `width` columns; stretches of like layers are folded unless `everything`."""
    report, title = shown(report), shown(title)
    parts: list[RenderableType] = [verdict_line(report, title), Text(score_text(report))]
    parts += [Text(facts(report), style="dim"), *findings_lines(report)]
    if report.blame:
        parts += [Text(), blame_bar(report.blame, width)]
    resolution = resolution_text(report)
    if resolution is not None:
        parts.append(Text(resolution))
    parts += [Text(), layers_table(report, width=width, everything=everything), _caption(report)]
    parts += [Text(note, style="dim") for note in note_texts(report.notes)]
    parts += [Text(line) for line in [draws_text(report)] if line]
    return Group(*parts)


def findings_lines(report: Report) -> list[RenderableType]:
    """Every finding with its advice, the worst first."""
    if not report.findings:
        return []
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in report.findings:
        words = Text(f"{finding_text(finding)}.")
        if advice_text(finding):
            words.append(f"\n{advice_text(finding)}", style="dim")
        table.add_row(Text(finding.status, style=STYLES[finding.status]), words)
    return [Text(), table]


def verdict_line(report: Report, title: str = "") -> Text:
    line = Text(report.verdict.upper(), style=STYLES[report.verdict])
    line.append(f"  {title + ': ' if title else ''}{verdict_text(report)}", style="default not bold")
    return line


def blame_bar(blame: dict[str, float], width: int) -> Text:
    """Which kinds of operation bring the samples together, as one bar in the widths of their shares."""
    blame = shown(blame)
    size = max(20, min(width, 100) - 2)
    bar = Text()
    legend = Text("contraction by ")
    used = 0
    for index, (kind, share) in enumerate(blame.items()):
        end = round(size * sum(list(blame.values())[: index + 1]))
        block, colour = _BLOCKS[index % len(_BLOCKS)], _COLOURS[index % len(_COLOURS)]
        bar.append(block * (end - used), style=colour)
        legend.append(", " if index else "")
        legend.append(f"{block} ", style=colour)
        legend.append(f"{kind} {percent_text(share)}")
        used = end
    return Text("\n").join([bar, legend])


def layers_table(report: Report, *, width: int, everything: bool = False) -> Table:
    """A line per layer; `width` decides how much of each is shown.

    Numbers are never cut: the names of layers and operations share what the other columns leave.
    """
    report = shown(report)
    columns = _WIDE_COLUMNS if width >= WIDE else _NARROW_COLUMNS
    rows = [_cells(entry, report.first_bad_layer, columns) for entry in _folded(report.layers, everything)]
    needs = [max([len(name), *(row[i].cell_len for row in rows)]) for i, name in enumerate(columns)]
    gap = 2 if sum(needs) + 2 * len(columns) <= width else 1
    # What is left for the two columns of names: the operations keep six letters, the layers take what they need.
    left = max(width - sum(needs[2:]) - gap * (len(columns) - 1), 16)
    op = min(needs[1], max(6, left - needs[0]))
    layer = min(needs[0], left - op)
    table = house_table("")
    table.title, table.show_edge = None, False
    table.padding = (0, gap - 1, 0, 0)
    for name in columns:
        table.add_column(name, justify="left" if name in _TEXTS else "right", no_wrap=True)
    for row in rows:
        row[0].plain, row[1].plain = shorten(row[0].plain, layer), shorten(row[1].plain, op)
        table.add_row(*row)
    return table


def _folded(layers: Sequence[LayerReport], everything: bool) -> Iterator[LayerReport | list[LayerReport]]:
    """Long stretches of layers with the same status and worst finding keep their ends, the rest becomes one entry."""
    for _, group in groupby(layers, key=lambda layer: (layer.status, tags(layer)[:1])):
        stretch = list(group)
        middle = stretch[_EDGE:-1]
        if everything or len(middle) < 2:
            yield from stretch
            continue
        yield from stretch[:_EDGE]
        yield middle
        yield stretch[-1]


def _cells(entry: LayerReport | list[LayerReport], bad: str | None, columns: Sequence[str]) -> list[Text]:
    """The cells of one line, which is a layer or stands for a stretch of them."""
    if isinstance(entry, list):
        cells = {"layer": Text(f"… {len(entry)} more"), "status": Text(entry[0].status)}
        cells = {name: cells.get(name, Text()) for name in columns}
        for text in cells.values():
            text.stylize("dim")
        return list(cells.values())
    layer, style, found = entry, STYLES[entry.status], tags(entry)

    def cell(text: str, tag: str = "") -> Text:
        return Text(text, style=style if tag in found and text != MISSING else "")

    mark = "> " if layer.name == bad else ""
    theory = prediction(layer)
    sign = "" if theory is None else " " if theory.explained else "!"
    why = "".join(f" {_SHORT.get(tag, tag)}" for tag in (found if "shape" in columns else found[:_FEW]))
    cells = {
        "layer": Text(mark + layer.name, style=style if mark else ""),
        "op": Text(layer.op),
        "shape": Text(shape_text(layer.shape)),
        "norm": cell(number_text(layer.norm_ratio), "norm"),
        "grad": cell(number_text(layer.grad_norm_ratio), "gradient"),
        "angle": cell(angle_text(layer.angle_deg), "angle"),
        "cosine": Text(followed_text(layer)),
        "theory": Text(predicted_text(layer) + sign),
        "interval": Text(interval_text(layer)),
        "rank": Text(number_text(layer.effective_rank)),
        "dead": cell(percent_text(layer.dead_fraction), "dead"),
        "status": Text.assemble((layer.status, style), why),
    }
    return [cells[name] for name in columns]


def _caption(report: Report) -> Text:
    """What the numbers and the signs in the table mean."""
    lines = ["norm, grad: against the data's and the output's"]
    if any(map(prediction, report.layers)):
        lines.append("cosine, theory: mean over the pairs that theory follows, measured and at infinite width")
    if any(theory is not None and not theory.explained for theory in map(prediction, report.layers)):
        lines.append("!: this width does not explain the difference")
    return Text("; ".join(lines), style="dim")
