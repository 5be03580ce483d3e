"""The curve that the Hermite coefficients of an activation run through with the standard deviation.

A vector is made of the a_k(s) and of the shares u_j = c_j s^j of rectified powers that were taken out; its squared length
Σ a_k² + Σ_ij u_i u_j T_ij(1) is E f², and Σ_k a_k a_k' ρ^k + Σ_ij u_i u_j' T_ij(ρ) the product of two points of the curve.
Even and odd orders are two strands, of which one is even in ρ and the other odd.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from initscope.activations import SeriesTable, tail_at

Array = np.ndarray[Any, Any]
NODES, _BETWEEN = 33, 24  # points of log s at which vectors are taken, and compared
_NOISE = 4e-15  # of the closed forms of tails


@dataclass(frozen=True, eq=False)
class Curve:
    """The vectors of a table at points of log s from low to high: first Chebyshev points, then equal steps."""

    table: SeriesTable
    low: float
    high: float

    @staticmethod
    @lru_cache(maxsize=64)
    def of(table: SeriesTable, low: float, high: float) -> Curve:
        """That of standard deviations from low to high; made once."""
        return Curve(table, math.log(low), math.log(high))

    @cached_property
    def powers(self) -> tuple[tuple[int, float], ...]:
        """Exponents and factors of the rectified powers."""
        return tuple((j, c) for j, c in enumerate(self.table.powers, 1) if c)

    @cached_property
    def places(self) -> Array:
        """The points, as numbers from -1 to 1."""
        chebyshev = np.cos(np.pi * (2 * np.arange(NODES) + 1) / (2 * NODES))
        return np.concatenate([chebyshev, np.linspace(-1, 1, _BETWEEN)])

    @cached_property
    def s(self) -> Array:
        found: Array = np.exp((self.low + self.high) / 2 + self.places * (self.high - self.low) / 2)
        return found

    @cached_property
    def coefficients(self) -> Array:
        """(orders, points)."""
        return self.table.coefficients(torch.from_numpy(self.s).square()).numpy()

    @cached_property
    def strands(self) -> tuple[Strand, Strand]:
        """Even and odd orders."""
        return Strand(self, 0), Strand(self, 1)

    @cached_property
    def energies(self) -> tuple[Array, Array]:
        """E f² and s² E f'²."""
        even, odd = self.strands
        return even.squares(False) + odd.squares(False), even.squares(True) + odd.squares(True)


COSINES = np.concatenate([np.linspace(0.02, 0.94, 32), 1 - np.geomspace(0.05, 1e-5, 13), [1.0]])


@dataclass(frozen=True, eq=False)
class Strand:
    """Even or odd orders, with the powers whose own expansion has them beyond the last order."""

    curve: Curve
    parity: int

    @cached_property
    def orders(self) -> Array:
        return np.array([k for k in self.curve.table.orders if k % 2 == self.parity], dtype=np.int64)

    @property
    def last(self) -> int:
        return 2 * len(self.orders) - 2 + self.parity

    @cached_property
    def powers(self) -> tuple[tuple[int, float], ...]:
        return tuple((j, c) for j, c in self.curve.powers if j % 2 != self.parity)

    @cached_property
    def vectors(self) -> Array:
        """(orders and powers, points)."""
        rows = [i for i, k in enumerate(self.curve.table.orders) if k % 2 == self.parity]
        shares = np.array([c * self.curve.s**j for j, c in self.powers]).reshape(len(self.powers), len(self.curve.s))
        return np.concatenate([self.curve.coefficients[rows], shares])

    @property
    def constant(self) -> Array:
        """The vector of the function 1."""
        found = np.zeros(len(self.vectors))
        if self.parity == 0 and len(self.orders):
            found[0] = 1.0
        return found

    def tails(self, d: Array, slope: bool) -> Array:
        """T_ij or dT_ij/dρ at √(1-ρ²) = d, (powers, powers, *d.shape)."""
        found = np.empty((len(self.powers), len(self.powers), *d.shape))
        for a, (i, _) in enumerate(self.powers):
            for b, (j, _) in enumerate(self.powers[: a + 1]):
                found[a, b] = found[b, a] = _tail(i, j, self.last, slope, d.tobytes())
        return found

    def products(self, vectors: Array, rho: Array, slope: bool) -> Array:
        """Those of any two vectors at cosines ρ > 0, or their derivatives, divided by ρ where they are odd in it.

        (orders and powers, vectors) -> (vectors, vectors, cosines).
        """
        n, orders, d = len(self.orders), self.orders, np.sqrt((1 - rho) * (1 + rho))
        odd = (self.parity == 1) != slope
        used = orders >= odd + slope
        waves = rho ** (orders - odd - slope)[used, None] * (orders[used, None] if slope else 1)
        first = vectors[:n][used]
        total: Array = np.einsum("kp,kq,kn->pqn", first, first, waves, optimize=True)
        if self.powers:
            tails = self.tails(d, slope) / (rho if odd else 1)
            total = total + np.einsum("ip,jq,ijn->pqn", vectors[n:], vectors[n:], tails, optimize=True)
        return total

    @cached_property
    def _metrics(self) -> tuple[Array, Array]:
        """Of the powers, for f and f'."""
        first, second = (self.tails(np.zeros(1), slope)[..., 0] for slope in (False, True))
        return first, second

    def squares(self, weighted: bool) -> Array:
        """Squared lengths of the curve's vectors, or with the weights of the derivative."""
        n = len(self.orders)
        weight, shares = self.orders if weighted else np.ones(n), self.vectors[n:]
        whole: Array = weight @ np.square(self.vectors[:n])
        return np.asarray(whole + np.einsum("im,ij,jm->m", shares, self._metrics[weighted], shares))

    @cached_property
    def _stretch(self) -> Array:
        """What makes lengths of the powers' part plain, (eigenvectors, powers)."""
        size, axes = np.linalg.eigh(self._metrics[0])
        whole = max(float(size.max(initial=0.0)), 1.0)
        found: Array = np.sqrt(np.maximum(size, _NOISE * whole))[:, None] * axes.T
        return found

    def plain(self, vectors: Array) -> Array:
        """Vectors in coordinates in which lengths are plain."""
        n = len(self.orders)
        return np.concatenate([vectors[:n], self._stretch @ vectors[n:]])

    def back(self, plain: Array) -> Array:
        """The inverse of it."""
        n = len(self.orders)
        return np.concatenate([plain[:n], np.linalg.solve(self._stretch, plain[n:])])


@lru_cache(maxsize=1024)
def _tail(i: int, j: int, last: int, slope: bool, d: bytes) -> Array:
    """T_ij or dT_ij/dρ at numbers d."""
    at = torch.from_numpy(np.frombuffer(d).copy())
    value = i * j * tail_at(i - 1, j - 1, last - 1, at) if slope else tail_at(i, j, last, at)
    return np.asarray(value.numpy())
