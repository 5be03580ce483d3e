"""OP Figure 1: norms of activations and of weight gradients through ten layers, He against Glorot."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from initscope.figures import Line, Panel, Picture, Points, curves_and_points
from initscope.finite import NormLaw, relu_gradient_law, relu_norm_law
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim
from initscope.papers.overparam.networks import (
    INPUTS,
    LAWS,
    Ratios,
    cross_entropy,
    deep_net,
    inputs,
    measure,
    over_networks,
)

DEPTH = 10
ROUGHLY = 0.1  # how we read "roughly equal"
WHAT = {"activation": "|h|/|x|", "gradient": "|∂W|/(|δ||x|)"}
# Independent networks for each width. The first has all samples; the spread between networks needs fewer of them.
NETWORKS = {100: 40, 500: 20, 2000: 6, 4060: 4}
QUICK = {100: 12, 500: 6, 2000: 3}
FEWER = 200
QUICK_SAMPLES = 100


@dataclass(frozen=True)
class Cell:
    """One curve: a weight law, a width and a quantity, by layer.

    `exact` is E √R, `deviation` that of √R, both over networks; `over_data` the deviation over the samples of one network.
    """

    name: str
    width: int
    quantity: str
    exact: tuple[float, ...]
    deviation: tuple[float, ...]
    sampled: tuple[Sampled, ...]
    over_data: Sampled

    @property
    def far(self) -> int:
        """The layer that most random layers lead to: the last for activations, the first for gradients."""
        return DEPTH - 1 if self.quantity == "activation" else 0

    def range(self, layer: int) -> tuple[float, float]:
        """Where 95 % of networks have the ratio, for one sample."""
        low, high = _interval(exact_law(self.name, self.quantity, self.width, layer + 1))
        return math.sqrt(low), math.sqrt(high)


@functools.cache
def _interval(law: NormLaw) -> tuple[float, float]:
    return law.interval(0.95)


def exact_law(name: str, quantity: str, width: int, layer: int) -> NormLaw:
    """The law of the squared ratio in layer 1..10 of a network with inputs in R^500."""
    gain, fan = (2.0, "out") if name == "He" else (1.0, "mean")
    if quantity == "activation":
        return relu_norm_law([width] * layer, inputs=INPUTS, gain=gain, fan=fan)  # type: ignore[arg-type]
    return relu_gradient_law([width] * DEPTH, layer, inputs=INPUTS, gain=gain, fan=fan)  # type: ignore[arg-type]


def draw(desk: Desk, name: str, width: int, count: int, networks: int) -> list[Ratios]:
    """Independent networks; the samples are the same ones in all."""
    x = inputs(count, desk.seed)
    found = []
    for network in range(networks):
        some = x if network == 0 else x[: min(count, FEWER)]
        loss = cross_entropy(len(some), desk.seed + 1)
        seed = desk.seed + 1000 * width + network
        found.append(measure(deep_net([width] * DEPTH, LAWS[name]), some, loss, seed, read_out=True))
    return found


def summarise(name: str, width: int, quantity: str, found: Sequence[Ratios]) -> Cell:
    rows = [getattr(one, quantity) for one in found]
    laws = [exact_law(name, quantity, width, layer) for layer in range(1, DEPTH + 1)]
    means = [law.moment(0.5) for law in laws]  # E √R
    sampled = [over_networks([float(row[layer].mean()) for row in rows]) for layer in range(DEPTH)]
    far = DEPTH - 1 if quantity == "activation" else 0
    return Cell(
        name,
        width,
        quantity,
        tuple(means),
        tuple(math.sqrt(max(law.mean - mean**2, 0.0)) for law, mean in zip(laws, means, strict=True)),
        tuple(sampled),
        over_networks([float(row[far].std()) for row in rows]),
    )


def run(desk: Desk) -> Outcome:
    networks, count = desk.pick(QUICK, NETWORKS), desk.pick(QUICK_SAMPLES, 2000)
    cells: list[Cell] = []
    for done, (name, width) in enumerate((name, width) for name in LAWS for width in networks):
        desk.progress(done, len(LAWS) * len(networks))
        found = draw(desk, name, width, count, networks[width])
        cells += [summarise(name, width, quantity, found) for quantity in WHAT]
    by = {(cell.name, cell.quantity, cell.width): cell for cell in cells}
    widths = list(networks)
    checks = [line for quantity in WHAT for line in _checks(quantity, widths, by)]
    notes = (
        f"Networks drawn: {', '.join(f'{n} of width {w}' for w, n in networks.items())}, each law; "
        f"{count} samples in R^{INPUTS} in the first of them, {min(count, FEWER)} in the others. Intervals are over networks: "
        "samples that share a network err together.",
        "He's variance is 2/fan-out, as in Lemma 1. With 2/fan-in, PyTorch's default for it, the first layer multiplies norms "
        f"by √(width/{INPUTS}): {math.sqrt(widths[-1] / INPUTS):.2f} at width {widths[-1]}.",
        "The exact curves for gradients hold for an error δ that does not depend on the weights. Cross-entropy's does a "
        "little: in narrow networks the first layers lie above the curve (overparam/thm3).",
    )
    return Outcome(tuple(checks), {"cells": [_plain(cell) for cell in cells]}, _picture(widths, by), notes)


def _checks(quantity: str, widths: Sequence[int], by: dict[tuple[str, str, int], Cell]) -> list[Check]:
    what, widest, narrow = WHAT[quantity], widths[-1], widths[0]
    he = [by["He", quantity, width] for width in widths]
    glorot = by["Glorot", quantity, widest]
    far = he[-1].far
    worst = max(range(DEPTH), key=lambda layer: abs(he[-1].exact[layer] - 1))
    deviations = [cell.deviation[far] for cell in he]
    narrowest = he[0].deviation[far]
    return [
        claim(
            f"He, width {widest}: mean {what} is roughly 1 (within {100 * ROUGHLY:g} %) in the layer where it is farthest from 1",
            abs(he[-1].exact[worst] - 1) <= ROUGHLY and _meets(he[-1].sampled[worst], 1 - ROUGHLY, 1 + ROUGHLY),
            exact=he[-1].exact[worst],
            sampled=he[-1].sampled[worst],
        ),
        claim(
            f"He, width {widest}: the standard deviation of {what} over the data is small (below {ROUGHLY})",
            he[-1].over_data.value <= ROUGHLY,
            sampled=he[-1].over_data,
            why=f"Within one network, as in the paper; from network to network it is {deviations[-1]:.3f}, exactly, "
            f"and {narrowest:.2f} at width {narrow}.",
        ),
        claim(
            f"He: the deviation of {what} from network to network falls with each width ({', '.join(map(str, widths))}); "
            "shown is the last over the first",
            all(one > two for one, two in itertools.pairwise(deviations)),
            exact=deviations[-1] / deviations[0],
        ),
        claim(
            f"Glorot, width {widest}: {what} is not kept (97.5 % quantile below one half in layer {far + 1})",
            glorot.range(far)[1] < 0.5 and glorot.sampled[far].interval()[1] < 0.5,
            exact=glorot.exact[far],
            sampled=glorot.sampled[far],
        ),
    ]


def _meets(sampled: Sampled, low: float, high: float) -> bool:
    start, end = sampled.interval()
    return start <= high and end >= low


def _picture(widths: Sequence[int], by: dict[tuple[str, str, int], Cell]) -> Picture:
    panels = [_panel(name, quantity, widths, by) for name in LAWS for quantity in WHAT]
    last = {name: by[name, "activation", widths[-1]].exact[-1] for name in LAWS}
    title = "He initialization keeps the norms of activations and gradients, Glorot's loses them"
    description = (
        f"Four panels by layer 1 to {DEPTH}. He: means of the norm ratios stay near 1, the 95 % range narrows with the width. "
        f"Glorot: they fall by about the square root of 2 in each layer, to {last['Glorot']:.3f} in layer {DEPTH}."
    )
    return curves_and_points(panels, title, description, columns=2, size=(4.4, 3.0), legend_columns=3)


def _panel(name: str, quantity: str, widths: Sequence[int], by: dict[tuple[str, str, int], Cell]) -> Panel:
    layers = list(range(1, DEPTH + 1))
    marks: list[Line | Points] = []
    for hue, width in enumerate(widths):
        cell = by[name, quantity, width]
        shown = name == "He" and width in (widths[0], widths[-1])
        band = f"95 % of networks, width {width}" if shown else None
        low, high = zip(*(cell.range(layer) for layer in range(DEPTH)), strict=True) if shown else (None, None)
        marks.append(Line(f"exact mean, width {width}", layers, cell.exact, hue, low=low, high=high, band=band))
    for hue, width in enumerate(widths):
        cell = by[name, quantity, width]
        middle = [one.value for one in cell.sampled]
        reach = [one.interval()[1] - one.value for one in cell.sampled]
        beside = [layer + 0.12 * (hue - (len(widths) - 1) / 2) for layer in layers]
        marks.append(Points(f"sampled mean, width {width}", beside, middle, hue, error=reach))
    what = "activations" if quantity == "activation" else "weight gradients"
    scale = "linear" if name == "He" else "log"
    return Panel(marks, "layer", WHAT[quantity], f"{name}: {what}", scale_up=scale, level=1.0, counts=True)


def _plain(cell: Cell) -> dict[str, object]:
    names = ("name", "width", "quantity", "exact", "deviation")
    sampled = [{"mean": one.value, "stderr": one.stderr, "networks": one.draws} for one in cell.sampled]
    return {**{name: getattr(cell, name) for name in names}, "sampled": sampled, "over_data": cell.over_data.value}


ITEMS = (
    Item(
        "overparam/fig1",
        "Figure 1: norms of activations and gradients over ten layers, He against Glorot",
        "With He's initialization |h|/|x| and |∂W|/(|δ||x|) are roughly 1 in every layer, the more so the wider the network; "
        "with Glorot's they are not.",
        run,
    ),
)
