"""`check`: what a model does to the geometry of a batch before training, layer by layer, and where it goes wrong."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from initscope.errors import BadInput
from initscope.probe.batches import Batch, Loss, as_batch
from initscope.probe.blame import Place, carriers, contributions, shares
from initscope.probe.diagnosis import Case, DataFacts, Judgement, judge
from initscope.probe.findings import Finding, Note, verdict_of
from initscope.probe.inspection import Inspection, Look, inspect_model
from initscope.probe.losses import loss_function
from initscope.probe.mixing import mixing_of
from initscope.probe.progress import Progress, no_progress
from initscope.probe.redraw import Redraw, awakened
from initscope.probe.report import Draw, LayerReport, Report, SeedSpread
from initscope.probe.score import Score, score
from initscope.probe.thresholds import DEFAULT, Thresholds
from initscope.probe.trace import Call, Step
from initscope.probe.translation import Arguments
from initscope.probe.trunk import Trunk
from initscope.probe.turns import in_turn


@in_turn
def check(
    model: nn.Module | Callable[[], nn.Module],
    batch: Any,
    *,
    target: Any = None,
    loss: Loss | None = None,
    seeds: int = 3,
    seed: int = 0,
    train: bool = True,
    dropout: bool = False,
    theory: bool | Literal["full"] = True,
    thresholds: Thresholds = DEFAULT,
    progress: Progress = no_progress,
) -> Report:
    """What the model does to the batch at every step, what is wrong with that, and a score; beside it what theory predicts.

    The report is about the weights that the model has. With seeds > 1, other draws of them are judged as well and shown
    beside it (`report.draws`); they never change the verdict. The model is left as it was.

    Args:
        model: A module, or a function that builds one; the function is also what makes the other draws.
        batch: A tensor, a tuple of arguments, a dict of keyword arguments, `(inputs, targets)`, or a DataLoader.
        target: The targets, where the batch does not hold them.
        loss: loss(output, target) gives a tensor. Default: what the target suggests, or a random direction.
        seeds: How many draws of the weights are measured, the given ones included.
        seed: Seed of the random numbers that the model, the loss and the other draws use.
        train: Whether the model is in training mode, with batch statistics.
        dropout: Whether dropout is on while angles are measured. Norms and gradients are judged with it in any case.
        theory: False measures only; "full" also draws units, at any cost, for steps that have no closed form.
        thresholds: The limits behind the verdict.
        progress: Called with the stage in words and the share of the work that is done.

    Returns:
        The report; `print(report)` shows it as a table.

    Raises:
        BadInput: The model has no weights, or the batch does not fit.

    >>> net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 10))
    >>> report = check(net, torch.randn(16, 8, generator=torch.Generator().manual_seed(0)))
    >>> [layer.name for layer in report.layers], report.layers[1].op
    (['0', '1', '2'], 'relu')
    """
    started = time.perf_counter()
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise BadInput("check", f"seeds is {seeds!r}, expected a whole number of at least 1", "pass seeds >= 1")
    if loss is not None:
        loss_function(loss, seed)  # an unknown name is refused before the work
    factory = None if isinstance(model, nn.Module) else model
    first = model if isinstance(model, nn.Module) else build(model, seed)
    check_model(first)
    given = as_batch(batch, first, target)
    look = Measurement(given, loss, train, dropout, thresholds)
    progress("given weights", 0.0)
    main = look.of(first, seed, theory=theory)
    redraw = Redraw(first, factory)
    more = range(seed + 1, seed + seeds) if main.inspection.failure is None else range(0)
    others = _others(look, redraw, more, progress)
    progress("done", 1.0)
    return _report(main, others, first, given, redraw if seeds > 1 else None, time.perf_counter() - started)


def build(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """What the factory makes, with random numbers from `seed`."""
    if not callable(factory):
        raise BadInput(
            "model",
            f"got a {type(factory).__name__}, expected an nn.Module or a function that makes one",
            "pass a module",
        )
    with torch.random.fork_rng(), torch.inference_mode(False):
        torch.manual_seed(seed)
        try:
            made = factory()
        except Exception as error:
            raise BadInput(
                "model", f"the factory raised {type(error).__name__}: {error}", "call it by itself"
            ) from error
    if not isinstance(made, nn.Module):
        raise BadInput("model", f"the factory gave a {type(made).__name__}, expected an nn.Module", "return the model")
    return made


def check_model(model: nn.Module) -> None:
    """There are weights, and they are numbers."""
    named = list(model.named_parameters())
    if not named:
        raise BadInput("model", "it has no parameters, so there is no initialization to check", "pass the whole model")
    for name, p in named:
        if isinstance(p, nn.parameter.UninitializedParameter):
            raise BadInput("model", f"{name} has no shape yet", "run the model once on a batch")
        if p.is_meta:
            raise BadInput(
                "model",
                f"{name} is on the meta device and has no values",
                "give it real weights: to_empty, then initialize",
            )
        if not bool(torch.isfinite(p.detach().sum())) and not bool(torch.isfinite(p).all()):
            raise BadInput("model", f"{name} holds NaN or infinite weights", "initialize it again")


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
        return [replace(row, marks=self.found.marks_of(i)) for i, row in enumerate(self.case.rows)]

    def draw(self, seed: int) -> Draw:
        leading = next((f for f in self.found.findings if f.status != "note"), None)
        step = None if leading is None else leading.step
        return Draw(seed, verdict_of(self.found.findings), self.chance.value, step)


class Measurement:
    """How every pass of a check is made."""

    def __init__(self, batch: Batch, loss: Loss | None, train: bool, dropout: bool, thresholds: Thresholds) -> None:
        self.batch, self.loss, self.train, self.dropout, self.thresholds = batch, loss, train, dropout, thresholds

    def inspect(
        self, model: nn.Module, seed: int, theory: bool | Literal["full"] = False, dropout: bool | None = None
    ) -> Inspection:
        dropped = self.dropout if dropout is None else dropout
        return inspect_model(
            model, self.batch, seed=seed, loss=self.loss, train=self.train, dropout=dropped, theory=theory
        )

    def of(self, model: nn.Module, seed: int, theory: bool | Literal["full"] = False) -> Measured:
        """The model as it is; with dropout on too if it has any, and with zero weights nudged if they hide gradients."""
        first = self.inspect(model, seed, theory)
        rows = _rows(first)
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
                case = replace(case, dropped=Trunk(_rows(second), case.way.way))
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
    size = float(base.gradient.norm.mean())
    return float(look.gradient.norm.mean()) / size if size > 0 else None, look.sensitivity / base.sensitivity


def _others(look: Measurement, redraw: Redraw, seeds: Sequence[int], progress: Progress) -> list[tuple[int, Measured]]:
    """Other draws of the weights, each judged by itself."""
    found: list[tuple[int, Measured]] = []
    for number, seed in enumerate(seeds):
        progress("other draws", (1 + number) / (1 + len(seeds)))
        try:
            found.append((seed, look.of(redraw.draw(seed), seed)))
        except (RuntimeError, TypeError) as error:  # a model that cannot be copied
            redraw.failure = f"not made, the model cannot be copied ({str(error).splitlines()[0]})"
            break
    return found


def _stopped(inspection: Inspection) -> tuple[Judgement, Score]:
    """A model that raises: the last step that ran is the nearest place."""
    found = Judgement()
    step = inspection.steps[-1].call.name if inspection.steps else None
    found.add(Finding("stopped", "fail", step, None, None, {"error": inspection.failure}))
    return found, score(None, "fail", "stopped")


def _report(
    main: Measured,
    others: Sequence[tuple[int, Measured]],
    model: nn.Module,
    batch: Batch,
    redraw: Redraw | None,
    seconds: float,
) -> Report:
    first = main.inspection
    if not first.steps:
        raise BadInput(
            "model", first.failure or "no operation on the data was seen", "run the model on the batch by itself"
        )
    rows = main.rows
    good = [m for _, m in others if m.inspection.failure is None]
    rows = [_with_spread(row, i, good) for i, row in enumerate(rows)]
    notes = list(first.notes)
    if batch.note:
        notes.append(Note("batch", batch.note))
    if redraw is not None:
        notes.append(Note("draws", redraw.how))
    initial = None if first.initial is None else asdict(first.initial)
    return Report(
        findings=tuple(main.found.findings),
        layers=tuple(rows),
        blame=shares([s.call.kind for s in first.steps], [row.contraction for row in rows]),
        remedies=(),
        seeds=1 + len(good),
        seconds=seconds,
        notes=tuple(notes),
        failure=first.failure,
        loss=first.loss,
        samples=batch.samples,
        parameters=sum(p.numel() for p in model.parameters()),
        weights=tuple(first.weights),
        resolution=_resolution(rows),
        data=_row_values(first.reference, first.reference),
        chance=main.chance,
        draws=tuple(m.draw(seed) for seed, m in others),
        initial_loss=initial,
    )


def _with_spread(row: LayerReport, index: int, others: Sequence[Measured]) -> LayerReport:
    """The row with the cosines of the other draws; data-dependent code may take another way with other weights."""
    if row.cosine_mean is None:
        return row
    same = [m.case.rows[index] for m in others if index < len(m.case.rows) and m.case.rows[index].name == row.name]
    values = [r.cosine_mean for r in same if r.cosine_mean is not None]
    return replace(row, cosine_seeds=SeedSpread.of([row.cosine_mean, *values]))


def _data_facts(inspection: Inspection, batch: Batch) -> DataFacts:
    values = inspection.reference.values
    angle = None if values is None or inspection.reference.units < 2 else math.degrees(float(values.angle.nanmean()))
    if not inspection.numbers:
        same = bool((batch.data == batch.data[:1]).all())
        return DataFacts(angle if same or (angle or 0.0) >= 1.0 else 90.0, numbers=False)
    data = batch.data.detach().double()
    mean = float(data.mean())
    return DataFacts(angle, float(data.square().mean().sqrt()), mean, float(data.std(correction=0)))


def _rows(inspection: Inspection) -> list[LayerReport]:
    carried = _carriers(inspection)
    blame = _blame(inspection, carried)
    return [
        replace(_row(step, inspection, blame[i]), carriers=carried[i], output=i == inspection.output)
        for i, step in enumerate(inspection.steps)
    ]


def _carriers(inspection: Inspection) -> list[tuple[int, ...]]:
    """For each step the operands that carry the samples on."""

    def at(index: int) -> Look:
        return inspection.data if index < 0 else inspection.steps[index].observed

    def apart(index: int) -> bool:
        values = at(index).values
        return values is None or bool((values.defect > 0).any())

    return [carriers(s.call.function, s.call.inputs, lambda i: at(i).units, apart) for s in inspection.steps]


def _blame(inspection: Inspection, carried: Sequence[tuple[int, ...]]) -> list[float]:
    def place(look: Look, inputs: tuple[int, ...], kind: str) -> Place:
        if look.values is None or look.units < 2:
            return Place(inputs, kind, math.nan, math.nan)
        angle = float(look.values.angle.nanmean())
        return Place(inputs, kind, float(look.values.norm.mean()), math.log(angle) if angle > 0 else math.nan)

    steps = [place(s.observed, via, s.call.kind) for s, via in zip(inspection.steps, carried, strict=True)]
    return contributions(place(inspection.reference, (), "input"), steps, inspection.output)


def _resolution(rows: Sequence[LayerReport]) -> dict[str, str | None]:
    """For each number format, the first layer at which samples differ by less than its rounding: |a - b| < eps |a|."""
    first: dict[str, str | None] = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        limit = math.degrees(torch.finfo(dtype).eps)
        below = (row.name for row in rows if row.angle_deg is not None and row.angle_deg < limit)
        first[str(dtype).removeprefix("torch.")] = next(below, None)
    return first


def _row(step: Step[Look], inspection: Inspection, blame: float) -> LayerReport:
    call, look = step.call, step.observed
    base, last = inspection.reference.rms, inspection.last_gradient
    ratio = None
    if look.gradient is not None and last is not None and float(last.norm.mean()) > 0:
        ratio = float(look.gradient.norm.mean() / last.norm.mean())
    relative, whole = look.sensitivity, inspection.last_sensitivity
    parameters = tuple(dict.fromkeys((*call.parameters, *call.sources)))
    owned = [w for w in inspection.weights if w.name in parameters]
    return LayerReport(
        name=call.name,
        op=call.function,
        kind=call.kind,
        shape=call.shape[1:],
        inputs=call.inputs,
        parameters=parameters,
        grad_norm_ratio=ratio,
        sensitivity_ratio=relative / whole if relative is not None and whole else None,
        grad_cosine=None if look.gradient is None else _mean(look.gradient.cosine),
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
        **_row_values(look, inspection.reference),
    )


def _over_samples(call: Call) -> bool:
    """Whether a softmax runs along the axis of the samples."""
    if call.function not in ("softmax", "log_softmax") or call.axis is None or call.parameters:
        return False
    axis = Arguments(call).get(1, "dim")
    return isinstance(axis, int) and axis % max(len(call.shape), 1) == call.axis


def _row_values(look: Look, data: Look) -> dict[str, Any]:
    """What is measured at any place; means over pairs."""
    geometry = look.values if look.units > 1 else None  # one unit has no angle
    base = data.rms
    known = geometry is not None
    return {
        "norm_ratio": look.rms / base if look.values is not None and base > 0 else None,
        "cosine_mean": _mean(geometry.cosine) if known else None,  # type: ignore[union-attr]
        "cosine_std": _spread(geometry.cosine) if known else None,  # type: ignore[union-attr]
        "cosine_seeds": SeedSpread.of([_mean(geometry.cosine)] if known else []),  # type: ignore[union-attr]
        "angle_deg": math.degrees(_mean(geometry.angle)) if known else None,  # type: ignore[union-attr]
        "defect": _mean(geometry.defect) if known else None,  # type: ignore[union-attr]
        "centred_cosine": _mean(geometry.centred_cosine) if known else None,  # type: ignore[union-attr]
        "effective_rank": geometry.effective_rank if known else None,  # type: ignore[union-attr]
    }


def _spread(values: Tensor) -> float:
    known = values[values.isfinite()]
    return float(known.std(correction=0)) if len(known) else math.nan


def _mean(values: Tensor) -> float:
    """NaN where no pair has a value."""
    return float(values.nanmean())
