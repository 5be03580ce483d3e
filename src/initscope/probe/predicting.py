"""Theory beside a measured pass: all its steps in order, within a time budget."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from initscope.activations import Making, more_to_come, timed_making
from initscope.geometry import Inputs
from initscope.probe.budget import Budget, Clock, Work, default_seconds
from initscope.probe.capture import Capture
from initscope.probe.findings import Note
from initscope.probe.layouts import Layouts, integrates
from initscope.probe.theory import DRAWN, Predicted, Theory
from initscope.probe.trace import Call
from initscope.probe.translation import layer_for


@dataclass(frozen=True)
class Allowance:
    """What theory may take.

    drawn: values that are drawn where closed forms end. seconds: None for as long as the measured pass took, within limits.
    """

    drawn: float = DRAWN
    seconds: float | None = None
    clock: Clock = time.thread_time

    @classmethod
    def of(
        cls,
        theory: bool | Literal["full"],
        seconds: float | None,
        drawn: float = DRAWN,
        clock: Clock = time.thread_time,
    ) -> Allowance:
        if theory == "full":
            return cls(math.inf, math.inf if seconds is None else seconds, clock)
        return cls(drawn, seconds, clock)

    def budget(self, measured: float, steps: Sequence[tuple[Call, Capture | None]], made: Making) -> Budget | None:
        """For these steps of a pass of so many seconds; None without a limit."""
        seconds = default_seconds(measured) if self.seconds is None else self.seconds
        if math.isinf(seconds):
            return None
        work: list[Work] = []
        others: dict[int, int] = {}
        for call, seen in steps:
            positions = 0 if seen is None else math.prod(seen.shape[1:])
            if seen is not None and call.kind == "activation" and integrates(layer_for(call)):
                work.append(Work(call.index, call.function, positions))
            else:
                others[call.index] = positions
        return Budget(seconds, work, others, self.clock, made)


def clock_for(device: torch.device) -> Clock:
    """Time of the thread that computes, so that other work on the machine changes little; elsewhere it only waits."""
    return time.thread_time if device.type == "cpu" else time.perf_counter


def starting_pairs(data: Tensor, pairs: tuple[Tensor, Tensor]) -> Inputs | None:
    """The pairs of the data itself, as they are before the model runs."""
    if not 2 <= data.ndim <= 5 or not data.is_floating_point() or not data.numel():
        return None
    x, y = (data.detach()[i.to(data.device)].double() for i in pairs)
    return Inputs(x, y)


def predict_steps(
    start: Inputs | None,
    steps: Sequence[tuple[Call, Capture | None]],
    layouts: Layouts,
    allowed: Allowance,
    measured: float,
) -> tuple[list[Predicted | None], list[Note]]:
    """A prediction for each step that has one, and notes on those that have none.

    measured: seconds of the pass.
    """
    last: dict[int, int] = {}
    for number, (call, _) in enumerate(steps):
        last.update(dict.fromkeys((call.index, *call.inputs), number))
    done: dict[int, list[int]] = {}
    for index, number in last.items():
        done.setdefault(number, []).append(index)
    found: list[Predicted | None] = []
    with torch.no_grad(), more_to_come(), timed_making(allowed.clock) as made:
        budget = allowed.budget(measured, steps, made)
        theory = Theory(start, layouts, allowed.drawn, budget)
        for number, (call, seen) in enumerate(steps):
            started = allowed.clock()
            found.append(theory.step(call, seen))
            if budget is not None:
                budget.took(call.index, allowed.clock() - started)
            for index in done.get(number, ()):
                theory.forget(index)
    return found, theory.notes
