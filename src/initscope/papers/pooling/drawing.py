"""Clouds of pairs: sampled values as open markers with their intervals, exact ones as dots upon them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from initscope.figures import LINES, MARKERS, PALETTE, Line, Picture, dress, finish, house_style

_INK = "#333333"


@dataclass(frozen=True)
class Cloud:
    """Pairs of one set. `reach` (half the width of an interval) belongs to y, or to x where `sideways`."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    hue: int = 0
    exact: bool = False
    reach: Sequence[float] | None = None
    sideways: bool = False


@dataclass(frozen=True)
class Frame:
    """One axes: its clouds and lines, and what the axes mean."""

    title: str
    clouds: Sequence[Cloud]
    lines: Sequence[Line]
    across: str
    up: str


def clouds(
    frames: Sequence[Frame], title: str, description: str, *, columns: int, size: tuple[float, float]
) -> Picture:
    """Square plots over [0, 1] side by side with one legend below them.

    >>> frame = Frame("", [Cloud("pairs", [0.2], [0.3])], [Line("same", [0, 1], [0, 1])], "before", "after")
    >>> clouds([frame], "Up", "One pair.", columns=1, size=(3, 3)).title
    'Up'
    """
    down = -(-len(frames) // columns)
    with house_style():
        figure = Figure(figsize=(size[0] * columns, size[1] * down + 0.8), layout="constrained")
        for place, frame in enumerate(frames):
            axes = figure.add_subplot(down, columns, place + 1)
            dress(axes)
            _fill(axes, frame)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        _legend(figure, frames)
        return finish(figure, title, description)


def _fill(axes: Axes, frame: Frame) -> None:
    for line in frame.lines:
        style = LINES[(line.hue if line.dash is None else line.dash) % len(LINES)]
        axes.plot(line.x, line.y, color=PALETTE[line.hue], linestyle=style, linewidth=1.6, label=line.label, zorder=2)
    for cloud in frame.clouds:
        _cloud(axes, cloud)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel=frame.across, ylabel=frame.up)
    axes.set_title(frame.title, loc="left", fontsize=9.5)


def _cloud(axes: Axes, cloud: Cloud) -> None:
    colour = PALETTE[cloud.hue % len(PALETTE)]
    if cloud.exact:
        axes.plot(cloud.x, cloud.y, ".", color=colour, markersize=4.0, markeredgewidth=0, alpha=0.8, zorder=4)
        return
    bars: dict[str, Any] = {"xerr" if cloud.sideways else "yerr": cloud.reach}
    axes.errorbar(
        cloud.x, cloud.y, linestyle="none", marker=MARKERS[cloud.hue % len(MARKERS)], markersize=6.0, color=colour,
        markerfacecolor="white", markeredgewidth=1.0, elinewidth=1.0, capsize=1.8, zorder=3, **bars,
    )  # fmt: skip


def _legend(figure: Figure, frames: Sequence[Frame]) -> None:
    """Lines, then one colour and marker per set, then what dots and open markers mean."""
    axes = figure.axes[0]
    found: dict[str, Any] = {}
    for frame in frames:
        for cloud in frame.clouds:
            colour, marker = PALETTE[cloud.hue % len(PALETTE)], MARKERS[cloud.hue % len(MARKERS)]
            if not cloud.exact and cloud.label not in found:
                (found[cloud.label],) = axes.plot([], [], marker, color=colour, markersize=6.0, markerfacecolor="white")
    if any(cloud.exact for frame in frames for cloud in frame.clouds):
        (found["exact"],) = axes.plot([], [], ".", color=_INK, markersize=5.0)
    if any(cloud.reach is not None for frame in frames for cloud in frame.clouds):
        found["sampled, 95 % interval"] = axes.errorbar(
            [], [], yerr=[], fmt="o", color=_INK, markersize=6.0, markerfacecolor="white", capsize=1.8
        )
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        [*handles, *found.values()], [*labels, *found], frameon=False, fontsize=8.5, loc="outside lower center",
        ncols=min(4, len(labels) + len(found)),
    )  # fmt: skip
