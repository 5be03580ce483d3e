"""Average pooling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Block, Pairs, Side, State, balance, diagonal, then, unequal
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

ROUNDING = 256  # units in the last place that a mean over pairs of positions may be off, behind filters that take off a constant


@dataclass(frozen=True, repr=False)
class AveragePool(WindowPool):
    """Means over windows of positions, or, for vectors, over groups of units (PC eq. 2-3).

    A'_w is the mean product over all pairs of positions of the window w, P'_{ww'} that over both windows. Exact.
    For groups of n independent units with mean m: A' = (A + (n-1) m²)/n and P' = (P + (n-1) m_a m_b)/n.
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
        _, *size = self.output_shape(state.shape)
        return pool_positions(state, self._pool, tuple(size))

    def _over_units(self, state: State) -> State:
        require_independent(self, state)
        n = self.group()

        def pairs(block: Block, a: Tensor, b: Tensor) -> Pairs:
            weight = (n - 1) ** 0.5
            parts = ((block.root_a, block.root_b), (weight * block.mean_a, weight * block.mean_b))
            root = n**0.5
            excess = (block.excess + unequal(parts, root * a, root * b)) / n
            return Pairs(excess, (block.product + (n - 1) * block.mean_a * block.mean_b) / n)

        return state.map(
            lambda s: (s.norm + (n - 1) * s.mean.square()) / n,
            pairs,
            lambda s: s.mean,
            tangent=lambda t: t / n,
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


def pool_positions(state: State, pool: Callable[[Tensor], Tensor], positions: tuple[int, ...]) -> State:
    """Weighted sums over windows of positions, of any weights: P' = w P w. `pool` acts on (n, c, *p)."""
    axes, size = len(state.positions), len(positions)

    def once(t: Tensor) -> Tensor:
        """Over the last position axes."""
        return pool(t.reshape(-1, 1, *t.shape[-axes:])).reshape(*t.shape[:-axes], *positions)

    def twice(t: Tensor) -> Tensor:
        """Over both positions of a pair."""
        t = once(t)
        t = once(t.movedim(tuple(range(-axes - size, -size)), tuple(range(-axes, 0))))
        return t.movedim(tuple(range(-size, 0)), tuple(range(-2 * size, -size))) if size else t

    def side(s: Side, own: Block | None) -> tuple[Side, Tensor, Tensor]:
        """The side with its mean excess, the mean norm of each window, and the mean excess within it."""
        assert own is not None
        mean, length = twice(own.excess), once(s.root)
        norm = above_rounding(diagonal(twice(own.product), size), length.square()).clamp_min(0)
        return Side(norm, once(s.mean), mean if size else None), length, diagonal(mean, size)

    def tangent(t: Tensor) -> Tensor:
        return above_rounding(twice(t), twice(t.abs()))

    _, own_x, own_y = state.blocks()
    x, length_x, spread_x = side(state.x, own_x)
    y, length_y, spread_y = (x, length_x, spread_x) if state.joint else side(state.y, own_y)
    pooled = State(
        x=x,
        y=y,
        excess=twice(state.excess),
        product=twice(state.product),
        shares=state.shares,
        channels=state.channels,
        positions=positions,
        zipped=state.zipped,
        all_positions=bool(size),
        law="gaussian" if state.law == "gaussian" else "other",
        joint=state.joint,
        draw=then(state, on_units(pool)),
        independent_units=state.independent_units,
        tangent=None if state.tangent is None else tangent(state.tangent),
    )
    parts = {x: (length_x, spread_x), y: (length_y, spread_y)}

    def excess(block: Block) -> Tensor:
        """Mean E - ½ (s² mean E_aa + mean E_bb / s²) + (s ᾱ - β̄/s)²; ᾱ, β̄: mean norms of the windows, s² = √B'/√A'."""
        (length_a, spread_a), (length_b, spread_b) = parts[block.a], parts[block.b]
        s = balance(block.root_a, block.root_b)
        own = s.square() * block.left(spread_a) + block.right(spread_b) / s.square()
        apart = (s * block.left(length_a) - block.right(length_b) / s).square()
        limit = 4 * block.root_a * block.root_b
        return torch.minimum((block.excess - own / 2 + apart).clamp_min(0), limit)

    cross, within_x, within_y = (None if b is None else excess(b) for b in pooled.blocks())
    assert cross is not None
    block = pooled.cross()
    product = torch.where((block.norm_a == 0) | (block.norm_b == 0), 0, pooled.product)
    x = replace(x, within=within_x)
    return replace(pooled, x=x, y=x if state.joint else replace(y, within=within_y), excess=cross, product=product)


def above_rounding(mean: Tensor, size: Tensor) -> Tensor:
    """A mean of values of either sign and mean `size`: zero where rounding is all that is left.

    Filters that sum to zero have a mean of zero over a circle; a norm or a small bias behind it would take its rounding for
    a signal.
    """
    return torch.where(mean.abs() <= ROUNDING * torch.finfo(mean.dtype).eps * size, 0, mean)  # what is NaN stays
