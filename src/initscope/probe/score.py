"""Will it train? One number from what `check` measured, and the trunk of the network along which it is measured.

A branch that is scaled down, or a step whose effect a normalization undoes, does not decide over a network. So norms and
gradients are followed along the trunk, the way back from the output over the largest of the operands that carry the samples
(`probe.blame`), and norms are compared with the last normalization on it. The trunk ends before probabilities are made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from initscope.probe.report import LayerReport

_PROBABILITIES = ("softmax", "log_softmax", "logsoftmax", "sigmoid", "logsigmoid")
MOST = 4.0  # decades; ten thousand times too small or too large is as bad as can be
# Logistic regression on the first half of the networks of benchmarks/trainability: `python benchmarks/trainability/fit.py`.
INTERCEPT = 3.66
WEIGHTS = {"angle": -2.11, "gradient": -1.05}


@dataclass(frozen=True)
class Signs:
    """How many powers of ten (decades) a network is away from ideal, each at most `MOST`.

    angle: the mean angle between samples at the output, below 90 degrees; gradient: the gradient at the worst step of the
    trunk against the one at the output; norm: the worst step's against the last normalization, or the data.
    """

    angle: float
    gradient: float
    norm: float


def score(rows: Sequence[LayerReport]) -> float:
    """The chance that the network trains as it is, 1/(1 + exp(-log odds)); calibrated on small image classifiers."""
    measured = any(rows[i].angle_deg is not None for i in trunk(rows))
    return 1 / (1 + math.exp(-log_odds(signs(rows)))) if measured else math.nan


def log_odds(found: Signs) -> float:
    """intercept + Σ weight · sign. The norm has no weight: beside the gradient it told nothing more about training."""
    return INTERCEPT + WEIGHTS["angle"] * found.angle + WEIGHTS["gradient"] * found.gradient


def trunk(rows: Sequence[LayerReport]) -> list[int]:
    """Numbers of the steps from the data to the output, over the operand of the largest norm at every step."""

    def size(index: int) -> float:
        ratio = rows[index].norm_ratio if index >= 0 else None
        return math.sqrt(math.prod(rows[index].shape)) * ratio if ratio is not None and math.isfinite(ratio) else 0.0

    def before(index: int) -> int:
        row = rows[index]
        operands = row.inputs if row.carriers is None else row.carriers
        return max((j for j in operands if j < index), key=size, default=-1)

    way: list[int] = []
    index = next((i for i in reversed(range(len(rows))) if rows[i].output), len(rows) - 1)
    while index >= 0 and rows[index].op in _PROBABILITIES and before(index) >= 0:
        index = before(index)
    while index >= 0:
        way.append(index)
        index = before(index)
    return way[::-1]


def silent(rows: Sequence[LayerReport]) -> int | None:
    """The first step of the trunk whose weights are all zero: nothing passes it, forwards or backwards, until they learn."""
    return next((i for i in trunk(rows) if rows[i].weight_norm == 0 and rows[i].norm_ratio == 0), None)


def drifts(rows: Sequence[LayerReport]) -> dict[int, float]:
    """For each step of the trunk its norm_ratio over that of the last normalization before it, or of the data."""
    found: dict[int, float] = {}
    reference, end = 1.0, silent(rows)
    for index in trunk(rows):
        ratio = rows[index].norm_ratio
        if index == end:
            break
        if ratio is None:
            continue
        if rows[index].kind == "norm" and ratio > 0:
            reference = ratio
        found[index] = ratio / reference
    return found


def signs(rows: Sequence[LayerReport]) -> Signs:
    """Reads them off the layers of a report; what was not measured does not count."""
    end, way = silent(rows), trunk(rows)
    heard = way if end is None else way[: way.index(end)]
    angles = [a for a in (rows[i].angle_deg for i in heard) if a is not None]
    angle = angles[-1] if angles else 90.0
    gradients = [g for g in (rows[i].grad_norm_ratio for i in way) if g is not None and end is None]
    return Signs(
        angle=0.0 if angle >= 90 else decades(angle / 90),
        gradient=max(map(decades, gradients), default=0.0),
        norm=max(map(decades, drifts(rows).values()), default=0.0),
    )


def decades(ratio: float, most: float = MOST) -> float:
    """|log10 ratio|, at most `most`; so are zero and what is not a number.

    >>> decades(0.01), decades(100.0), decades(float("nan"))
    (2.0, 2.0, 4.0)
    """
    return min(abs(math.log10(ratio)), most) if math.isfinite(ratio) and ratio > 0 else most
