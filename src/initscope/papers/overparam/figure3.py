"""OP Figure 3: layers of unequal width, and what they do to the norms of the weight gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from initscope.figures import Line, Panel, Picture, Points, curves_and_points
from initscope.finite import relu_gradient_law
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim
from initscope.papers.overparam.networks import INPUTS, LAWS, deep_net, given_error, inputs, measure, over_networks

DEPTH, MIDDLE = 20, 1000
VARIATIONS = (1, 200, 500)


@dataclass(frozen=True)
class Curve:
    """One network architecture: |∂W_l|/(|δ||x|) by layer, exact mean and deviation over networks, and sampled.

    `over_data` is the deviation over the samples of one network, mean over layers.
    """

    variation: int
    widths: tuple[int, ...]
    exact: tuple[float, ...]
    deviation: tuple[float, ...]
    sampled: tuple[Sampled, ...]
    over_data: Sampled

    @property
    def error(self) -> float:
        """Root mean square over layers of the exact distance of the mean from 1."""
        return math.sqrt(sum((mean - 1) ** 2 for mean in self.exact) / DEPTH)


def draw(desk: Desk, variation: int, count: int, networks: int) -> Curve:
    """Widths from U(1000 - v, 1000 + v), drawn once, then independent networks with them."""
    random = np.random.default_rng([desk.seed, variation])
    widths = tuple(int(w) for w in random.integers(MIDDLE - variation, MIDDLE + variation, DEPTH, endpoint=True))
    laws = [relu_gradient_law(widths, layer) for layer in range(1, DEPTH + 1)]
    exact = [law.moment(0.5) for law in laws]
    x, net = inputs(count, desk.seed), deep_net(widths, LAWS["He"], classes=None)
    rows = []
    for network in range(networks):
        loss = given_error(count, widths[-1], desk.seed + 7)
        rows.append(measure(net, x, loss, desk.seed + 1000 * variation + network, read_out=False).gradient)
    return Curve(
        variation,
        widths,
        tuple(exact),
        tuple(math.sqrt(max(law.mean - mean**2, 0.0)) for law, mean in zip(laws, exact, strict=True)),
        tuple(over_networks([float(row[layer].mean()) for row in rows]) for layer in range(DEPTH)),
        over_networks([float(row.std(1).mean()) for row in rows]),
    )


def run(desk: Desk) -> Outcome:
    count, networks = desk.pick(100, 1000), desk.pick(3, 10)
    curves = []
    for done, variation in enumerate(VARIATIONS):
        desk.progress(done, len(VARIATIONS))
        curves.append(draw(desk, variation, count, networks))
    data = [
        {
            "variation": curve.variation,
            "widths": curve.widths,
            "exact": curve.exact,
            "deviation": curve.deviation,
            "sampled": [{"mean": s.value, "stderr": s.stderr} for s in curve.sampled],
        }
        for curve in curves
    ]
    notes = (
        f"{networks} networks for each set of widths, {count} pairs of inputs in R^{INPUTS} and errors at the last layer, both "
        "standard normal. The paper has one network each.",
        "Exactly, E|∂W_l|² = |δ|²|x|² n_l/n_L: forwards every layer keeps the norm (2/fan-out), backwards layer l + 1 "
        "multiplies by n_l/n_{l+1}. So gradients follow the widths layer by layer, and nothing accumulates.",
    )
    return Outcome(tuple(_checks(curves)), {"curves": data}, _picture(curves), notes)


def _checks(curves: Sequence[Curve]) -> list[Check]:
    errors = [curve.error for curve in curves]
    last = curves[-1]
    farthest = max(range(DEPTH), key=lambda layer: abs(last.exact[layer] - 1))
    widest = max(range(DEPTH), key=lambda layer: abs(curves[0].exact[layer] - 1))
    return [
        claim(
            f"v = {curves[0].variation}: the mean ratio is within 10 % of 1 in the layer where it is farthest from it",
            abs(curves[0].exact[widest] - 1) <= 0.1,
            exact=curves[0].exact[widest],
            sampled=curves[0].sampled[widest],
        ),
        claim(
            f"v = {last.variation}: it is not, in layer {farthest + 1} of {last.widths[farthest]} units (√(n_l/n_L) = "
            f"{math.sqrt(last.widths[farthest] / last.widths[-1]):.3f})",
            abs(last.exact[farthest] - 1) > 0.1,
            exact=last.exact[farthest],
            sampled=last.sampled[farthest],
        ),
        claim(
            "The ratio is closer to 1 when the widths vary less: root mean square distance over the layers for v = "
            f"{', '.join(str(c.variation) for c in curves)}: {', '.join(f'{e:.4f}' for e in errors)}",
            all(one < two for one, two in itertools.pairwise(errors)),
            exact=errors[0] / errors[-1],
        ),
        _spread_check(curves),
    ]


def _spread_check(curves: Sequence[Curve]) -> Check:
    """Is the deviation over the data smaller for equal widths? Decided where the interval of the difference is."""
    first, last = curves[0].over_data, curves[-1].over_data
    error = math.hypot(first.stderr, last.stderr)
    more = Sampled(last.value - first.value, error, min(first.draws, last.draws))
    low, high = more.interval()
    relative = [math.sqrt(sum((d / m) ** 2 for d, m in zip(c.deviation, c.exact, strict=True)) / DEPTH) for c in curves]
    why = (
        "Relative to the mean the exact deviation over networks is nearly the same for all three: "
        f"{', '.join(f'{r:.4f}' for r in relative)}. It grows with the sum of 1/width only."
    )
    return Check(
        f"The standard deviation over the data is smaller when the widths vary less ({curves[0].variation}: {first.value:.4f}, "
        f"{curves[-1].variation}: {last.value:.4f}); shown is the difference",
        True if low > 0 else False if high < 0 else None,
        sampled=more,
        why=why if low > 0 or high < 0 else f"The interval holds both signs. {why}",
    )


def _picture(curves: Sequence[Curve]) -> Picture:
    layers = list(range(1, DEPTH + 1))
    marks: list[Line | Points] = []
    for hue, curve in enumerate(curves):
        marks.append(Line(f"exact mean, v = {curve.variation}", layers, curve.exact, hue))
    for hue, curve in enumerate(curves):
        middle = [one.value for one in curve.sampled]
        reach = [one.interval()[1] - one.value for one in curve.sampled]
        beside = [layer + 0.18 * (hue - 1) for layer in layers]
        marks.append(Points(f"sampled mean, v = {curve.variation}", beside, middle, hue, error=reach))
    panel = Panel(marks, "layer l", "|∂W|/(|δ||x|)", level=1.0, counts=True)
    title = "Gradient norms follow the widths: |∂W| is |δ||x| √(n_l/n_L) on average"
    description = (
        f"Ratio of gradient norms in {DEPTH} layers whose widths are drawn from 1000 ± v. For v = 1 it is near 1 everywhere; for "
        f"v = 500 it lies between {min(curves[-1].exact):.2f} and {max(curves[-1].exact):.2f}, as the exact curve says."
    )
    return curves_and_points([panel], title, description, size=(7.4, 3.8), legend_columns=3)


ITEMS = (
    Item(
        "overparam/fig3",
        "Figure 3: gradient norms in twenty layers of unequal width",
        "Gradient norm equality holds more accurately when the width varies less.",
        run,
    ),
)
