"""Tail probabilities and densities of log |h|²/|x|² from the Mellin transform, with relative accuracy in both tails.

With M(s) = E[R^s; alive] and X = log R,

    P(X > x) = (1/2πi) ∫ M(s) e^(-sx) ds/s along Re s = c > 0, and the same with c < 0 gives -P(X < x, alive);

the density of X is the integral without 1/s. The trapezoid rule along the line is exact up to aliasing: it returns the
sum of e^(cΔj) times the tail at x + jΔ, Δ = 2π/step, and Chernoff's bound says which Δ makes that invisible. The line goes
through the saddle point, so that nothing cancels however small the probability is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from initscope.finite.mellin import (
    Complex,
    Factor,
    Real,
    Tilted,
    active_units,
    fewest_active,
    log_transform,
    tilted,
)

Kind = Literal["below", "above", "density"]
Floors = tuple[int, ...]  # for each factor the fewest active units that are counted
Along = Callable[[Complex], tuple[Complex, Real]]

_WIDE = 3200
PRECISION = 37.0  # e^-37 is below the rounding error of a double


@dataclass(frozen=True)
class Saddle:
    """Where the line crosses the real axis, and the log of M(c) e^(-cx) (over |c| for tails) there with derivatives.

    The slope is zero at a saddle point; it is positive where the pole keeps the line away from it.
    """

    c: float
    height: float
    slope: float
    curvature: float

    @property
    def log_value(self) -> float:
        """The saddle-point approximation of the logarithm of the tail or density."""
        return self.height - 0.5 * math.log(2 * math.pi * self.curvature)


class Networks(Protocol):
    """A set of networks, told apart by how many units of each layer are active, and the transform of R on it."""

    @property
    def pole(self) -> float:
        """The transform is analytic to the right of it."""

    def log_moment(self, c: float) -> float:
        """log E[R^c] on the set."""

    def saddle(self, x: float, kind: Kind) -> Saddle:
        """Where to cross the real axis for x."""

    def along(self, c: float) -> Along:
        """The function that gives log E[R^s] on Re s = c, and the log of a falling majorant of its modulus."""


@dataclass(frozen=True)
class Alive:
    """All networks whose layers have at least `floors` active units."""

    factors: tuple[Factor, ...]
    floors: Floors

    @property
    def pole(self) -> float:
        return -min(self.floors) / 2

    def tilted(self, c: float) -> Tilted:
        parts = [tilted(factor, c, floor) for factor, floor in zip(self.factors, self.floors, strict=True)]
        return Tilted(sum(p.log_moment for p in parts), sum(p.mean for p in parts), sum(p.variance for p in parts))

    def log_moment(self, c: float) -> float:
        return self.tilted(c).log_moment

    def along(self, c: float) -> Along:
        units = [active_units(factor, c, floor) for factor, floor in zip(self.factors, self.floors, strict=True)]

        def transform(s: Complex) -> tuple[Complex, Real]:
            value, most = np.zeros_like(s), np.zeros(len(s))
            for factor, unit in zip(self.factors, units, strict=True):
                layer, layer_most = log_transform(factor, s, unit)
                value, most = value + factor.count * layer, most + factor.count * layer_most
            return value, most

        return transform

    def saddle(self, x: float, kind: Kind) -> Saddle:
        return newton_saddle(self, x, kind)


class Tiltable(Networks, Protocol):
    """A set of networks whose tilted mean and variance are known too."""

    def tilted(self, c: float) -> Tilted:
        """log E[R^c] on the set, and the mean and variance of log R under the tilt by R^c."""


def newton_saddle(networks: Tiltable, x: float, kind: Kind) -> Saddle:
    """The minimum over c of log M(c) - cx - log|c| (tails) or log M(c) - cx (density), by guarded Newton."""
    pull = 0.0 if kind == "density" else 1.0
    at_zero = networks.tilted(0.0)
    gap, spread = x - at_zero.mean, at_zero.variance
    wall = wall_before(networks.pole, gap)
    low = 0.0 if kind == "above" else wall
    high = 0.0 if kind == "below" else math.inf
    sign = -1.0 if kind == "below" else 1.0
    c = (gap + sign * math.sqrt(gap * gap + 4 * pull * spread)) / (2 * spread) if pull else gap / spread
    last = wall / 2 if kind == "below" else 0.0
    for _ in range(100):
        if c <= low:
            c = wall if low == wall else (low + last) / 2
        elif c >= high:
            c = (last + high) / 2
        here = networks.tilted(c)
        slope = here.mean - x - (pull / c if pull else 0.0)
        curvature = here.variance + (pull / (c * c) if pull else 0.0)
        # Close enough: any line gives the right answer, the saddle point only the shortest sum.
        if slope * slope <= 1e-3 * curvature or (c == wall and slope > 0):
            break
        low, high = (c, high) if slope < 0 else (low, c)
        last, c = c, c - slope / curvature
    return Saddle(c, here.log_moment - c * x - (math.log(abs(c)) if pull else 0.0), slope, curvature)


def wall_before(pole: float, gap: float) -> float:
    """The least c to try: nearer to the pole nothing is won, and the sum becomes long."""
    return pole + min(-pole / 2, 1.5 / (abs(gap) + 1))


def floors_for(factors: Sequence[Factor], log_chance: float) -> Floors:
    """Floors that networks fall below with a chance of at most exp(log_chance) in all layers together."""
    log_chance -= math.log(sum(factor.count for factor in factors))
    return tuple(min(fewest_active(factor.width, log_chance), highest_floor(factor.width)) for factor in factors)


def highest_floor(width: int) -> int:
    """The most active units that are ever asked for.

    In a wide layer fewer than this do not happen (a chance below e^-400), and its pole is too far away to matter; a
    higher floor would only cut into the bump of terms.
    """
    return max(1, width // 2) if width < _WIDE else fewest_active(width, -400.0)


def _period(networks: Networks, x: Real, kind: Kind, saddle: Saddle) -> float:
    """The smallest Δ found for which the images x + jΔ together weigh less than e^-37 of the answer."""
    c, middle, span = saddle.c, float(x.min() + x.max()) / 2, float(x.max() - x.min())
    wanted = saddle.log_value - PRECISION - abs(c) * span
    reaches = []
    for side in (-1.0, 1.0):
        if (kind == "above" and side < 0) or (kind == "below" and side > 0):
            reaches.append((networks.log_moment(0.0) - wanted) / abs(c))  # a tail has at most the chance of the set
            continue
        best = math.inf
        for reach in (4.0, 10.0):
            other = max(c + side * reach / math.sqrt(saddle.curvature), c - 0.9 * (c - networks.pole))
            # Chernoff at c': e^(cΔ) P(X > x + Δ) <= M(c') e^(-c'x) e^(-(c'-c)Δ)
            bound = networks.log_moment(other) - other * middle
            best = min(best, (bound - wanted) / abs(other - c))
        reaches.append(best)
    return max(reaches) + span


def integrate(networks: Networks, x: Real, kind: Kind, saddle: Saddle) -> tuple[Real, float]:
    """log of the integral at each x, and which part of the sum of absolute terms was left (small: cancellation)."""
    step = 2 * math.pi / _period(networks, x, kind, saddle)
    c, middle, along = saddle.c, float(x.min() + x.max()) / 2, networks.along(saddle.c)
    pieces: list[Complex] = []
    top, first = 0.0, 0
    nodes = max(24, math.ceil(math.sqrt(2 * (PRECISION + 8) / saddle.curvature) / step))
    while True:
        t = step * np.arange(first, first + nodes)
        value, most = along(c + 1j * t)
        top = top if first else float(most[0])
        piece: Complex = np.exp(value - top - 1j * t * middle)
        pieces.append(piece if kind == "density" else piece * (c / (c + 1j * t)))
        first, nodes = first + nodes, 2 * nodes
        if most[-1] - top + math.log(first) < -PRECISION - 3:
            break
    weights = np.concatenate(pieces)
    weights[0] /= 2  # the trapezoid rule on the half line t >= 0; the other half is the conjugate
    turns = np.exp(-1j * np.outer(x - middle, step * np.arange(len(weights))))
    total = (turns @ weights).real
    with np.errstate(divide="ignore"):
        log_value = np.log(np.maximum(total, 0.0) * step / math.pi) + saddle.height - c * (x - middle)
    return log_value, float(np.min(total) / np.abs(weights).sum())
