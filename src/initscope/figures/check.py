"""Figures of a checked model: one number per layer as curves with theory bands, and shares as a bar."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from initscope.errors import BadInput
from initscope.figures.style import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    Picture,
    finish,
    house_style,
    new_figure,
)

Number = float | None
_MOST_NAMES = 20  # names under the axis
_MOST_POINTS = 40  # markers on a curve; a line has all of its points
_LETTERS = 90  # that fit side by side under the axis
_NAME = 18  # letters of a name under the axis
_DECADES = 40  # a logarithmic axis never spans more: below lies rounding
_FEW_DECADES = 2.5
_PAD = 0.06  # of the range, above and below the curves


@dataclass(frozen=True)
class Series:
    """One number per layer, None where there is none: a line, a dashed line or points; `low` and `high` make a band."""

    label: str
    values: Sequence[Number]
    look: Literal["line", "dashed", "points"] = "line"
    low: Sequence[Number] | None = None
    high: Sequence[Number] | None = None
    colour: str = BLUE
    band: str = "interval"


def layer_curves(
    layers: Sequence[str],
    series: Sequence[Series],
    *,
    title: str,
    quantity: str,
    log: bool = False,
    mark: int | None = None,
) -> Picture:
    """A quantity over the layers in execution order; `mark` draws a line at the first bad layer.

    On a logarithmic axis zeros and negative numbers are gaps. The axis is chosen by the curves; bands are cut at its ends.

    >>> picture = layer_curves(["conv1", "relu"], [Series("measured", [40.0, 30.0])], title="Angle", quantity="degrees")
    >>> picture.description
    'degrees over 2 layers, conv1 to relu. measured: 40 at the first, 30 at the last, lowest 30 at relu, highest 40 at conv1.'
    """
    _check(layers, series)
    with house_style():
        figure, axes = new_figure(width=6.4, height=3.3)
        if log:
            axes.set_yscale("log")
        _set_limits(axes, [v for one in series for v in _drawable(one.values, log) if not math.isnan(v)], log)
        for one in series:
            _draw(axes, one, log)
        if mark is not None:
            axes.axvline(mark, color=ORANGE, linewidth=1, linestyle=":", label="first bad layer")
        _name_layers(axes, layers)
        axes.set_ylabel(quantity)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, fontsize=8.5, loc="outside lower center", ncols=3)
        return finish(figure, title, _words(layers, series, quantity, mark))


def share_bar(shares: Mapping[str, float], *, title: str) -> Picture:
    """Shares of a whole as one bar, largest first, each piece named with its percentage.

    >>> share_bar({"conv": 0.75, "pooling": 0.25}, title="Contraction").description
    'conv 75 %, pooling 25 %.'
    """
    if not shares or any(not math.isfinite(v) or v < 0 for v in shares.values()):
        raise BadInput("share_bar", f"got {dict(shares)}", "give at least one share, none negative")
    colours = (ORANGE, BLUE, GREEN, PURPLE, SKY, AMBER, GREY)
    hatches = ("", "//", "..", "xx", "\\\\", "--", "oo")
    with house_style():
        figure, axes = new_figure(width=6.4, height=1.15)
        left = 0.0
        for index, (name, share) in enumerate(sorted(shares.items(), key=lambda item: -item[1])):
            colour, hatch = colours[index % len(colours)], hatches[index % len(hatches)]
            text = f"{name} {_percent(share)}"
            axes.barh(0, share, left=left, color=colour, hatch=hatch, edgecolor="#ffffff", linewidth=0.8, label=text)
            left += share
        axes.set_xlim(0, max(left, 1e-9))
        axes.set_axis_off()
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, fontsize=8.5, loc="outside lower center", ncols=4)
        return finish(figure, title, ", ".join(labels) + ".")


def step_curves(curves: Mapping[str, Sequence[float]], *, title: str, quantity: str) -> Picture:
    """Numbers over training steps, one line each."""
    if not curves or not all(curves.values()):
        raise BadInput("step_curves", f"got {len(curves)} curves", "give at least one, none empty")
    with house_style():
        figure, axes = new_figure(width=6.4, height=3.0)
        for (label, values), colour, style in zip(
            curves.items(), (ORANGE, BLUE, GREEN), ("--", "-", "-."), strict=False
        ):
            axes.plot(range(1, len(values) + 1), _drawable(values, False), color=colour, linestyle=style, label=label)
        axes.set_xlabel("step")
        axes.set_ylabel(quantity)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, fontsize=8.5, loc="outside lower center", ncols=3)
        ends = "; ".join(f"{label}: from {v[0]:.3g} to {v[-1]:.3g}" for label, v in curves.items())
        return finish(figure, title, f"{quantity} over {max(map(len, curves.values()))} steps. {ends}.")


def shorten(name: str, width: int) -> str:
    """A name in at most `width` letters: its middle goes, since paths differ at their ends.

    >>> shorten("encoder.layer.11.attention.output.dense", 16)
    'encoder….dense'
    >>> shorten("layer1.0.conv1", 16), shorten("abcdefghij", 5)
    ('layer1.0.conv1', 'ab…ij')
    """
    if len(name) <= width:
        return name
    if width < 2:
        return name[:width]
    tail = width // 2
    head = width - 1 - tail
    short = f"{name[:head]}…{name[len(name) - tail :]}"
    start, dot, rest = name[len(name) - tail :].partition(".")
    if dot and len(rest) >= tail // 2 and start:  # a whole last part reads better than half of the one before
        front = name[:head].rpartition(".")[0] or name[:head]
        short = f"{front}….{rest}"
    return short


def _check(layers: Sequence[str], series: Sequence[Series]) -> None:
    if not layers or not series:
        raise BadInput("layer_curves", f"got {len(layers)} layers and {len(series)} series", "give one of each")
    for one in series:
        for name in ("values", "low", "high"):
            numbers = getattr(one, name)
            if numbers is not None and len(numbers) != len(layers):
                problem = f"{name} has {len(numbers)} numbers, expected {len(layers)}, one per layer"
                raise BadInput(f"series '{one.label}'", problem, "pass the same layers to all")
        if (one.low is None) != (one.high is None):
            raise BadInput(f"series '{one.label}'", "has only one of low and high", "give both or none")


def _drawable(values: Sequence[Number], log: bool) -> list[float]:
    """NaN where a point cannot be drawn: none there, infinite, or not positive on a logarithmic axis."""
    return [math.nan if v is None or not math.isfinite(v) or (log and v <= 0) else float(v) for v in values]


def _set_limits(axes: Axes, known: Sequence[float], log: bool) -> None:
    low, high = (min(known), max(known)) if known else (0.1, 1.0) if log else (0.0, 1.0)
    if not log:
        margin = max(_PAD * (high - low), 1e-3 * max(abs(high), abs(low)), 1e-12)
        axes.set_ylim(0 if 0 <= low < 0.5 * high else low - margin, high + margin)
        return
    bottom, top = math.log10(low), math.log10(high)
    bottom = max(bottom, top - _DECADES)
    margin = max(_PAD * (top - bottom), 0.15)
    axes.set_ylim(10 ** max(bottom - margin, -300.0), 10 ** min(top + margin, 300.0))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if top - bottom + 2 * margin < _FEW_DECADES:  # powers of ten alone would leave one or two numbers on the axis
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def _draw(axes: Axes, one: Series, log: bool) -> None:
    places = list(range(len(one.values)))
    values = _drawable(one.values, log)
    if one.low is not None and one.high is not None:
        floor, ceiling = axes.get_ylim()
        low = [math.nan if v is None else max(v, floor) for v in one.low]
        high = [math.nan if v is None else min(max(v, floor), ceiling) for v in one.high]
        axes.fill_between(places, low, high, color=one.colour, alpha=0.2, linewidth=0, zorder=1, label=one.band)
    if one.look == "points":
        every = math.ceil(len(places) / _MOST_POINTS)
        axes.plot(
            places[::every], values[::every], "o", color=one.colour, markersize=3.5, markerfacecolor="#ffffff", zorder=2.3,
            label=one.label,
        )  # fmt: skip
    else:
        lonely = "o" if len(values) == 1 else None
        style = "--" if one.look == "dashed" else "-"
        order = 2.2 if one.look == "line" else 2.1
        axes.plot(places, values, style, zorder=order, marker=lonely, color=one.colour, linewidth=1.6, label=one.label)


def _name_layers(axes: Axes, layers: Sequence[str]) -> None:
    """Names under the axis, every k-th of many; the last one always has its name."""
    step, last = math.ceil(len(layers) / _MOST_NAMES), len(layers) - 1
    places = [i for i in range(0, len(layers), step) if last - i >= step or i == last]
    places += [] if places and places[-1] == last else [last]
    names = [shorten(layers[i], _NAME) for i in places]
    steep = sum(len(name) + 2 for name in names) > _LETTERS or max(map(len, names)) * len(names) > _LETTERS
    axes.set_xticks(places, names, rotation=50 if steep else 0, ha="right" if steep else "center", fontsize=7.5)
    for label in axes.get_xticklabels():
        label.set_rotation_mode("anchor")
        label.set_parse_math(False)  # a name with dollar signs is a name
    axes.set_xlim(-0.5, last + 0.5)


def _percent(share: float) -> str:
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def _words(layers: Sequence[str], series: Sequence[Series], quantity: str, mark: int | None) -> str:
    """The curves in words, for who cannot see them."""
    parts = [f"{quantity} over {len(layers)} layers, {layers[0]} to {layers[-1]}."]
    for one in series:
        known = [(v, i) for i, v in enumerate(one.values) if v is not None and math.isfinite(v)]
        if not known:
            parts.append(f"{one.label}: nothing to show.")
            continue
        (low, where), (high, place) = min(known, key=lambda k: k[0]), max(known, key=lambda k: k[0])
        parts.append(
            f"{one.label}: {known[0][0]:.3g} at the first, {known[-1][0]:.3g} at the last, "
            f"lowest {low:.3g} at {layers[where]}, highest {high:.3g} at {layers[place]}."
        )
    return " ".join([*parts, *([f"First bad layer: {layers[mark]}."] if mark is not None else [])])
