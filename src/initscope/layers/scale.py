"""Multiplication by a constant."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Pairs, State, then
from initscope.layers.layer import Shape, SingleLayer, Trace


@dataclass(frozen=True, repr=False)
class Scale(SingleLayer):
    """All units times a constant c: A' = c² A, P' = c² P."""

    factor: float

    def __post_init__(self) -> None:
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float) or not math.isfinite(self.factor):
            raise BadInput("scale", f"factor is {self.factor!r}, expected a finite number", "pass for example 0.5")

    @property
    def word(self) -> str:
        return f"scale({self.factor:g})"

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def _exact(self, state: State, trace: Trace) -> State:
        c = self.factor
        return state.map(
            lambda s: c * c * s.norm,
            lambda block, *_: Pairs(c * c * block.excess, c * c * block.product),
            lambda s: c * s.mean,
            tangent=lambda t: c * c * t,
            draw=None if state.law == "gaussian" and state.draw is None else then(state, lambda t: c * t),
        )

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        return Multiply(self.factor)


class Multiply(nn.Module):
    """The finite face of `Scale`."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x
