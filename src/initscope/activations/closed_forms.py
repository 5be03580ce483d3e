"""Closed forms of the smooth activations erf, GELU, sin, cos, exp and the Gaussian bump.

Each distance is rearranged by hand so that it is a sum of terms of its own size: none is the small difference of two
large ones, however close u and v are. W stands for the determinant of I + covariance (of I + 2·covariance for erf).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.activations.dual import Dual, covariance
from initscope.activations.triangle import gram, opposite


def _arc_gap(A: Tensor, B: Tensor, D: Tensor) -> Tensor:
    """θ(A) + θ(B) - 2θ(c) with sin θ(c) = 2c / √((1+2A)(1+2B)), in which the leading parts cancel on paper.

    With X = √(1+4A), Y = √(1+4B) it is 2 arg of a complex number of imaginary part √W(XY-1) - 2c(X+Y); for c > 0 that
    difference equals R²(XY-1-4c)(XY-1+4c) / (√W(XY-1) + 2c(X+Y)), R² = (1+2A)(1+2B), XY-1-4c = 2D - (X-Y)²/2.
    """
    c = covariance(A, B, D)
    X, Y = (1 + 4 * A).sqrt(), (1 + 4 * B).sqrt()
    root = (1 + 2 * A + 2 * B + 4 * gram(A, B, D)).sqrt()  # √W
    excess = (4 * A + 4 * B + 16 * A * B) / (X * Y + 1)  # XY - 1
    spread = (2 * D - 8 * ((A - B) / (X + Y)) ** 2).clamp(min=0)  # XY - 1 - 4c
    below = root * excess + 2 * c.clamp(min=0) * (X + Y)
    ratio = (excess + 4 * c.clamp(min=0)) / torch.where(below > 0, below, 1)
    close = (1 + 2 * A) * (1 + 2 * B) * spread * torch.where(below > 0, ratio, 1)
    imaginary = torch.where(c > 0, close, root * excess - 2 * c * (X + Y))
    return 2 * torch.atan2(imaginary, 2 * c * excess + root * (X + Y))


@dataclass(frozen=True)
class ErfDual(Dual):
    """erf u: E f(u) f(v) = (2/π) asin(2c / √((1+2A)(1+2B))) (Williams 1997, eq. 11)."""

    def second_moment(self, A: Tensor) -> Tensor:
        return 2 / math.pi * torch.atan2(2 * A, (1 + 4 * A).sqrt())

    def mean(self, A: Tensor) -> Tensor:
        return torch.zeros_like(A)

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return 2 / math.pi * _arc_gap(A, B, D)

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        root = (1 + 2 * A + 2 * B + 4 * gram(A, B, D)).sqrt()
        return 2 / math.pi * torch.atan2(2 * covariance(A, B, D), root)

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return 4 / math.pi / (1 + 2 * A + 2 * B + 4 * gram(A, B, D)).sqrt()


@dataclass(frozen=True)
class GeluDual(Dual):
    """u Φ(u) = u/2 + w(u)/2 with w(u) = u erf(u/√2) even, so products and distances of the two parts add.

    E w(u) w(v) = (2/π) [c asin(c/√((1+A)(1+B))) + (1 + W (1 - 1/(1+A) - 1/(1+B))) / √W], W = (1+A)(1+B) - c²
    (the exact GELU kernel, Tsuchida et al. 2021, by two integrations by parts).
    """

    def second_moment(self, A: Tensor) -> Tensor:
        root = (1 + 2 * A).sqrt()
        even = A * torch.atan2(A, root) + 2 * A * A / ((1 + A) * root)
        return A / 4 + even / (2 * math.pi)

    def mean(self, A: Tensor) -> Tensor:
        return A / (2 * math.pi * (1 + A)).sqrt()

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        c, delta = covariance(A, B, D), gram(A, B, D)
        root = (1 + A + B + delta).sqrt()
        X, Y = (1 + 2 * A).sqrt(), (1 + 2 * B).sqrt()
        tilt = 2 * torch.atan2(2 * (A - B) / (X + Y), X * Y + 1)  # asin(A/(1+A)) - asin(B/(1+B))
        arcs = D * torch.atan2(c, root) + (A + B) / 2 * _arc_gap(A / 2, B / 2, D / 2) + (A - B) / 2 * tilt
        near, far = root + X, root + Y
        by_gram = (1 / (root * X) + 2 / (1 + A) - 1) / near + (1 / (root * Y) + 2 / (1 + B) - 1) / far
        bulge = (near + Y) / (root * X * Y) - 1  # second differences of y + 1/y, over (A-B)²
        skew = (root + Y + 2 * (1 + A) / (X + Y)) / ((1 + A) * (1 + B))
        by_gap = 2 * (bulge / (X + Y) + skew) / (near * far)
        return D / 4 + (arcs + by_gram * delta + by_gap * (A - B) ** 2) / (2 * math.pi)

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        c, delta = covariance(A, B, D), gram(A, B, D)
        root = (1 + A + B + delta).sqrt()
        rational = (A * B * (2 + A + B) + delta * (A * B - 1)) / ((1 + A) * (1 + B) * root)
        return c / 4 + (c * torch.atan2(c, root) + rational) / (2 * math.pi)

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        c, delta = covariance(A, B, D), gram(A, B, D)
        W = 1 + A + B + delta
        rational = 1 + W * (1 - 1 / (1 + A) - 1 / (1 + B))
        slope = 1 / (1 + A) + 1 / (1 + B) - 1  # half of ∂ rational / ∂c, over c
        return 0.25 + (torch.atan2(c, W.sqrt()) + c / W.sqrt() * (1 + 2 * slope + rational / W)) / (2 * math.pi)


@dataclass(frozen=True)
class SinDual(Dual):
    """sin u: E f(u) f(v) = e^(-(A+B)/2) sinh c (characteristic function of the Gaussian)."""

    def second_moment(self, A: Tensor) -> Tensor:
        return -torch.expm1(-2 * A) / 2

    def mean(self, A: Tensor) -> Tensor:
        return torch.zeros_like(A)

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        total = opposite(A, B, D).clamp(min=0)  # E (u+v)²
        return -torch.expm1(-D / 2) * (1 + torch.exp(-total / 2)) - _exp_gap(-A, -B) ** 2 / 2

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        total = opposite(A, B, D).clamp(min=0)
        half = covariance(A, B, D)  # e^(-D/2) - e^(-total/2) = e^(-larger) (1 - e^(-2|c|)), with the sign of c
        return -torch.sign(half) * torch.exp(-torch.minimum(D, total) / 2) * torch.expm1(-2 * half.abs()) / 2

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return CosDual().product(A, B, D)


@dataclass(frozen=True)
class CosDual(Dual):
    """cos u: E f(u) f(v) = e^(-(A+B)/2) cosh c (characteristic function of the Gaussian)."""

    def second_moment(self, A: Tensor) -> Tensor:
        return (1 + torch.exp(-2 * A)) / 2

    def mean(self, A: Tensor) -> Tensor:
        return torch.exp(-A / 2)

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        total = opposite(A, B, D).clamp(min=0)
        return torch.expm1(-D / 2) * torch.expm1(-total / 2) + _exp_gap(-A, -B) ** 2 / 2

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return (torch.exp(-D / 2) + torch.exp(-opposite(A, B, D) / 2)) / 2

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return SinDual().product(A, B, D)


@dataclass(frozen=True)
class ExpDual(Dual):
    """e^u: E f(u) f(v) = e^((A+B)/2 + c) (moment generating function of the Gaussian)."""

    def second_moment(self, A: Tensor) -> Tensor:
        return torch.exp(2 * A)

    def mean(self, A: Tensor) -> Tensor:
        return torch.exp(A / 2)

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return _exp_gap(A, B) ** 2 - 2 * torch.exp(A + B) * torch.expm1(-D / 2)

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return torch.exp(A + B - D / 2)

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return self.product(A, B, D)


@dataclass(frozen=True)
class GaussianDual(Dual):
    """e^(-u²/2): E f(u) f(v) = W^(-1/2), W = (1+A)(1+B) - c² (a Gaussian integral)."""

    def second_moment(self, A: Tensor) -> Tensor:
        return 1 / (1 + 2 * A).sqrt()

    def mean(self, A: Tensor) -> Tensor:
        return 1 / (1 + A).sqrt()

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        delta = gram(A, B, D)
        root = (1 + A + B + delta).sqrt()
        X, Y = (1 + 2 * A).sqrt(), (1 + 2 * B).sqrt()
        near, far = root + X, root + Y
        by_gram = (1 / (X * near) + 1 / (Y * far)) / root
        by_gap = 2 * (near + Y) / (root * X * Y * (X + Y) * near * far)
        return by_gram * delta + by_gap * (A - B) ** 2  # 1/X + 1/Y - 2/√W

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return 1 / (1 + A + B + gram(A, B, D)).sqrt()

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return covariance(A, B, D) * (1 + A + B + gram(A, B, D)) ** -1.5


def _exp_gap(x: Tensor, y: Tensor) -> Tensor:
    """e^x - e^y, relatively accurate when x and y are close."""
    return torch.exp(y) * torch.expm1(x - y)
