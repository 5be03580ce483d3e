"""Section 4.2: what keeps images apart, filters that sum to zero and batch norm."""

from __future__ import annotations

import math

from initscope.papers.item import Check, Desk, Item, Outcome, claim, undecided
from initscope.papers.nachum2022.depth import CHANNELS, DEPTH, Followed, stack
from initscope.papers.nachum2022.drawing import LAYER, Line, Words, curves
from initscope.weights import Gaussian, ZeroSum

DEGREE = math.sin(math.radians(1))  # the cosine of 89 degrees


def _expands(name: str, one: Followed, layers: int, enough: int) -> list[Check]:
    """Pre-activations of different images turn orthogonal, and stay apart; `enough` layers are needed to see it."""
    cosine = one.before[-1]
    wider = float((one.input - cosine).min())
    checks = [
        claim(
            f"{name}: expansion, every pair ends farther apart than it began (smallest loss of cosine)",
            wider > 0,
            exact=wider,
        )
    ]
    says = (
        f"{name}: pre-activations of every pair are within one degree of orthogonal after {layers} layers "
        "(largest |cosine|)"
    )
    worst = float(cosine.abs().max())
    if layers < enough:
        return [*checks, undecided(says, f"this run has only {layers} layers", exact=worst)]
    low, high = one.last().interval()
    near = low <= DEGREE and high >= -DEGREE
    return [
        *checks,
        claim(says, worst < DEGREE, exact=worst, why="" if worst < DEGREE else "they settle at another angle"),
        claim(
            f"{name}: sampled networks agree, their mean cosine is within one degree of orthogonal",
            near,
            exact=float(cosine.mean()),
            sampled=one.last(),
            why="" if near else f"finite networks of {one.channels} channels end at another angle",
        ),
    ]


def zero_sum(desk: Desk) -> Outcome:
    """Filters that sum to zero, over the whole filter as in the paper and over each channel."""
    layers, draws = desk.pick(20, DEPTH), desk.pick(3, 8)
    pairs = desk.pairs("cifar10", pairs=desk.pick(2, 4), size=8)
    whole = Followed(stack(layers, ZeroSum()), pairs, 2, draws, desk.seed)
    small = desk.pairs("cifar10", pairs=desk.pick(2, 4), size=desk.pick(5, 8))
    each = Followed(stack(layers, ZeroSum(over="channel")), small, 2, draws, desk.seed)
    plain_net = Followed(stack(layers, Gaussian()), pairs, 2, draws, desk.seed)
    checks = _expands("filters of sum zero", whole, layers, 20) + _expands("each channel of sum zero", each, layers, 20)
    lines = [
        plain_net.cosine_line("Gaussian"),
        whole.cosine_line("sum zero over the filter"),
        each.cosine_line("sum zero in each channel"),
    ]
    return _expansion(tuple(checks), lines, "Filters that sum to zero make pre-activations orthogonal")


def batch_norm(desk: Desk) -> Outcome:
    """Batch norm between convolution and ReLU, its statistics over the images of the pairs."""
    layers, draws = desk.pick(3, DEPTH), desk.pick(10, 50)
    pairs = desk.pairs("cifar10", pairs=2, size=desk.pick(3, 5))
    normed = Followed(stack(layers, Gaussian(), norm=True, channels=128), pairs, 3, draws, desk.seed)
    without = Followed(stack(layers, Gaussian(), channels=128), pairs, 2, draws, desk.seed)
    checks = tuple(_expands("batch norm", normed, layers, 40))
    lines = [without.cosine_line("without"), normed.cosine_line("batch norm")]
    side = pairs.x.shape[-1]
    values = 4 * side * side
    notes = (
        f"A batch of 4 images of {side}x{side}, for which the exact law of batch norm is one integral; larger ones "
        "are only approximated.",
        "Not quite orthogonal: M values of a channel that sum to zero have the cosine -1/(M-1) where all are alike, "
        "here "
        f"{-1 / (values - 1):.4f}; the exact mean after {layers} layers is {float(normed.before[-1].mean()):.4f}.",
    )
    return _expansion(checks, lines, "Batch norm keeps pre-activations apart", notes, channels=128)


def _expansion(
    checks: tuple[Check, ...], lines: list[Line], title: str, notes: tuple[str, ...] = (), channels: int = CHANNELS
) -> Outcome:
    words = Words(
        title,
        LAYER,
        "mean cosine of pre-activations",
        "Mean cosine of the pre-activations of two images by layer: "
        + "; ".join(f"{line.label} from {line.y[0]:.2f} to {line.y[-1]:.2g}" for line in lines)
        + ".",
    )
    data = {
        line.label: {"exact": list(line.y), "layers": list(line.points.x), "sampled": list(line.points.y)}
        for line in lines
        if line.points
    }
    return Outcome(
        checks,
        data,
        curves(lines, words),
        (*notes, f"Sampled networks have {channels} channels; the fewer, the less the sampled ones contract."),
    )


ITEMS = (
    Item(
        "nachum2022/zerosum",
        "Section 4.2: filters that sum to zero",
        "Filters conditioned on a sum of zero make pre-activations orthogonal in the deeper layers.",
        zero_sum,
        sets=("cifar10",),
    ),
    Item(
        "nachum2022/batchnorm",
        "Section 4.2: batch normalisation",
        "Batch normalisation between the layers makes pre-activations orthogonal in the deeper layers.",
        batch_norm,
        sets=("cifar10",),
    ),
)
