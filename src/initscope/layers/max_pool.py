"""Max pooling."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from initscope.activations import IDENTITY, Activation
from initscope.geometry import Block, Pairs, State, push
from initscope.geometry.draws import state_from_samples
from initscope.layers.extremes import maximum_distance, maximum_moments
from initscope.layers.layer import Shape, SingleLayer, Trace
from initscope.layers.pooling import (
    Pool,
    WindowPool,
    global_shape,
    grouped,
    on_units,
    position_axes,
    require_independent,
    window_maxima,
)


@dataclass(frozen=True, repr=False)
class MaxPool(WindowPool):
    """Maxima over windows of positions, or, for vectors, over groups of n units.

    What is padded does not count.

    Over n independent units after a dense layer (and a homogeneous, non-decreasing activation) the moments are an exact
    integral (see `extremes`). Over positions there is no closed form: units are drawn and measured, and the trace says so.
    """

    @property
    def word(self) -> str:
        return f"maxpool{self.size_word}"

    @property
    def needs_draws(self) -> bool:
        return True

    def _exact(self, state: State, trace: Trace) -> State:
        if state.positions:
            trace.simulated = True
            return push(state, on_units(self._pool), state.channels, trace.units, trace.generator)
        require_independent(self, state)
        draw = grouped(state, self.group(), lambda t: t.amax(-1))
        activation = state.activation if state.activation is not None else IDENTITY
        before = state.before if state.before is not None else state
        if before.law == "gaussian" and activation.degree == 1 and activation.monotone and _at_one(activation) > 0:
            return self._over_units(state, before, activation)
        trace.simulated = True
        samples = draw(trace.units, trace.generator)
        return state_from_samples(state, samples, state.channels // self.group(), draw)

    def _over_units(self, state: State, before: State, activation: Activation) -> State:
        """With α, β the standard deviations before the activation the excess is αβ E (f(M) - f(M'))²."""
        n = self.group()
        slope = -float(activation(torch.tensor(-1.0, dtype=torch.float64)))
        top = _at_one(activation)  # f(z) = top · (z or (slope/top) z)
        moments = maximum_moments(n, slope / top)

        def pairs(block: Block, a: Tensor, b: Tensor) -> Pairs:
            ab = block.root_a * block.root_b
            defect = torch.where(ab > 0, block.excess / torch.where(ab > 0, 2 * ab, 1), 0)  # 1 - rho
            equal = torch.from_numpy(maximum_distance(n, slope / top, defect.double().cpu().numpy()))
            excess = top**2 * ab * equal.to(ab)
            return Pairs(excess, a * b - excess / 2)

        return before.map(
            lambda s: top**2 * moments.second * s.norm,
            pairs,
            lambda s: top * moments.mean * s.norm.sqrt(),
            law="other",
            channels=state.channels // n,
            draw=grouped(state, n, lambda t: t.amax(-1)),
        )

    def _pool(self, t: Tensor) -> Tensor:
        return window_maxima(self.frame(t.ndim - 2), t)

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return Pool(self.group() if len(shape) == 1 else None, self._pool, lambda t: t.amax(-1))


def _at_one(activation: Activation) -> float:
    return float(activation(torch.tensor(1.0, dtype=torch.float64)))


@dataclass(frozen=True, repr=False)
class GlobalMaxPool(SingleLayer):
    """The maximum over all positions: images become vectors. Simulated, with its interval."""

    @property
    def word(self) -> str:
        return "gmp"

    @property
    def needs_all_positions(self) -> bool:
        return True

    @property
    def needs_draws(self) -> bool:
        return True

    def output_shape(self, shape: Shape) -> Shape:
        return global_shape(self, shape)

    def _exact(self, state: State, trace: Trace) -> State:
        trace.simulated = True
        return push(state, on_units(_maximum), state.channels, trace.units, trace.generator)

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return Pool(None, _maximum, _maximum)


def _maximum(t: Tensor) -> Tensor:
    return t.amax(position_axes(t))
