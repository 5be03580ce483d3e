"""`check`: what a model does to the geometry of a batch before training, layer by layer, and where it goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

import torch
from torch import nn

from initscope.errors import BadInput
from initscope.probe.batches import Batch, Loss, as_batch
from initscope.probe.blame import shares
from initscope.probe.findings import Note
from initscope.probe.losses import loss_function
from initscope.probe.measurement import Measured, Measurement
from initscope.probe.progress import Progress, no_progress
from initscope.probe.redraw import Redraw
from initscope.probe.report import LayerReport, Report, SeedSpread
from initscope.probe.rows import resolution_of, row_values
from initscope.probe.thresholds import DEFAULT, Thresholds
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
    theory_seconds: float | None = None,
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
        theory_seconds: How long theory may take. Default: as long as the measured pass, at least 0.2 s and at most 30 s; with
            theory="full" there is no limit. Notes name what was left out; the verdict does not depend on theory.
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
    if theory_seconds is not None and not theory_seconds >= 0:
        problem = f"theory_seconds is {theory_seconds!r}, expected a number of at least 0"
        raise BadInput("check", problem, "pass seconds, or None for the default")
    if loss is not None:
        loss_function(loss, seed)  # an unknown name is refused before the work
    factory = None if isinstance(model, nn.Module) else model
    first = model if isinstance(model, nn.Module) else build(model, seed)
    check_model(first)
    given = as_batch(batch, first, target)
    look = Measurement(given, loss, train, dropout, thresholds, theory_seconds)
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
        resolution=resolution_of(rows),
        data=row_values(first.reference, first.reference),
        chance=main.chance,
        draws=tuple(m.draw(seed) for seed, m in others),
        initial_loss=initial,
    )


def _with_spread(row: LayerReport, index: int, others: Sequence[Measured]) -> LayerReport:
    """The row with the cosines of the other draws; data-dependent code may take another way with other weights."""
    if row.cosine_mean is None or not others:
        return row
    same = [m.case.rows[index] for m in others if index < len(m.case.rows) and m.case.rows[index].name == row.name]
    values = [r.cosine_mean for r in same if r.cosine_mean is not None]
    return replace(row, cosine_seeds=SeedSpread.of([row.cosine_mean, *values]))
