"""The Mellin transform of a squared norm that crosses random ReLU layers, exact at any width.

A layer with `width` units and Gaussian weights of variance v multiplies the squared norm of its input by v χ²_K, where
K ~ Binomial(width, 1/2) is how many units are active (homogeneity and rotation invariance; no limit is taken). On K > 0

    E[F^s] = Σ_k Binomial(k; width, 1/2) (2v)^s Γ(k/2 + s) / Γ(k/2),    Re s > -1/2,

and the transform of a product of independent factors is the product of the transforms.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, log1p, loggamma, xlog1py, zeta

Real = NDArray[np.float64]
Complex = NDArray[np.complexfloating[Any, Any]]

WIDEST = 10**12  # beyond it the spread of the logarithm comes near the rounding of its argument
_EVERY_UNIT = 400  # up to this width all k are summed, above it every stride-th near the largest term
_NEGLIGIBLE = 41.0  # e^-41 is a hundredth of the rounding error
_STIRLING_FROM = 16.0
# δ(z) of log Γ(z) = (z - 1/2) log z - z + log(2π)/2 + δ(z), in odd powers of 1/z; the next term is below 1e-16 from 16 on.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_EXCESS = tuple((-1) ** n / (n * (n - 1)) for n in range(2, 11))


@dataclass(frozen=True)
class Factor:
    """`count` layers in a row of `width` units, each multiplying the squared norm by `variance` · χ²_K."""

    width: int
    variance: float
    count: int = 1


def dead(*factors: Factor) -> float:
    """The probability that in some layer no unit is active.

    >>> dead(Factor(2, 1.0), Factor(3, 1.0))
    0.34375
    """
    return -math.expm1(sum(factor.count * math.log1p(-(2.0**-factor.width)) for factor in factors))


def log_dead(factor: Factor) -> float:
    """The logarithm of `dead` for layers of one width, also where the probability itself is no double."""
    if factor.width > 60:  # 2^-60 is beyond the rounding of its own logarithm
        return math.log(factor.count) - factor.width * math.log(2)
    return math.log(dead(factor))


@dataclass(frozen=True)
class Tilted:
    """log E[F^c] and the mean and variance of log F under the law tilted by F^c, all layers of the factor together."""

    log_moment: float
    mean: float
    variance: float


def excess(z: Any) -> Any:
    """(1 + z) log(1 + z) - z without cancellation, real or complex.

    >>> float(excess(np.float64(1e-9)) / 0.5e-18)
    0.99999999966...
    """
    small = np.abs(z) < 0.01
    series = z * z * _horner(_EXCESS, z)
    return series if small.all() else np.where(small, series, xlog1py(1 + z, z) - z)


def stirling_error(z: Any) -> Any:
    """δ(z) for |z| >= 16 by the asymptotic series, real or complex."""
    inverse = 1 / z
    return inverse * _horner(_STIRLING, inverse * inverse)


def _horner(coefficients: tuple[float, ...], z: Any) -> Any:
    value = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = value * z + coefficient
    return value


def log_binomial(k: Real, width: int) -> Real:
    """log of Binomial(k; width, 1/2) for 1 <= k <= width, with absolute error of rounding size at any width.

    δ(m) - δ(k) - δ(m-k) + log(m / (2π k (m-k))) / 2 - (m/2) (excess(u) + excess(-u)),    u = 2k/m - 1.
    """
    if width <= _EVERY_UNIT:
        return _all_log_binomials(width)[k.astype(np.int64) - 1]
    m = float(width)
    last = k >= m
    inside = np.where(last, m - 1, k)
    u = (2 * inside - m) / m
    errors = _factorial_error(np.full(1, m)) - _factorial_error(inside) - _factorial_error(m - inside)
    middle = errors + 0.5 * np.log(m / (2 * math.pi * inside * (m - inside))) - m / 2 * (excess(u) + excess(-u))
    found: Real = np.where(last, -m * math.log(2), middle)
    return found


@functools.lru_cache(maxsize=256)
def _all_log_binomials(width: int) -> Real:
    """log of Binomial(k; width, 1/2), k = 1 .. width, from whole numbers."""
    total = width * math.log(2)
    return np.array([math.log(math.comb(width, k)) - total for k in range(1, width + 1)])


def _factorial_error(n: Real) -> Real:
    """δ(n) for every n > 0: log n! = (n + 1/2) log n - n + log(2π)/2 + δ(n)."""
    if n.min() >= _STIRLING_FROM:
        wide: Real = stirling_error(n)
        return wide
    few = np.minimum(n, _STIRLING_FROM)
    exact = gammaln(few + 1) - (few + 0.5) * np.log(few) + few - 0.5 * math.log(2 * math.pi)
    mixed: Real = np.where(n < _STIRLING_FROM, exact, stirling_error(np.maximum(n, _STIRLING_FROM)))
    return mixed


def log_few_active(width: int, k: int) -> float:
    """The logarithm of a Chernoff bound on P(K <= k), for k <= width/2.

    >>> from scipy.stats import binom
    >>> bool(binom.logcdf(30, 100, 0.5) <= log_few_active(100, 30) < binom.logcdf(30, 100, 0.5) + 3)
    True
    """
    u = np.float64(2 * k / width - 1)
    return -width / 2 * float(excess(u) + excess(-u))


def fewest_active(width: int, log_chance: float) -> int:
    """The largest k0 >= 1 for which P(K < k0) is surely at most exp(log_chance); 1 where only K = 0 could be spared."""
    low, high = 1, max(1, width // 2)
    while low < high:
        middle = (low + high + 1) // 2
        if log_few_active(width, middle - 1) <= log_chance:
            low = middle
        else:
            high = middle - 1
    return low


def tilted(factor: Factor, c: float, fewest: int = 1) -> Tilted:
    """E[F^c; K >= fewest] and the first two moments of log F under the tilt, for c > -fewest/2."""
    k, terms = active_units(factor, c, fewest)
    top = float(terms.max())
    weights = np.exp(terms - top)
    mass = float(weights.sum())
    weights /= mass
    slope = digamma(k / 2 + c)  # d/dc log Γ(k/2 + c)
    mean = float(weights @ slope)
    variance = float(weights @ zeta(2.0, k / 2 + c)) + float(weights @ (slope - mean) ** 2)  # ψ' = ζ(2, ·)
    log_moment, mean = top + math.log(mass), math.log(2 * factor.variance) + mean
    return Tilted(factor.count * log_moment, factor.count * mean, factor.count * variance)


def active_units(factor: Factor, c: float, fewest: int = 1, most: int | None = None) -> tuple[Real, Real]:
    """Numbers k of active units, and log of Binomial(k) (2v)^c Γ(k/2 + c)/Γ(k/2) times the stride, shape (units,) each.

    The terms are a smooth bump in k, many units wide in a wide layer. Poisson's summation formula makes the sum over
    every stride-th k equal to the sum over all up to exp(-2π² (spread/stride)²) < 1e-17, even after the oscillation of
    k^(it) that the contour brings. Where the bump is cut at `fewest` every k is taken.
    """
    width = factor.width
    if most is not None or width <= _EVERY_UNIT:
        k = np.arange(fewest, (width if most is None else most) + 1, dtype=np.float64)
        return k, _log_terms(k, factor, c)
    centre, spread = _bump(width, c, fewest)
    stride, reach = max(1, int(spread / 3)), 9.5 * spread
    below = above = reach
    while True:
        first = centre - int(min(below, centre - fewest) / stride) * stride
        last = centre + int(min(above, width - centre) / stride) * stride
        k = np.arange(first, last + 1, stride, dtype=np.float64)
        terms = _log_terms(k, factor, c)
        top = terms.max()
        cut_low, cut_high = terms[0] > top - _NEGLIGIBLE, terms[-1] > top - _NEGLIGIBLE
        if cut_low and centre - fewest > below:
            below *= 2
        elif cut_high and width - centre > above:
            above *= 2
        elif (cut_low or cut_high) and stride > 1:
            stride = 1
        else:
            return k, terms + math.log(stride)


def _log_terms(k: Real, factor: Factor, c: float) -> Real:
    ratio: Real = log_gamma_ratio(k / 2, np.float64(c), 2 * factor.variance)
    return log_binomial(k, factor.width) + ratio


def _bump(width: int, c: float, fewest: int) -> tuple[int, float]:
    """Where the terms are largest and how wide they are, from ψ(k/2 + c) - ψ(k/2) ≈ log((k + 2c)/k)."""
    low, high = max(float(fewest), 1 - 2 * c), float(width) - 0.5
    for _ in range(60):
        k = (low + high) / 2
        rising = math.log((width - k) / k) + 0.5 * math.log((k + 2 * c) / k) > 0
        low, high = (k, high) if rising else (low, k)
    curvature = 1 / low + 1 / (width - low) - 0.5 * (1 / (low + 2 * c) - 1 / low)
    usual = math.sqrt(width) / 2
    spread = 1 / math.sqrt(curvature) if curvature > 1 / (4 * usual) ** 2 else 4 * usual
    return max(fewest, round(low)), min(spread, usual)


def log_gamma_ratio(a: Real, s: Any, unit: float = 1.0) -> Any:
    """log of unit^s Γ(a + s)/Γ(a) for Re(a + s) > 0, accurate where both are huge; shapes broadcast.

    s log(unit a) + a excess(s/a) - log(1 + s/a)/2 + δ(a+s) - δ(a), and the library's log Γ where a or a + s is small.
    One logarithm of `unit` times a: apart they are large and nearly cancel, and s multiplies their rounding.
    """
    large = (a >= _STIRLING_FROM) & ((a + s).real >= _STIRLING_FROM)
    if large.all():
        z = s / a
        errors = stirling_error(a + s) - stirling_error(a)
        return s * np.log(unit * a) + a * excess(z) - log1p(z) / 2 + errors
    if large.any():
        wide = large.reshape(len(large), -1).all(axis=1)  # whole rows: Re(a + s) does not change along a line
        found = np.empty(np.broadcast_shapes(np.shape(a), np.shape(s)), dtype=np.result_type(a, s))
        found[wide], found[~wide] = log_gamma_ratio(a[wide], s, unit), log_gamma_ratio(a[~wide], s, unit)
        return found
    ordinary = loggamma if np.iscomplexobj(s) else gammaln
    return ordinary(a + s) - gammaln(a) + s * math.log(unit)


def log_transform(factor: Factor, s: Complex, units: tuple[Real, Real]) -> tuple[Complex, Real]:
    """log E[F^s] of one layer along a contour s = c + it, and the log of the sum of the absolute terms, shape (t,) each.

    `units` come from `active_units` at the same c. The second number falls with |t|: it tells where to stop.
    """
    k, terms = units
    c = float(s[0].real)
    shifted = (k / 2 + c)[:, None]
    exponents = terms[:, None] + log_gamma_ratio(shifted, (s - c)[None, :], 2 * factor.variance)  # Γ(k/2+c+it)/Γ(k/2+c)
    top = exponents.real.max(axis=0)
    scaled = np.exp(exponents - top)
    with np.errstate(divide="ignore"):  # a sum that cancels to nothing has the logarithm -inf
        value = np.log(scaled.sum(axis=0)) + top
    return value, np.log(np.abs(scaled).sum(axis=0)) + top
