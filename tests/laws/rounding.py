"""Layers that subtract, with answers moved at random within the accuracy that they claim.

An average over positions and filters whose taps depend on each other leave the difference of numbers that may be much larger than
it: right to a few units in the last place of those numbers, not of its own. `subtractions_moved` moves every such
difference by up to `average_pool.ROUNDING` units, so that two runs show what the layers behind it make of rounding. Filters that
sum to zero, where that is all that ties their taps, keep the digits of small angles: there only norms and products are moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from unittest.mock import patch

import torch
from torch import Generator, Tensor

from initscope.geometry import Side, State
from initscope.layers import average_pool, filtering

SHARE = average_pool.ROUNDING * torch.finfo(torch.float64).eps


@dataclass
class Shaker:
    """Moves what a subtraction leaves, and counts how often."""

    generator: Generator
    times: int = field(default=0)

    def __call__(self, after: State, size: dict[bool, Tensor], angles: bool) -> State:
        """`size`: E u² of what was subtracted, for x (True) and for y, in the layout of the norms behind the layer."""
        self.times += 1
        x = self._side(after.x, size[True])
        y = x if after.joint else self._side(after.y, size[False])
        whole = replace(after, x=x, y=y)
        block, plain = whole.cross(), after.cross()
        reach = block.left(size[True].sqrt()) * block.right(size[False].sqrt())
        product = torch.where(after.product == 0, 0, after.product + reach * self._noise(after.product))
        # The cosine stays, or moves by what the difference may be off.
        ratio = (block.root_a * block.root_b) / (plain.root_a * plain.root_b).clamp_min(1e-300)
        excess = after.excess * ratio
        if angles:
            excess = torch.minimum((excess + reach * self._noise(excess)).clamp_min(0), 4 * block.root_a * block.root_b)
        return replace(whole, excess=excess, product=product)

    def _side(self, side: Side, size: Tensor) -> Side:
        moved = (side.norm + size * self._noise(side.norm)).clamp_min(0)
        return replace(side, norm=torch.where(side.norm == 0, 0, moved))

    def _noise(self, like: Tensor) -> Tensor:
        return SHARE * (2 * torch.rand(like.shape, generator=self.generator, dtype=like.dtype) - 1)


@contextmanager
def subtractions_moved(seed: int) -> Iterator[Shaker]:
    """Within the block every layer that subtracts is off by what it may be off."""
    shaker = Shaker(torch.Generator().manual_seed(seed))
    pool, apply = average_pool.pool_positions, filtering.Filtering.apply

    def pooled(state: State, means: Callable[[Tensor], Tensor], positions: tuple[int, ...]) -> State:
        axes = len(state.positions)

        def size(root: Tensor) -> Tensor:
            return means(root.reshape(-1, 1, *root.shape[-axes:])).reshape(*root.shape[:-axes], *positions).square()

        return shaker(pool(state, means, positions), {True: size(state.x.root), False: size(state.y.root)}, True)

    def filtered(self: filtering.Filtering, state: State) -> State:
        after = apply(self, state)
        correlated = self.taps is not None and self.taps.ndim == 2
        if not self.centres and not correlated:
            return after

        def size(norm: Tensor) -> Tensor:
            return self.window.mean(self.window.pad(norm), self.size, False)

        return shaker(after, {True: size(state.x.norm), False: size(state.y.norm)}, correlated)

    with (
        patch.object(average_pool, "pool_positions", pooled),
        patch.object(filtering.Filtering, "apply", filtered),
    ):
        yield shaker
