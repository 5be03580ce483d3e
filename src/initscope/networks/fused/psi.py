"""The one transcendental function of the arc-cosine kernel, as `u^1.5` times a short polynomial.

For two unit Gaussians at angle t let `q = sin²(t/2)` (so `cos t = 1 - 2q`). The normalised dual of ReLU is

    rhat = [sin t + (pi - t) cos t] / pi = 1 - 2q + psi(q),    psi(q) = [sin t - t cos t] / pi            [cho2009, J1]

and `d psi / dq = 2t/pi = (4/pi) asin(sqrt q)`. Integrating the series of asin term by term gives `psi(q) = q^1.5 h(q)`
with only positive coefficients, and `rhat(-rho) = rhat(rho) - rho` gives `psi(q) = 2q - 1 + psi(1 - q)`. So `h` is
needed on `[0, 1/2]` alone, where it is smooth. Nothing cancels: psi keeps its relative accuracy down to q = 0.

>>> import math
>>> t = 1.0
>>> q = math.sin(t / 2) ** 2
>>> h = sum(c * q**i for i, c in enumerate(COEFFICIENTS_64))
>>> abs(q**1.5 * h - (math.sin(t) - t * math.cos(t)) / math.pi) < 1e-15
True
"""

from __future__ import annotations

import math
from fractions import Fraction

_SERIES_TERMS = 56  # terms fall like 2^-n n^-2.5 on [0, 1/2]
DEGREE_32, DEGREE_64 = 5, 15
SLOPE_DEGREE_32, SLOPE_DEGREE_64 = 6, 16


def arcsine_series() -> list[Fraction]:
    """`c_n` in `asin(sqrt q) = sum_n c_n q^(n + 1/2)`, so that `psi'(q) = (4/pi) sqrt(q) sum_n c_n q^n`."""
    terms, central = [], Fraction(1)  # (2n)! / (4^n n!²)
    for n in range(_SERIES_TERMS):
        terms.append(central / (2 * n + 1))
        central *= Fraction(2 * n + 1, 2 * n + 2)
    return terms


def series() -> list[Fraction]:
    """`c_n / (n + 3/2)`, so that `h(q) = (4/pi) sum_n of these q^n`."""
    return [term * Fraction(2, 2 * n + 3) for n, term in enumerate(arcsine_series())]


def fit(degree: int, terms: list[Fraction]) -> tuple[float, ...]:
    """Power coefficients, lowest first, of 4/pi times the polynomial through the series at Chebyshev points of [0, 1/2].

    Both the interpolation and the change of basis cancel, so they are done in rational numbers and rounded once.
    """
    angles = [math.pi * (2 * i + 1) / (2 * degree + 2) for i in range(degree + 1)]
    nodes = [Fraction(round((1 + math.cos(angle)) * 2**14), 2**16) for angle in angles]
    newton = []
    for node in nodes:
        value = Fraction(0)
        for term in reversed(terms):
            value = value * node + term
        newton.append(value)
    for level in range(1, degree + 1):  # divided differences in place
        for i in range(degree, level - 1, -1):
            newton[i] = (newton[i] - newton[i - 1]) / (nodes[i] - nodes[i - level])
    power: list[Fraction] = []
    for coefficient, node in zip(reversed(newton), reversed(nodes), strict=True):
        shifted = [Fraction(0), *power]  # multiply by (q - node), then add
        lower = [*power, Fraction(0)]
        power = [a - node * b for a, b in zip(shifted, lower, strict=True)]
        power[0] += coefficient
    return tuple(float(c * Fraction(4 / math.pi)) for c in power)


COEFFICIENTS_32 = fit(DEGREE_32, series())
COEFFICIENTS_64 = fit(DEGREE_64, series())
SLOPES_32 = fit(SLOPE_DEGREE_32, arcsine_series())
SLOPES_64 = fit(SLOPE_DEGREE_64, arcsine_series())
