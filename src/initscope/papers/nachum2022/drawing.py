"""The pictures of these items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator
from torch import Tensor

from initscope.activations import RELU
from initscope.bounds import relu_conv_similarity_bounds
from initscope.figures import Picture
from initscope.figures.style import (
    AMBER,
    BLUE,
    GREY,
    LINES,
    MARKERS,
    ORANGE,
    PALETTE,
    dress,
    finish,
    house_style,
    new_figure,
)
from initscope.papers.nachum2022.sampling import Layered

BAND = "#cfe3ef"
LAYER = "layer"  # the name of an axis that counts layers


@dataclass(frozen=True)
class Points:
    """Sampled values with half the width of their 95 % intervals."""

    x: Sequence[float]
    y: Sequence[float]
    reach: Sequence[float] | Sequence[Sequence[float]] | None = None  # two rows: below and above


@dataclass(frozen=True)
class Line:
    """An exact curve, and the sampled points that belong on it; `points_only` draws no line."""

    label: str
    x: Sequence[float] = ()
    y: Sequence[float] = ()
    points: Points | None = None


@dataclass(frozen=True)
class Words:
    """What is written on a figure; `description` is for those who cannot see it."""

    title: str
    x: str
    y: str
    description: str


def relu_curve(rho: Tensor) -> Tensor:
    """JL eq. 2: the similarity after a dense ReLU layer."""
    return 1 - RELU.defect(1 - rho)


def scatter(layer: Layered, words: Words, fit: tuple[float, float] | None, *, reach: Tensor) -> Picture:
    """Similarity after a layer against similarity before it: every pair sampled and exact, eq. 2, and Theorem 3's bounds."""
    low = -1.0 if float(layer.before.min()) < -0.2 else max(-0.05, float(layer.before.min()) - 0.05)
    grid = torch.linspace(low, 1, 200, dtype=torch.float64)
    bounds = relu_conv_similarity_bounds(grid).value
    with house_style():
        figure, axes = new_figure(width=6.4, height=5.6)
        axes.fill_between(grid, bounds.low, bounds.high, color=BAND, linewidth=0, label="bounds of Theorem 3")
        axes.plot(grid, grid, color=GREY, linewidth=1.0, linestyle=(0, (1, 2)), label="isometry")
        axes.plot(grid, relu_curve(grid), color=AMBER, linewidth=2.2, label="eq. 2 (dense ReLU layer)")
        if fit is not None:
            ends = torch.stack([layer.before.min(), layer.before.max()])
            axes.plot(
                ends,
                fit[1] + fit[0] * ends,
                color="black",
                linewidth=1.2,
                linestyle="--",
                label=f"linear fit, slope {fit[0]:.3f}",
            )
        axes.errorbar(
            layer.before.tolist(),
            layer.after.tolist(),
            yerr=reach.tolist(),
            fmt="o",
            color=ORANGE,
            markersize=4.2,
            markerfacecolor="white",
            markeredgewidth=0.9,
            elinewidth=0.7,
            alpha=0.85,
            label="sampled, 95 % interval",
            zorder=3,
        )
        axes.plot(
            layer.before, layer.exact, ".", color=BLUE, markersize=3.2, label="exact mean of the same pair", zorder=4
        )
        axes.set_xlim(low, 1.01)
        axes.set_ylim(-0.06 if low < -0.5 else low - 0.02, 1.02)
        return _finish(figure, axes, words, columns=2)


def curves(
    lines: Sequence[Line],
    words: Words,
    *,
    log: str = "",
    level: tuple[float, float, str] | None = None,
    size: tuple[float, float] = (7.2, 4.4),
    ticks: Sequence[float] | None = None,
) -> Picture:
    """Exact curves with sampled points on them; `level` is a band from low to high with a name."""
    with house_style():
        figure, axes = new_figure(*size)
        draw(axes, lines)
        if level is not None:
            low, high, name = level
            axes.axhspan(low, high, color=BAND, linewidth=0, label=name, zorder=0)
        for axis in log:
            getattr(axes, f"set_{axis}scale")("log")
        if ticks is not None:
            axes.set_xticks(list(ticks), [f"{tick:g}" for tick in ticks])
            axes.xaxis.set_minor_locator(NullLocator())
        return _finish(figure, axes, words, barred=_barred(lines))


def draw(axes: Axes, lines: Sequence[Line], first: int = 0) -> None:
    """Lines and their points, each in a colour, dash and marker of its own."""
    for index, line in enumerate(lines, start=first):
        colour, marker = PALETTE[index % len(PALETTE)], MARKERS[index % len(MARKERS)]
        label: str | None = line.label
        if len(line.x):
            axes.plot(line.x, line.y, color=colour, linestyle=LINES[index % len(LINES)], linewidth=1.8, label=label)
            label = None
        if line.points is not None:
            axes.errorbar(
                list(line.points.x),
                list(line.points.y),
                yerr=None if line.points.reach is None else np.asarray(line.points.reach),
                fmt=marker,
                color=colour,
                markersize=4.5,
                markerfacecolor="white",
                elinewidth=1.1,
                capsize=2,
                zorder=3,
                label=label,
            )


def panels(
    sets: Sequence[tuple[str, Sequence[Line]]],
    words: Words,
    *,
    share_y: bool = True,
    log: str = "",
    height: float = 4.2,
) -> Picture:
    """Several plots of the same kind side by side, one legend for all; the lines of each panel keep their colours."""
    with house_style():
        figure = Figure(figsize=(3.7 * len(sets) + 0.4, height), layout="constrained")
        made = figure.subplots(1, len(sets), sharey=share_y, squeeze=False)[0]
        for axes, (name, lines) in zip(made, sets, strict=True):
            dress(axes)
            draw(axes, lines)
            axes.set_title(name, fontsize=9.5)
            axes.set_xlabel(words.x)
            if words.x == LAYER:
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            for axis in log:
                getattr(axes, f"set_{axis}scale")("log")
        made[0].set_ylabel(words.y)
        figure.suptitle(words.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        handles, labels = made[0].get_legend_handles_labels()
        sampled(handles, labels, made[0], _barred(sets[0][1]))
        figure.legend(handles, labels, frameon=False, fontsize=8.5, loc="outside lower center", ncols=4)
        return finish(figure, words.title, words.description)


def sampled(handles: list[Any], labels: list[Any], axes: Axes, wanted: bool) -> None:
    """One entry of the legend for all sampled points."""
    if wanted:
        handles.append(axes.errorbar([], [], yerr=[], fmt="o", color="#333333", markerfacecolor="white", markersize=4))
        labels.append("sampled, 95 % interval")


def _barred(lines: Sequence[Line]) -> bool:
    """Whether there are intervals that no label speaks of."""
    return any(line.points is not None and line.points.reach is not None and "95 %" not in line.label for line in lines)


def _title_size(title: str, width: float) -> float:
    """A long title is set smaller rather than cut off."""
    return min(11.0, 11.0 * 8.0 * width / len(title))


def _finish(figure: Figure, axes: Axes, words: Words, *, columns: int = 3, barred: bool = False) -> Picture:
    axes.set_xlabel(words.x)
    axes.set_ylabel(words.y)
    if words.x == LAYER:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    size = _title_size(words.title, figure.get_figwidth())
    axes.set_title(words.title, loc="left", fontsize=size, fontweight="bold")
    handles, labels = axes.get_legend_handles_labels()
    sampled(handles, labels, axes, barred)
    figure.legend(handles, labels, frameon=False, fontsize=8.5, loc="outside lower center", ncols=columns)
    return finish(figure, words.title, words.description)
