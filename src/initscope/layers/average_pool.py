"""Average pooling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from initscope.geometry import Block, Side, State, diagonal, then
from initscope.layers.layer import Shape, SingleLayer, Trace
from initscope.layers.pooling import Pool, WindowPool, global_shape, grouped, on_units, require_independent


@dataclass(frozen=True, repr=False)
class AveragePool(WindowPool):
    """Means over windows of positions, or, for vectors, over groups of units (PC eq. 2-3).

    With v_w = half the mean squared distance between positions of the window w (of one input):
    A'_w = mean A - v_w, and D'_{ww'} = mean D over both windows - v_w - v_w'. Exact.
    For groups of n independent units with mean m: A' = (A + (n-1) m²)/n and D' = (D + (n-1)(m_a - m_b)²)/n.
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

    def side(s: Side) -> tuple[Side, Tensor]:
        assert s.within is not None
        pairs = twice(s.within)
        spread = diagonal(pairs, size) / 2
        within = None
        if size:
            within = (pairs - spread[..., None, None] - spread[:, :, None, None]).clamp_min(0)
        return Side((once(s.norm) - spread).clamp_min(0), once(s.mean), within), spread

    x, spread_x = side(state.x)
    y, spread_y = (x, spread_x) if state.joint else side(state.y)
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
    block = pooled.cross()
    return replace(pooled, distance=(block.distance - block.left(spread_x) - block.right(spread_y)).clamp_min(0))
