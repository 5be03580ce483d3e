"""Units that never fire, and units at the ends of their range."""

from __future__ import annotations

from initscope.probe.diagnosis.case import Case, Judgement, above, limit_for
from initscope.probe.findings import Finding, Status
from initscope.probe.report import LayerReport

_CUTS = ("relu", "relu6", "gelu", "silu", "elu", "celu", "selu", "mish", "hardswish", "threshold", "hardtanh", "prelu",
         "leaky_relu", "rrelu", "clamp", "clamp_min", "softplus", "hardshrink", "softshrink", "maximum")  # fmt: skip
_FEEDS = ("dense", "conv", "norm", "shift", "scale", "residual")


def dead(case: Case, found: Judgement) -> None:
    """The layer whose output the activation cuts off; off the trunk it is at most a warning."""
    on_trunk = set(case.way.way)
    for index, row in enumerate(case.rows):
        status = None if row.dead_fraction is None else above(row.dead_fraction, case.limits.dead)
        if status is None or row.dead_fraction is None or not _cuts_off(row) or _weighs(case, index):
            continue
        feeder = _feeder(case, index)
        if _nothing_comes(case, index):
            if found.has("zero-weights", "dead-units", status="fail"):
                found.mark(index, "dead-units", status)
            continue
        status = status if index in on_trunk else "warn"
        found.mark(index, "dead-units", status)
        if feeder is not None:
            found.mark(feeder, "dead-units", status)
        if not _told(found, status):
            named = case.rows[index if feeder is None else feeder]
            evidence = {"activation": row.name, "op": row.op, "kind": named.kind}
            limit = limit_for(status, case.limits.dead)
            found.add(Finding("dead-units", status, named.name, row.dead_fraction, limit, evidence))


def saturated(case: Case, found: Judgement) -> None:
    """The first activation with too many values at the ends of its range."""
    for index, row in enumerate(case.rows):
        status = None if row.saturated_fraction is None else above(row.saturated_fraction, case.limits.saturated)
        if status is None or _gate(case, index, status):
            continue
        found.mark(index, "saturated", status)
        feeder = _feeder(case, index)
        if not any(f.kind == "saturated" and f.status == status for f in found.findings):
            step = case.rows[index if feeder is None else feeder].name
            evidence = {"activation": row.name, "op": row.op, "attention": row.kind == "attention"}
            limit = limit_for(status, case.limits.saturated)
            found.add(Finding("saturated", status, step, row.saturated_fraction, limit, evidence), feeder)


def recurrent(case: Case, found: Judgement) -> None:
    """Recurrent weights that are applied at every time step: what they multiply by each time, gradients see as often."""
    for index, row in enumerate(case.rows):
        status = above(row.recurrent_gain, case.limits.recurrent)
        if status is not None and not found.has("gradient-scale"):
            limit, evidence = limit_for(status, case.limits.recurrent), {"shape": "recurrent", "op": row.op}
            found.add(Finding("gradient-scale", status, row.name, row.recurrent_gain, limit, evidence), index)


def _told(found: Judgement, status: Status) -> bool:
    """One finding for each status: what comes later is marked."""
    return any(f.kind == "dead-units" and f.status == status for f in found.findings)


def _feeder(case: Case, index: int) -> int | None:
    """The step with weights whose output goes into an activation."""
    at = index
    while True:
        taken = [j for j in case.rows[at].inputs if j >= 0]
        if len(taken) != 1:
            return None
        at = taken[0]
        if case.rows[at].parameters and case.rows[at].kind in _FEEDS:
            return at
        if case.rows[at].kind not in ("shift", "scale", "dropout", "select"):
            return None


def _nothing_comes(case: Case, index: int) -> bool:
    """Whether what goes in is zero already."""
    taken = [j for j in case.rows[index].inputs if j >= 0]
    return bool(taken) and all(case.rows[j].norm_ratio == 0 for j in taken)


def _cuts_off(row: LayerReport) -> bool:
    """Functions that send a half line to (nearly) zero; an exponential of -100 is small because it has to be."""
    return row.op in _CUTS or "elu" in row.op or "lu" in row.op[-3:]


def _weighs(case: Case, index: int) -> bool:
    """Whether its units only go into a gate: squeeze and excite has few, and a gate of one half is a gate."""
    at = index
    for _ in range(3):
        takers = case.consumers.get(at, [])
        if index in case.way.way or len(takers) != 1:
            return False
        at = takers[0]
        if case.rows[at].op in ("sigmoid", "hardsigmoid"):
            return True
    return False


def _gate(case: Case, index: int, status: Status) -> bool:
    """What only weighs others may sit at its ends, attention may not; the model's own last step may in part."""
    row = case.rows[index]
    if row.kind == "attention":
        return row.output or not case.consumers.get(index)
    return status != "fail" if row.output else index not in case.way.way
