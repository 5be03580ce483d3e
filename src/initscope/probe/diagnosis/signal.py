"""What happens to the signal along the trunk: samples merge, activations and gradients change their size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from initscope.probe.diagnosis.case import Case, Judgement, below, limit_for, ratio_beyond
from initscope.probe.diagnosis.culprit import Change, culprit, log_ratio
from initscope.probe.findings import SEVERITY, Finding, Kind, Status
from initscope.probe.score import TRAINS, decades, score, signs, widened
from initscope.probe.thresholds import Limits
from initscope.probe.trunk import Trunk

_RESOLUTION = math.degrees(torch.finfo(torch.float32).eps)  # |a - b| < eps |a|
_SIZED = ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm")  # their output has unit variance
PARTED = 0.01  # degrees; samples that one layer leaves this far apart are parted again as it learns
SMALL = 0.1  # of the gradient that a layer lets through if its weights are small
ORDINARY = 0.1  # root mean square of what no epsilon outweighs
DEEP = 16  # normalized sums; a few may well replace what came in
_CAUSES: tuple[Kind, ...] = ("zero-weights", "dead-units", "norm-statistics")


def collapse(case: Case, found: Judgement) -> None:
    """Samples merge for good: an angle that a later step opens again is no collapse, unless float32 cannot tell it from zero."""
    if found.has("batch-degenerate") or _broken(found):
        return
    angles = {i: a for i, a in case.way.angles.items() if case.zero_end is None or i < case.zero_end}
    kept = _kept(angles)
    # Shallow networks part close samples again as they learn: a small angle alone is no reason for a warning.
    doubtful = score(signs(case.way, case.data.angle_deg, case.zero_end)).geometry < TRAINS
    worst: Status | None = None
    for index, angle in angles.items():
        lost = angle < _RESOLUTION
        status = "fail" if lost else below(widened(kept[index], case.data.angle_deg), case.limits.angle)
        if status == "fail" or (status == "warn" and doubtful):
            found.mark(index, "collapse", status)
            worst = status if worst is None or SEVERITY[status] > SEVERITY[worst] else worst
    if worst is None:
        return
    last = _lowest(angles)
    changes = _merging(case, angles, last)
    who = culprit(case.way, changes, _first(found, "collapse", worst))
    value = angles[last]
    weights = bool(case.rows[who.index].parameters)
    if worst == "fail" and who.jump and weights and (value >= PARTED or _small_weights(case.way, who.index)):
        worst = "warn"  # one layer whose bias outweighs its input: its weights grow as they learn
        found.soften("collapse")
    limit = limit_for(worst, case.limits.angle) * min(1.0, (case.data.angle_deg or 60.0) / 60.0)
    angles_deg = {"data_angle_deg": case.data.angle_deg, "readout_angle_deg": value}
    evidence = {**angles_deg, "kind": case.rows[who.index].kind, **who.evidence}
    _add(case, found, Finding("collapse", worst, case.rows[who.index].name, value, limit, evidence), who.index)


def activations(case: Case, found: Judgement) -> None:
    """Activations grow or shrink, against the data or the last normalization; what a later one undoes does not count."""
    if _broken(found):
        return
    _activations(case, case.way, found, {})


def gradients(case: Case, found: Judgement) -> None:
    """Gradients grow or shrink on their way back from the output."""
    if _broken(found):
        return
    _gradients(case, case.way, found, {})


def with_dropout(case: Case, found: Judgement) -> None:
    """The same with dropout on: each dropout layer adds variance, which adds up."""
    if case.dropped is None or _broken(found):
        return
    if any(row.broken for row in case.dropped.rows if row.output):
        index = next(i for i, row in enumerate(case.dropped.rows) if row.broken)
        evidence = {"pass": "forward", "what": case.dropped.rows[index].broken, "dropout": True}
        found.add(Finding("non-finite", "fail", case.dropped.rows[index].name, None, None, evidence))
        return
    told = {"dropout": True}
    if not found.has("activation-scale"):
        _activations(case, case.dropped, found, told)
    if not found.has("gradient-scale"):
        _gradients(case, case.dropped, found, told)


def post_norm(case: Case, found: Judgement) -> None:
    """Sums that are normalized one after the other: each keeps only a share of what came in, and the shares multiply."""
    rows, kept, count = case.rows, 1.0, 0
    for index in case.way.way:
        total = _normalized_sum(case, index)
        if total is None:
            continue
        sizes = [_size(case, j) ** 2 for j in rows[total].inputs]
        whole = sum(sizes)
        if whole > 0 and math.isfinite(whole):
            kept *= (
                _size(case, min(rows[total].inputs)) ** 2 / whole
            )  # what was made first is the stream, not the branch
            count += 1
    status = below(kept, case.limits.kept) if count >= DEEP else None
    if status is not None:
        evidence = {"sums": count, "kept_per_sum": kept ** (1 / count) if kept > 0 else 0.0}
        found.add(Finding("deep-post-norm", status, None, kept, limit_for(status, case.limits.kept), evidence))


def _normalized_sum(case: Case, index: int) -> int | None:
    """The residual sum that a normalization on the trunk takes, past dropout."""
    if case.rows[index].kind != "norm":
        return None
    at = case.way.previous.get(index, -1)
    while at >= 0 and case.rows[at].kind == "dropout":
        at = case.way.previous.get(at, -1)
    if at < 0 or case.rows[at].kind != "residual" or len(case.rows[at].inputs) != 2:
        return None
    return at if len(case.consumers.get(at, [])) == 1 else None  # what also goes around the normalization is pre-norm


def _size(case: Case, index: int) -> float:
    ratio = 1.0 if index < 0 else case.rows[index].norm_ratio
    return ratio if ratio is not None and math.isfinite(ratio) else 0.0


def _kept(angles: Mapping[int, float]) -> dict[int, float]:
    """For each step the largest angle from there to the output."""
    best, found = math.nan, {}
    for index in reversed(list(angles)):
        angle = angles[index]
        best = angle if math.isnan(best) else max(best, angle)
        found[index] = best
    return found


def _lowest(angles: Mapping[int, float]) -> int:
    """The step up to which samples merged: where they were lost for good, or the last one."""
    lost = [i for i, angle in angles.items() if not angle >= _RESOLUTION]
    return lost[0] if lost else list(angles)[-1]


def _merging(case: Case, angles: Mapping[int, float], last: int) -> list[Change]:
    before = case.data.angle_deg if case.data.angle_deg is not None else 90.0
    found = []
    for index, angle in angles.items():
        found.append(Change(index, log_ratio(angle, before)))
        before = angle
        if index == last:
            break
    return found


def _activations(case: Case, way: Trunk, found: Judgement, told: dict[str, Any]) -> None:
    limits = case.limits.norm
    drifts = {i: d for i, d in way.drifts.items() if case.zero_end is None or i < case.zero_end}
    skipped = way.undone | way.squared
    values = {i: _own_size(way, i) or d for i, d in drifts.items() if i not in skipped or way.rows[i].kind == "norm"}
    beyond = {i: s for i, v in values.items() if (s := ratio_beyond(v, limits)) is not None}
    for index, status in beyond.items():
        found.mark(index, "activation-scale", status)
    if not beyond:
        return
    index = max(beyond, key=lambda i: decades(values[i], math.inf))
    changes = _growth(way, drifts, values, index)
    who = culprit(way, changes, _first(found, "activation-scale", beyond[index]))
    status = beyond[index]
    if who.jump and values[index] < 1 and _grows(case, way, who.index):
        status = "warn"  # one small layer grows as it learns
        found.soften("activation-scale")
        _explain_collapse(case, way, found, who.index)
    evidence = {"since": _since(way, index), "kind": way.rows[who.index].kind, **who.evidence, **told}
    if _nothing_to_normalize(way, who.index):
        evidence["empty"] = True
    limit = limit_for(status, limits)
    finding = Finding("activation-scale", status, way.rows[who.index].name, values[index], limit, evidence)
    _add(case, found, finding, who.index)


def _explain_collapse(case: Case, way: Trunk, found: Judgement, small: int) -> None:
    """Samples that merge behind a layer of small weights, where a bias outweighs them, merge because of that layer."""
    for finding in [f for f in found.findings if f.kind == "collapse" and f.evidence.get("shape") == "jump"]:
        at = case.index_of(finding.step)
        between = [i for i in way.way if small < i <= (at or 0)]
        if between and all(way.rows[i].kind != "norm" for i in between):
            found.findings.remove(finding)
            found.soften("collapse")


def _alive(way: Trunk, index: int) -> bool:
    """Whether a step has weights of its own, and they are not zero."""
    return bool(way.rows[index].parameters) and (way.rows[index].norm_ratio or 0.0) > 0


def _grows(case: Case, way: Trunk, index: int) -> bool:
    """Whether what a step gives is small because its weights are: they grow as they learn. A closed gate does not open."""
    if not _alive(way, index) or _nothing_to_normalize(way, index):
        return False
    if way.rows[index].kind != "recurrent":
        return True
    known = [case.facts[name] for name in way.rows[index].parameters if name in case.facts]
    return all(f.weight < SMALL * math.sqrt(f.size / f.shape[-1]) for f in known if len(f.shape) > 1)


def _nothing_to_normalize(way: Trunk, index: int) -> bool:
    """A normalization that leaves nothing of an input of ordinary size, though its own scale is not small: over one value."""
    row, before = way.rows[index], way.previous.get(index, -1)
    size = 1.0 if before < 0 else way.rows[before].rms
    scale = row.weight_norm
    return row.kind == "norm" and bool(size and size > ORDINARY) and bool(scale and scale > ORDINARY)


def _small_weights(way: Trunk, index: int) -> bool:
    """Whether a step's weights are small: little of the gradient passes them, too. They themselves get all of it."""
    before = way.rows[way.previous[index]].grad_norm_ratio if way.previous.get(index, -1) >= 0 else None
    here = way.rows[index].grad_norm_ratio
    return before is not None and here is not None and 0 < before < SMALL * here and _alive(way, index)


def _own_size(way: Trunk, index: int) -> float | None:
    """A normalization's output has unit variance; what it is off by is the work of its own scale."""
    row = way.rows[index]
    return row.rms if row.kind == "norm" and row.op in _SIZED and row.rms is not None else None


def _growth(way: Trunk, drifts: Mapping[int, float], values: Mapping[int, float], worst: int) -> list[Change]:
    """What each step since the last normalization does to the size."""
    if way.rows[worst].kind == "norm":
        return [Change(worst, log_ratio(values[worst], 1.0))]
    found, before = [], 1.0
    for index, drift in drifts.items():
        if index > worst or way.segment[index] != way.segment[worst]:
            continue
        found.append(Change(index, log_ratio(drift, before)))
        before = drift
    return found


def _since(way: Trunk, worst: int) -> str | None:
    """The normalization before a step; None for the data."""
    norms = [i for i in way.way if i < worst and way.rows[i].kind == "norm"]
    return way.rows[norms[-1]].name if norms and way.rows[worst].kind != "norm" else None


def _gradients(case: Case, way: Trunk, found: Judgement, told: dict[str, Any]) -> None:
    normalized = any(way.rows[i].kind == "norm" for i in way.way)
    ratios = {i: g for i, g in way.gradients.items() if case.zero_end is None or i < case.zero_end}

    def limits_of(ratio: float) -> Limits:
        return case.limits.exploding if normalized and ratio > 1 else case.limits.gradient

    beyond = {i: s for i, g in ratios.items() if (s := ratio_beyond(g, limits_of(g))) is not None}
    for index, status in beyond.items():
        found.mark(index, "gradient-scale", status)
    if not beyond:
        return
    worst = max(beyond, key=lambda i: (decades(ratios[i], math.inf), -i))
    who = culprit(way, _backwards(ratios, worst), worst)
    if who.jump and who.factor == 0:
        evidence = {"op": way.rows[who.index].op, "worst_step": way.rows[worst].name}
        finding = Finding("zero-gradient", "fail", way.rows[who.index].name, 0.0, None, evidence)
        _add(case, found, finding, who.index)
        return
    status = beyond[worst]
    if who.jump and who.factor < 1 and _alive(way, who.index):
        status = "warn"  # one small layer grows as it learns
        found.soften("gradient-scale")
    limit = limit_for(status, limits_of(ratios[worst]))
    evidence = {"worst_step": way.rows[worst].name, "kind": way.rows[who.index].kind, **who.evidence, **told}
    finding = Finding("gradient-scale", status, way.rows[who.index].name, ratios[worst], limit, evidence)
    _add(case, found, finding, who.index)


def _backwards(ratios: Mapping[int, float], worst: int) -> list[Change]:
    """What the backward pass of each step does to the gradient, from the output to `worst`; it belongs to the step itself."""
    order = [i for i in ratios if i >= worst]
    found = []
    for before, index in zip(reversed(order[:-1]), reversed(order[1:]), strict=True):
        found.append(Change(index, log_ratio(ratios[before], ratios[index])))
    if order:
        found.insert(0, Change(order[-1], log_ratio(ratios[order[-1]], 1.0)))
    return found


def _first(found: Judgement, kind: Kind, status: Status) -> int:
    """The first step that is beyond the limit."""
    return min(i for i, marks in found.marks.items() if marks.get(kind) == status)


def _add(case: Case, found: Judgement, finding: Finding, index: int) -> None:
    """Unless it is only what an earlier finding does: zero or dead units explain what happens there and behind them."""
    places = [case.index_of(f.step) for f in found.findings if f.kind in _CAUSES and f.status == "fail"]
    places += [case.index_of(f.evidence.get("activation")) for f in found.findings if f.kind == "dead-units"]
    caused = [p for p in places if p is not None]
    if caused and finding.kind == "zero-gradient":
        return  # nothing comes forward, so nothing goes back
    if finding.evidence.get("shape") == "jump" and any(index > p or _near(case, index, p) for p in caused):
        found.mark(index, finding.kind, finding.status)
        return
    found.add(finding, index)


def _near(case: Case, index: int, cause: int) -> bool:
    """The same step, or one that directly takes or gives its values."""
    return index == cause or index in case.consumers.get(cause, []) or index in case.rows[cause].inputs


def _broken(found: Judgement) -> bool:
    return any(f.kind == "non-finite" and f.evidence.get("pass") == "forward" for f in found.findings)
