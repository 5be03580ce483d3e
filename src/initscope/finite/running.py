"""Means and co-moments of draws that arrive one after the other; memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Running:
    """Means of rows (..., k, n) over draws, and co-moments of chosen pairs of the k rows (Welford's updates, float64).

    The numbers depend on the draws and their order alone.

    >>> running = Running([(0, 0)])
    >>> for value in (1.0, 3.0):
    ...     running.add(torch.tensor([[value]]))
    >>> running.mean, running.covariance(0, 0)
    (tensor([[2.]], dtype=torch.float64), tensor([2.], dtype=torch.float64))
    """

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.pairs = tuple(pairs)
        self.draws = 0
        self.mean = torch.empty(0)
        self._sums = torch.empty(0)  # Σ (u - mean u)(v - mean v), (..., pairs, n)
        self._left, self._right = ([pair[side] for pair in self.pairs] for side in (0, 1))

    def add(self, rows: Tensor) -> None:
        rows = rows.double()
        if not self.draws:
            self.mean = torch.zeros_like(rows)
            self._sums = rows.new_zeros(*rows.shape[:-2], len(self.pairs), rows.shape[-1])
        self.draws += 1
        before = rows - self.mean
        self.mean += before / self.draws
        after = rows - self.mean
        self._sums += before[..., self._left, :] * after[..., self._right, :]

    def covariance(self, one: int, two: int) -> Tensor:
        """Of two rows over the draws, (..., n); infinite after a single draw, which says nothing about it."""
        sums = self._sums[..., self.pairs.index((one, two)), :]
        return sums / (self.draws - 1) if self.draws > 1 else torch.full_like(sums, torch.inf)
