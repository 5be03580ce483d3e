"""Failure probabilities over a range of widths, for figures."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from initscope.bounds.printed_width import theorem_failure
from initscope.bounds.width import WidthAnswer
from initscope.finite.depths import log_outside_sum
from initscope.finite.mellin import WIDEST, Factor


@dataclass(frozen=True)
class FailureByWidth:
    """The exact chance to fail and OP's bound on it, each with the widths at which it was computed."""

    exact_widths: tuple[int, ...]
    exact: tuple[float, ...]
    theorem1_widths: tuple[int, ...]
    theorem1: tuple[float, ...]


def failure_by_width(
    answer: WidthAnswer, *, gain: float = 2.0, every_layer: bool = False, points: int = 32
) -> FailureByWidth:
    """How the chance to fail falls around the widths of an answer, from where it is near one to far below δ.

    >>> from initscope.bounds.width import width_for
    >>> curves = failure_by_width(width_for(1, 0.5, 0.05))
    >>> curves.exact[0] > 0.5 > 0.05 > curves.exact[-1]
    True
    """
    depth, samples, epsilon = answer.depth, answer.samples, answer.epsilon
    weights = {layer: 1.0 for layer in range(1, depth + 1)} if every_layer else {depth: 1.0}
    widths = _around(answer.exact.value, 1 / 20, 4.0, points)
    exact = tuple(
        min(1.0, samples * math.exp(log_outside_sum(Factor(m, gain / m), weights, 1 - epsilon, 1 + epsilon)))
        for m in widths
    )
    bounded: tuple[int, ...] = ()
    if answer.theorem1 is not None:
        near = _around(answer.theorem1.value, 1 / 4, 2.0, points)
        bounded = (*(m for m in widths if m < near[0]), *near)  # the bound says nothing there: one
    bounds = tuple(theorem_failure((m,) * depth, epsilon, 2 * samples) for m in bounded)
    return FailureByWidth(widths, exact, bounded, bounds)


def _around(width: int, low: float, high: float, points: int) -> tuple[int, ...]:
    ends = math.log(max(1.0, low * width)), math.log(min(high * width + 2, WIDEST))
    return tuple(sorted({round(math.exp(step)) for step in np.linspace(*ends, points)}))
