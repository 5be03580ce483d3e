"""Closed forms of the arc-cosine family: leaky ReLU of any slope (ReLU, |u|, identity), step and sign.

A leaky ReLU of slope s is α u + β |u| with α = (1+s)/2, β = (1-s)/2; odd and even parts do not mix, so

    E (f(u)-f(v))² = α² D + β² E (|u|-|v|)²,

a sum of two non-negative terms, each accurate, for every slope.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.activations.dual import Dual, Pair, PairValue, covariance
from initscope.activations.triangle import (
    abs_defect,
    abs_distance,
    angle,
    folded_defect,
    relu_product,
    sine_minus,
    triangle,
)


@dataclass(frozen=True)
class LeakyDual(Dual):
    """f(u) = u for u > 0, slope·u below (Cho & Saul 2009, J1; odd and even parts added)."""

    slope: float
    wide = False

    @property
    def _odd(self) -> float:
        return ((1 + self.slope) / 2) ** 2

    @property
    def _even(self) -> float:
        return ((1 - self.slope) / 2) ** 2

    def second_moment(self, A: Tensor) -> Tensor:
        return (self._odd + self._even) * A

    def mean(self, A: Tensor) -> Tensor:
        return (1 - self.slope) * (A / (2 * math.pi)).sqrt()

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        if self.slope == 1:
            return D.clone()
        return self._odd * D + self._even * abs_distance(A, B, D)

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        s = self.slope
        if s == 1:
            return covariance(A, B, D)
        positive = relu_product(A, B, D)
        if s >= 0:
            return (1 - s) ** 2 * positive + s * covariance(A, B, D)
        # A negative slope adds two non-negative terms: E f f = (1+s²) K(c) - 2s K(-c), K the ReLU's product.
        return (1 + s * s) * positive - 2 * s * relu_product(A, B, D, flipped=True)

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        s = self.slope
        if s == 1:
            return torch.ones_like(A)
        supplement = math.pi - angle(A, B, D) if D.requires_grad else triangle(A, B, D).supplement
        return s + (1 - s) ** 2 * supplement / (2 * math.pi)

    def carry(self, pair: Pair, a: Tensor, b: Tensor) -> PairValue:
        """The norms grow by one factor, so the excess of the two parts adds: α² E + β² 2ab g(q)."""
        s, shape = self.slope, pair.triangle
        if s == 1:
            return PairValue(pair.excess, pair.product)
        ab = shape.a * shape.b
        excess = self._odd * pair.excess + self._even * 2 * ab * folded_defect(shape.q, shape.p)
        positive = ab / (2 * math.pi) * sine_minus(shape.supplement)
        if s >= 0:
            product = (1 - s) ** 2 * positive + s * pair.product
        else:
            product = (1 + s * s) * positive - 2 * s * ab / (2 * math.pi) * sine_minus(shape.angle)
        return PairValue(excess, product)

    def slopes(self, pair: Pair) -> Tensor:
        s = self.slope
        return torch.ones_like(pair.excess) if s == 1 else s + (1 - s) ** 2 * pair.triangle.supplement / (2 * math.pi)

    def derivative_second_moment(self, A: Tensor) -> Tensor:
        return torch.full_like(A, (1 + self.slope**2) / 2)

    def defect(self, d: Tensor) -> Tensor:
        if self.slope == 1:
            return d.clone()
        return (self._odd * d + self._even * abs_defect(d)) / (self._odd + self._even)


@dataclass(frozen=True)
class JumpDual(Dual):
    """low for u <= 0 (`middle` at exactly 0), high above: the step and the sign (Cho & Saul 2009, J0).

    Here f' is the delta function of the jump, so E f'(u) f'(v) is the squared jump times the density of (u, v) at the
    origin, (high-low)² / (2π √(AB-c²)), which is infinite at correlation ±1; so is E f'(u)².
    """

    low: float
    middle: float
    high: float
    wide = False

    def second_moment(self, A: Tensor) -> Tensor:
        return torch.where(A > 0, torch.full_like(A, (self.low**2 + self.high**2) / 2), self.middle**2)

    def mean(self, A: Tensor) -> Tensor:
        return torch.where(A > 0, torch.full_like(A, (self.low + self.high) / 2), self.middle)

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        beside_zero = ((self.low - self.middle) ** 2 + (self.high - self.middle) ** 2) / 2
        zeros = (A <= 0).int() + (B <= 0).int()
        moving = (self.high - self.low) ** 2 * angle(A, B, D) / math.pi  # jumps cross with probability t/π
        return torch.where(zeros == 0, moving, beside_zero * (zeros == 1))

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        t = angle(A, B, D)
        return self._product_at(t, math.pi - t, A, B)

    def product_of(self, pair: Pair) -> Tensor:
        return self._product_at(pair.triangle.angle, pair.triangle.supplement, pair.A, pair.B)

    def _product_at(self, t: Tensor, supplement: Tensor, A: Tensor, B: Tensor) -> Tensor:
        centre, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        about_zero = centre**2 + half**2 * (1 - 2 * t / math.pi)
        moving = self.high**2 * supplement / (2 * math.pi) if self.low == 0 else about_zero
        return torch.where((A > 0) & (B > 0), moving, self.mean(A) * self.mean(B))

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        shape = triangle(A, B, D)
        return (self.high - self.low) ** 2 / (2 * math.pi) / shape.a / shape.b / shape.sine

    def carry(self, pair: Pair, a: Tensor, b: Tensor) -> PairValue:
        moving = (pair.A > 0) & (pair.B > 0)
        crossing = (self.high - self.low) ** 2 * pair.triangle.angle / math.pi
        product = self.product_of(pair)
        excess = torch.where(moving, crossing, 2 * (a * b - product).clamp_min(0))
        return PairValue(excess, product)

    def slopes(self, pair: Pair) -> Tensor:
        """Zero: the gradient of a network is zero behind a jump, almost surely. The delta function is of no finite network."""
        return torch.zeros_like(pair.excess)

    def derivative_second_moment(self, A: Tensor) -> Tensor:
        return torch.full_like(A, math.inf)

    def defect(self, d: Tensor) -> Tensor:
        one = torch.ones_like(d)
        return self.distance(one, one, 2 * d) / (self.low**2 + self.high**2)
