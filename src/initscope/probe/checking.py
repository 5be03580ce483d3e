"""`check`: what a model does to the geometry of a batch before training, layer by layer, and where it goes wrong."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from initscope.errors import BadInput
from initscope.probe.batches import Batch, Loss, as_batch
from initscope.probe.blame import Place, carriers, contributions, shares
from initscope.probe.inspection import Inspection, Look, inspect_model
from initscope.probe.redraw import Redraw
from initscope.probe.report import LayerReport, Report, SeedSpread
from initscope.probe.score import score
from initscope.probe.thresholds import DEFAULT, Thresholds
from initscope.probe.trace import Step
from initscope.probe.verdict import judge_all, overall


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
) -> Report:
    """Measures the model on the batch at every step, over `seeds` draws of its initialization, beside what theory predicts.

    model: a module, or a function that builds one (then every seed builds its own). batch: a tensor, a tuple of arguments, a
    dict of keyword arguments, `(inputs, targets)`, or a DataLoader. loss(output, target) gives a tensor; without it, what
    the target suggests, or a random direction. theory: False measures only; "full" also draws units, at any cost, for steps
    that have no closed form and would take longer than the check itself. The model is left as it was.

    >>> net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 10))
    >>> report = check(net, torch.randn(16, 8, generator=torch.Generator().manual_seed(0)))
    >>> [layer.name for layer in report.layers], report.layers[1].op
    (['0', '1', '2'], 'relu')
    """
    started = time.perf_counter()
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise BadInput("check", f"seeds is {seeds!r}, expected a whole number of at least 1", "pass seeds >= 1")
    factory = None if isinstance(model, nn.Module) else model
    first = model if isinstance(model, nn.Module) else build(model, seed)
    check_model(first)
    given = as_batch(batch, first, target)
    redraw = Redraw(first, factory)
    passes = []
    for number in range(seeds):
        try:
            one = first if number == 0 else redraw.draw(seed + number)
        except (RuntimeError, TypeError) as error:  # a model that cannot be copied
            redraw.failure = f"one seed only: {str(error).splitlines()[0]}"
            break
        options = {"loss": loss, "train": train, "dropout": dropout, "theory": number == 0 and theory}
        passes.append(inspect_model(one, given, seed=seed + number, **options))  # type: ignore[arg-type]
        if passes[-1].failure is not None:
            break
    return _report(passes, first, given, redraw if seeds > 1 else None, thresholds, time.perf_counter() - started)


def build(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """What the factory makes, with random numbers from `seed`."""
    if not callable(factory):
        raise BadInput(
            "model",
            f"got a {type(factory).__name__}, expected an nn.Module or a function that makes one",
            "pass a module",
        )
    with torch.random.fork_rng():
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


def _report(
    passes: Sequence[Inspection],
    model: nn.Module,
    batch: Batch,
    redraw: Redraw | None,
    thresholds: Thresholds,
    seconds: float,
) -> Report:
    first = passes[0]
    if not first.steps:
        raise BadInput(
            "model", first.failure or "no operation on the data was seen", "run the model on the batch by itself"
        )
    good = [p for p in passes if p.failure is None] or [first]
    carried = _carriers(first)
    blame = _blame(first, carried)
    rows = []
    for index, step in enumerate(first.steps):
        looks = [p.steps[index].observed for p in good if _same(p, index, step)]
        row = _row(step, looks, good, blame[index])
        rows.append(replace(row, carriers=carried[index], output=index == first.output))
    rows = judge_all(rows, thresholds)
    verdict, bad = overall(rows, first.failure)
    notes = [f"{name}: {why}" for name, why in first.notes.items()]
    if batch.note:
        notes.append(f"batch: {batch.note}")
    if redraw is not None:
        notes.append(f"other seeds: {redraw.how}")
    result = score(rows) if first.failure is None else 0.0
    if math.isnan(result):
        notes.append(
            f"nothing could be judged: no step on the way to the output keeps {batch.samples} samples apart on an axis"
        )
    return Report(
        verdict=verdict,
        first_bad_layer=bad,
        layers=tuple(rows),
        blame=shares([s.call.kind for s in first.steps], blame),
        remedies=(),
        seeds=len(good),
        seconds=seconds,
        notes=tuple(notes),
        failure=first.failure,
        loss=first.loss,
        samples=batch.samples,
        parameters=sum(p.numel() for p in model.parameters()),
        weights=tuple(first.weights),
        resolution=_resolution(rows),
        data=_row_values([first.reference], first.reference),
        score=result,
    )


def _same(other: Inspection, index: int, step: Step[Look]) -> bool:
    """Data-dependent code may take another way with other weights."""
    return index < len(other.steps) and other.steps[index].call.name == step.call.name


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


def _row(step: Step[Look], looks: Sequence[Look], passes: Sequence[Inspection], blame: float) -> LayerReport:
    call, look = step.call, step.observed
    values = _row_values(looks, passes[0].reference)
    last = [p.last_gradient for p in passes]
    ratio = [
        float(a.gradient.norm.mean() / b.norm.mean())
        for a, b in zip(looks, last, strict=False)
        if a.gradient is not None and b is not None and float(b.norm.mean()) > 0
    ]
    grad_cosine = [float(a.gradient.cosine.nanmean()) for a in looks if a.gradient is not None]
    base = passes[0].reference.rms
    owned = [w for w in passes[0].weights if w.name in call.parameters]
    return LayerReport(
        name=call.name,
        op=call.function,
        kind=call.kind,
        shape=call.shape[1:],
        inputs=call.inputs,
        parameters=call.parameters,
        grad_norm_ratio=_mean(ratio),
        grad_cosine=_mean(grad_cosine),
        weight_norm=math.hypot(*(w.weight for w in owned)) if owned else None,
        weight_grad_norm=math.hypot(*(w.gradient for w in owned)) if owned else None,
        dead_fraction=_mean([a.dead for a in looks if a.dead is not None]),
        saturated_fraction=_mean([a.saturated for a in looks if a.saturated is not None]),
        predicted=look.predicted,
        norm_ratio_predicted=look.predicted.rms / base if look.predicted is not None and base > 0 else None,
        contraction=blame,
        finite=all(a.finite for a in looks),
        **values,
    )


def _row_values(looks: Sequence[Look], data: Look) -> dict[str, Any]:
    """What is measured at any place; means over pairs, then over seeds."""
    seen = [a for a in looks if a.values is not None]
    geometry = [a.values for a in seen if a.values is not None and a.units > 1]  # one unit has no angle
    cosines = [float(g.cosine.nanmean()) for g in geometry]
    base = data.rms
    return {
        "norm_ratio": _mean([a.rms / base for a in seen]) if base > 0 else None,
        "cosine_mean": _mean(cosines),
        "cosine_std": _mean([_spread(g.cosine) for g in geometry]),
        "cosine_seeds": SeedSpread.of(cosines),
        "angle_deg": _mean([math.degrees(float(g.angle.nanmean())) for g in geometry]),
        "defect": _mean([float(g.defect.nanmean()) for g in geometry]),
        "centred_cosine": _mean([float(g.centred_cosine.nanmean()) for g in geometry]),
        "effective_rank": _mean([g.effective_rank for g in geometry]),
    }


def _spread(values: Tensor) -> float:
    known = values[values.isfinite()]
    return float(known.std(correction=0)) if len(known) else math.nan


def _mean(values: Sequence[float]) -> float | None:
    """None where nothing was measured; NaN and infinities stay visible."""
    return statistics.fmean(values) if values else None
