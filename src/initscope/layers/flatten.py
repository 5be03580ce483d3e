"""Flattening of images."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn

from initscope.geometry import Side, State, draw_units
from initscope.layers.layer import Shape, SingleLayer, Trace


@dataclass(frozen=True, repr=False)
class Flatten(SingleLayer):
    """Images become vectors; each position is a kind of units of its own until a dense layer mixes them."""

    @property
    def word(self) -> str:
        return "flatten"

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def _exact(self, state: State, trace: Trace) -> State:
        if not state.positions:
            return state
        flat = state.same_position()
        count = math.prod(flat.positions)
        size = len(flat.positions)

        def move(t: Tensor) -> Tensor:
            return t.flatten(-size).movedim(-1, 1).flatten(0, 1)

        def side(s: Side) -> Side:
            return Side(move(s.norm), move(s.mean))

        x = side(flat.x)
        return replace(
            flat,
            x=x,
            y=x if flat.joint else side(flat.y),
            excess=move(flat.excess),
            product=move(flat.product),
            tangent=None if flat.tangent is None else move(flat.tangent),
            shares=(flat.shares[:, None] / count).expand(-1, count).flatten(),
            channels=flat.units,
            positions=(),
            independent_units=False,
            draw=lambda units, g: draw_units(flat, units, g).flatten(-size).movedim(-1, 1).flatten(0, 1),
            before=None,
            activation=None,
            tilts=(),
        )

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        return nn.Flatten()
