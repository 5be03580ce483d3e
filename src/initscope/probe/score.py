"""Will it train? One number from what `check` measured, and the trunk of the network along which it is measured.

A branch that is scaled down, or a step whose effect a normalization undoes, does not decide over a network. So norms and
gradients are followed along the trunk, the way back from the output over the largest operand of every step, and norms are
compared with the last normalization on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from initscope.probe.report import LayerReport

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
    return 1 / (1 + math.exp(-log_odds(signs(rows)))) if rows else math.nan


def log_odds(found: Signs) -> float:
    """intercept + Σ weight · sign. The norm has no weight: beside the gradient it told nothing more about training."""
    return INTERCEPT + WEIGHTS["angle"] * found.angle + WEIGHTS["gradient"] * found.gradient


def trunk(rows: Sequence[LayerReport]) -> list[int]:
    """Numbers of the steps from the data to the output, over the operand of the largest norm at every step."""

    def size(index: int) -> float:
        ratio = rows[index].norm_ratio if index >= 0 else None
        return math.sqrt(math.prod(rows[index].shape)) * ratio if ratio is not None and math.isfinite(ratio) else 0.0

    way: list[int] = []
    index = len(rows) - 1
    while index >= 0:
        way.append(index)
        index = max((j for j in rows[index].inputs if j < index), key=size, default=-1)
    return way[::-1]


def drifts(rows: Sequence[LayerReport]) -> dict[int, float]:
    """For each step of the trunk its norm_ratio over that of the last normalization before it, or of the data."""
    found: dict[int, float] = {}
    reference = 1.0
    for index in trunk(rows):
        ratio = rows[index].norm_ratio
        if ratio is None:
            continue
        if rows[index].kind == "norm" and ratio > 0:
            reference = ratio
        found[index] = ratio / reference
    return found


def signs(rows: Sequence[LayerReport]) -> Signs:
    """Reads them off the layers of a report; what was not measured does not count."""
    angle = next((r.angle_deg for r in reversed(rows) if r.angle_deg is not None), 90.0)
    gradients = [g for g in (rows[i].grad_norm_ratio for i in trunk(rows)) if g is not None]
    return Signs(
        angle=0.0 if angle >= 90 else decades(angle / 90),
        gradient=max(map(decades, gradients), default=0.0),
        norm=max(map(decades, drifts(rows).values()), default=0.0),
    )


def decades(ratio: float) -> float:
    """|log10 ratio|, at most `MOST`; so are zero and what is not a number.

    >>> decades(0.01), decades(100.0), decades(float("nan"))
    (2.0, 2.0, 4.0)
    """
    return min(abs(math.log10(ratio)), MOST) if math.isfinite(ratio) and ratio > 0 else MOST
