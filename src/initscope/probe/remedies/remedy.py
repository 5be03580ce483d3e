"""What a remedy is, and the one figure by which remedies are ranked: how many powers of ten a network is off."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from initscope.probe.batches import Batch, Loss
from initscope.probe.findings import SEVERITY, Finding, Kind, Verdict
from initscope.probe.report import Report
from initscope.probe.score import decades, widened, worst
from initscope.probe.thresholds import DEFAULT, Thresholds
from initscope.probe.trunk import Trunk

Changes = Literal["weights", "data", "architecture"]
RIGHT_ANGLE = 90.0
CURES: tuple[Kind, ...] = (
    "zero-weights", "dead-units", "symmetric-units", "norm-statistics", "collapse", "activation-scale", "gradient-scale",
    "saturated", "deep-post-norm", "initial-loss", "output-scale", "low-score",
)  # fmt: skip  # kinds of findings that other weights can remove
MOST = 38.0  # the range of float32 in powers of ten: no part counts more, so a dead network has a figure too


@dataclass(frozen=True)
class Health:
    """A whole network in four measured numbers, and one made of them; what could not be measured is None.

    decades = log10(90 / angle) + |log10 norm_ratio| + |log10 grad_norm_ratio|: by how many powers of ten the angle between
    samples at the output is below a right angle, the activations of the worst step are off the size of the data or of the
    last normalization, and the gradient at the worst step is off the one at the output. Zero is perfect. As in the verdict,
    steps count along the trunk (`probe.trunk`), and up to a step whose weights are all zero.
    """

    angle_deg: float | None
    norm_ratio: float | None
    grad_norm_ratio: float | None
    verdict: Verdict
    decades: float

    @classmethod
    def of(cls, report: Report) -> Health:
        """Read off a report."""
        rows, way = report.layers, Trunk.of(report.layers)
        silent = next((f.step for f in report.findings if f.kind == "zero-weights" and f.status == "note"), None)
        end = next((i for i, row in enumerate(rows) if row.name == silent), len(rows))
        angle = next((a for i, a in reversed(way.angles.items()) if i < end), None)
        norm = worst([d for i, d in way.drifts.items() if i < end and i not in way.undone])
        gradient = worst([g for i, g in way.gradients.items() if i < end])
        below = 0.0 if angle is None else _below_right_angle(widened(angle, report.data.get("angle_deg")))
        sizes = sum(off(value) for value in (norm, gradient) if value is not None)
        broken = report.failure is not None or any(f.kind == "non-finite" for f in report.findings)
        total = 3 * MOST if broken else below + sizes
        return cls(_finite(angle), _finite(norm), _finite(gradient), report.verdict, total)


def off(ratio: float) -> float:
    """How many powers of ten a ratio is away from 1; repairs are told apart where a verdict no longer is."""
    return decades(ratio, MOST)


def _below_right_angle(degrees: float) -> float:
    return 0.0 if degrees >= RIGHT_ANGLE else off(degrees / RIGHT_ANGLE)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


@dataclass(frozen=True)
class Effect:
    """The same network on the same batch before and after; `after` is None where it could not be measured.

    `improvement`: powers of ten by which the network is less off; negative where the remedy does harm.
    """

    before: Health
    after: Health | None
    improvement: float | None = field(init=False)

    def __post_init__(self) -> None:
        fall = None if self.after is None else self.before.decades - self.after.decades
        object.__setattr__(self, "improvement", fall)

    def helps(self, margin: float = 0.0) -> bool:
        """Whether the verdict gets better, or stays and the network is less off by more than `margin` powers of ten."""
        if self.after is None or self.improvement is None:
            return False
        step = SEVERITY[self.after.verdict] - SEVERITY[self.before.verdict]
        return step < 0 or (step == 0 and self.improvement > margin)


@dataclass(frozen=True)
class Remedy:
    """One thing to change, the line that changes it, and what that did when it was tried.

    `command` is a line for the shell or for Python; `code` the lines of plain PyTorch that do the same in your own program;
    `note` says why the effect was not measured, or what stayed as it was.
    """

    name: str
    changes: Changes
    description: str
    command: str
    effect: Effect
    applied: bool = False
    note: str = ""
    code: str = ""

    @property
    def improvement(self) -> float | None:
        return self.effect.improvement


def curable(report: Report) -> bool:
    """Whether other weights can do anything about the finding that decides the verdict."""
    leading = report.leading
    if leading is None:
        return False
    if leading.kind == "initial-loss":
        return leading.evidence.get("loss") == "cross-entropy"  # otherwise the targets are what is large
    return leading.kind in CURES or bool(leading.evidence.get("stuck")) or _nothing_learns(leading)


def _nothing_learns(finding: Finding) -> bool:
    """Every gradient is exactly zero, which saturated or dead branches do; other weights may let it through."""
    return finding.kind == "zero-gradient" and finding.status == "fail" and "parameters" in finding.evidence


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
    code: str = ""


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
