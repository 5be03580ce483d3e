"""What `check` can find, as data: words are made of it in `report`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from initscope.results import jsonable

Verdict = Literal["healthy", "warn", "fail"]
Status = Literal["note", "warn", "fail"]  # a note informs, it does not make a model unhealthy
SEVERITY: dict[str, int] = {"healthy": 0, "note": 0, "warn": 1, "fail": 2}

Kind = Literal[
    "stopped", "non-finite", "frozen", "unregistered", "samples-mixed", "norm-statistics", "zero-weights", "dead-units",
    "symmetric-units", "dropout-rate", "collapse", "activation-scale", "gradient-scale", "saturated", "deep-post-norm",
    "no-gradient", "zero-gradient", "unused", "target-shape", "output-range", "output-activation", "batch-degenerate",
    "not-followed", "input-scale", "target-scale", "no-nonlinearity", "initial-loss", "output-scale", "low-score",
]  # fmt: skip
KINDS: tuple[str, ...] = Kind.__args__  # type: ignore[attr-defined]  # causes come before what they cause


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    step: where it happens, None for the whole network or the batch. value: the number that was measured, limit: the one it
    is compared with. evidence: further numbers and names, by kind (docs/check.md lists them).
    """

    kind: Kind
    status: Status
    step: str | None = None
    value: float | None = None
    limit: float | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists; what is not a number is null."""
        return {
            "kind": self.kind,
            "status": self.status,
            "step": self.step,
            "value": jsonable(self.value),
            "limit": jsonable(self.limit),
            "evidence": jsonable(self.evidence),
        }


@dataclass(frozen=True)
class Note:
    """Something to know about how a report was made.

    kind: "no-theory" (a function without theory), "too-long" (a step that takes longer to predict than to measure),
    "layout" (an arrangement of axes or groups without theory), "left-out" (steps that theory had no time for), "thinned" (steps
    that it took with fewer pairs or at a random part of their positions to save time), "written" (weights that the model
    itself writes to; `detail` is "stay" where they are not put back), "batch" or "draws" (how they were made, in `detail`). For
    the first five, `detail` is the function and `steps` those that call it.
    """

    kind: Literal["no-theory", "too-long", "layout", "left-out", "thinned", "written", "batch", "draws"]
    detail: str = ""
    steps: tuple[str, ...] = ()


SIGNAL: tuple[Kind, ...] = ("collapse", "activation-scale", "gradient-scale", "saturated")


def ordered(
    findings: Iterable[Finding], place: Callable[[str | None], int | None] = lambda step: None
) -> list[Finding]:
    """The worst status first; among equals causes before what they cause.

    What happens to the signal is ordered by `place(step)`, its place in the forward pass: a jump at one step comes before
    a drift of the whole network, an early jump before a later one.
    """

    def key(finding: Finding) -> tuple[int, int, bool, int]:
        if finding.kind not in SIGNAL:
            return -SEVERITY[finding.status], KINDS.index(finding.kind), False, 0
        at = place(finding.step)
        drift = finding.evidence.get("shape") == "drift"
        return -SEVERITY[finding.status], KINDS.index(SIGNAL[0]), drift, 0 if at is None or drift else at

    return sorted(findings, key=key)


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """The worst status; notes alone are healthy."""
    worst = max((SEVERITY[f.status] for f in findings), default=0)
    return ("healthy", "warn", "fail")[worst]
