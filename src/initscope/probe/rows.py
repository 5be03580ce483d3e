"""The rows of a report: what was measured at every step, as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from initscope.probe.blame import Place, carriers, contributions
from initscope.probe.inspection import Inspection, Look
from initscope.probe.report import LayerReport, SeedSpread
from initscope.probe.trace import Call, Step
from initscope.probe.translation import Arguments


def rows_of(inspection: Inspection) -> list[LayerReport]:
    carried = _carriers(inspection)
    blame = _blame(inspection, carried)
    return [
        replace(_row(step, inspection, blame[i]), carriers=carried[i], output=i == inspection.output)
        for i, step in enumerate(inspection.steps)
    ]


def _carriers(inspection: Inspection) -> list[tuple[int, ...]]:
    """For each step the operands that carry the samples on."""

    def at(index: int) -> Look:
        return inspection.data if index < 0 else inspection.steps[index].observed

    def apart(index: int) -> bool:
        values = at(index).values
        return values is None or bool((values.defect > 0).any())

    return [carriers(s.call.function, s.call.inputs, lambda i: at(i).units, apart) for s in inspection.steps]


def _blame(inspection: Inspection, carried: Sequence[tuple[int, ...]]) -> list[float]:
    def place(look: Look, inputs: tuple[int, ...], kind: str) -> Place:
        if look.values is None or look.units < 2:
            return Place(inputs, kind, math.nan, math.nan)
        angle = float(look.values.angle.nanmean())
        return Place(inputs, kind, float(look.values.norm.mean()), math.log(angle) if angle > 0 else math.nan)

    steps = [place(s.observed, via, s.call.kind) for s, via in zip(inspection.steps, carried, strict=True)]
    return contributions(place(inspection.reference, (), "input"), steps, inspection.output)


def resolution_of(rows: Sequence[LayerReport]) -> dict[str, str | None]:
    """For each number format, the first layer at which samples differ by less than its rounding: |a - b| < eps |a|."""
    first: dict[str, str | None] = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        limit = math.degrees(torch.finfo(dtype).eps)
        below = (row.name for row in rows if row.angle_deg is not None and row.angle_deg < limit)
        first[str(dtype).removeprefix("torch.")] = next(below, None)
    return first


def _row(step: Step[Look], inspection: Inspection, blame: float) -> LayerReport:
    call, look = step.call, step.observed
    base, last = inspection.reference.rms, inspection.last_gradient
    ratio = None
    if look.gradient is not None and last is not None and float(last.norm.mean()) > 0:
        ratio = float(look.gradient.norm.mean() / last.norm.mean())
    relative, whole = look.sensitivity, inspection.last_sensitivity
    parameters = tuple(dict.fromkeys((*call.parameters, *call.sources)))
    owned = [w for w in inspection.weights if w.name in parameters]
    return LayerReport(
        name=call.name,
        op=call.function,
        kind=call.kind,
        shape=call.shape[1:],
        inputs=call.inputs,
        parameters=parameters,
        grad_norm_ratio=ratio,
        sensitivity_ratio=relative / whole if relative is not None and whole else None,
        grad_cosine=None if look.gradient is None else _mean(look.gradient.cosine),
        weight_norm=math.hypot(*(w.weight for w in owned)) if owned else None,
        weight_grad_norm=math.hypot(*(w.gradient or 0.0 for w in owned)) if owned else None,
        dead_fraction=look.dead,
        saturated_fraction=look.saturated,
        predicted=look.predicted,
        norm_ratio_predicted=look.predicted.rms / base if look.predicted is not None and base > 0 else None,
        contraction=blame,
        rms=None if look.values is None else look.rms,
        broken=look.broken,
        gradient_broken=look.gradient_broken,
        followed=look.followed and look.values is not None and not call.opaque,
        has_gradient=look.has_gradient,
        drop_rate=call.drop_rate,
        over_samples=_over_samples(call),
        recurrent_gain=max((w.recurrent_gain for w in owned), default=0.0),
        fit=look.fit,
        **row_values(look, inspection.reference),
    )


def _over_samples(call: Call) -> bool:
    """Whether a softmax runs along the axis of the samples."""
    if call.function not in ("softmax", "log_softmax") or call.axis is None or call.parameters:
        return False
    axis = Arguments(call).get(1, "dim")
    return isinstance(axis, int) and axis % max(len(call.shape), 1) == call.axis


def row_values(look: Look, data: Look) -> dict[str, Any]:
    """What is measured at any place; means over pairs."""
    geometry = look.values if look.units > 1 else None  # one unit has no angle
    base = data.rms
    known = geometry is not None
    return {
        "norm_ratio": look.rms / base if look.values is not None and base > 0 else None,
        "cosine_mean": _mean(geometry.cosine) if known else None,  # type: ignore[union-attr]
        "cosine_std": _spread(geometry.cosine) if known else None,  # type: ignore[union-attr]
        "cosine_seeds": SeedSpread.of([_mean(geometry.cosine)] if known else []),  # type: ignore[union-attr]
        "angle_deg": math.degrees(_mean(geometry.angle)) if known else None,  # type: ignore[union-attr]
        "defect": _mean(geometry.defect) if known else None,  # type: ignore[union-attr]
        "centred_cosine": _mean(geometry.centred_cosine) if known else None,  # type: ignore[union-attr]
        "effective_rank": geometry.effective_rank if known else None,  # type: ignore[union-attr]
    }


def _spread(values: Tensor) -> float:
    known = values[values.isfinite()]
    return float(known.std(correction=0)) if len(known) else math.nan


def _mean(values: Tensor) -> float:
    """NaN where no pair has a value."""
    return float(values.nanmean())
