"""Closed forms of polynomials: Wick's theorem for any coefficients, Mehler's expansion for Hermite polynomials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product as pairs

import torch
from torch import Tensor

from initscope.activations.dual import Pair, PairDual

Moments = dict[tuple[int, int, int], float]


def _wick(i: int, j: int) -> Moments:
    """E x^i y^j as {(powers of E xy, E x², E y²): coefficient} (Isserlis 1918)."""
    if (i + j) % 2:
        return {}
    return {
        (k, (i - k) // 2, (j - k) // 2): math.factorial(i)
        * math.factorial(j)
        / (math.factorial(k) * math.factorial((i - k) // 2) * math.factorial((j - k) // 2) * 2 ** ((i + j) // 2 - k))
        for k in range(i % 2, min(i, j) + 1, 2)
    }


def _sum(terms: Moments, cross: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Σ coefficient · cross^i first^j second^k, each in units of the largest, so that only the sum can overflow."""
    unit = power_of_four(cross.abs(), first, second, least=1.0)
    cross, first, second = cross / unit, first / unit, second / unit
    degree = max((sum(powers) for powers in terms), default=0)
    total = torch.zeros_like(cross)
    for (i, j, k), coefficient in terms.items():
        total = total + coefficient * cross**i * first**j * second**k * unit ** float(i + j + k - degree)
    return times_power(total, unit, degree)


def power_of_four(*sizes: Tensor, least: float = 0.0) -> Tensor:
    """The first power of four above all the sizes, a unit that costs no rounding; at least `least`, 1 for zeros.

    >>> float(power_of_four(torch.tensor(5.0), torch.tensor(1.0)))
    16.0
    """
    size = reduce(torch.maximum, (s.detach() for s in sizes))
    exponent = torch.frexp(torch.where(size.isfinite(), size, 1)).exponent
    exponent = torch.where(size > 0, exponent + exponent % 2, 0)
    unit = torch.ldexp(torch.ones_like(size), exponent)
    return unit.clamp(min=least) if least else unit


def times_power(value: Tensor, unit: Tensor, n: int) -> Tensor:
    """value · unit^n, one factor after the other: 0 stays 0 where unit^n overflows."""
    for _ in range(n):
        value = value * unit
    return value


@dataclass(frozen=True)
class PolynomialDual(PairDual):
    """Σ c_i u^i: every moment of a Gaussian pair is a polynomial in its covariances (Wick's theorem).

    For the distance, f(u) - f(v) is expanded in the middle m = (u+v)/2 and the difference u - v, of which it has only
    odd powers, so each term carries a factor of the size of D.
    """

    coefficients: tuple[float, ...]

    @cached_property
    def _products(self) -> Moments:
        return _accumulate({(i,): c for i, c in enumerate(self.coefficients)}, 1)

    @cached_property
    def _differences(self) -> Moments:
        # f(m + x/2) - f(m - x/2) = Σ_i c_i Σ_{k odd} C(i, k) 2 (x/2)^k m^(i-k)
        expansion: dict[tuple[int, ...], float] = {}
        for i, c in enumerate(self.coefficients):
            for k in range(1, i + 1, 2):
                expansion[i - k, k] = expansion.get((i - k, k), 0.0) + c * math.comb(i, k) * 2.0 ** (1 - k)
        return _accumulate(expansion, 2)

    def second_moment(self, A: Tensor) -> Tensor:
        return _sum(self._products, A, A, A)

    def mean(self, A: Tensor) -> Tensor:
        total = torch.zeros_like(A)
        for i, c in enumerate(self.coefficients):
            if i % 2 == 0:
                total = total + c * math.prod(range(1, i, 2)) * A ** (i // 2)
        return total

    def distance_of(self, pair: Pair) -> Tensor:
        middle = pair.opposite / 4  # E m²
        return _sum(self._differences, (pair.A - pair.B) / 2, middle, pair.distance)

    def product_of(self, pair: Pair) -> Tensor:
        return _sum(self._products, pair.product, pair.A, pair.B)

    def slopes(self, pair: Pair) -> Tensor:
        return PolynomialDual(differentiate(self.coefficients)).product_of(pair)


def _accumulate(expansion: dict[tuple[int, ...], float], variables: int) -> Moments:
    """E of the product of two copies of the expansion: in u and in v (1 variable), or both in (m, x) (2 variables)."""
    total: Moments = {}
    for (i, c), (j, d) in pairs(expansion.items(), repeat=2):
        powers = (i[0], j[0]) if variables == 1 else (i[0] + j[0], i[1] + j[1])
        for key, coefficient in _wick(*powers).items():
            total[key] = total.get(key, 0.0) + c * d * coefficient
    return {key: value for key, value in total.items() if value}


def differentiate(coefficients: Sequence[float]) -> tuple[float, ...]:
    """The coefficients of the derivative.

    >>> differentiate((1.0, 2.0, 3.0))
    (2.0, 6.0)
    """
    return tuple(i * c for i, c in enumerate(coefficients))[1:] or (0.0,)


@dataclass(frozen=True)
class HermiteDual(PairDual):
    """he_k = He_k / √k! (probabilists', so E he_k(z)² = 1 at variance 1), applied to u of any variance A:

    E he_k(u) he_k(v) = k! Σ_{j+2i=k} c^j ((A-1)(B-1)/4)^i / (j! i!²), from the generating function e^(su - s²/2)
    (Mehler 1866); at A = B = 1 only ρ^k is left.
    """

    order: int

    @property
    def _terms(self) -> list[tuple[float, int, int]]:
        k = self.order
        factorial = math.factorial
        return [
            (factorial(k) / (factorial(k - 2 * i) * factorial(i) ** 2), k - 2 * i, i) for i in range(k // 2, -1, -1)
        ]

    def second_moment(self, A: Tensor) -> Tensor:
        return self.product(A, A, torch.zeros_like(A))

    def mean(self, A: Tensor) -> Tensor:
        if self.order % 2:
            return torch.zeros_like(A)
        half = self.order // 2
        return math.sqrt(math.factorial(self.order)) / math.factorial(half) * ((A - 1) / 2) ** half

    def distance_of(self, pair: Pair) -> Tensor:
        A, B, shape = pair.A, pair.B, pair.triangle
        unit = power_of_four(A, B, least=1.0)  # every term is homogeneous in it, of degree k
        a, b, gap = (side / unit.sqrt() for side in (shape.a, shape.b, shape.gap))
        c, x, y = pair.product / unit, (A - 1) / 2 / unit, (B - 1) / 2 / unit
        turn = 2 * a * b * shape.q  # ab - c
        total = torch.zeros_like(c)
        for weight, j, i in self._terms:
            # (a^j x^i - b^j y^i)² + 2 (xy)^i ((ab)^j - c^j), each difference divided out by its small factor
            sides = x**i * gap * _geometric(a, b, j)
            shifts = b**j * (A - B) / unit / 2 * _geometric(x, y, i)
            total = total + weight * ((sides + shifts) ** 2 + 2 * (x * y) ** i * turn * _geometric(a * b, c, j))
        return times_power(total.clamp(min=0), unit, self.order)

    def product_of(self, pair: Pair) -> Tensor:
        unit = power_of_four(pair.A, pair.B, least=1.0)
        c, cross = pair.product / unit, (pair.A - 1) / 2 / unit * ((pair.B - 1) / 2 / unit)
        return times_power(
            torch.stack([weight * c**j * cross**i for weight, j, i in self._terms]).sum(0), unit, self.order
        )

    def slopes(self, pair: Pair) -> Tensor:
        if self.order == 0:
            return torch.zeros_like(pair.A)
        return self.order * HermiteDual(self.order - 1).product_of(pair)  # he_k' = √k he_(k-1)


def _geometric(x: Tensor, y: Tensor, n: int) -> Tensor:
    """(x^n - y^n) / (x - y) = Σ_{i<n} x^i y^(n-1-i)."""
    total = torch.zeros_like(x)
    for i in range(n):
        total = total + x**i * y ** (n - 1 - i)
    return total


def hermite_coefficients(order: int) -> tuple[float, ...]:
    """Coefficients of he_k = He_k / √k!, lowest power first.

    >>> [round(c, 4) for c in hermite_coefficients(2)]
    [-0.7071, 0.0, 0.7071]
    """
    before, now = [0.0], [1.0]
    for k in range(order):
        shifted = [0.0, *now]
        before, now = now, [s - k * (before[i] if i < len(before) else 0.0) for i, s in enumerate(shifted)]
    return tuple(c / math.sqrt(math.factorial(order)) for c in now)
