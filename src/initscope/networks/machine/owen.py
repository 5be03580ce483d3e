"""Owen's T function and Mills' ratio as polynomials, for hinges of a Gaussian pair.

For hinges at α, β >= 0 (see `kinks`) with E = exp(-(α² + m²)/2) = exp(-(β² + m'²)/2) and m, m' >= 0,

    φ(α) Φ(-m) = E Q(m),   S_00 = E (w (π-θ)/2π + B(α, m) + B(β, m')),   w = 1 + R²/2 + ...                    [owen1956]

Q is Mills' ratio but for a factor. B is what T has beside an angle: with the first terms of e^(R²/2), R² = α² + m², in w it has
no singularity near the real line that counts, however small α is, so that few terms do for all α. Both are polynomials in
1/(1 + per m), Q one of constants, B(α, .) one with coefficients for each input, which are polynomials in log α themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev

Array = np.ndarray[Any, Any]
LOW, HIGH = -12, 4  # octaves of α: below, B is proportional to α; above, E underflows
_GRID = 160  # values of m to which polynomials are fitted
_REACH = 14.0  # of integrals over a Gaussian tail


@dataclass(frozen=True)
class Rule:
    """`reach`: the largest m, beyond which E leaves nothing; `order` of w in R²/2; `cells` to an octave of α, of `degree`."""

    per: float
    reach: float
    order: int
    terms: int
    mills_terms: int
    cells: int
    degree: int
    floor: float  # of the weight of errors

    @property
    def places(self) -> tuple[float, float]:
        """x = first y + second lies in [-1, 1] for y = 1/(1 + per m)."""
        least = 1 / (1 + self.per * self.reach)
        return 2 / (1 - least), -(1 + least) / (1 - least)

    def m(self, x: Array) -> Array:
        first, second = self.places
        return np.asarray(first / (x - second) - 1) / self.per

    def fit(self, values: Array) -> Array:
        """P_n of (1 - x) Σ P_n x^n, highest power first, (..., terms), for values less that at 0, (..., m of `grid`).

        Errors count by what E leaves of them.
        """
        x, m = self.grid
        weight = np.exp(-m * m / 2) + self.floor
        basis = (1 - x)[:, None] * chebyshev.chebvander(x, self.terms - 1)
        flat = values.reshape(-1, len(m)).T
        solved = np.linalg.lstsq(basis * weight[:, None], flat * weight[:, None], rcond=1e-16)[0]
        return np.asarray((_powers(self.terms) @ solved).T.reshape(*values.shape[:-1], self.terms))

    @cached_property
    def grid(self) -> tuple[Array, Array]:
        """x and m to which polynomials are fitted."""
        x = np.cos(np.pi * (np.arange(_GRID) + 0.5) / _GRID)
        return x, self.m(x)

    @cached_property
    def mills(self) -> tuple[float, ...]:
        """Q(m) - Q(0) over 1 - x, highest power first."""
        short = replace(self, terms=self.mills_terms)
        return tuple(short.fit(mills_ratio(self.grid[1]) - MILLS_ZERO).tolist())

    @cached_property
    def mills_error(self) -> float:
        """The largest error of Q e^(-m²/2)."""
        x = np.linspace(-1, 1, 501)
        m = self.m(x)
        missed = MILLS_ZERO + (1 - x) * np.polyval(self.mills, x) - mills_ratio(m)
        beyond = math.exp(-(self.reach**2) / 2) * MILLS_ZERO
        return float(np.abs(missed * np.exp(-m * m / 2)).max()) + beyond

    def beside(self, m: Array, alpha: Array) -> Array:
        """B(α, m), (n of α, n of m)."""
        h = alpha[:, None]
        w = sum(((h * h + m * m) / 2) ** n / math.factorial(n) for n in range(self.order + 1))
        return np.asarray(_tail(m, alpha) - w * np.arctan2(h, m) / (2 * np.pi))

    def zero(self, alpha: Array) -> Array:
        """B(α, 0) = Φ(-α) e^(α²/2) / 2 - w/4."""
        root = torch.from_numpy(np.asarray(alpha, dtype=np.float64)) / math.sqrt(2)
        w = sum((alpha * alpha / 2) ** n / math.factorial(n) for n in range(self.order + 1))
        return np.asarray(torch.special.erfcx(root).numpy()) / 4 - w / 4

    @cached_property
    def table(self) -> Array:
        """B(α, 0) and the coefficients of B as polynomials in each cell of log α, (cells, degree + 1, 1 + terms)."""
        nodes = np.cos(np.pi * (2 * np.arange(self.degree + 1) + 1) / (2 * self.degree + 2))
        number = (HIGH - LOW) * self.cells
        alpha = self.alpha(np.arange(number)[:, None], nodes).ravel()
        zero = self.zero(alpha)[:, None]
        found = np.concatenate([zero, self.fit(self.beside(self.grid[1], alpha) - zero)], 1)
        by_node = found.reshape(number, self.degree + 1, 1 + self.terms).transpose(1, 0, 2)
        solved = np.linalg.solve(np.vander(nodes), by_node.reshape(self.degree + 1, -1))
        return np.ascontiguousarray(solved.reshape(self.degree + 1, number, 1 + self.terms).transpose(1, 0, 2))

    def alpha(self, cell: Any, place: Any) -> Array:
        """At a place in [-1, 1] of a cell."""
        return np.asarray(np.exp2(LOW + (cell + (place + 1) / 2) / self.cells))

    @cached_property
    def _missed(self) -> Array:
        """The largest errors of B e^(-m²/2) between the values that were fitted, twice in an octave."""
        some, place = np.arange(0, len(self.table), self.cells // 2), 0.37
        alpha = self.alpha(some, place)
        rows = np.zeros((len(some), 1 + self.terms))
        for n in range(self.degree + 1):
            rows = rows * place + self.table[some, n]
        x = np.linspace(-1, 1, 301)
        m = self.m(x)
        got = rows[:, :1] + (1 - x) * np.stack([np.polyval(row[1:], x) for row in rows])
        return np.asarray((np.abs(got - self.beside(m, alpha)) * np.exp(-m * m / 2)).max(-1))

    def error(self, alpha: Array) -> Array:
        """About the largest error of B e^(-m²/2) at each α."""
        at = np.clip(2 * (np.log2(np.maximum(alpha, 1e-300)) - LOW), 1, len(self._missed) - 2).astype(int)
        near = np.maximum(np.maximum(self._missed[at - 1], self._missed[at]), self._missed[at + 1])
        return np.where(alpha > 0, near, 0.0)


def _powers(terms: int) -> Array:
    """From coefficients of Chebyshev polynomials to those of powers, highest first."""
    columns = np.zeros((terms, terms))
    for n in range(terms):
        columns[: n + 1, n] = chebyshev.cheb2poly(np.eye(n + 1)[n])
    return columns[::-1]


MILLS_ZERO = 0.5 / math.sqrt(2 * math.pi)


def mills_ratio(m: Array) -> Array:
    """Q(m) = Φ(-m) e^(m²/2) / √(2π)."""
    root = torch.from_numpy(np.asarray(m / math.sqrt(2)))
    return np.asarray(torch.special.erfcx(root).numpy()) * MILLS_ZERO


def _tail(m: Array, alpha: Array) -> Array:
    """∫_0^∞ α exp(-t²/2 - mt) / (α² + (m+t)²) dt / 2π."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.concatenate([[0.0], np.geomspace(1e-4, _REACH, 20)])
    t = ((edges[1:] + edges[:-1])[:, None] / 2 + np.diff(edges)[:, None] / 2 * nodes).ravel()
    fall = np.exp(-t * t / 2 - m[:, None] * t) * (np.diff(edges)[:, None] / 2 * weights).ravel()
    away = (m[:, None] + t) ** 2
    return np.stack([(fall * (a / (a * a + away))).sum(-1) for a in alpha.tolist()]) / (2 * np.pi)


SINGLE = Rule(per=0.5, reach=5.5, order=1, terms=10, mills_terms=7, cells=4, degree=5, floor=1e-7)
DOUBLE = Rule(per=0.25, reach=8.0, order=2, terms=18, mills_terms=12, cells=8, degree=9, floor=1e-11)
