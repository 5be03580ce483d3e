"""From measured numbers to a verdict: what is wrong with a layer, in words.

Angles, norms and gradients count along the trunk (`probe.score`). An angle that a later step opens again is no collapse,
unless it fell below what float32 can tell apart; a norm counts against the last normalization before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from initscope.probe.report import SEVERITY, LayerReport, Status
from initscope.probe.score import drifts, silent, trunk
from initscope.probe.thresholds import Thresholds

_RESOLUTION = math.degrees(torch.finfo(torch.float32).eps)  # |a - b| < eps |a|

Finding = tuple[Status, str]


def judge(row: LayerReport, limits: Thresholds) -> LayerReport:
    """One layer by itself, as if it were the whole network."""
    return judge_all([row], limits)[0]


def judge_all(rows: Sequence[LayerReport], limits: Thresholds) -> list[LayerReport]:
    """The layers with their status and the reason, the worst finding first."""
    on_trunk = set(trunk(rows))
    kept = _kept_angles(rows)
    norms = _norm_findings(rows, limits)
    end = silent(rows)
    judged = []
    for index, row in enumerate(rows):
        found = list(_findings(row, limits))
        if index in on_trunk and row.finite and (end is None or index < end):
            found += [*_angle(row, kept.get(index), limits), *norms.get(index, [])]
            found += _gradient(row, limits) if end is None else []
        if index == end:
            found.append(("warn", "all weights are zero: nothing passes until they have learned"))
        bad = sorted((f for f in found if f[0] != "healthy"), key=lambda f: -SEVERITY[f[0]])
        status: Status = bad[0][0] if bad else "healthy"
        judged.append(replace(row, status=status, reason="; ".join(why for _, why in bad)))
    return judged


def overall(rows: Sequence[LayerReport], failure: str | None) -> tuple[Status, str | None]:
    """The worst status, and the first layer that has it."""
    if failure is not None:
        return "fail", rows[-1].name if rows else None
    worst: Status = max((r.status for r in rows), key=SEVERITY.__getitem__, default="healthy")
    if worst == "healthy":
        return worst, None
    return worst, next(r.name for r in rows if r.status == worst)


def _findings(row: LayerReport, limits: Thresholds) -> Iterator[Finding]:
    """What counts on every step, also off the trunk."""
    if not row.finite:
        yield "fail", "values are NaN or infinite"
    if row.dead_fraction is not None:
        yield _above(row.dead_fraction, limits.dead), f"{row.dead_fraction:.0%} of the units are dead"
    if row.saturated_fraction is not None:
        yield _above(row.saturated_fraction, limits.saturated), f"{row.saturated_fraction:.0%} of the values saturate"


def _kept_angles(rows: Sequence[LayerReport]) -> dict[int, float]:
    """For each step of the trunk the largest angle from there to the output."""
    best, kept, end = math.nan, {}, silent(rows)
    for index in reversed(trunk(rows)):
        if end is not None and index >= end:
            continue
        angle = rows[index].angle_deg
        if angle is not None:
            best = angle if math.isnan(best) else max(best, angle)
            kept[index] = best
    return kept


def _angle(row: LayerReport, kept: float | None, limits: Thresholds) -> Iterator[Finding]:
    if row.angle_deg is None or kept is None:
        return
    if row.angle_deg < _RESOLUTION:
        yield "fail", f"samples are {row.angle_deg:.2g} degrees apart, less than float32 can tell"
    else:
        yield _below(kept, limits.angle), f"samples are {row.angle_deg:.2g} degrees apart"


def _norm_findings(rows: Sequence[LayerReport], limits: Thresholds) -> dict[int, list[Finding]]:
    found: dict[int, list[Finding]] = {}
    since = "against the data"
    for index, drift in drifts(rows).items():
        if rows[index].kind == "norm":
            since = f"since {rows[index].name}"
        word = "grew" if drift > 1 else "shrank"
        found[index] = [(_ratio(drift, limits.norm), f"activations {word} {_times(drift)} {since}")]
    return found


def _gradient(row: LayerReport, limits: Thresholds) -> Iterator[Finding]:
    if row.grad_norm_ratio is not None and math.isnan(row.grad_norm_ratio):
        yield "fail", "the gradient is not a number"
    elif row.grad_norm_ratio is not None:
        word = "explodes" if row.grad_norm_ratio > 1 else "vanishes"
        reason = f"the gradient {word}: {row.grad_norm_ratio:.2g} of the one at the output"
        yield _ratio(row.grad_norm_ratio, limits.gradient), reason


def _below(value: float, limits: tuple[float, float]) -> Status:
    return "fail" if not value >= limits[1] else "warn" if value < limits[0] else "healthy"


def _above(value: float, limits: tuple[float, float]) -> Status:
    return "fail" if value > limits[1] else "warn" if value > limits[0] else "healthy"


def _ratio(value: float, limits: tuple[float, float]) -> Status:
    """Both directions count; a ratio of zero is as bad as can be."""
    size = math.inf if value <= 0 or not math.isfinite(value) else max(value, 1 / value)
    return _above(size, limits)


def _times(ratio: float) -> str:
    size = ratio if ratio > 1 else 1 / ratio if ratio > 0 else math.inf
    return f"{size:.3g} times"
