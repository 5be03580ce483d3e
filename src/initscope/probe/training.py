"""Trains copies of two models on the same data in the same way, to see which one learns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

import torch
from torch import Tensor, nn

from initscope.errors import BadInput
from initscope.probe.batches import Batch, Loss, as_batch, total_loss
from initscope.probe.remedies.screening import twin_of
from initscope.probe.safekeeping import same_randomness, untouched
from initscope.probe.trace import tensors_in
from initscope.results import jsonable

RATES = (0.1, 0.01, 0.001)
MOMENTUM = 0.9


@dataclass(frozen=True)
class LossCurve:
    """The loss before each step, at the learning rate that did best; infinite from where the training diverged."""

    rate: float
    losses: tuple[float, ...]

    @property
    def final(self) -> float:
        """Mean of the last tenth of the steps."""
        return statistics.fmean(self.losses[-max(1, len(self.losses) // 10) :])

    def to_dict(self) -> dict[str, Any]:
        return {"rate": self.rate, "losses": jsonable(self.losses), "final": jsonable(self.final)}


@dataclass(frozen=True)
class Training:
    """Two models trained alike: the same batches in the same order, the same random numbers, the same learning rates tried."""

    before: LossCurve
    after: LossCurve
    steps: int
    rates: tuple[float, ...]
    optimizer: str = f"SGD, momentum {MOMENTUM}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "steps": self.steps,
            "rates": list(self.rates),
            "optimizer": self.optimizer,
        }


def compare_training(
    before: nn.Module,
    after: nn.Module,
    source: Any,
    batch: Batch,
    *,
    steps: int,
    loss: Loss | None = None,
    lr: float | None = None,
    seed: int = 0,
) -> Training:
    """Trains a copy of each model for `steps` steps of SGD with momentum 0.9, at the rates 0.1, 0.01 and 0.001 or at `lr`.

    source: a loader gives a new batch for every step, from the start again at its end; of anything else `batch` is used in
    every step. Each model shows the rate with the lowest final loss. Both models are left as they were.
    """
    rates = RATES if lr is None else (lr,)
    curves = []
    for model in (before, after):
        runs = [_run(model, source, batch, steps, rate, loss, seed) for rate in rates]
        curves.append(min(runs, key=lambda run: run.final))
    return Training(curves[0], curves[1], steps, rates)


def check_training(steps: object, lr: object) -> None:
    """Numbers that make sense."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise BadInput("fix", f"train_steps is {steps!r}, expected a whole number from 0 on", "pass for example 100")
    bad = isinstance(lr, bool) or not isinstance(lr, int | float) or not 0 < lr < math.inf
    if lr is not None and bad:
        raise BadInput(
            "fix",
            f"lr is {lr!r}, expected a positive number",
            "pass for example lr=0.01, or leave it out to try several",
        )


def _run(
    model: nn.Module, source: Any, batch: Batch, steps: int, rate: float, loss: Loss | None, seed: int
) -> LossCurve:
    twin = twin_of(model)
    losses: list[float] = []
    with untouched(twin, seed), same_randomness(source):
        twin.train()
        weights = [p for p in twin.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(weights, lr=rate, momentum=MOMENTUM)
        for one in islice(_batches(source, batch, twin), steps):
            optimizer.zero_grad()
            value = mean_loss(one.copy().run(twin), one, loss)
            losses.append(float(value.detach()))
            if not math.isfinite(losses[-1]):
                break
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    known = [value for value in losses if math.isfinite(value)]
    return LossCurve(rate, tuple(known + [math.inf] * (steps - len(known))))


def mean_loss(output: Any, batch: Batch, loss: Loss | None) -> Tensor:
    """The loss per sample; it needs something to learn: targets, the user's loss or the model's own."""
    value, name = total_loss(output, batch, loss, 0)
    if loss is not None:
        return value
    check_targets(name)
    return value / batch.samples


def check_targets(loss: str) -> None:
    """A random direction can be differentiated, not learnt."""
    if loss == "random direction":
        remedy = "pass (inputs, targets), target=... or loss=..."
        raise BadInput("fix", "training needs targets, and the batch has none that fit the output", remedy)


def _batches(source: Any, batch: Batch, model: nn.Module) -> Iterator[Batch]:
    if not is_loader(source):
        yield from repeat(batch)
    while True:
        count = 0
        for item in source:
            if len(_first(item)) > 1:  # a rest of one sample has no batch statistics
                count += 1
                yield as_batch(item, model)
        if count == 0:
            raise BadInput("batch", "the loader gives no batch of two samples or more", "pass a loader with data")


def is_loader(source: Any) -> bool:
    """Whether it can be gone through again and again; an iterator can not."""
    plain = isinstance(source, Tensor | Mapping | Sequence)
    return not plain and hasattr(source, "__iter__") and not hasattr(source, "__next__")


def _first(item: Any) -> Tensor:
    return next(t for t in tensors_in(item) if t.ndim > 0)
