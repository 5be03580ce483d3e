"""The optimisation itself: one gradient a step, with Adam or L-BFGS; it can be watched, and stopped."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.images.style.lbfgs import LBFGS

Optimizer = Literal["lbfgs", "adam"]
RATES: dict[str, float] = {"lbfgs": 1.0, "adam": 0.03}
HISTORY = 10  # pairs of vectors that L-BFGS remembers
_WORSE = 2.0  # times the best loss so far: L-BFGS went too far, and starts again from the best point


@dataclass(frozen=True)
class Losses:
    """Content and style in their own units, before the weights."""

    content: float
    style: float


@dataclass(frozen=True)
class Found:
    """How a search ended."""

    steps: int
    losses: tuple[Losses, ...]  # before each step, and at the end
    best: Losses  # of the point that the variable holds
    interrupted: bool


def search(
    variable: Tensor,
    terms: Callable[[], tuple[Tensor, Tensor]],
    weights: tuple[float, float],
    *,
    steps: int,
    optimizer: Optimizer = "lbfgs",
    rate: float | None = None,
    after: Callable[[int], None] | None = None,
    keep_on_interrupt: bool = False,
) -> Found:
    """Make weights · terms() small by moving `variable`, which holds the best point found in the end.

    `after(step)` is called after each step. KeyboardInterrupt ends the search early where `keep_on_interrupt`, and
    passes otherwise.
    """
    if optimizer not in get_args(Optimizer):
        raise BadInput("optimizer", f"got {optimizer!r}", f"choose from {', '.join(get_args(Optimizer))}")
    rate = RATES[optimizer] if rate is None else rate
    state = _State(variable, terms, weights, optimizer, rate)
    done, interrupted = 0, False
    try:
        for done in range(1, steps + 1):
            state.step()
            if after is not None:
                after(done)
    except KeyboardInterrupt:
        if not keep_on_interrupt:
            raise
        interrupted, done = True, done - 1
    with torch.no_grad():
        state.judge(variable.detach().clone(), *terms())
        variable.copy_(state.best)
    return Found(done, tuple(state.losses), state.lowest, interrupted)


class _State:
    def __init__(
        self,
        variable: Tensor,
        terms: Callable[[], tuple[Tensor, Tensor]],
        weights: tuple[float, float],
        optimizer: Optimizer,
        rate: float,
    ) -> None:
        self.variable, self.terms, self.weights = variable, terms, weights
        self.kind, self.rate = optimizer, rate
        self.losses: list[Losses] = []
        self.least, self.lowest, self.best = math.inf, Losses(math.inf, math.inf), variable.detach().clone()
        self.optimizer = self._fresh()

    def _fresh(self) -> torch.optim.Optimizer | LBFGS:
        if self.kind == "adam":
            return torch.optim.Adam([self.variable], lr=self.rate)
        return LBFGS(self.variable, self.rate, HISTORY)

    def step(self) -> None:
        """One gradient, then one move; L-BFGS has no line search, so that every step costs the same."""
        self.variable.grad = None
        content, style = self.terms()
        loss = self.weights[0] * content + self.weights[1] * style
        loss.backward()  # type: ignore[no-untyped-call]
        if self.judge(self.variable.detach(), content, style) <= _WORSE * self.least:
            self.optimizer.step()
            return
        with torch.no_grad():
            self.variable.copy_(self.best)
        self.rate /= 2
        if isinstance(self.optimizer, LBFGS):
            self.optimizer.forget(self.rate)
        else:
            self.optimizer = self._fresh()

    def judge(self, point: Tensor, content: Tensor, style: Tensor) -> float:
        """Note the losses at a point, and the point if it is the best so far."""
        losses = Losses(float(content.detach()), float(style.detach()))
        self.losses.append(losses)
        value = self.weights[0] * losses.content + self.weights[1] * losses.style
        if value < self.least:
            self.least, self.lowest = value, losses
            self.best.copy_(point)
        return value
