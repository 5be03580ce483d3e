"""How the chance to fail falls with the width: the exact law beside a proved bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from initscope.errors import BadInput
from initscope.figures.style import BLUE, GREY, LINES, MARKERS, PALETTE, Picture, finish, house_style, new_figure


@dataclass(frozen=True)
class FailureCurve:
    """One line: failure probabilities by width, and the width at which it meets the target (None: not marked)."""

    label: str
    widths: Sequence[float]
    failure: Sequence[float]
    meets: float | None = None


def failure_curves(curves: Sequence[FailureCurve], target: float, title: str) -> Picture:
    """Failure probability against width, both logarithmic, with the target as a horizontal line.

    >>> picture = failure_curves([FailureCurve("exact", [10, 100], [0.5, 0.01], meets=80)], 0.05, "One layer")
    >>> "exact: 80 units" in picture.description
    True
    """
    if not curves or any(len(curve.widths) != len(curve.failure) or not len(curve.widths) for curve in curves):
        raise BadInput("failure_curves", "got a curve without one failure for each width", "give both, equally long")
    with house_style():
        figure, axes = new_figure(width=7.2, height=4.2)
        axes.axhline(target, color=GREY, linewidth=1.0, linestyle=(0, (1, 2)))
        for index, curve in enumerate(curves):
            _draw(axes, curve, index, target)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(target / 40, 1.6)
        axes.set_xlim(min(min(c.widths) for c in curves), max(max(c.widths) for c in curves))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.annotate(
            f"target {target:g}", (0, target), xycoords=("axes fraction", "data"), xytext=(6, -4),
            textcoords="offset points", va="top", color=GREY, fontsize=8.5,
        )  # fmt: skip
        axes.set_xlabel("units in each layer")
        axes.set_ylabel("probability to leave the interval")
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
        figure.legend(frameon=False, fontsize=8.5, loc="outside lower center", ncols=4)
        return finish(figure, title, _describe(curves, target))


def _draw(axes: Axes, curve: FailureCurve, index: int, target: float) -> None:
    colour = PALETTE[index % len(PALETTE)] if index else BLUE
    style = LINES[index % len(LINES)]
    axes.plot(curve.widths, curve.failure, color=colour, linestyle=style, linewidth=1.8, label=curve.label)
    if curve.meets is not None:
        axes.plot(
            [curve.meets], [target], marker=MARKERS[index % len(MARKERS)], color=colour,
            markerfacecolor="white", markersize=6, linestyle="none", zorder=3,
        )  # fmt: skip
        axes.annotate(
            f"{curve.meets:,.0f}", (curve.meets, target), xytext=(6, 6), textcoords="offset points",
            color=colour, fontsize=9, fontweight="bold",
        )  # fmt: skip


def _describe(curves: Sequence[FailureCurve], target: float) -> str:
    """Where each curve meets the target, in words."""
    parts = [f"{c.label}: {c.meets:,.0f} units" for c in curves if c.meets is not None]
    return f"Failure probability against width. The target {target:g} is met by {'; '.join(parts) or 'no curve'}."
