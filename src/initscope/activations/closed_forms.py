"""Closed forms of the smooth activations erf, GELU, sin, cos, exp and the Gaussian bump.

Each distance is rearranged by hand so that it is a sum of terms of its own size: none is the small difference of two
large ones, however close u and v are. W stands for the determinant of I + covariance (of I + 2·covariance for erf).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.activations.dual import Pair, PairDual

_LARGEST = 709.0  # e^709 is the last whole power below the largest float64


@dataclass(frozen=True, eq=False)
class _Determinant:
    """√W = √((1+A)(1+B)) · `rest`, and AB - c² = (1+A)(1+B) · `gram`: factors that no variance makes overflow."""

    sides: Tensor  # √((1+A)(1+B))
    gram: Tensor
    rest: Tensor

    @classmethod
    def of(cls, pair: Pair) -> _Determinant:
        A, B, share = pair.A, pair.B, pair.gram
        rest = (1 / (1 + B) + B / (1 + B) / (1 + A) + share).sqrt()  # W = 1 + A + B + (AB - c²)
        return cls((1 + A).sqrt() * (1 + B).sqrt(), share, rest)

    @property
    def root(self) -> Tensor:
        """√W."""
        return self.sides * self.rest

    def gram_over(self, length: Tensor) -> Tensor:
        """(AB - c²) / length, for a length of at least √W."""
        return self.sides * (self.sides * self.gram / length)


def _arc_gap(pair: Pair, det: _Determinant, distance: Tensor, factor: float) -> Tensor:
    """θ(A) + θ(B) - 2θ(c) with sin θ(c) = 2c / R, R² = (1+2A)(1+2B), in which the leading parts cancel on paper.

    With X = √(1+4A), Y = √(1+4B) it is 2 arg of a complex number of imaginary part √W(XY-1) - 2c(X+Y); for c > 0 that
    difference equals R²(XY-1-4c)(XY-1+4c) / (√W(XY-1) + 2c(X+Y)), where XY-1-4c = 4(D + 4(AB-c²)) / (XY+1+4c) has no
    difference left. All is divided by R. The pair and its distance are taken `factor` times, and `det` is that of the
    doubled pair.
    """
    A, B, c = factor * pair.A, factor * pair.B, factor * pair.product
    share = c / det.sides
    X, Y = (1 + 4 * A).sqrt(), (1 + 4 * B).sqrt()
    below = X * Y + 1
    excess = 4 * A / below + 4 * B * (X * (X / below))  # XY - 1
    above = below + 4 * c.clamp(min=0)
    spread = 4 * (factor * distance / above + det.sides * (det.gram * (det.sides / above)))  # XY - 1 - 4c
    divisor = det.rest * excess + 2 * share.clamp(min=0) * (X + Y)
    close = spread / torch.where(divisor > 0, divisor, 1) * (excess + 4 * c.clamp(min=0))
    imaginary = torch.where(c > 0, close, det.rest * excess - 2 * share * (X + Y))
    return 2 * torch.atan2(imaginary, 2 * share * excess + det.rest * (X + Y))


@dataclass(frozen=True)
class ErfDual(PairDual):
    """erf u: E f(u) f(v) = (2/π) asin(2c / √((1+2A)(1+2B))) (Williams 1997, eq. 11)."""

    def second_moment(self, A: Tensor) -> Tensor:
        return 2 / math.pi * torch.atan2(2 * A, (1 + 4 * A).sqrt())

    def mean(self, A: Tensor) -> Tensor:
        return torch.zeros_like(A)

    def distance_of(self, pair: Pair) -> Tensor:
        return 2 / math.pi * _arc_gap(pair, _Determinant.of(pair.times(2)), pair.distance, 1.0)

    def product_of(self, pair: Pair) -> Tensor:
        return 2 / math.pi * torch.atan2(2 * pair.product, _Determinant.of(pair.times(2)).root)

    def slopes(self, pair: Pair) -> Tensor:
        return 4 / math.pi / _Determinant.of(pair.times(2)).root


@dataclass(frozen=True)
class GeluDual(PairDual):
    """u Φ(u) = u/2 + w(u)/2 with w(u) = u erf(u/√2) even, so products and distances of the two parts add.

    E w(u) w(v) = (2/π) [c asin(c/√((1+A)(1+B))) + (1 + W (1 - 1/(1+A) - 1/(1+B))) / √W], W = (1+A)(1+B) - c²
    (the exact GELU kernel, Tsuchida et al. 2021, by two integrations by parts).
    """

    def second_moment(self, A: Tensor) -> Tensor:
        root = (1 + 2 * A).sqrt()
        even = A * torch.atan2(A, root) + 2 * (A / (1 + A)) * (A / root)
        return A / 4 + even / (2 * math.pi)

    def mean(self, A: Tensor) -> Tensor:
        return A / (2 * math.pi * (1 + A)).sqrt()

    def distance_of(self, pair: Pair) -> Tensor:
        # The odd part alone gives D/4: where D is not small beside A + B, little cancels in the plain difference,
        # and norms of very different size do not spoil it.
        far = pair.distance > (pair.A + pair.B) / 4
        if not bool(far.any()):
            return self._close_distance(pair)
        plain = self.second_moment(pair.A) + self.second_moment(pair.B) - 2 * self.product_of(pair)
        return torch.where(far, plain, self._close_distance(pair))

    def _close_distance(self, pair: Pair) -> Tensor:
        A, B, c, D, det = pair.A, pair.B, pair.product, pair.distance, _Determinant.of(pair)
        root = det.root
        X, Y = (1 + 2 * A).sqrt(), (1 + 2 * B).sqrt()
        gap = (A - B) / (X + Y)
        tilt = 2 * torch.atan2(2 * gap, X * Y + 1)  # asin(A/(1+A)) - asin(B/(1+B))
        arcs = D * torch.atan2(c, root) + (A + B) / 2 * _arc_gap(pair, det, D, 0.5) + (A - B) / 2 * tilt
        near, far = root + X, root + Y
        by_gram = (1 / root / X + 2 / (1 + A) - 1) * det.gram_over(near)
        by_gram = by_gram + (1 / root / Y + 2 / (1 + B) - 1) * det.gram_over(far)
        bulge = (near + Y) / root / X / Y - 1  # second differences of y + 1/y, over gap²
        skew = (X + Y) / (1 + A) * ((X + Y) / (1 + B)) * (root + Y + 2 * (1 + A) / (X + Y))
        by_gap = 2 * (gap / near) * (gap / far) * (bulge * (X + Y) + skew)
        return D / 4 + (arcs + by_gram + by_gap) / (2 * math.pi)

    def product_of(self, pair: Pair) -> Tensor:
        A, B, c, det = pair.A, pair.B, pair.product, _Determinant.of(pair)
        root = det.root
        linear = A / (1 + A) * (B / (1 + B)) * ((2 + A + B) / root)
        square = det.gram / det.rest * (A / (1 + A).sqrt()) * (B / (1 + B).sqrt()) - det.gram / root
        return (c * torch.atan2(root, -c) + linear + square) / (2 * math.pi)  # c/4 + c asin(...)/2π + ...

    def slopes(self, pair: Pair) -> Tensor:
        c, root = pair.product, _Determinant.of(pair).root
        rational = 1 / (1 + pair.A) + 1 / (1 + pair.B) + 1 / root / root
        return (torch.atan2(root, -c) + c / root * rational) / (2 * math.pi)


@dataclass(frozen=True)
class SinDual(PairDual):
    """sin u: E f(u) f(v) = e^(-(A+B)/2) sinh c (characteristic function of the Gaussian)."""

    def second_moment(self, A: Tensor) -> Tensor:
        return -torch.expm1(-2 * A) / 2

    def mean(self, A: Tensor) -> Tensor:
        return torch.zeros_like(A)

    def distance_of(self, pair: Pair) -> Tensor:
        moving = -torch.expm1(-pair.distance / 2) * (1 + torch.exp(-pair.opposite / 2))
        return moving - _exp_gap(-pair.A, -pair.B) ** 2 / 2

    def product_of(self, pair: Pair) -> Tensor:
        c = pair.product  # e^(-D/2) - e^(-total/2) = e^(-larger) (1 - e^(-2|c|)), with the sign of c
        nearest = torch.minimum(pair.distance, pair.opposite)
        return -torch.sign(c) * torch.exp(-nearest / 2) * torch.expm1(-2 * c.abs()) / 2

    def slopes(self, pair: Pair) -> Tensor:
        return CosDual().product_of(pair)


@dataclass(frozen=True)
class CosDual(PairDual):
    """cos u: E f(u) f(v) = e^(-(A+B)/2) cosh c (characteristic function of the Gaussian)."""

    def second_moment(self, A: Tensor) -> Tensor:
        return (1 + torch.exp(-2 * A)) / 2

    def mean(self, A: Tensor) -> Tensor:
        return torch.exp(-A / 2)

    def distance_of(self, pair: Pair) -> Tensor:
        moving = torch.expm1(-pair.distance / 2) * torch.expm1(-pair.opposite / 2)
        return moving + _exp_gap(-pair.A, -pair.B) ** 2 / 2

    def product_of(self, pair: Pair) -> Tensor:
        return (torch.exp(-pair.distance / 2) + torch.exp(-pair.opposite / 2)) / 2

    def slopes(self, pair: Pair) -> Tensor:
        return SinDual().product_of(pair)


@dataclass(frozen=True)
class ExpDual(PairDual):
    """e^u: E f(u) f(v) = e^((A+B)/2 + c) (moment generating function of the Gaussian)."""

    def second_moment(self, A: Tensor) -> Tensor:
        return torch.exp(2 * A)

    def mean(self, A: Tensor) -> Tensor:
        return torch.exp(A / 2)

    def distance_of(self, pair: Pair) -> Tensor:
        return _exp_gap(pair.A, pair.B) ** 2 - 2 * _times_exp(torch.expm1(-pair.distance / 2), pair.A + pair.B)

    def product_of(self, pair: Pair) -> Tensor:
        return torch.exp(pair.A + pair.B - pair.distance / 2)

    def slopes(self, pair: Pair) -> Tensor:
        return self.product_of(pair)


@dataclass(frozen=True)
class GaussianDual(PairDual):
    """e^(-u²/2): E f(u) f(v) = W^(-1/2), W = (1+A)(1+B) - c² (a Gaussian integral)."""

    def second_moment(self, A: Tensor) -> Tensor:
        return 1 / (1 + 2 * A).sqrt()

    def mean(self, A: Tensor) -> Tensor:
        return 1 / (1 + A).sqrt()

    def distance_of(self, pair: Pair) -> Tensor:
        A, B, det = pair.A, pair.B, _Determinant.of(pair)
        root = det.root
        X, Y = (1 + 2 * A).sqrt(), (1 + 2 * B).sqrt()
        near, far = root + X, root + Y
        gap = (A - B) / (X + Y)
        by_gram = det.gram_over(near) / root / X + det.gram_over(far) / root / Y
        by_gap = 2 * (gap / near) * (gap / far) * ((near + Y) / root) * ((X + Y) / X) / Y
        return by_gram + by_gap  # 1/X + 1/Y - 2/√W

    def product_of(self, pair: Pair) -> Tensor:
        return 1 / _Determinant.of(pair).root

    def slopes(self, pair: Pair) -> Tensor:
        root = _Determinant.of(pair).root
        return pair.product / root / root / root


def _exp_gap(x: Tensor, y: Tensor) -> Tensor:
    """|e^x - e^y|, relatively accurate when x and y are close, and finite wherever the difference is."""
    return _times_exp(-torch.expm1(-(x - y).abs()), torch.maximum(x, y))


def _times_exp(factor: Tensor, x: Tensor) -> Tensor:
    """factor · e^x in two halves: a small factor meets e^(x/2) before e^x overflows, and 0 · ∞ never arises."""
    half = torch.exp((x / 2).clamp(max=_LARGEST))
    return half * (half * factor)
