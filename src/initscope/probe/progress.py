"""Long work: how it says where it is, and what it will take before it begins."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map_only

from initscope.probe.batches import Batch, as_batch
from initscope.probe.losses import main_output, random_direction
from initscope.probe.measure import batch_geometry
from initscope.probe.safekeeping import prepare, untouched
from initscope.probe.trace import Recorder

Progress = Callable[[str, float], None]
"""Called with the stage in words and the share of all work that is done, from 0 to 1."""

FEW, MORE = 2, 4  # samples that are timed
_RUNS = 3  # of what is timed by itself; the fastest one counts
_STEP_SECONDS = 3e-3  # of measuring and predicting one step of a small batch
_PRODUCTS = 2  # products of a step's values with themselves: forwards and backwards
_SLOWER = 1.6  # than the sum of its parts, measured on transformers, residual networks and plain ones
_SIZES = (64, 256)  # samples for which the measuring itself is timed
_KEPT = 36  # bytes kept for each pair of samples and each step: products, angles, cosines, forwards and backwards
_LIVE = 1.05  # activations in use while one step is measured, against those kept for the backward pass


def no_progress(stage: str, done: float) -> None:
    """Says nothing: the default of `progress=`."""


def part(progress: Progress, since: float, until: float) -> Progress:
    """A callback for a part of the work, which counts from 0 to 1 itself."""
    return lambda stage, done: progress(stage, since + (until - since) * done)


class Cost(NamedTuple):
    """What a check takes, roughly: within a factor of two in time, closer in memory."""

    seconds: float
    bytes: int


@dataclass(frozen=True)
class CostModel:
    """What one pass over a batch takes, as a function of its samples.

    seconds, bytes: fixed and for each sample; steps: that are measured; units: values of one sample, summed over the steps.
    """

    seconds: tuple[float, float]
    bytes: tuple[float, float]
    steps: int
    units: int

    def of(self, samples: int, passes: int = 1) -> Cost:
        """The cost of `passes` passes over so many samples, one after the other; pairs are kept until the end."""
        pairs = samples**2
        square, cubic, product = _speeds()
        steps = self.steps * (_STEP_SECONDS + square * pairs + cubic * samples**3)
        measuring = steps + _PRODUCTS * product * self.units * pairs
        seconds = passes * _SLOWER * (self.seconds[0] + self.seconds[1] * samples + measuring)
        kept = passes * self.steps * _KEPT * pairs
        return Cost(seconds, int(self.bytes[0] + _LIVE * self.bytes[1] * samples + kept))

    def most_samples(self, allowed: int, passes: int = 1) -> int:
        """The most samples whose cost fits into `allowed` bytes."""
        low, high = 0, 1
        while self.of(high, passes).bytes <= allowed and high < 1 << 40:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.of(middle, passes).bytes <= allowed else (low, middle)
        return low


def estimate_cost(model: nn.Module, batch: Any, *, passes: int = 1, seed: int = 0) -> Cost | None:
    """About how many seconds and bytes `check` takes on this batch; None where the model does not run on a part of it.

    The model is timed on 2 and on 4 samples, and left as it was. passes: forward and backward passes over the batch, one for
    each seed of `check`.

    >>> cost = estimate_cost(nn.Linear(8, 8), torch.randn(100, 8))
    >>> cost is not None and cost.seconds < 10
    True
    """
    given = as_batch(batch, model)
    found = cost_model(model, given, seed=seed)
    return None if found is None else found.of(given.samples, passes)


def cost_model(model: nn.Module, batch: Batch, *, seed: int = 0) -> CostModel | None:
    """The cost of a pass as a function of the samples; None where the model does not run on a part of the batch.

    None too for four samples or fewer: the work itself takes no longer than the estimate. And for weights without a shape,
    which a first run would give them.
    """
    if batch.samples <= MORE or any(is_lazy(p) for p in model.parameters()):
        return None  # a run would give lazy weights their shape
    few, more = (_part(batch, count) for count in (FEW, MORE))
    with suppress(Exception), warnings.catch_warnings():  # what the model has to say, it will say in the check itself
        warnings.simplefilter("ignore")
        steps, units = _steps(model, few, seed)  # also the first run, which is slower than those that follow
        times, kept = zip(*(_taken(model, part, seed) for part in (few, more)), strict=True)
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        fixed, each = _line(*kept)
        return CostModel(seconds=_line(*times), bytes=(weights + fixed, each), steps=steps, units=units)
    return None


def _line(few: float, more: float) -> tuple[float, float]:
    """Fixed part and part of each sample, none of them negative."""
    each = max((more - few) / (MORE - FEW), 0.0)
    return max(few - FEW * each, 0.0), each


def _part(batch: Batch, count: int) -> Batch:
    """The first samples of everything in the batch that has as many entries as there are samples."""

    def cut(t: Tensor) -> Tensor:
        return t[:count] if t.ndim > 0 and len(t) == batch.samples else t

    arguments, keywords = tree_map_only(Tensor, cut, (batch.arguments, batch.keywords))
    return replace(batch, arguments=arguments, keywords=keywords, target=None)


def _steps(model: nn.Module, batch: Batch, seed: int) -> tuple[int, int]:
    """How many steps are measured, and the values of one sample in all of them."""
    batch = batch.copy()
    inputs = (batch.arguments, batch.keywords)
    recorder: Recorder[int] = Recorder(
        model, inputs, lambda call, values: values.numel() // batch.samples, lambda call, last: last, data=batch.data
    )
    with untouched(model, seed, users_code=False), torch.no_grad():
        prepare(model, train=True, dropout=False)
        with recorder.watching():
            batch.run(model)
    return len(recorder.steps), sum(step.observed for step in recorder.steps)


def _taken(model: nn.Module, batch: Batch, seed: int) -> tuple[float, float]:
    """Seconds of a forward and a backward pass, and the bytes kept between them, without the weights."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return t

    with untouched(model, seed, users_code=False), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        prepare(model, train=True, dropout=False)
        batch = batch.copy()
        weights = [p for p in model.parameters() if p.requires_grad]
        started = time.perf_counter()
        value = random_direction(main_output(batch.run(model)), seed)
        total = sum(kept.values())
        if weights and value.requires_grad:
            torch.autograd.grad(value, weights, allow_unused=True)
        if value.device.type == "cuda":
            torch.cuda.synchronize(value.device)
        return time.perf_counter() - started, float(total)


@cache
def _speeds() -> tuple[float, float, float]:
    """Seconds of measuring one step, for each of samples², samples³ and samples² times the values of one sample."""
    times = [_fastest(partial(_measured, size)) for size in _SIZES]
    small, large = _SIZES
    cubic = max(times[1] / large**2 - times[0] / small**2, 0.0) / (large - small)
    square = max(times[1] / large**2 - cubic * large, 0.0)
    rows = torch.ones(small, 1 << 12)
    return square, cubic, _fastest(lambda: rows @ rows.T) / rows.numel() / small


def _measured(samples: int) -> None:
    """What is computed of the values and of the gradient at one step."""
    generator = torch.Generator().manual_seed(0)
    values, gradient = (torch.randn(samples, 1, generator=generator) for _ in range(2))
    found = batch_geometry(values)
    _ = found.angle, found.centred_cosine, found.effective_rank, batch_geometry(gradient).cosine


def _fastest(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)
