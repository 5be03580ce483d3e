"""Similarity by layer: exact lines, and sampled points with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from initscope.errors import BadInput
from initscope.figures.style import LINES, MARKERS, PALETTE, Picture, finish, house_style, new_figure

_MOST_TICKS = 24
_MOST_POINTS = 200


@dataclass(frozen=True)
class Curve:
    """One line of the figure, one number per layer.

    `exact` is the theory; `low` and `high` are the range over the pairs (a band); `sampled` are the means over sampled
    networks (points), with `margin` as half the width of their 95 % interval. What is missing is not drawn.
    """

    label: str
    exact: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    sampled: Sequence[float] | None = None
    margin: Sequence[float] | None = None


def similarity_curves(
    layers: Sequence[str],
    curves: Sequence[Curve],
    *,
    quantity: Literal["cosine", "angle"] = "cosine",
    title: str = "Similarity of two inputs, layer by layer",
    description: str | None = None,
) -> Picture:
    """Cosine (or angle in degrees) by layer: a line is exact, a point with a bar is sampled, a band is the range.

    >>> picture = similarity_curves(["input", "conv3", "relu"], [Curve("photos", [0.5, 0.5, 0.6])])
    >>> picture.svg().startswith('<svg role="img"')
    True
    """
    _check(layers, curves)
    with house_style():
        figure, axes = new_figure(width=7.2, height=4.4)
        for index, curve in enumerate(curves):
            _draw(axes, curve, index, len(curves))
        _label_layers(axes, layers)
        axes.set_ylabel("cosine of the two outputs" if quantity == "cosine" else "angle of the two outputs (degrees)")
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
        _legend(figure, axes, curves)
        return finish(figure, title, description or _describe(layers, curves, quantity))


def _check(layers: Sequence[str], curves: Sequence[Curve]) -> None:
    if not layers or not curves:
        raise BadInput("similarity_curves", f"got {len(layers)} layers and {len(curves)} curves", "give one of each")
    for curve in curves:
        for name in ("exact", "low", "high", "sampled", "margin"):
            values = getattr(curve, name)
            if values is not None and len(values) != len(layers):
                problem = f"{name} has {len(values)} numbers, expected {len(layers)}, one per layer"
                raise BadInput(f"curve '{curve.label}'", problem, "pass the same layers to all")
        if (curve.low is None) != (curve.high is None):
            raise BadInput(f"curve '{curve.label}'", "has only one of low and high", "give both or none")


def _draw(axes: Axes, curve: Curve, index: int, curves: int) -> None:
    colour = PALETTE[index % len(PALETTE)]
    places = list(range(len(curve.exact)))
    step = math.ceil(len(places) / _MOST_POINTS)
    thin = places[::step]
    if curve.low is not None and curve.high is not None:
        low, high = [curve.low[i] for i in thin], [curve.high[i] for i in thin]
        axes.fill_between(thin, low, high, color=colour, alpha=0.13, linewidth=0)
    style = LINES[index % len(LINES)]
    axes.plot(thin, [curve.exact[i] for i in thin], color=colour, linestyle=style, linewidth=1.8, label=curve.label)
    if curve.sampled is None:
        return
    every = max(1, len(places) // 30)
    # Neighbouring curves are moved apart by a part of a layer, so that their bars do not hide each other.
    shift = 0.16 * (index - (curves - 1) / 2) if curves > 1 else 0.0
    bars = list(curve.margin[::every]) if curve.margin is not None else None
    axes.errorbar(
        [place + shift for place in places[::every]],
        list(curve.sampled[::every]),
        yerr=bars,
        fmt=MARKERS[index % len(MARKERS)],
        color=colour,
        markersize=4,
        markerfacecolor="white",
        elinewidth=1.1,
        capsize=2,
        zorder=3,
    )


def _label_layers(axes: Axes, layers: Sequence[str]) -> None:
    """Layer names under the axis; with many layers every k-th, so that the names never touch."""
    step = math.ceil(len(layers) / _MOST_TICKS)
    places = list(range(0, len(layers), step))
    last = len(layers) - 1
    if places[-1] != last:
        # The last layer is the answer: it keeps its name, and a neighbour too close gives way.
        if last - places[-1] < max(1, step * 2 // 3):
            places.pop()
        places.append(last)
    names = [_short(layers[place]) for place in places]
    steep = len(names) > 8 or any(len(name) > 6 for name in names)
    axes.set_xticks(places, names, rotation=50 if steep else 0, ha="right" if steep else "center", fontsize=8)
    for label in axes.get_xticklabels():
        label.set_rotation_mode("anchor")
    axes.set_xlim(-0.5, last + 0.5)
    axes.set_xlabel("layer" if step == 1 else f"layer ({len(layers)} layers, not all named)")


def _short(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:13]}..."


def _legend(figure: Figure, axes: Axes, curves: Sequence[Curve]) -> None:
    lines, labels = axes.get_legend_handles_labels()
    handles: list[Any] = [*lines]
    if any(curve.sampled is not None for curve in curves):
        handles.append(axes.errorbar([], [], yerr=[], fmt="o", color="#333333", markerfacecolor="white", markersize=4))
        labels.append("sampled, 95 % interval")
    if any(curve.low is not None for curve in curves):
        handles.append(axes.fill_between([], [], [], color="#333333", alpha=0.13, linewidth=0))
        labels.append("range over pairs")
    figure.legend(handles, labels, frameon=False, fontsize=8.5, loc="outside lower center", ncols=4)


def _describe(layers: Sequence[str], curves: Sequence[Curve], quantity: str) -> str:
    """The curves in words: where each begins and where it ends."""
    unit = "" if quantity == "cosine" else " degrees"
    parts = [f"{curve.label}: from {curve.exact[0]:.3g}{unit} to {curve.exact[-1]:.3g}{unit}" for curve in curves]
    return f"{quantity.capitalize()} from {layers[0]} to {layers[-1]}, {len(layers)} layers. {'; '.join(parts)}."
