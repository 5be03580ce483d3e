"""The remedy for norms that drift because layers are narrow: how wide they must be."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from initscope.errors import InitscopeError
from initscope.probe.remedies.places import Plan
from initscope.probe.remedies.remedy import Candidate
from initscope.probe.report import Report

EPSILON = 0.5  # the squared norm stays within 1 ± EPSILON
DELTA = 0.05  # but for this probability


def candidates(plan: Plan, report: Report) -> list[Candidate]:
    """Where the norm of some layer is off the infinitely wide network's by more than EPSILON, and layers are too narrow."""
    hidden = [site for site in plan.sites if plan.consumers.get(site.call.index)]
    off = drift(report)
    if not hidden or off is None or off <= EPSILON:
        return []
    width = needed_width(len(hidden), report.samples)
    narrowest = min(site.shape[0] for site in hidden)
    if width is None or narrowest >= width:
        return []
    text = (
        f"Make the hidden layers {width} wide (the narrowest has {narrowest}): then the squared norms of all "
        f"{report.samples} samples stay within {1 - EPSILON:g} and {1 + EPSILON:g} times their mean with probability "
        f"{1 - DELTA:.0%}; measured, they are off by {off:.0%}."
    )
    line = f"initscope.width_for(depth={len(hidden)}, epsilon={EPSILON}, delta={DELTA}, samples={report.samples})"
    return [Candidate("widen", "architecture", text, command=line, note="a wider model has to be built")]


def drift(report: Report) -> float | None:
    """The largest |measured / predicted - 1| of squared norms; None where nothing was predicted."""
    found = [
        abs((row.norm_ratio / row.norm_ratio_predicted) ** 2 - 1)
        for row in report.layers
        if row.norm_ratio is not None and row.norm_ratio_predicted
    ]
    return max((value for value in found if math.isfinite(value)), default=None)


def needed_width(depth: int, samples: int) -> int | None:
    """From the exact law of norms in ReLU networks (OP); None where `bounds` cannot say."""
    width_for = getattr(import_module("initscope.bounds"), "width_for", None)
    if width_for is None:
        return None
    try:
        answer: Any = width_for(depth=depth, epsilon=EPSILON, delta=DELTA, samples=samples)
    except InitscopeError:
        return None
    for name in ("exact", "value"):  # the exact answer beside the bounds of the paper, and its number
        answer = getattr(answer, name, answer)
    return int(answer) if isinstance(answer, int | float) and not isinstance(answer, bool) else None
