"""How certain the answers of the rungs are, told to whoever is listening.

Integrals are asked for deep inside layers. Each rung that is no closed form tells
how it answered and how far off it may be; a layer listens while it computes, and passes the answer on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Evidence:
    """For each rung that answered, its largest error, relative to the second moments of what was integrated."""

    errors: dict[str, float] = field(default_factory=dict)

    def add(self, rung: str, error: float) -> None:
        self.errors[rung] = max(self.errors.get(rung, 0.0), error)


_listening: ContextVar[tuple[Evidence, ...]] = ContextVar("listening", default=())


@contextmanager
def listen() -> Iterator[Evidence]:
    """Collect what the rungs tell inside the block.

    >>> import torch
    >>> from initscope.activations import TANH
    >>> with listen() as evidence:
    ...     moment = TANH.second_moment(torch.ones(3))
    >>> list(evidence.errors), max(evidence.errors.values()) < 1e-9
    (['quadrature'], True)
    """
    evidence = Evidence()
    token = _listening.set((*_listening.get(), evidence))
    try:
        yield evidence
    finally:
        _listening.reset(token)


def heard() -> bool:
    """Whether anybody listens."""
    return bool(_listening.get())


def tell(rung: str, error: Tensor, scale: Tensor) -> None:
    """An answer's absolute errors, and the sizes beside which they count."""
    listeners = _listening.get()
    if not listeners:
        return
    share = error / scale.abs()
    share = share[error > 0]  # 0 / 0: an exact zero
    worst = float(share.nan_to_num(nan=math.inf, posinf=math.inf).max()) if share.numel() else 0.0
    for evidence in listeners:
        evidence.add(rung, worst)


@dataclass
class Making:
    """Seconds in which tables were made that stay."""

    clock: Callable[[], float]
    seconds: float = 0.0


_making: ContextVar[Making | None] = ContextVar("making", default=None)


@contextmanager
def timed_making(clock: Callable[[], float]) -> Iterator[Making]:
    """Adds up how long tables are made inside the block."""
    made = Making(clock)
    token = _making.set(made)
    try:
        yield made
    finally:
        _making.reset(token)


@contextmanager
def making() -> Iterator[None]:
    """A table is made inside the block."""
    made = _making.get()
    if made is None:
        yield
        return
    started, before = made.clock(), made.seconds
    try:
        yield
    finally:
        made.seconds = before + made.clock() - started
