"""The tails of log |h|²/|x|² at any point, with relative accuracy: which networks go on which line.

Networks in which some layer has only k active units put a pole at s = -k/2. Far down in the lower tail it would keep the
line away from the saddle point of all other networks, so the set of networks is cut into rungs by their smallest number
of active units, and each rung has a line of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expm1, log1p, log_ndtr

from initscope.finite.contour import (
    PRECISION,
    Alive,
    Along,
    Floors,
    Kind,
    Networks,
    Saddle,
    Tiltable,
    floors_for,
    highest_floor,
    integrate,
    wall_before,
)
from initscope.finite.mellin import Complex, Factor, Real, active_units, log_transform

_KEPT = 1e-4  # of sixteen digits that many may cancel
_LOOSE = 12.0  # a line held up by its pole is not worth an integral if a cut could lower it by so much
_NOTHING = -1e4  # the logarithm of what no double can hold
_ACCURATE = 28.0  # an error of e^-28 of the sum, 1e-12, is accepted from each rung


def log_values(factors: Sequence[Factor], x: Real, kind: Kind) -> Real:
    """log P(X < x, alive), log P(X > x) or the log density at each x, shape (n,).

    Points within half a standard deviation of each other share a line.

    >>> from scipy.stats import chi2
    >>> one_unit = [Factor(width=1, variance=1.0)]  # dead half of the time, otherwise χ² with one degree of freedom
    >>> found = np.exp(log_values(one_unit, np.log([0.5]), "below"))
    >>> bool(abs(found[0] / (0.5 * chi2.cdf(0.5, 1)) - 1) < 1e-12)
    True
    """
    found = np.empty_like(x)
    order = np.argsort(x)
    everything = Alive(tuple(factors), (1,) * len(factors))
    usual = everything.tilted(0.0)
    reach = 0.5 * math.sqrt(usual.variance)
    start = 0
    while start < len(order):
        stop = int(np.searchsorted(x[order], x[order[start]] + reach, side="right"))
        members = order[start : max(stop, start + 1)]
        near = x[members]
        if kind == "above" or (kind == "density" and _middle(near) >= usual.mean):
            found[members] = integrate(everything, near, kind, everything.saddle(_middle(near), kind))[0]
        else:
            found[members] = _low(everything.factors, near, kind)
        start += len(members)
    return found


def _middle(x: Real) -> float:
    return float(x.min() + x.max()) / 2


def _low(factors: tuple[Factor, ...], x: Real, kind: Kind) -> Real:
    plain = without_the_rarest(factors, lambda floors: Alive(factors, floors), x, kind)
    return _by_rungs(factors, x, kind) if plain is None else plain


def without_the_rarest(
    factors: tuple[Factor, ...], with_floors: Callable[[Floors], Tiltable], x: Real, kind: Kind
) -> Real | None:
    """The lower tail of networks with enough active units, if all others together are nothing beside it.

    None where the line would be so far from the saddle point that digits are lost.
    """
    spared = -_ACCURATE - 10
    while True:
        floors = floors_for(factors, spared)
        networks = with_floors(floors)
        saddle = networks.saddle(_middle(x), kind)
        if spared <= saddle.log_value - _ACCURATE - 2 or max(floors) == 1:
            break
        spared = min(spared - 5, saddle.log_value - _ACCURATE - 4)
    usual = networks.tilted(0.0)
    normal = float(log_ndtr((_middle(x) - usual.mean) / math.sqrt(usual.variance))) + usual.log_moment
    if saddle.height - normal > _LOOSE:  # a rough guess at the answer, to see that the line is hopeless
        return None
    value, kept = integrate(networks, x, kind, saddle)
    return value if kept > _KEPT else None


def surely_less(
    factors: tuple[Factor, ...], with_floors: Callable[[Floors], Tiltable], x: float, log_known: float
) -> bool:
    """Whether Chernoff's bound shows the lower tail at x to be nothing beside exp(log_known)."""
    floors = floors_for(factors, log_known - _ACCURATE - 2)  # fewer active units are nothing by themselves
    if max(floors) == 1:
        return False
    saddle = with_floors(floors).saddle(x, "below")
    return saddle.height + math.log(abs(saddle.c)) < log_known - _ACCURATE - 2


def _by_rungs(factors: tuple[Factor, ...], x: Real, kind: Kind) -> Real:
    """The sum over rungs, each cut in two as long as its integral cancels more than the sum can bear."""
    middle, most = _middle(x), max(_at_least(factors, max(f.width for f in factors)))
    total = np.full_like(x, -np.inf)
    waiting = [(_part(factors, 1, most + 1, most).saddle(middle, kind), 1, most + 1)]
    while waiting:
        waiting.sort(key=lambda part: part[0].height)
        saddle, low, high = waiting.pop()
        if saddle.height < np.min(total) - _ACCURATE or saddle.height == _NOTHING:
            continue  # the whole rung is nothing beside what is known
        if high - low == 1 or saddle.slope * (high - low) / 2 < _LOOSE:
            value, kept = integrate(_part(factors, low, high, most), x, kind, saddle)
            if kept > _KEPT or high - low == 1 or saddle.height - PRECISION < np.min(total) - _ACCURATE:
                total = np.logaddexp(total, value)
                continue
        cut = (low + high) // 2
        for part in ((low, cut), (cut, high)):
            waiting.append((_part(factors, *part, most).saddle(middle, kind), *part))
    return total


def _at_least(factors: Sequence[Factor], level: int) -> Floors:
    """Floors of a rung."""
    return tuple(min(level, highest_floor(factor.width)) for factor in factors)


def _part(factors: tuple[Factor, ...], low: int, high: int, most: int) -> Networks:
    """Networks whose smallest number of active units lies in [low, high); the top rung has no upper end."""
    floors = _at_least(factors, low)
    return Alive(factors, floors) if high > most else Rung(factors, floors, _at_least(factors, high))


@dataclass(frozen=True)
class Rung:
    """Networks with at least `lower` active units in every layer, and fewer than `upper` in some: Π(A + B) - ΠA."""

    factors: tuple[Factor, ...]
    lower: Floors
    upper: Floors

    @property
    def pole(self) -> float:
        return -min(self.lower) / 2

    def log_moment(self, c: float) -> float:
        return float(self.along(c)(np.array([c + 0j]))[0][0].real)

    def along(self, c: float) -> Along:
        parts = []
        for factor, low, high in zip(self.factors, self.lower, self.upper, strict=True):
            few = active_units(factor, c, low, most=high - 1) if high > low else None
            parts.append((factor, active_units(factor, c, high), few))

        def transform(s: Complex) -> tuple[Complex, Real]:
            base, growth = np.zeros_like(s), np.zeros_like(s)
            most_base, most_growth = np.zeros_like(s), np.zeros_like(s)
            for factor, many, few in parts:
                log_many, most_many = log_transform(factor, s, many)
                base, most_base = base + factor.count * log_many, most_base + factor.count * most_many
                if few is not None:
                    log_few, most_few = log_transform(factor, s, few)
                    growth = growth + factor.count * _log_one_plus(log_few - log_many)
                    most_growth = most_growth + factor.count * _log_one_plus(most_few - most_many + 0j)
            return base + _log_expm1(growth), (most_base + _log_expm1(most_growth)).real

        return transform

    def saddle(self, x: float, kind: Kind) -> Saddle:
        """The minimum over c of log M(c) - cx - log|c| (tails) or log M(c) - cx (density), by Brent's method."""
        tail = kind != "density"

        def height(c: float) -> float:
            return max(_NOTHING, self.log_moment(c) - c * x - (math.log(abs(c)) if tail else 0.0))

        wall = wall_before(self.pole, x)
        c = float(
            minimize_scalar(height, bounds=(wall, wall * 1e-3), method="bounded", options={"xatol": -wall / 100}).x
        )
        apart = 0.05 * min(-c, c - self.pole)
        below, middle, above = height(c - apart), height(c), height(c + apart)
        return Saddle(c, middle, (above - below) / (2 * apart), (above + below - 2 * middle) / apart**2)


def _log_one_plus(exponent: Complex) -> Complex:
    """log(1 + e^z), for any z."""
    large = exponent.real > 0
    small = np.where(large, -exponent, exponent)
    found: Complex = log1p(np.exp(small)) + np.where(large, exponent, 0)
    return found


def _log_expm1(z: Complex) -> Complex:
    """log(e^z - 1), for any z."""
    large = z.real > 30
    with np.errstate(divide="ignore"):
        found: Complex = np.where(large, z, np.log(expm1(np.where(large, 1, z))))
    return found
