"""What a diagnosis is made from, and what it gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from initscope.probe.chance import InitialLoss
from initscope.probe.findings import SEVERITY, Finding, Kind, Status
from initscope.probe.mixing import MixingFacts
from initscope.probe.report import LayerReport
from initscope.probe.targets import TargetFacts
from initscope.probe.thresholds import DEFAULT, Limits, Thresholds
from initscope.probe.trunk import Trunk
from initscope.probe.weights import Stranger, WeightFacts


@dataclass(frozen=True)
class DataFacts:
    """The batch itself. `numbers`: it holds numbers, not indices; then `rms`, `mean` and `deviation` are known.

    angle_deg: of the data, or of the first values that are made of indices; NaN where samples are zero.
    """

    angle_deg: float | None = None
    rms: float = 1.0
    mean: float = 0.0
    deviation: float = 1.0
    numbers: bool = True


@dataclass(frozen=True, eq=False)
class Case:
    """One pass of a model over a batch, measured. `dropped` are the same steps with dropout on, where there is any."""

    way: Trunk
    data: DataFacts = field(default_factory=DataFacts)
    weights: Sequence[WeightFacts] = ()
    awake: dict[str, float] | None = None  # gradients once zero weights have been nudged
    used_elsewhere: frozenset[str] = frozenset()  # parameters that only a pass in evaluation mode uses: layer drop
    initial: InitialLoss | None = None
    loss: str = ""  # its name
    targets: TargetFacts | None = None
    loss_functions: Sequence[str] = ()  # what the loss calls on the output itself
    unnormalized: bool = False  # `nll_loss` takes what is no logarithm of probabilities
    samples: int = 0
    cuts: Sequence[int] = ()
    broken_loss: bool = False
    differentiable: bool = True  # the loss depends on a trainable weight
    train: bool = True
    dropped: Trunk | None = None
    mixing: MixingFacts | None = None  # how outputs depend on other samples, where they do
    strangers: Sequence[Stranger] = ()  # weights that learn and that the model does not know
    routings: Sequence[tuple[str, int]] = ()  # modules in which the data choose, and the step that comes next
    limits: Thresholds = DEFAULT

    @property
    def rows(self) -> Sequence[LayerReport]:
        return self.way.rows

    @cached_property
    def facts(self) -> dict[str, WeightFacts]:
        return {fact.name: fact for fact in self.weights}

    @cached_property
    def consumers(self) -> dict[int, list[int]]:
        """Which steps take the result of each."""
        found: dict[int, list[int]] = {}
        for index, row in enumerate(self.rows):
            for j in dict.fromkeys(row.inputs):
                found.setdefault(j, []).append(index)
        return found

    @cached_property
    def ancestors(self) -> set[int]:
        """All steps that what the model returns is made of."""
        waiting = [i for i, row in enumerate(self.rows) if row.output] or list(self.way.way[-1:])
        found: set[int] = set()
        while waiting:
            index = waiting.pop()
            if index >= 0 and index not in found:
                found.add(index)
                waiting += self.rows[index].inputs
        return found

    @cached_property
    def zero_steps(self) -> tuple[int, ...]:
        """Steps of the trunk whose weights are all zero, so that nothing of the data passes."""
        return tuple(i for i in self.way.way if self._silent(self.rows[i]))

    @cached_property
    def zero_end(self) -> int | None:
        """The step from which on all is zero until its weights have learned, where no other weights come after it."""
        return next((i for i in self.zero_steps if not self.way.weights_after(i)), None)

    def zero_parameters(self, index: int) -> list[str]:
        """The weights that make a silent step silent: its own, or those of an operand that is multiplied with the data."""
        own = [name for name in self.rows[index].parameters if name in self.facts and not name.endswith("bias")]
        return own or [name for j in self._zero_operands(self.rows[index]) for name in self.rows[j].parameters]

    def _zero_operands(self, row: LayerReport) -> list[int]:
        """Operands of a product that are zero because their weights are, as an output embedding that starts at zero."""
        if row.kind not in ("gate", "attention", "dense") or row.norm_ratio != 0:
            return []
        found = []
        for j in row.inputs:
            known = [self.facts[name] for name in self.rows[j].parameters if name in self.facts] if j >= 0 else []
            if known and all(f.zero and f.gradient for f in known):
                found.append(j)
        return found

    def _silent(self, row: LayerReport) -> bool:
        if self._zero_operands(row):
            return True
        known = [self.facts[name] for name in row.parameters if name in self.facts]
        weights = [f for f in known if not f.name.endswith("bias")]
        if row.kind in ("dense", "conv", "embedding", "norm") and weights:
            zero = all(f.zero for f in weights) and not _tells_apart(row)
            return zero or (self._last(row) and all(f.constant for f in weights))
        return row.weight_norm == 0 and row.norm_ratio == 0 and bool(row.parameters)

    def _last(self, row: LayerReport) -> bool:
        """Whether no weights come after it: units that are equal there are told apart by the loss."""
        index = next(i for i, other in enumerate(self.rows) if other is row)
        return row.kind in ("dense", "conv") and not self.way.weights_after(index)

    def index_of(self, name: str | None) -> int | None:
        return next((i for i, row in enumerate(self.rows) if row.name == name), None)


def _tells_apart(row: LayerReport) -> bool:
    """Whether samples still differ behind a step: a weight of zero that is added to one lets them pass."""
    return row.angle_deg is not None and row.angle_deg > 0 and bool(row.norm_ratio)


@dataclass(eq=False)
class Judgement:
    """What was found, and at which steps a number is beyond its limit."""

    findings: list[Finding] = field(default_factory=list)
    marks: dict[int, dict[Kind, Status]] = field(default_factory=dict)

    def add(self, finding: Finding, index: int | None = None) -> None:
        self.findings.append(finding)
        if index is not None and finding.status != "note":
            self.mark(index, finding.kind, finding.status)

    def mark(self, index: int, kind: Kind, status: Status) -> None:
        old = self.marks.setdefault(index, {}).get(kind, "note")
        if SEVERITY[status] >= SEVERITY[old]:
            self.marks[index][kind] = status

    def soften(self, kind: Kind) -> None:
        """What failed by this kind is only a warning."""
        for marks in self.marks.values():
            if marks.get(kind) == "fail":
                marks[kind] = "warn"

    def has(self, *kinds: Kind, status: Status | None = None) -> bool:
        return any(f.kind in kinds and (status is None or f.status == status) for f in self.findings)

    def marks_of(self, index: int) -> tuple[tuple[Kind, Status], ...]:
        """The worst first."""
        return tuple(sorted(self.marks.get(index, {}).items(), key=lambda mark: -SEVERITY[mark[1]]))


def above(value: float, limits: Limits) -> Status | None:
    """None where a value is within its limits."""
    return "fail" if value > limits[1] else "warn" if value > limits[0] else None


def below(value: float, limits: Limits) -> Status | None:
    return "fail" if not value >= limits[1] else "warn" if value < limits[0] else None


def ratio_beyond(value: float, limits: Limits) -> Status | None:
    """Both directions count; a ratio of zero is as bad as can be."""
    size = math.inf if value <= 0 or not math.isfinite(value) else max(value, 1 / value)
    return above(size, limits)


def limit_for(status: Status, limits: Limits) -> float:
    """The limit that was passed."""
    return limits[1] if status == "fail" else limits[0]
