"""OP Theorem 3: the norms of all weight gradients, and how far its assumption of independence holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from initscope.figures import Line, Panel, Picture, Points, curves_and_points
from initscope.finite import relu_gradient_law, relu_norm_law
from initscope.layers import ReLU
from initscope.networks import Sequential
from initscope.papers.item import Desk, Item, Outcome, Sampled, claim
from initscope.papers.overparam.forward import log_margin, printed_failure
from initscope.papers.overparam.networks import (
    LAWS,
    cross_entropy,
    deep_net,
    given_error,
    inputs,
    measure,
    over_networks,
)

DEPTH, SAMPLES = 10, 16
ERRORS = {
    "given": "an error drawn before the weights",
    "cross-entropy": "cross-entropy behind a random read-out (independence is assumed, and said to hold in practice)",
    "sum": "the sum of the last activations (any differentiable loss is allowed)",
}
WHY = {
    "given": "One in twenty such intervals misses.",
    "cross-entropy": "The error looks at the activations: each layer adds the squared cosine of ∂a and h, of order 1/width.",
    "sum": "The error lies along the activations: the assumption of the footnote fails, and the first layers gain.",
}


def theorem3(desk: Desk) -> Outcome:
    rows = _union(desk)
    told = [row for row in rows if row["bound"] < 1]
    worst = max(told, key=lambda row: row["exact"] / row["bound"])
    widths = desk.pick((30, 100), (30, 60, 100, 200, 500))
    found: dict[str, list[Sampled]] = {name: [] for name in ERRORS}
    for done, width in enumerate(widths):
        desk.progress(done, len(widths))
        for name in ERRORS:
            found[name].append(first_layer(desk, name, width))
    place = widths.index(100)
    checks = [
        claim(
            "eq. 22: the chance that some activation or gradient leaves its interval is at most 4L exp(-n rate), in "
            f"{len(rows)} cases; shown is the largest exact/bound where the bound is below 1 ({worst['network']}, ε = "
            f"{worst['epsilon']})",
            all(log_margin(row["bound"], row["exact"]) >= 0 for row in rows),
            exact=worst["exact"] / worst["bound"],
            why="By the exact laws and a union bound over layers, for an error that does not depend on the weights.",
        )
    ]
    for name, words in ERRORS.items():
        low, high = found[name][place].interval()
        checks.append(
            claim(
                f"the mean of |∂W_1|²/(|δ|²|x|²) is 1 in {DEPTH} layers of 100 units, for {words}",
                low <= 1 <= high,
                exact=1.0,
                sampled=found[name][place],
                why="" if low <= 1 <= high else WHY[name],
            )
        )
    data = {"union": rows, "widths": widths, **{n: [[s.value, s.stderr] for s in f] for n, f in found.items()}}
    notes = (
        f"Networks for each width and error: {desk.pick(80, 600)}, {SAMPLES} samples each; intervals are over networks.",
    )
    return Outcome(tuple(checks), data, _drift_picture(widths, found), notes)


def _union(desk: Desk) -> list[dict[str, Any]]:
    rows = []
    for width, depth in desk.pick(((500, 10),), ((500, 10), (1000, 20), (4060, 10))):
        gradient = relu_gradient_law([width] * depth, 1)  # the same in every layer of a uniform network
        for epsilon in desk.pick((0.5,), (0.1, 0.3, 0.5, 0.9)):
            forward = [
                relu_norm_law([width] * layer).outside((1 - epsilon) ** layer, (1 + epsilon) ** layer)
                for layer in range(1, depth + 1)
            ]
            back = gradient.outside((1 - epsilon) ** depth, (1 + epsilon) ** depth)
            bound = printed_failure([width] * depth, epsilon, factor=4)
            network = f"{depth} layers of {width}"
            rows.append({"network": network, "epsilon": epsilon, "exact": sum(forward) + depth * back, "bound": bound})
    return rows


def first_layer(desk: Desk, name: str, width: int) -> Sampled:
    """Mean over networks of |∂W_1|²/(|δ|²|x|²), with as many inputs as units."""
    networks, count = desk.pick(80, 600), SAMPLES
    x = inputs(count, desk.seed, width)
    losses: dict[str, Callable[[Tensor], Tensor]] = {
        "given": given_error(count, width, desk.seed + 5),
        "cross-entropy": cross_entropy(count, desk.seed + 6),
        "sum": lambda outputs: outputs.sum(1),
    }
    if name == "cross-entropy":
        net = deep_net([width] * DEPTH, LAWS["He"])
    else:
        net = deep_net([width] * DEPTH, LAWS["He"], classes=None)
        net = Sequential(*net.layers, ReLU()) if name == "sum" else net
    values = []
    for network in range(networks if width < 200 else networks // 4):
        seed = desk.seed + 100_000 * width + network
        ratio = measure(net, x, losses[name], seed, read_out=name == "cross-entropy").gradient[0]
        values.append(float(ratio.square().mean()))
    return over_networks(values)


def _drift_picture(widths: tuple[int, ...], found: dict[str, list[Sampled]]) -> Picture:
    marks: list[Line | Points] = [Line("exact mean, error independent of the weights", widths, [1.0] * len(widths), 0)]
    for hue, (name, label) in enumerate(
        {
            "given": "error drawn before the weights",
            "cross-entropy": "cross-entropy",
            "sum": "sum of activations",
        }.items()
    ):
        sampled = found[name]
        beside = [width * (1 + 0.03 * (hue - 1)) for width in widths]
        reach = [one.interval()[1] - one.value for one in sampled]
        marks.append(Points(label, beside, [one.value for one in sampled], hue, error=reach))
    panel = Panel(
        marks, "width of the layers, units", "mean of |∂W|²/(|δ|²|x|²), layer 1", scale_across="log", scale_up="log"
    )
    title = "Independence: exact for a given error, nearly for cross-entropy, not for a sum"
    last = {name: values[widths.index(100)].value for name, values in found.items()}
    description = (
        f"Mean squared gradient ratio of the first of {DEPTH} layers against width. At 100 units: {last['given']:.2f} for a "
        f"given error, {last['cross-entropy']:.2f} for cross-entropy, {last['sum']:.2f} for the sum of the activations."
    )
    return curves_and_points([panel], title, description, size=(7.4, 3.6), legend_columns=2)


ITEMS = (
    Item(
        "overparam/thm3",
        "Theorem 3: norms of all weight gradients",
        "|∂W_l|² is |x|²|δ|² within (1 ± ε)^L for all layers, except with probability 4NL exp(-n rate(ε)).",
        theorem3,
    ),
)
