"""Closed forms of relu(u)^k for k >= 2: the arc-cosine kernels J_k of Cho & Saul 2009.

At unit variances E f(u) f(v) = J_k(t) / 2π, and everything follows from one function on [0, π],

    U_0(τ) = τ,   U_k(τ) = k² ∫_0^τ U_{k-1}(s) sin s ds,   J_k(t) = U_k(π - t),
    J_k(0) - J_k(t) = π (P_k(1) - P_k(cos t)) + (-1)^k U_k(t),   P_k(ρ) = E u^k v^k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import torch
from torch import Tensor

from initscope.activations.dual import Dual, Pair, covariance
from initscope.activations.polynomials import power_of_four, times_power
from initscope.activations.triangle import Triangle, call, relu_product, resolved, triangle

_TERMS = 36
_SERIES_UP_TO = 1.6


@cache
def _power_series(k: int) -> tuple[Fraction, ...]:
    """U_k(τ) / τ^(2k+1) as a series in τ²."""
    series = [Fraction(1)] + [Fraction(0)] * (_TERMS - 1)
    sine = [Fraction((-1) ** n, math.factorial(2 * n + 1)) for n in range(_TERMS)]
    for order in range(1, k + 1):
        times_sine = [sum((series[i] * sine[n - i] for i in range(n + 1)), Fraction(0)) for n in range(_TERMS)]
        series = [order**2 * x / (2 * n + 2 * order + 1) for n, x in enumerate(times_sine)]
    return tuple(series)


@cache
def _mixed_moment(k: int) -> tuple[int, ...]:
    """P_k(ρ) = E u^k v^k at unit variances, lowest power of ρ first."""
    return tuple(
        0
        if (k - n) % 2
        else math.factorial(k) ** 2 // (math.factorial(n) * math.factorial((k - n) // 2) ** 2 * 2 ** (k - n))
        for n in range(k + 1)
    )


@cache
def _sine_factor(k: int) -> tuple[Fraction, ...]:
    """Q_k of J_k = (π-t) P_k(cos t) + sin t Q_k(cos t), from ∂J_k/∂ρ = k² J_{k-1} matched power by power."""
    if k == 0:
        return (Fraction(0),)
    before = dict(enumerate(_sine_factor(k - 1)))
    moment = _mixed_moment(k)
    found: dict[int, Fraction] = {}
    for n in range(k, 0, -1):
        right = k * k * (before.get(n, Fraction(0)) - before.get(n - 2, Fraction(0)))
        found[n - 1] = (moment[n] + (n + 1) * found.get(n + 1, Fraction(0)) - right) / n
    return tuple(found[n] for n in range(k))


def _horner(coefficients: tuple[Any, ...], x: Tensor) -> Tensor:
    total = torch.zeros_like(x)
    for c in reversed(coefficients):
        total = total * x + float(c)
    return total


def cumulated(k: int, tau: Tensor) -> Tensor:
    """U_k(τ) for τ in [0, π], relatively accurate at small τ.

    >>> float(cumulated(1, torch.tensor(math.pi, dtype=torch.float64)) / math.pi)
    1.0
    """
    series = tau ** (2 * k + 1) * _horner(_power_series(k), tau.clamp(max=_SERIES_UP_TO) ** 2)
    cosine = -tau.cos()
    direct = tau * _horner(_mixed_moment(k), cosine) + tau.sin() * _horner(_sine_factor(k), cosine)
    return torch.where(tau < _SERIES_UP_TO, series, direct)


class _PowerProduct(torch.autograd.Function):
    """E relu(u)^k relu(v)^k; the slope in c is k² times the product of order k - 1."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor, D: Tensor, k: int) -> Tensor:
        ctx.save_for_backward(A, B, D)
        ctx.k = k
        return _product_at(k, triangle(A, B, D))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        A, B, D = ctx.saved_tensors
        by_a, by_b, by_c = _product_slopes(A, B, D, ctx.k)
        return grad * (by_a + by_c / 2), grad * (by_b + by_c / 2), -grad * by_c / 2, None


class _PowerDistance(torch.autograd.Function):
    """E (f(u)-f(v))² = (m_k/2) [(a^k - b^k)² + 2 (ab)^k (1 - J_k(t)/J_k(0))], m_k = (2k-1)!!."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor, D: Tensor, k: int) -> Tensor:
        ctx.save_for_backward(A, B, D)
        ctx.k = k
        shape = triangle(A, B, D)
        unit = power_of_four(A, B)
        a, b, gap = (side / unit.sqrt() for side in (shape.a, shape.b, shape.gap))
        powers = sum((a**i * b ** (k - 1 - i) for i in range(k)), torch.zeros_like(A)) * gap
        return times_power(_half_moment(k) * (powers**2 + 2 * (a * b) ** k * _defect(k, shape)), unit, k)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        A, B, D = ctx.saved_tensors
        k = ctx.k
        by_a, by_b, by_c = _product_slopes(A, B, D, k)
        own_a, own_b = (_half_moment(k) * k * x ** (k - 1) for x in (A, B))
        return grad * (own_a - 2 * by_a - by_c), grad * (own_b - 2 * by_b - by_c), grad * by_c, None


def _half_moment(k: int) -> float:
    """E relu(z)^(2k) = (2k-1)!!/2 at unit variance."""
    return math.prod(range(1, 2 * k, 2)) / 2


def _product_slopes(A: Tensor, B: Tensor, D: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """∂K/∂A, ∂K/∂B at fixed c, and ∂K/∂c; the first two by Euler's theorem, 2A ∂K/∂A = kK - c ∂K/∂c."""
    by_c = k * k * power_product(A, B, D, k - 1)
    euler = k * power_product(A, B, D, k) - covariance(A, B, D) * by_c
    by_a, by_b = (torch.where(x > 0, euler / (2 * torch.where(x > 0, x, 1)), 0) for x in (A, B))
    return by_a, by_b, by_c


def _defect(k: int, shape: Triangle) -> Tensor:
    """1 - J_k(t)/J_k(0)."""
    moment = _mixed_moment(k)
    rho = shape.p - shape.q
    quotient = torch.zeros_like(rho)  # (P_k(1) - P_k(ρ)) / (1 - ρ)
    for n in range(1, k + 1):
        quotient = quotient + moment[n] * _horner((1,) * n, rho)
    sign = 1 if k % 2 == 0 else -1
    return (2 * shape.q * quotient + sign / math.pi * cumulated(k, shape.angle)) / sum(moment)


def _product_at(k: int, shape: Triangle) -> Tensor:
    """(ab)^k J_k(t) / 2π."""
    return times_power(cumulated(k, shape.supplement) / (2 * math.pi), shape.a * shape.b, k)


def power_product(A: Tensor, B: Tensor, D: Tensor, k: int) -> Tensor:
    """E relu(u)^k relu(v)^k for k >= 1."""
    if k == 1:
        return relu_product(A, B, D)
    return call(_PowerProduct, A, B, D, k)


@dataclass(frozen=True)
class RectifiedPowerDual(Dual):
    """relu(u)^k, k >= 2 (Cho & Saul 2009, J_k)."""

    order: int

    def second_moment(self, A: Tensor) -> Tensor:
        return _half_moment(self.order) * A**self.order

    def mean(self, A: Tensor) -> Tensor:
        # E |z|^k / 2 = 2^(k/2) Γ((k+1)/2) / (2√π)
        scale = 2 ** (self.order / 2) * math.gamma((self.order + 1) / 2) / (2 * math.sqrt(math.pi))
        return scale * A ** (self.order / 2)

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return call(_PowerDistance, A, B, D, self.order)

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return power_product(A, B, D, self.order)

    def product_of(self, pair: Pair) -> Tensor:
        return _product_at(self.order, pair.triangle)

    def slopes(self, pair: Pair) -> Tensor:
        return self.order**2 * _product_at(self.order - 1, pair.triangle)

    def defect(self, d: Tensor) -> Tensor:
        one = torch.ones_like(d)
        return _defect(self.order, resolved(one, one, 2 * d))

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return self.order**2 * power_product(A, B, D, self.order - 1)
