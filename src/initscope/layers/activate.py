"""Elementwise activation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn

from initscope.activations import RELU, Activation, Pair
from initscope.errors import BadInput
from initscope.geometry import Block, Pairs, Side, State, Tilt, push, then, unequal
from initscope.layers.layer import Shape, SingleLayer, Trace


@dataclass(frozen=True, repr=False)
class Activate(SingleLayer):
    """D' = E (f(u) - f(v))² for the Gaussian pair (u, v) with the moments before it (JL Def. 1, in distances).

    After a linear layer this is the activation's dual. Units that are not Gaussian (after pooling, after another
    activation, after batch norm unless f(cz) = c f(z)) are drawn and measured, and the trace says so.
    """

    activation: Activation

    def __post_init__(self) -> None:
        if not isinstance(self.activation, Activation):
            raise BadInput(
                "activate",
                f"got {self.activation!r}, expected an Activation",
                "pass activations.by_name('relu') or Activation.from_function(f)",
            )

    @property
    def word(self) -> str:
        return self.activation.name

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def _exact(self, state: State, trace: Trace) -> State:
        f = self.activation
        if state.tilts and f.degree == 1:
            return self._tilted(state)
        if state.law != "gaussian":
            trace.simulated = True
            return push(state, f, state.channels, trace.units, trace.generator)
        known = _known(state)

        def pairs(block: Block, a: Tensor, b: Tensor) -> Pairs:
            value = f.carry(_pair(block), a, b)
            if known is None:
                return Pairs(value.excess, value.product)
            both = block.left(known[block.a]) * block.right(known[block.b])
            return Pairs(value.excess * both, value.product * both)

        def tangent(t: Tensor) -> Tensor:
            return f.slopes(_pair(state.cross())) * t  # Θ' = Θ E f'(u) f'(v), by Price's theorem

        return state.map(
            lambda s: f.second_moment(s.norm) if known is None else f.second_moment(s.norm) * known[s],
            pairs,
            lambda s: f.mean(s.norm),
            tangent=tangent,
            law="other",
            draw=then(state, f),
            activation=f,
            before=state,
        )

    def _tilted(self, state: State) -> State:
        """After batch norm, for f(cz) = c f(z): the same integral over s, with f's dual of each tilted Gaussian (THEORY 7)."""
        f = self.activation
        total: State | None = None
        for tilt in state.tilts:
            part = _weighted(f, tilt)
            total = part if total is None else _add(total, part)
        assert total is not None
        return replace(total, draw=then(state, f), channels=state.channels)

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        return Elementwise(self.activation)


def ReLU() -> Activate:  # noqa: N802 - reads as the layer's name
    """max(0, z)."""
    return Activate(RELU)


class Elementwise(nn.Module):
    """The finite face of `Activate`."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x)

    def extra_repr(self) -> str:
        return self.activation.name


def _known(state: State) -> dict[Side, Tensor] | None:
    """1 where norms are numbers and NaN where they overflowed, if any did: tanh would make a plain 1 of infinity."""
    norms = {side: side.norm for side in (state.x, state.y)}
    if all(bool(norm.isfinite().all()) for norm in norms.values()):
        return None
    return {side: torch.where(norm.isfinite(), 1.0, math.nan).to(norm) for side, norm in norms.items()}


def _pair(block: Block) -> Pair:
    return Pair(block.norm_a, block.norm_b, block.excess, block.product)


def _weighted(f: Activation, tilt: Tilt) -> State:
    """f's moments under one tilted Gaussian, times its weight in the integral."""

    def pairs(block: Block, *_: Tensor) -> Pairs:
        value = f.carry(_pair(block), *(f.second_moment(norm).sqrt() for norm in (block.norm_a, block.norm_b)))
        return Pairs(_weigh(tilt.weight, value.excess), _weigh(tilt.weight, value.product))

    return tilt.make().map(
        lambda s: _weigh(tilt.weight, f.second_moment(s.norm)),
        pairs,
        lambda s: _weigh(tilt.mean_weight, f.mean(s.norm)),
        law="other",
    )


def _weigh(weight: Tensor, t: Tensor) -> Tensor:
    return weight.to(t).reshape(-1, *(1,) * (t.ndim - 1)) * t


def _add(one: State, two: State) -> State:
    """Sums of second moments: parts of the integral, as a sum of independent units without means would add them."""

    def excess(s: Block | None, t: Block | None, a: Tensor, b: Tensor) -> Tensor | None:
        if s is None or t is None:
            return None
        parts = ((s.root_a, s.root_b), (t.root_a, t.root_b))
        return s.excess + t.excess + unequal(parts, s.left(a), s.right(b))

    roots = [(s.norm + t.norm).sqrt() for s, t in ((one.x, two.x), (one.y, two.y))]
    first, second = one.blocks(), two.blocks()
    cross = excess(first[0], second[0], roots[0], roots[1])
    assert cross is not None

    def side(s: Side, t: Side, which: int) -> Side:
        within = excess(first[1 + which], second[1 + which], roots[which], roots[which])
        return Side(s.norm + t.norm, s.mean + t.mean, within)

    x = side(one.x, two.x, 0)
    return State(
        x, x if one.joint else side(one.y, two.y, 1), cross, one.product + two.product, one.shares, one.channels,
        one.positions, one.zipped, one.all_positions, law="other", joint=one.joint, independent_units=one.independent_units,
    )  # fmt: skip
