"""One step or the whole network? What drifts along the trunk is blamed on the step that makes most of it, if one does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from initscope.probe.trunk import WEIGHTS, Trunk

MOST_OF_IT = 0.5  # share of the whole drift, in logarithms, that one step must own to be named for it


@dataclass(frozen=True)
class Culprit:
    """`index`: the step that jumps, or, for a drift of the whole way, the step that is farthest off."""

    index: int
    jump: bool
    factor: float  # of the step that jumps, or of one weight layer on average
    layers: int  # weight layers over which it drifts

    @property
    def evidence(self) -> dict[str, Any]:
        if self.jump:
            return {"shape": "jump", "factor": self.factor}
        return {"shape": "drift", "rate_per_layer": self.factor, "layers": self.layers}


@dataclass(frozen=True)
class Change:
    """What one step does to a quantity, as a logarithm; infinite where it becomes zero."""

    index: int
    log: float


def culprit(way: Trunk, changes: Sequence[Change], worst: int) -> Culprit:
    """Among the changes that add up to the value at `worst`, the step that makes at least half of it, or the drift of all."""
    total = sum(c.log for c in changes if math.isfinite(c.log))
    endless = [c for c in changes if not math.isfinite(c.log)]
    if endless:
        return Culprit(endless[0].index, True, 0.0, 1)
    same = [c for c in changes if c.log * total > 0]
    largest = max(same, key=lambda c: abs(c.log), default=None)
    layers = max(1, sum(way.rows[c.index].kind in (*WEIGHTS, "residual") for c in changes))
    if largest is not None and abs(largest.log) >= MOST_OF_IT * abs(total):
        return Culprit(largest.index, True, math.exp(largest.log), 1)
    return Culprit(worst, False, math.exp(max(min(total / layers, 700.0), -700.0)), layers)


def log_ratio(a: float, b: float) -> float:
    """log(a / b); minus infinity where a is zero or not a number and b is a positive number, 0 where b is none."""
    if not (math.isfinite(b) and b > 0):
        return 0.0
    return math.log(a / b) if math.isfinite(a) and a > 0 else -math.inf
