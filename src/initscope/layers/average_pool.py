"""Average pooling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from initscope.geometry import Block, Pairs, Side, State, balance, diagonal, then, unequal
from initscope.layers.layer import Shape, SingleLayer, Trace
from initscope.layers.pooling import Pool, WindowPool, global_shape, grouped, on_units, require_independent


@dataclass(frozen=True, repr=False)
class AveragePool(WindowPool):
    """Means over windows of positions, or, for vectors, over groups of units (PC eq. 2-3).

    A'_w is the mean product over all pairs of positions of the window w, P'_{ww'} that over both windows. Exact.
    For groups of n independent units with mean m: A' = (A + (n-1) m²)/n and P' = (P + (n-1) m_a m_b)/n.
    """

    @property
    def word(self) -> str:
        return f"avgpool{self.window}"

    def _exact(self, state: State, trace: Trace) -> State:
        if not state.positions:
            return self._over_units(state)
        shape = self.output_shape((state.channels, *state.positions))
        return pool_positions(state, self._pool, shape[1:])

    def _over_units(self, state: State) -> State:
        require_independent(self, state)
        n = self.window

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
        return F.avg_pool2d(t, self.window, self.step)

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return Pool(self.window, self._pool, lambda t: t.mean(-1))


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
        return pool_positions(state, lambda t: t.mean((-2, -1)), ())

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        mean: Callable[[Tensor], Tensor] = lambda t: t.mean((-2, -1))  # noqa: E731 - an argument with a type
        return Pool(None, mean, mean)


def pool_positions(state: State, pool: Callable[[Tensor], Tensor], positions: tuple[int, ...]) -> State:
    """Averages over windows of positions; `pool` acts on (n, c, h, w)."""
    size = len(positions)

    def once(t: Tensor) -> Tensor:
        """Over the last two axes."""
        return pool(t.reshape(-1, 1, *t.shape[-2:])).reshape(*t.shape[:-2], *positions)

    def twice(t: Tensor) -> Tensor:
        """Over both positions of a pair."""
        t = once(t)
        t = once(t.movedim((-2 - size, -1 - size), (-2, -1)))
        return t.movedim(tuple(range(-size, 0)), tuple(range(-2 * size, -size))) if size else t

    def side(s: Side) -> tuple[Side, Tensor, Tensor]:
        """The side without its pairs, the mean norm of each window, and the mean excess within it."""
        assert s.within is not None
        products = _append(s.root) * _insert(s.root) - s.within / 2
        norm = diagonal(twice(products), size).clamp_min(0)
        return Side(norm, once(s.mean)), once(s.root), diagonal(twice(s.within), size)

    x, length_x, spread_x = side(state.x)
    y, length_y, spread_y = (x, length_x, spread_x) if state.joint else side(state.y)
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
        tangent=None if state.tangent is None else twice(state.tangent),
    )

    def excess(block: Block, lengths: tuple[Tensor, Tensor], spreads: tuple[Tensor, Tensor]) -> Tensor:
        """Mean E - ½ (s² mean E_aa + mean E_bb / s²) + (s ᾱ - β̄/s)²; ᾱ, β̄: mean norms of the windows, s² = √B'/√A'."""
        s = balance(block.root_a, block.root_b)
        own = s.square() * block.left(spreads[0]) + block.right(spreads[1]) / s.square()
        apart = (s * block.left(lengths[0]) - block.right(lengths[1]) / s).square()
        limit = 4 * block.root_a * block.root_b
        return torch.minimum((block.excess - own / 2 + apart).clamp_min(0), limit)

    def within(s: Side, before: Side, length: Tensor, spread: Tensor) -> Side:
        assert before.within is not None
        if not size:
            return s
        block = Block(s, s, _append, _insert, twice(before.within))
        return replace(s, within=excess(block, (length, length), (spread, spread)))

    x = within(x, state.x, length_x, spread_x)
    return replace(
        pooled,
        x=x,
        y=x if state.joint else within(y, state.y, length_y, spread_y),
        excess=excess(pooled.cross(), (length_x, length_y), (spread_x, spread_y)),
    )


def _append(t: Tensor) -> Tensor:
    return t[..., None, None]


def _insert(t: Tensor) -> Tensor:
    return t[:, :, None, None]
