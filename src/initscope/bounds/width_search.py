"""From a failure probability that falls with the width to the smallest width that meets a target."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from initscope.errors import BadInput
from initscope.finite.mellin import WIDEST


def smallest_width(place: str, log_failure: Callable[[int], float], goal: float, guess: int) -> tuple[int, float]:
    """The width m with log_failure(m) <= goal < log_failure(m - 1), and log_failure(m).

    Failure probabilities fall with the width, their logarithm nearly along a line: secant steps inside a bracket.
    """
    fails, holds = 0, WIDEST + 1  # a width that is too small, a width that suffices
    known: dict[int, float] = {}
    width = min(max(1, guess), WIDEST)
    while holds - fails > 1:
        known[width] = log_failure(width)
        fails, holds = (fails, width) if known[width] <= goal else (width, holds)
        near = sorted(known, key=lambda one: abs(known[one] - goal))[:2]
        if len(known) > 20:  # no line after all
            width = (fails + holds) // 2
            continue
        if len(near) == 2 and known[near[0]] != known[near[1]]:
            step = (goal - known[near[0]]) * (near[1] - near[0]) / (known[near[1]] - known[near[0]])
        else:
            step = width * (goal / known[width] - 1) if known[width] < -0.1 else width
        width = near[0] + math.ceil(max(-0.5 * near[0], min(step, float(near[0]))))
        width = min(max(width, fails + 1), holds - 1)
    if holds > WIDEST:
        raise BadInput(place, f"the target needs more than {WIDEST:,} units", "use a larger epsilon or delta")
    return holds, known[holds]


def log_normal_width(depth: int, epsilon: float, target: float, gain: float) -> int:
    """5L/s², where a log-normal ratio with mean (gain/2)^L and Var log = s² leaves 1 ± ε with the target probability."""
    drift = depth * math.log(gain / 2)
    low, high = math.log1p(-epsilon) - drift, math.log1p(epsilon) - drift

    def excess_failure(log_spread: float) -> float:
        s = math.exp(log_spread)
        below, above = log_ndtr((low + s * s / 2) / s), log_ndtr(-(high + s * s / 2) / s)
        return float(np.logaddexp(below, above)) - math.log(target)

    narrow, wide = math.log(min(-low, high) / 60), 8.0
    if excess_failure(wide) < 0:
        return 1
    spread = math.exp(float(brentq(excess_failure, narrow, wide, xtol=1e-10)))
    return max(1, math.ceil(5 * depth / spread**2))
