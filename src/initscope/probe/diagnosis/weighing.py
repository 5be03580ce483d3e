"""What is wrong with the weights themselves: zero, alike, frozen, unused, out of the gradient's reach."""

from __future__ import annotations

import math
from collections.abc import Sequence

from initscope.probe.diagnosis.case import Case, Judgement
from initscope.probe.diagnosis.registration import idle_experts
from initscope.probe.findings import Finding, Status
from initscope.probe.weights import WeightFacts

_NAMED = 5  # parameters that a finding lists


def zero_weights(case: Case, found: Judgement) -> None:
    """A failure where other weights follow, which nothing reaches; at the end of the network a common and harmless choice."""
    silent = [i for i in case.zero_steps if all(case.facts[name].zero for name in case.zero_parameters(i))]
    for index in silent:  # what remains is a last layer of equal units
        if found.has("zero-weights"):
            break
        row = case.rows[index]
        status: Status = "note" if index == case.zero_end else "fail"
        stopping = [index] if index == case.zero_end else [i for i in silent if i != case.zero_end]
        names = dict.fromkeys(name for i in stopping for name in case.zero_parameters(i))
        evidence = {"parameters": list(names), "last": index == case.zero_end, "kind": row.kind}
        found.add(Finding("zero-weights", status, row.name, 0.0, None, evidence), index)
        if status == "fail":
            for later in case.way.way:
                if later > index and case.rows[later].norm_ratio == 0:
                    found.mark(later, "zero-weights", "fail")


def symmetric_units(case: Case, found: Judgement) -> None:
    """Units with equal weights in and out stay equal for ever; with different weights out, the first step parts them."""
    limit = case.limits.duplicates[0]
    for index, row in enumerate(case.rows):
        facts = [case.facts[name] for name in row.parameters if name in case.facts]
        same = max((f for f in facts if not f.zero), key=lambda f: f.duplicates, default=None)
        if row.kind not in ("dense", "conv") or same is None or same.duplicates < limit:
            continue
        takers = _next_weights(case, index)
        if not takers:
            continue  # the last layer: the loss tells its units apart
        stuck = all(t.repeated_inputs >= limit for t in takers)
        status: Status = "fail" if stuck else "warn"
        if not found.has("symmetric-units", status=status):
            evidence = {"parameter": same.name, "stuck": stuck}
            found.add(Finding("symmetric-units", status, row.name, same.duplicates, limit, evidence), index)
        found.mark(index, "symmetric-units", status)


def _next_weights(case: Case, index: int) -> list[WeightFacts]:
    """The weights that the units of a step go into."""
    waiting, seen, found = list(case.consumers.get(index, [])), set(), []
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        row = case.rows[at]
        known = [case.facts[n] for n in row.parameters if n in case.facts and len(case.facts[n].shape) > 1]
        if row.kind in ("dense", "conv") and known:
            found += known
        else:
            waiting += case.consumers.get(at, [])
    return found


def reached(case: Case, found: Judgement) -> None:
    """Trainable weights that no gradient can arrive at, for one reason or the other."""
    trainable = [f for f in case.weights if f.trainable]
    if not case.weights:
        return
    if not trainable:
        found.add(Finding("frozen", "fail", None, 1.0, None, {"parameters": len(case.weights)}))
        return
    frozen = sum(f.size for f in case.weights if not f.trainable)
    if frozen:
        share = frozen / sum(f.size for f in case.weights)
        found.add(Finding("frozen", "note", None, share, None, {}))
    total = sum(f.size for f in trainable)
    if not case.differentiable and any(f.elsewhere for f in trainable):  # the output depends on them, the loss does not
        _tell(found, "no-gradient", trainable, total, "fail", "loss")
        return
    unused = [f for f in trainable if not f.used and f.gradient is None and not f.elsewhere]
    skipped = {f.name for f in unused} & case.used_elsewhere
    _tell(found, "unused", [f for f in unused if f.name in skipped], total, "note", _module(unused), skipped=True)
    unused = [f for f in unused if f.name not in skipped]
    idle = [f for f in unused if f.name in idle_experts(case, unused)]
    _tell(found, "unused", idle, total, "note", _module(idle), routed=True)
    unused = [f for f in unused if f not in idle]
    _tell(found, "unused", unused, total, "warn", _module(unused))
    away = [f for f in trainable if f.used and f.gradient is None and not f.elsewhere]
    needed = {name for i in case.ancestors for name in case.rows[i].parameters}
    status: Status = "fail" if not case.differentiable else "warn" if any(f.name in needed for f in away) else "note"
    _tell(found, "no-gradient", away, total, status, _cut(case, away))


def zero_gradients(case: Case, found: Judgement) -> None:
    """Weights whose gradient is exactly zero, also once zero weights have been nudged, and nothing else says why."""
    if any(f.status == "fail" for f in found.findings):
        return
    named = {name for i in case.way.way for name in case.rows[i].parameters}
    nudged = case.awake or {}
    still = [f for f in case.weights if f.trainable and f.gradient == 0 and nudged.get(f.name, 0.0) == 0 and _matrix(f)]
    on_trunk = [f for f in still if f.name in named]
    stuck = [f for f in still if f.zero]
    total = sum(f.size for f in case.weights if f.trainable)
    if still and len(still) == sum(f.trainable and _matrix(f) for f in case.weights):  # nothing learns at all
        index = _end_of_gradients(case)
        step = _user(case, still[0]) if index is None else case.rows[index].name
        _tell(
            found, "zero-gradient", still, total, "fail", step, **({} if index is None else {"op": case.rows[index].op})
        )
    elif stuck:  # a product of two zeros never moves
        _tell(found, "zero-gradient", stuck, total, "warn", _user(case, stuck[0]), stuck=True)
    elif on_trunk:
        _tell(found, "zero-gradient", on_trunk, total, "warn", _user(case, on_trunk[0]))
    elif still:
        _tell(found, "zero-gradient", still, total, "note", _user(case, still[0]))


def _tell(
    found: Judgement,
    kind: str,
    weights: Sequence[WeightFacts],
    total: int,
    status: Status,
    step: str | None,
    **more: object,
) -> None:
    """Vectors alone (a mask token that this batch does not need) are only a note."""
    if not weights:
        return
    status = status if any(_matrix(f) for f in weights) else "note"
    share = sum(f.size for f in weights) / total
    evidence = {"parameters": [f.name for f in weights[:_NAMED]], "count": len(weights), **more}
    found.add(Finding(kind, status, step, share, None, evidence))  # type: ignore[arg-type]


def _matrix(fact: WeightFacts) -> bool:
    return sum(side > 1 for side in fact.shape) > 1 or (math.prod(fact.shape) > 1 and len(fact.shape) > 3)


def _module(weights: Sequence[WeightFacts]) -> str | None:
    matrices = [f for f in weights if _matrix(f)] or list(weights)
    return matrices[0].name.rpartition(".")[0] or matrices[0].name if matrices else None


def _cut(case: Case, away: Sequence[WeightFacts]) -> str | None:
    """The last step before the gradient stops: where a result is detached, or is made without gradients."""
    if case.cuts:
        return case.rows[max(case.cuts)].name
    names = {f.name for f in away}
    users = [row.name for row in case.rows if names & set(row.parameters)]
    return users[-1] if users else None


def _end_of_gradients(case: Case) -> int | None:
    """The step nearest to the output through which the gradient becomes exactly zero, off the trunk too."""
    zero = [i for i, row in enumerate(case.rows) if row.grad_norm_ratio == 0]
    takers = [j for i in zero for j in case.consumers.get(i, []) if case.rows[j].grad_norm_ratio]
    return max(takers, default=None)


def _user(case: Case, fact: WeightFacts) -> str | None:
    return next((row.name for row in case.rows if fact.name in row.parameters), None)
