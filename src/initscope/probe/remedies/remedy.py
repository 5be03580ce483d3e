"""What a remedy is, and the one figure by which remedies are ranked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from initscope.probe.batches import Batch, Loss
from initscope.probe.report import Report, Status
from initscope.probe.thresholds import DEFAULT, Thresholds

Changes = Literal["weights", "data", "architecture"]
RIGHT_ANGLE = 90.0
DECADES = (
    38.0  # the range of float32 in powers of ten: no part of the score is larger, so a dead network has a score too
)


@dataclass(frozen=True)
class Health:
    """A whole network in four measured numbers, and the score made of them; what could not be measured is None.

    score = log10(90 / angle) + |log10 norm_ratio| + |log10 grad_norm_ratio|: by how many powers of ten the angle between
    samples at the output is below a right angle, the activations of the worst layer are off the size of the data, and the
    gradient at the worst layer is off the one at the output. Zero is perfect.
    """

    angle_deg: float | None
    norm_ratio: float | None
    grad_norm_ratio: float | None
    verdict: Status
    score: float

    @classmethod
    def of(cls, report: Report) -> Health:
        """Read off a report."""
        rows = report.layers
        angle = next((r.angle_deg for r in reversed(rows) if r.angle_deg is not None), None)
        norm = max((r.norm_ratio for r in rows if r.norm_ratio is not None), key=decades, default=None)
        gradient = max((r.grad_norm_ratio for r in rows if r.grad_norm_ratio is not None), key=decades, default=None)
        below = 0.0 if angle is None else _below_right_angle(angle)
        sizes = sum(decades(value) for value in (norm, gradient) if value is not None)
        broken = report.failure is not None or not all(r.finite for r in rows)
        score = 3 * DECADES if broken else below + sizes
        return cls(_finite(angle), _finite(norm), _finite(gradient), report.verdict, score)


def decades(ratio: float) -> float:
    """|log10 ratio|, at most 38; zero and what is not a number count as 38.

    >>> decades(0.01), decades(100.0), decades(0.0)
    (2.0, 2.0, 38.0)
    """
    if not math.isfinite(ratio) or ratio <= 0:
        return DECADES
    return min(abs(math.log10(ratio)), DECADES)


def _below_right_angle(degrees: float) -> float:
    return 0.0 if degrees >= RIGHT_ANGLE else decades(degrees / RIGHT_ANGLE)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


@dataclass(frozen=True)
class Effect:
    """The same network on the same batch before and after; `after` is None where it could not be measured.

    `improvement`: powers of ten by which the score falls; negative where the remedy does harm.
    """

    before: Health
    after: Health | None
    improvement: float | None = field(init=False)

    def __post_init__(self) -> None:
        fall = None if self.after is None else self.before.score - self.after.score
        object.__setattr__(self, "improvement", fall)


@dataclass(frozen=True)
class Remedy:
    """One thing to change, the line that changes it, and what that did when it was tried.

    `command` is a line for the shell or for Python; `note` says why the effect was not measured, or what stayed as it was.
    """

    name: str
    changes: Changes
    description: str
    command: str
    effect: Effect
    applied: bool = False
    note: str = ""

    @property
    def improvement(self) -> float | None:
        return self.effect.improvement


class NotPossible(Exception):
    """A remedy cannot be carried out on this model by a program; the message says why."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A remedy before it is tried.

    `treat(model, batch, seed)` changes a copy in place, `alter(batch)` gives other data; either may raise `NotPossible`.
    """

    name: str
    changes: Changes
    description: str
    command: str = ""
    treat: Callable[[nn.Module, Batch, int], None] | None = None
    alter: Callable[[Batch], Batch] | None = None
    note: str = ""


@dataclass(frozen=True)
class Conditions:
    """How every measurement is made, so that before and after can be compared."""

    loss: Loss | None = None
    seed: int = 0
    train: bool = True
    dropout: bool = False
    thresholds: Thresholds = DEFAULT

    def for_check(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            "seed": self.seed,
            "train": self.train,
            "dropout": self.dropout,
            "thresholds": self.thresholds,
        }
