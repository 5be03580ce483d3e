"""Average pooling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Block, Side, State, diagonal, then
from initscope.layers.layer import Shape, SingleLayer, Trace
from initscope.layers.pooling import (
    Pool,
    WindowPool,
    global_shape,
    grouped,
    on_units,
    position_axes,
    require_independent,
    window_means,
)


@dataclass(frozen=True, repr=False)
class AveragePool(WindowPool):
    """Means over windows of positions, or, for vectors, over groups of units (PC eq. 2-3).

    With v_w = half the mean squared distance between positions of the window w (of one input):
    A'_w = mean A - v_w, and D'_{ww'} = mean D over both windows - v_w - v_w'. Exact.
    For groups of n independent units with mean m: A' = (A + (n-1) m²)/n and D' = (D + (n-1)(m_a - m_b)²)/n.
    `edges`: what is padded counts as zeros ("count", as PyTorch has it) or not at all ("skip", as TensorFlow has it).
    """

    edges: Literal["count", "skip"] = "count"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.edges not in ("count", "skip"):
            raise BadInput("pool", f"edges is {self.edges!r}", "use 'count' or 'skip'")

    @property
    def word(self) -> str:
        return f"avgpool{self.size_word}"

    def _exact(self, state: State, trace: Trace) -> State:
        if not state.positions:
            return self._over_units(state)
        _, *size = self.output_shape((state.channels, *state.positions))
        sums = None
        if self.edges == "count" and self.padding != "valid":
            sums = self._pool(state.distance.new_ones(1, 1, *state.positions))[0, 0]
        return pool_positions(state, self._pool, tuple(size), sums)

    def _over_units(self, state: State) -> State:
        require_independent(self, state)
        n = self.group()

        def distance(block: Block) -> Tensor:
            return (block.distance + (n - 1) * (block.mean_a - block.mean_b).square()) / n

        return state.map(
            lambda s: (s.norm + (n - 1) * s.mean.square()) / n,
            distance,
            lambda s: s.mean,
            law="gaussian" if state.law == "gaussian" else "other",
            channels=state.channels // n,
            draw=grouped(state, n, lambda t: t.mean(-1)),
        )

    def _pool(self, t: Tensor) -> Tensor:
        frame = self.frame(t.ndim - 2)
        means = window_means(frame, t)
        if self.edges == "count" or self.padding == "valid":
            return means
        return means / window_means(frame, t.new_ones(1, 1, *t.shape[2:]))

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return Pool(self.group() if len(shape) == 1 else None, self._pool, lambda t: t.mean(-1))


@dataclass(frozen=True, repr=False)
class GlobalAveragePool(SingleLayer):
    """The mean over all positions: images become vectors."""

    @property
    def word(self) -> str:
        return "gap"

    @property
    def needs_all_positions(self) -> bool:
        return True

    def output_shape(self, shape: Shape) -> Shape:
        return global_shape(self, shape)

    def _exact(self, state: State, trace: Trace) -> State:
        return pool_positions(state, _mean, ())

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return Pool(None, _mean, _mean)


def _mean(t: Tensor) -> Tensor:
    return t.mean(position_axes(t))


def pool_positions(
    state: State, pool: Callable[[Tensor], Tensor], positions: tuple[int, ...], sums: Tensor | None = None
) -> State:
    """Weighted sums over windows of positions; `pool` acts on (n, c, *p), `sums` are its weights' sums where not all are one.

    With weights w_p of sum s_p: A'_p = s_p (wA)_p - v_p with v_p = ½ (w D w)_pp of one input, and
    D'_pq = (w D w)_pq - v_p - v_q + (s_p - s_q)((wA)_p - (wB)_q).
    """
    axes, size = len(state.positions), len(positions)

    def once(t: Tensor) -> Tensor:
        """Over the last position axes."""
        return pool(t.reshape(-1, 1, *t.shape[-axes:])).reshape(*t.shape[:-axes], *positions)

    def twice(t: Tensor) -> Tensor:
        """Over both positions of a pair."""
        t = once(t)
        t = once(t.movedim(tuple(range(-axes - size, -size)), tuple(range(-axes, 0))))
        return t.movedim(tuple(range(-size, 0)), tuple(range(-2 * size, -size))) if size else t

    def side(s: Side) -> tuple[Side, Tensor, Tensor]:
        assert s.within is not None
        pairs, linear = twice(s.within), once(s.norm)
        spread = diagonal(pairs, size) / 2
        norm = (linear - spread if sums is None else sums * linear - spread).clamp_min(0)
        return Side(norm, once(s.mean), pairs if size else None), spread, linear

    x, spread_x, linear_x = side(state.x)
    y, spread_y, linear_y = (x, spread_x, linear_x) if state.joint else side(state.y)
    pooled = State(
        x=x,
        y=y,
        distance=twice(state.distance),
        shares=state.shares,
        channels=state.channels,
        positions=positions,
        zipped=state.zipped,
        all_positions=bool(size),
        law="gaussian" if state.law == "gaussian" else "other",
        joint=state.joint,
        draw=then(state, on_units(pool)),
        independent_units=state.independent_units,
    )
    parts = {x: (spread_x, linear_x), y: (spread_y, linear_y)}

    def distance(block: Block) -> Tensor:
        (spread_a, linear_a), (spread_b, linear_b) = parts[block.a], parts[block.b]
        value = block.distance - block.left(spread_a) - block.right(spread_b)
        if sums is not None:
            everywhere = sums.expand_as(linear_a), sums.expand_as(linear_b)
            gap = block.left(everywhere[0]) - block.right(everywhere[1])
            value = value + gap * (block.left(linear_a) - block.right(linear_b))
        return value.clamp_min(0)

    cross, within_x, within_y = (None if b is None else distance(b) for b in pooled.blocks())
    assert cross is not None
    x = replace(x, within=within_x)
    return replace(pooled, x=x, y=x if state.joint else replace(y, within=within_y), distance=cross)
