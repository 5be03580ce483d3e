"""Continuous functions of pieces of degree two at most, as a polynomial and hinges.

f(z) = P(z) + Σ (C + D t) t of t = (±z - h)_+, h >= 0: P is the piece around 0, a hinge adds what changes beyond a kink. For
u = s z and v = s' z' of correlation ρ = cos θ the product of two hinges at α = h/s, β = h'/s' is made of moments

    S_ab = E (z-α)_+^a (z'-β)_+^b,   which obey dS_ab/dρ = ab S_(a-1)(b-1)                                     [Price]

and follow, by Stein's lemma, from four numbers: S_00, φ(α) Φ(-m), φ(β) Φ(-m') and the density of the pair at (α, β), where
m = (β - ρα)/√(1-ρ²), m' = (α - ρβ)/√(1-ρ²). These are made in `kinked` of the one-dimensional functions in `owen`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.activations.pieces import Pieces
from initscope.activations.polynomials import differentiate
from initscope.networks.machine.owen import Rule

Array = np.ndarray[Any, Any]
_ROUNDED = 1e-13  # of the largest, jumps that are only rounding
_SAMPLES = 17  # standard deviations on each side, at which errors are taken


@dataclass(frozen=True)
class Vertex:
    """Hinges i and j of equal (sign 1) or opposite sides: sums of products of their C and D over both sides."""

    i: int
    j: int
    sign: int
    cc: float
    cd: float
    dc: float
    dd: float


@dataclass(frozen=True)
class Hinges:
    """`center`: P. At places h >= 0, C and D of (z - h)_+ (`upper`) and of (-z - h)_+ (`lower`)."""

    center: tuple[float, float, float]
    places: tuple[float, ...]
    upper: tuple[tuple[float, float], ...]
    lower: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, pieces: Pieces) -> Hinges:
        """
        >>> Hinges.of(Pieces((-1.0, 1.0), ((-1.0,), (0.0, 1.0), (1.0,)))).center
        (0.0, 1.0, 0.0)
        """
        middle = pieces.coefficients[bisect_left(pieces.kinks, 0.0)]
        zero, one, two, *_ = (*middle, 0.0, 0.0, 0.0)
        first, second = (_cleaned(pieces.jumps(order)) for order in (1, 2))
        sides: dict[float, list[tuple[float, float]]] = {}
        for k, c, d in zip(pieces.kinks, first, second, strict=True):
            if c or d:
                pair = sides.setdefault(abs(k), [(0.0, 0.0), (0.0, 0.0)])
                pair[k < 0] = (c, -d / 2 if k < 0 else d / 2)
        places = tuple(sorted(sides))
        return cls((zero, one, two), places, tuple(sides[h][0] for h in places), tuple(sides[h][1] for h in places))

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        """Every two hinges but those whose sums are zero."""
        found = []
        for i in range(len(self.places)):
            for j in range(len(self.places)):
                for sign in (1, -1):
                    first = (self.upper[i], self.lower[i])
                    second = (self.upper[j], self.lower[j])[::sign]
                    sums = [
                        sum(a[p] * b[q] for a, b in zip(first, second, strict=True)) for p in (0, 1) for q in (0, 1)
                    ]
                    if any(sums):
                        found.append(Vertex(i, j, sign, *sums))
        return tuple(found)

    @property
    def quadratic(self) -> bool:
        return any(v.cd or v.dc or v.dd for v in self.vertices)

    @property
    def table(self) -> Array:
        """(places, 5): h, then C, D above, C, D below."""
        rows = [(h, *u, *w) for h, u, w in zip(self.places, self.upper, self.lower, strict=True)]
        return np.array(rows, dtype=np.float64).reshape(-1, 5)


def _cleaned(jumps: tuple[float, ...]) -> list[float]:
    size = max(map(abs, jumps), default=0.0)
    return [0.0 if abs(jump) <= _ROUNDED * size else jump for jump in jumps]


def moments(pieces: Pieces, a: Tensor) -> tuple[Tensor, Tensor]:
    """E f(u)² and E f(u) at variances a, in closed form."""
    s, zero = a.clamp_min(1e-300).sqrt(), torch.zeros_like(a)
    return _squared(pieces).gaussian_mean(0, zero, s).clamp_min(0), pieces.gaussian_mean(0, zero, s)


def _squared(pieces: Pieces) -> Pieces:
    return Pieces(pieces.kinks, tuple(tuple(np.convolve(c, c).tolist()) for c in pieces.coefficients))


@dataclass(frozen=True)
class Losses:
    """Of products and slopes, relative to the roots of their second moments: errors, and by how much rounding grows."""

    error: float
    slope_error: float
    rounding: float


def losses(pieces: Pieces, span: tuple[float, float], rule: Rule) -> Losses:
    """For standard deviations within `span`, from the errors of B and of Mills' ratio."""
    s = np.exp(np.linspace(math.log(span[0]), math.log(span[1]), _SAMPLES))
    hinges, a = Hinges.of(pieces), torch.from_numpy(s * s)
    derivative = Pieces(pieces.kinks, tuple(differentiate(c) or (0.0,) for c in pieces.coefficients))
    root = np.sqrt(np.maximum(moments(pieces, a)[0].numpy(), 1e-300))
    steep = np.sqrt(np.maximum(moments(derivative, a)[0].numpy(), 1e-300))
    alpha = np.array(hinges.places)[:, None] / s
    errors, slope_errors = _spread(hinges, alpha, Loss(rule.error(alpha), rule.mills_error, rule.reach, _total), s)
    rounded, _ = _spread(hinges, alpha, Loss(0.25 + alpha * alpha / 8, 0.4, 0.0, _root_total), s)
    both, both_steep = root[:, None] * root, steep[:, None] * steep
    return Losses(
        float((errors / both).max()), float((slope_errors / both_steep).max()), 1 + float((rounded / both).max())
    )  # fmt: skip


def _total(*terms: Array) -> Array:
    return np.asarray(sum(terms[1:], terms[0]))


def _root_total(*terms: Array) -> Array:
    """Of errors that are independent of each other."""
    return np.asarray(np.sqrt(sum((t * t for t in terms[1:]), terms[0] ** 2)))


@dataclass(frozen=True)
class Loss:
    """Errors of B at the places of hinges and of Mills' ratio, beside the density; up to m = `reach` they may be anywhere."""

    beside: Array
    mills: float
    reach: float
    add: Callable[..., Array]


def _spread(hinges: Hinges, alpha: Array, loss: Loss, s: Array) -> tuple[Array, Array]:
    """What the losses do to products and slopes."""
    value, slope = np.zeros((len(s), len(s))), np.zeros((len(s), len(s)))
    left, right, add = s[:, None], s, loss.add
    for v in hinges.vertices:
        a, b = alpha[v.i][:, None], alpha[v.j]
        near = np.abs(a * a - b * b) < loss.reach**2
        least = np.exp(-(np.maximum(a, b) ** 2) / 2)
        first, second = (np.where(near, np.exp(-x * x / 2), least) for x in (a, b))
        s00 = add(first * loss.beside[v.i][:, None], second * loss.beside[v.j])
        g, h = first * loss.mills, second * loss.mills
        s01, s10 = add(g, h, b * s00), add(g, h, a * s00)
        s11 = add(s00, a * b * s00, a * h, b * g)
        s12, s21 = add(s10, s01, b * s11), add(s01, s10, a * s11)
        s22 = add(s00, a * g, b * g, b * s01, 2 * s11, a * s12)
        cc, cd, dc, dd = abs(v.cc), abs(v.cd) * right, abs(v.dc) * left, abs(v.dd) * left * right
        value = add(value, left * right * add(cc * s11, cd * s12, dc * s21, dd * s22))
        slope = add(slope, cc * s00, 2 * cd * s01, 2 * dc * s10, 4 * dd * s11)
    return value, slope
