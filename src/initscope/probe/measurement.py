"""One measurement of a model on a batch: an inspection, what it hides, and how it is judged."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from torch import nn

from initscope.probe.batches import Batch, Loss
from initscope.probe.diagnosis import Case, DataFacts, Judgement, judge
from initscope.probe.findings import Finding, verdict_of
from initscope.probe.inspection import Inspection, Look, inspect_model
from initscope.probe.mixing import mixing_of
from initscope.probe.redraw import awakened
from initscope.probe.report import Draw, LayerReport
from initscope.probe.rows import rows_of
from initscope.probe.score import Score, score
from initscope.probe.thresholds import Thresholds
from initscope.probe.trunk import Trunk

ROUNDS = 3  # how often weights of zero are nudged: the last layer, then gates, then what lies behind them


class Measured:
    """One pass over the given or other weights: the inspection, its rows and how they are judged."""

    def __init__(self, inspection: Inspection, case: Case) -> None:
        self.inspection, self.case = inspection, case
        self.found, self.chance = judge(case) if inspection.failure is None else _stopped(inspection)
        for finding in self.found.findings:
            index = case.index_of(finding.step)
            if index is not None and finding.status != "note":
                self.found.mark(index, finding.kind, finding.status)

    @property
    def rows(self) -> list[LayerReport]:
        marks = [self.found.marks_of(i) for i in range(len(self.case.rows))]
        return [replace(row, marks=m) if m else row for row, m in zip(self.case.rows, marks, strict=True)]

    def draw(self, seed: int) -> Draw:
        leading = next((f for f in self.found.findings if f.status != "note"), None)
        step = None if leading is None else leading.step
        return Draw(seed, verdict_of(self.found.findings), self.chance.value, step)


class Measurement:
    """How every pass of a check is made."""

    def __init__(
        self,
        batch: Batch,
        loss: Loss | None,
        train: bool,
        dropout: bool,
        thresholds: Thresholds,
        theory_seconds: float | None = None,
    ) -> None:
        self.batch, self.loss, self.train, self.dropout, self.thresholds = batch, loss, train, dropout, thresholds
        self.theory_seconds = theory_seconds

    def inspect(
        self, model: nn.Module, seed: int, theory: bool | Literal["full"] = False, dropout: bool | None = None
    ) -> Inspection:
        dropped = self.dropout if dropout is None else dropout
        return inspect_model(
            model,
            self.batch,
            seed=seed,
            loss=self.loss,
            train=self.train,
            dropout=dropped,
            theory=theory,
            theory_seconds=self.theory_seconds,
        )

    def of(self, model: nn.Module, seed: int, theory: bool | Literal["full"] = False) -> Measured:
        """The model as it is; with dropout on too if it has any, and with zero weights nudged if they hide gradients."""
        first = self.inspect(model, seed, theory)
        rows = rows_of(first)
        case = Case(
            way=Trunk.of(rows),
            data=_data_facts(first, self.batch),
            weights=first.weights,
            initial=first.initial,
            loss=first.loss,
            targets=first.targets,
            loss_functions=first.loss_functions,
            unnormalized=first.unnormalized,
            samples=self.batch.samples,
            cuts=first.cuts,
            strangers=first.strangers,
            routings=first.routings,
            broken_loss=first.broken_loss,
            differentiable=any(f.gradient is not None for f in first.weights),
            train=self.train,
            limits=self.thresholds,
        )
        if first.failure is not None:
            return Measured(first, case)
        if self.train and not self.dropout and any(row.drop_rate > 0 for row in rows):
            second = self.inspect(model, seed, dropout=True)
            if second.failure is None and len(second.steps) == len(first.steps):
                case = replace(case, dropped=Trunk(rows_of(second), case.way.way))
        if first.doubts:
            case = replace(case, mixing=mixing_of(model, self.batch, seed))
        if self.train and any(f.trainable and not f.used for f in first.weights):
            case = replace(case, used_elsewhere=self._used_in_evaluation(model, seed))
        return Measured(first, self._awake(case, model, seed))

    def _used_in_evaluation(self, model: nn.Module, seed: int) -> frozenset[str]:
        """Layers that are skipped at random while training run in evaluation mode."""
        other = inspect_model(model, self.batch, seed=seed, loss=self.loss, train=False, theory=False)
        return frozenset(f.name for f in other.weights if f.used)

    def _awake(self, case: Case, model: nn.Module, seed: int) -> Case:
        """Behind weights of zero no gradient passes: what they hide is seen once they have moved.

        Only those that get a gradient move; then others may get one.
        """
        nudged: Inspection | None = None
        facts, twin = list(case.weights), model
        for _ in range(ROUNDS):
            hidden = any(f.trainable and f.gradient == 0 for f in facts)
            moving = [f.name for f in facts if f.zero and f.gradient and not f.name.endswith("bias")]
            if nudged is None and case.zero_end is not None:
                hidden, moving = True, [*moving, *case.zero_parameters(case.zero_end)]
            if not hidden or not moving:
                break
            try:
                twin = awakened(twin, moving, seed)
            except (RuntimeError, TypeError):  # a model that cannot be copied
                break
            found = self.inspect(twin, seed)
            if found.failure is not None:
                break
            nudged, facts = found, found.weights
        if nudged is None:
            return case
        case = replace(case, awake={f.name: f.gradient or 0.0 for f in nudged.weights})
        end = case.zero_end
        if end is None or len(nudged.steps) != len(case.rows):
            return case
        before = nudged.steps[case.way.previous[end]].observed if case.way.previous[end] >= 0 else None
        if before is None or before.gradient is None:
            return case
        rows = list(case.rows)
        for i, step in enumerate(nudged.steps[:end]):
            plain, relative = _ratio(step.observed, before)
            rows[i] = replace(rows[i], grad_norm_ratio=plain, sensitivity_ratio=relative)
        return replace(case, way=Trunk.of(rows))


def _ratio(look: Look, base: Look) -> tuple[float | None, float | None]:
    """Gradient and sensitivity of one step against another's."""
    if look.gradient is None or base.gradient is None or look.sensitivity is None or not base.sensitivity:
        return None, None
    size = base.gradient.summary.norm
    return look.gradient.summary.norm / size if size > 0 else None, look.sensitivity / base.sensitivity


def _stopped(inspection: Inspection) -> tuple[Judgement, Score]:
    """A model that raises: the last step that ran is the nearest place."""
    found = Judgement()
    step = inspection.steps[-1].call.name if inspection.steps else None
    found.add(Finding("stopped", "fail", step, None, None, {"error": inspection.failure}))
    return found, score(None, "fail", "stopped")


def _data_facts(inspection: Inspection, batch: Batch) -> DataFacts:
    values = inspection.reference.values
    angle = None if values is None or inspection.reference.units < 2 else math.degrees(values.summary.angle)
    if not inspection.numbers:
        same = bool((batch.data == batch.data[:1]).all())
        return DataFacts(angle if same or (angle or 0.0) >= 1.0 else 90.0, numbers=False)
    data = batch.data.detach().double()
    mean = float(data.mean())
    return DataFacts(angle, float(data.square().mean().sqrt()), mean, float(data.std(correction=0)))
