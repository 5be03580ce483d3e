"""Second moments through a random filter of unit gain: `<x_p, S y_p>` summed over the taps of the window.

With S the covariance of the taps (divided by their number), and x_{p+k} what tap k reads at output position p:

    A'_p  = Σ_kl S_kl <x_{p+k}, x_{p+l}>,      P'_pq = Σ_kl S_kl <x_{p+k}, y_{q+l}>.

For independent taps only k = l remains, and same-position norms and products suffice. The excess E' = 2(√(A'B') - P') is never
formed from these: with s² = √B'/√A' it is E |s u - v/s|² of the sums u, v over taps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.geometry import Block, Pairs, Side, State, balance, diagonal, unequal, variance
from initscope.layers.shifts import Sizes, Window

_NEGLIGIBLE = 1e-13  # of the largest eigenvalue of the taps' covariance


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
        every = state.all_positions

        def pairs(block: Block, a: Tensor, b: Tensor) -> Pairs:
            excess, product = (self._average(self._pad(t, every), every) for t in (block.excess, block.product))
            if not self.centres:
                return Pairs(excess + unequal(self._parts(block), a, b), product)
            whole = Block(block.a, block.b, block.left, block.right, excess, product)
            return self._centred(whole, a, b)

        return state.map(
            self._norm, pairs, tangent=lambda t: self._average(self._pad(t, every), every), positions=self.size
        )

    def _average(self, padded: Tensor, pairs: bool) -> Tensor:
        if self.taps is None:
            return self.window.mean(padded, self.size, pairs)
        return self.window.weighted(padded, self.size, pairs, self.taps / len(self.taps))

    def _parts(self, block: Block) -> Iterator[tuple[Tensor, Tensor]]:
        """The norms that each tap reads on both sides, times the root of its share."""
        count, axes = math.prod(self.window.kernel), self.window.axes
        weights = [1.0] * count if self.taps is None else self.taps.tolist()
        a, b = self.window.pad(block.a.root), self.window.pad(block.b.root)
        for tap, weight in enumerate(weights):
            if weight:
                read = (self.window.tap(t, tap, self.size, t.ndim - axes) * math.sqrt(weight / count) for t in (a, b))
                yield block.left(next(read)), block.right(next(read))

    def _mean(self, s: Side) -> Tensor:
        """The units' mean over the window, which filters that sum to zero do not see."""
        return self.window.mean(self.window.pad(s.mean), self.size, False)

    def _norm(self, s: Side) -> Tensor:
        norm = self._average(self.window.pad(s.norm), False)
        return variance(norm, self._mean(s)) if self.centres else norm  # S = I - 11'/k

    def _centred(self, block: Block, a: Tensor, b: Tensor) -> Pairs:
        """Filters that sum to zero; the block has the sums over taps."""
        mean_a, mean_b = block.left(self._mean(block.a)), block.right(self._mean(block.b))
        s = balance(a, b)
        apart = torch.zeros_like(s)
        for alpha, beta in self._parts(block):
            apart = apart + (s * alpha - beta / s).square()
        excess = (block.excess + apart - (s * mean_a - mean_b / s).square()).clamp_min(0)
        excess = torch.where((a > 0) & (b > 0), torch.minimum(excess, 4 * a * b), 0)
        return Pairs(excess, block.product - mean_a * mean_b)

    def _pad(self, t: Tensor, pairs: bool) -> Tensor:
        """Excess, product and tangent kernel of a pair are zero beside a position of zeros."""
        return self.window.pad_pairs(t) if pairs else self.window.pad(t)

    def _correlated(self, state: State, s: Tensor) -> State:
        """S = Σ_j r_j r_j', α_j = Σ_k r_jk √A_{p+k}: E'_pq = Σ_kl S_kl E_{p+k,q+l} + Σ_j (s α_j - β_j/s)² less what is within.

        What is taken away is half of s² Σ_kl S_kl E^xx_{p+k,p+l} and of the same of y over s².
        """

        def form(t: Tensor) -> Tensor:
            """Σ_kl S_kl t[p+k, q+l]."""
            return self.window.bilinear(self.window.pad_pairs(t), self.size, s)

        values, vectors = torch.linalg.eigh(s)
        roots = vectors[:, values > _NEGLIGIBLE * values.max()] * values[values > _NEGLIGIBLE * values.max()].sqrt()

        def reads(side: Side) -> list[Tensor]:
            padded = self.window.pad(side.root)
            return [self.window.weighted(padded, self.size, False, row) for row in roots.T]

        _, within_x, within_y = state.blocks()
        assert within_x is not None
        axes = self.window.axes
        spread = {state.x: diagonal(form(within_x.excess), axes)}
        read = {state.x: reads(state.x)}
        if within_y is not None:
            spread[state.y], read[state.y] = diagonal(form(within_y.excess), axes), reads(state.y)

        def norm(side: Side) -> Tensor:
            products = within_x.product if side is state.x or within_y is None else within_y.product
            return diagonal(form(products), axes).clamp_min(0)

        def pairs(block: Block, a: Tensor, b: Tensor) -> Pairs:
            parts = [(block.left(p), block.right(q)) for p, q in zip(read[block.a], read[block.b], strict=True)]
            own = (
                block.left(spread[block.a]) * balance(a, b).square()
                + block.right(spread[block.b]) * balance(b, a).square()
            )
            excess = (form(block.excess) - own / 2 + unequal(parts, a, b)).clamp_min(0)
            return Pairs(torch.where((a > 0) & (b > 0), torch.minimum(excess, 4 * a * b), 0), form(block.product))

        return state.map(norm, pairs, tangent=form, positions=self.size)
