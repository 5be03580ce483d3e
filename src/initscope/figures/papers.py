"""Theory as lines, samples as points with their intervals on top, in one or several panels that share a legend."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from initscope.errors import BadInput
from initscope.figures.style import LINES, MARKERS, PALETTE, Picture, dress, finish, house_style

Numbers = Sequence[float]
_LETTERS = 11.0  # of a title, in an inch
_FEW_POWERS = 120.0


@dataclass(frozen=True)
class Line:
    """A curve. `hue` numbers its colour and dash; `low` and `high` bound a band around it (labelled with `band`)."""

    label: str
    x: Numbers
    y: Numbers
    hue: int = 0
    dash: int | None = None
    low: Numbers | None = None
    high: Numbers | None = None
    band: str | None = None


@dataclass(frozen=True)
class Points:
    """Sampled values; `error` is the half width of each interval. `hue` numbers colour and marker; `cloud`: small and pale."""

    label: str
    x: Numbers
    y: Numbers
    hue: int = 0
    error: Numbers | None = None
    cloud: bool = False


@dataclass(frozen=True)
class Panel:
    """One axes: what it holds, what the axes mean (with units), and their scales ("linear" or "log").

    `counts`: the horizontal axis counts something, so that only whole numbers are marked. `level`: a dotted horizontal line.
    """

    marks: Sequence[Line | Points]
    across: str
    up: str
    title: str = ""
    scale_across: str = "linear"
    scale_up: str = "linear"
    limits_across: tuple[float | None, float | None] | None = None
    limits_up: tuple[float | None, float | None] | None = None
    level: float | None = None
    counts: bool = False


def curves_and_points(
    panels: Sequence[Panel],
    title: str,
    description: str,
    *,
    columns: int | None = None,
    size: tuple[float, float] = (4.0, 3.4),
    legend_columns: int = 4,
) -> Picture:
    """Panels side by side, `columns` in a row, each `size` inches wide and high, with one legend below them all.

    The same label is listed once, so give it the same `hue` in all panels.

    >>> panel = Panel([Line("exact", [1, 2], [0.5, 0.25]), Points("sampled", [1, 2], [0.51, 0.24], error=[0.1, 0.1])],
    ...               across="depth, layers", up="angle, degrees")
    >>> curves_and_points([panel], "Angles halve", "Angle against depth: 0.5 to 0.25.").title
    'Angles halve'
    """
    if not panels:
        raise BadInput("curves_and_points", "got no panels", "give at least one")
    across = columns or min(len(panels), 3)
    down = -(-len(panels) // across)
    with house_style():
        figure = Figure(figsize=(max(size[0] * across, 6.4), size[1] * down + 0.7), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.09, h_pad=0.07)  # type: ignore[union-attr, call-arg]
        for place, panel in enumerate(panels):
            axes = figure.add_subplot(down, across, place + 1)
            dress(axes)
            _fill(axes, panel)
        lines = "\n".join(textwrap.wrap(title, int(_LETTERS * figure.get_figwidth())))
        figure.suptitle(lines, x=0.01, ha="left", fontsize=11, fontweight="bold")
        _legend(figure, legend_columns)
        return finish(figure, title, description)


def _fill(axes: Axes, panel: Panel) -> None:
    if panel.level is not None:
        axes.axhline(panel.level, color="#666666", linewidth=0.9, linestyle=(0, (1, 2)), zorder=1.5)
    for mark in panel.marks:
        if isinstance(mark, Line):
            _line(axes, mark)
        else:
            _points(axes, mark)
    axes.set_xscale(panel.scale_across)
    axes.set_yscale(panel.scale_up)
    for axis, scale in ((axes.xaxis, panel.scale_across), (axes.yaxis, panel.scale_up)):
        if scale == "log":
            _label_log(axis)
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
    if panel.counts and panel.scale_across == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.limits_across is not None:
        axes.set_xlim(*panel.limits_across)
    if panel.limits_up is not None:
        axes.set_ylim(*panel.limits_up)
    axes.set_xlabel(panel.across)
    axes.set_ylabel(panel.up)
    if panel.title:
        axes.set_title(panel.title, loc="left", fontsize=9.5)


def _label_log(axis: Axis) -> None:
    """Label 2 and 5 as well where the axis spans hardly more than a power of ten."""
    low, high = axis.get_data_interval()
    if low > 0 and high / low < _FEW_POWERS:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))


def _line(axes: Axes, mark: Line) -> None:
    colour = PALETTE[mark.hue % len(PALETTE)]
    style = LINES[(mark.hue if mark.dash is None else mark.dash) % len(LINES)]
    if mark.low is not None and mark.high is not None:
        axes.fill_between(mark.x, mark.low, mark.high, color=colour, alpha=0.16, linewidth=0, label=mark.band)
    axes.plot(mark.x, mark.y, color=colour, linestyle=style, linewidth=1.6, label=mark.label, zorder=2.5)


def _points(axes: Axes, mark: Points) -> None:
    colour, marker = PALETTE[mark.hue % len(PALETTE)], MARKERS[mark.hue % len(MARKERS)]
    if mark.cloud:
        axes.plot(
            mark.x, mark.y, linestyle="none", marker=marker, markersize=2.6, markeredgewidth=0, alpha=0.55,
            color=colour, label=mark.label, zorder=2.0,
        )  # fmt: skip
        return
    # White inside, so that a line remains visible underneath.
    axes.errorbar(
        mark.x, mark.y, yerr=mark.error, linestyle="none", marker=marker, markersize=4.6, markerfacecolor="white",
        markeredgewidth=1.2, color=colour, ecolor=colour, elinewidth=1.0, capsize=2.2, label=mark.label, zorder=3.0,
    )  # fmt: skip


def _legend(figure: Figure, columns: int) -> None:
    found: dict[str, object] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        handles = list(found.values())
        figure.legend(
            handles, list(found), frameon=False, fontsize=8.5, loc="outside lower center",
            ncols=min(columns, len(handles)),
        )  # type: ignore[call-overload]  # fmt: skip
