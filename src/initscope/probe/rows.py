"""The rows of a report: what was measured at every step, as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from initscope.probe.arguments import Arguments
from initscope.probe.blame import Place, carriers, contributions
from initscope.probe.inspection import Inspection, Look
from initscope.probe.measure import summarize
from initscope.probe.report import LayerReport, SeedSpread
from initscope.probe.trace import Call
from initscope.probe.weights import WeightFacts


def rows_of(inspection: Inspection) -> list[LayerReport]:
    looks = [inspection.data, *(step.observed for step in inspection.steps)]
    summarize([look.values for look in looks if look.values is not None])
    summarize([look.gradient for look in looks if look.gradient is not None], spectra=False)
    carried = _carriers(inspection)
    blame = _blame(inspection, carried)
    weights = {facts.name: facts for facts in inspection.weights}
    return [_row(i, inspection, blame[i], carried[i], weights) for i in range(len(inspection.steps))]


def _carriers(inspection: Inspection) -> list[tuple[int, ...]]:
    """For each step the operands that carry the samples on."""

    def at(index: int) -> Look:
        return inspection.data if index < 0 else inspection.steps[index].observed

    def apart(index: int) -> bool:
        values = at(index).values
        return values is None or values.summary.most > 0

    return [carriers(s.call.function, s.call.inputs, lambda i: at(i).units, apart) for s in inspection.steps]


def _blame(inspection: Inspection, carried: Sequence[tuple[int, ...]]) -> list[float]:
    def place(look: Look, inputs: tuple[int, ...], kind: str) -> Place:
        if look.values is None or look.units < 2:
            return Place(inputs, kind, math.nan, math.nan)
        angle = look.values.summary.angle
        return Place(inputs, kind, look.values.summary.norm, math.log(angle) if angle > 0 else math.nan)

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


def _row(
    index: int, inspection: Inspection, blame: float, carried: tuple[int, ...], weights: dict[str, WeightFacts]
) -> LayerReport:
    call, look = inspection.steps[index].call, inspection.steps[index].observed
    base, last = inspection.reference.rms, inspection.last_gradient
    ratio = None
    if look.gradient is not None and last is not None and last.summary.norm > 0:
        ratio = look.gradient.summary.norm / last.summary.norm
    relative, whole = look.sensitivity, inspection.last_sensitivity
    parameters = tuple(dict.fromkeys((*call.parameters, *call.sources)))
    owned = [weights[name] for name in parameters if name in weights]
    return LayerReport(
        name=call.name,
        op=call.function,
        kind=call.kind,
        shape=call.shape[1:],
        inputs=call.inputs,
        parameters=parameters,
        grad_norm_ratio=ratio,
        sensitivity_ratio=relative / whole if relative is not None and whole else None,
        grad_cosine=None if look.gradient is None else look.gradient.summary.cosine,
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
        carriers=carried,
        output=index == inspection.output,
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
    base = data.rms
    ratio = look.rms / base if look.values is not None and base > 0 else None
    if look.values is None or look.units < 2:  # one unit has no angle
        names = ("cosine_mean", "cosine_std", "angle_deg", "defect", "centred_cosine", "effective_rank")
        return {"norm_ratio": ratio, "cosine_seeds": SeedSpread.of([]), **dict.fromkeys(names)}
    found, spectrum = look.values.summary, look.values.spectrum
    return {
        "norm_ratio": ratio,
        "cosine_mean": found.cosine,
        "cosine_std": found.spread,
        "cosine_seeds": SeedSpread.of([found.cosine]),
        "angle_deg": math.degrees(found.angle),
        "defect": found.defect,
        "centred_cosine": spectrum.centred,
        "effective_rank": spectrum.rank,
    }
