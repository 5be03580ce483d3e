"""Elementwise activation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from initscope.activations import RELU, Activation
from initscope.errors import BadInput
from initscope.geometry import Side, State, Tilt, push, then
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

        return state.map(
            lambda s: f.second_moment(s.norm),
            lambda b: f.distance(b.norm_a, b.norm_b, b.distance),
            lambda s: f.mean(s.norm),
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
        return total.map(
            lambda s: s.norm, lambda b: b.distance, lambda s: s.mean, draw=then(state, f), channels=state.channels
        )

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


def _weighted(f: Activation, tilt: Tilt) -> State:
    """f's moments under one tilted Gaussian, times its weight in the integral."""
    return tilt.make().map(
        lambda s: _weigh(tilt.weight, f.second_moment(s.norm)),
        lambda b: _weigh(tilt.weight, f.distance(b.norm_a, b.norm_b, b.distance)),
        lambda s: _weigh(tilt.mean_weight, f.mean(s.norm)),
        law="other",
    )


def _weigh(weight: Tensor, t: Tensor) -> Tensor:
    return weight.to(t).reshape(-1, *(1,) * (t.ndim - 1)) * t


def _add(one: State, two: State) -> State:
    def side(a: Side, b: Side) -> Side:
        within = None if a.within is None or b.within is None else a.within + b.within
        return Side(a.norm + b.norm, a.mean + b.mean, within)

    x = side(one.x, two.x)
    y = x if one.joint else side(one.y, two.y)
    return State(
        x, y, one.distance + two.distance, one.shares, one.channels, one.positions, one.zipped, one.all_positions,
        law="other", joint=one.joint, independent_units=one.independent_units,
    )  # fmt: skip
