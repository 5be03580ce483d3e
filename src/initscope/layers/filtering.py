"""Second moments through a random filter of unit gain: `<x_p, S y_p>` summed over the taps of the window.

With S the covariance of the taps (divided by their number), and x_{p+k} what tap k reads at output position p:

    A'_p  = Σ_kl S_kl <x_{p+k}, x_{p+l}>,      D'_pq = Σ_kl S_kl <x_{p+k} - y_{q+k}, x_{p+l} - y_{q+l}>.

For independent taps only k = l remains, and same-position norms and distances suffice. Otherwise inner products of differences
are written in distances, `2<u - v, u' - v'> = |u-v'|² + |v-u'|² - |u-u'|² - |v-v'|²`:

    A'_p  = Σ_k (Σ_l S_kl) A_{p+k} - ½ Σ_kl S_kl |x_{p+k} - x_{p+l}|².
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from initscope.geometry import Block, Side, State, diagonal, variance
from initscope.layers.shifts import Sizes, Window


@dataclass(frozen=True)
class Filtering:
    """`taps`: None for equal, independent taps, (taps,) variances or (taps, taps) covariance; `centres`: filters sum to zero."""

    window: Window
    taps: Tensor | None
    centres: bool
    size: Sizes  # output positions along each axis

    def apply(self, state: State) -> State:
        if self.taps is not None and self.taps.ndim == 2:
            return self._correlated(state, self.taps / len(self.taps))
        return state.map(self._norm, lambda b: self._distance(b, state.all_positions), positions=self.size)

    def _average(self, padded: Tensor, pairs: bool) -> Tensor:
        if self.taps is None:
            return self.window.mean(padded, self.size, pairs)
        return self.window.weighted(padded, self.size, pairs, self.taps / len(self.taps))

    def _mean(self, s: Side) -> Tensor:
        """The units' mean over the window, which filters that sum to zero do not see."""
        return self.window.mean(self.window.pad(s.mean), self.size, False)

    def _norm(self, s: Side) -> Tensor:
        norm = self._average(self.window.pad(s.norm), False)
        return variance(norm, self._mean(s)) if self.centres else norm  # S = I - 11'/k

    def _distance(self, block: Block, pairs: bool) -> Tensor:
        distance = self._average(self._pad(block) if pairs else self.window.pad(block.distance), pairs)
        if self.centres:
            distance = distance - (block.left(self._mean(block.a)) - block.right(self._mean(block.b))).square()
        return distance.clamp_min(0)

    def _pad(self, block: Block) -> Tensor:
        return self.window.pad_pairs(block.distance, block.norm_a, block.norm_b)

    def _correlated(self, state: State, s: Tensor) -> State:
        def form(block: Block) -> Tensor:
            """Σ_kl S_kl D[p+k, q+l]."""
            return self.window.bilinear(self._pad(block), self.size, s)

        _, within_x, within_y = state.blocks()
        assert within_x is not None
        spread = {state.x: diagonal(form(within_x), len(self.size)) / 2}
        if within_y is not None:
            spread[state.y] = diagonal(form(within_y), len(self.size)) / 2

        def norm(side: Side) -> Tensor:
            rows = s.sum(1)
            linear = self.window.weighted(self.window.pad(side.norm), self.size, False, rows) if rows.any() else 0.0
            return (linear - spread[side]).clamp_min(0)

        def distance(block: Block) -> Tensor:
            return (form(block) - block.left(spread[block.a]) - block.right(spread[block.b])).clamp_min(0)

        return state.map(norm, distance, positions=self.size)
