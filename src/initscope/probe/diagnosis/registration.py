"""Weights that no optimizer sees, and experts that no sample of the batch was sent to."""

from __future__ import annotations

from collections.abc import Sequence

from initscope.probe.diagnosis.case import Case, Judgement
from initscope.probe.findings import Finding, Status
from initscope.probe.weights import WeightFacts

_HALF = 0.5  # of all weights: without them a network hardly learns
_NAMED = 5  # shapes that a finding lists


def unregistered(case: Case, found: Judgement) -> None:
    """Weights that the forward pass uses and `model.parameters()` does not have."""
    if not case.strangers:
        return
    size = sum(s.size for s in case.strangers)
    share = size / (size + sum(f.size for f in case.weights if f.used))
    status: Status = "fail" if share >= _HALF else "warn"
    index = next((s.step for s in case.strangers if s.step is not None and s.step < len(case.rows)), None)
    shapes = [list(s.shape) for s in case.strangers[:_NAMED]]
    evidence = {"shapes": shapes, "count": len(case.strangers), "weights": size}
    step = None if index is None else case.rows[index].name
    found.add(Finding("unregistered", status, step, share, _HALF, evidence), index)


def idle_experts(case: Case, unused: Sequence[WeightFacts]) -> set[str]:
    """Names of unused weights that belong to one of several equal modules between which the data choose.

    The others run beside it, not one after the other, and the choice comes before them.
    """
    return {f.name for f in unused if any(_routed(case, f, at) for at in range(1, f.name.count(".") + 1))}


def _routed(case: Case, fact: WeightFacts, at: int) -> bool:
    parts = fact.name.split(".")
    container, key, rest = ".".join(parts[:at]), parts[at], ".".join(parts[at + 1 :])
    twins: dict[str, WeightFacts] = {}
    for f in case.weights:
        if f.used and f.shape == fact.shape and f.name.startswith(f"{container}."):
            other, _, tail = f.name[len(container) + 1 :].partition(".")
            if tail == rest and other != key:
                twins[f"{container}.{other}"] = f
    steps = {path: _steps(case, path) for path in twins}
    steps = {path: found for path, found in steps.items() if found}
    if not steps or any(f.used for f in case.weights if f.name.startswith(f"{container}.{key}.")):
        return False
    first = min(min(found) for found in steps.values())
    owner = container.rpartition(".")[0]
    chosen = any(index <= first and _inside(place, owner) for place, index in case.routings)
    return chosen and not any(_feeds(case, a, b) for x, a in steps.items() for y, b in steps.items() if x != y)


def _inside(place: str, owner: str) -> bool:
    return not owner or place == owner or place.startswith(f"{owner}.")


def _steps(case: Case, path: str) -> list[int]:
    """The steps that a module makes, its parts included."""
    names = [row.name.partition(":")[0].partition("#")[0] for row in case.rows]
    return [i for i, name in enumerate(names) if name == path or name.startswith(f"{path}.")]


def _feeds(case: Case, source: Sequence[int], target: Sequence[int]) -> bool:
    """Whether what one module makes goes into another."""
    waiting = [i for t in target for i in case.rows[t].inputs if i not in target]
    seen: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index in source:
            return True
        if index >= 0 and index not in seen:
            seen.add(index)
            waiting += case.rows[index].inputs
    return False
