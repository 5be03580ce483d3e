"""Rectified powers relu(z)^j: their Hermite coefficients, and the products E relu(u)^i relu(v)^j in closed form."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, lru_cache

import torch
from torch import Tensor

from initscope.activations.triangle import minus_sine, sine_minus

_LARGEST = 3


def half_moment(j: int) -> float:
    """E relu(z)^j = E |z|^j / 2 = 2^(j/2) Γ((j+1)/2) / (2√π)."""
    return 2 ** (j / 2) * math.gamma((j + 1) / 2) / (2 * math.sqrt(math.pi))


@cache
def _constant(j: int, k: int) -> float:
    """r_k^(j) = E relu(z)^j h_k(z): from r_k^(j) = j r_(k-1)^(j-1) / √k, and at j = 0 from h_k φ = -(h_(k-1) φ)' / √k."""
    if k == 0:
        return half_moment(j)
    if j > 0:
        return j * _constant(j - 1, k - 1) / math.sqrt(k)
    if k % 2 == 0:
        return 0.0
    m = (k - 1) // 2  # h_(k-1)(0) = (-1)^m √((2m)!) / (2^m m!)
    size = math.exp((math.lgamma(2 * m + 1) - math.log(4) * m - 2 * math.lgamma(m + 1)) / 2)
    return (-size if m % 2 else size) / math.sqrt(2 * math.pi * k)


def rectified_constants(j: int, orders: tuple[int, ...]) -> Tensor:
    """r_k^(j) = E relu(z)^j h_k(z) for the orders k, float64, shape (len(orders),).

    >>> rectified_constants(1, (0, 1, 3)).tolist()  # 1/√(2π), 1/2, 0
    [0.39894228040143..., 0.5, 0.0]
    """
    return _constants(j, orders).clone()


@lru_cache(maxsize=512)
def _constants(j: int, orders: tuple[int, ...]) -> Tensor:
    return torch.tensor([_constant(j, k) for k in orders], dtype=torch.float64)


def rectified_product(i: int, j: int, t: Tensor) -> Tensor:
    """J_ij(t) = E relu(u)^i relu(v)^j at unit variances and the angle t, for i, j from 1 to 3.

    Powers of the same parity have an arc, the others are polynomials in ρ = cos t. From ∂J_ij/∂ρ = ij J_(i-1)(j-1).

    >>> round(float(rectified_product(1, 1, torch.zeros(()))), 6), round(float(rectified_product(1, 2, torch.zeros(()))), 6)
    (0.5, 0.797885)
    """
    i, j = min(i, j), max(i, j)
    if not 1 <= i <= j <= _LARGEST:
        raise ValueError(f"J_{i}{j}: powers from 1 to {_LARGEST} have a closed form here")
    if (j - i) % 2:
        return _polynomial(i, j, t.cos())
    return _arc(i, j, math.pi - t) / (2 * math.pi)


def rectified_defect(i: int, j: int, t: Tensor, q: Tensor) -> Tensor:
    """J_ij(0) - J_ij(t), accurate beside t² where t is small; q = sin²(t/2)."""
    i, j = min(i, j), max(i, j)
    rho = 1 - 2 * q
    if (j - i) % 2:
        coefficients = _product_coefficients(i, j)
        return 2 * q * _quotient(coefficients, rho)
    sign = 1 if i % 2 == 0 else -1
    turned = 2 * math.pi * q * _quotient(_mixed(i, j), rho)  # π (P(1) - P(ρ))
    return (turned + sign * _arc(i, j, t)) / (2 * math.pi)


def _arc(i: int, j: int, tau: Tensor) -> Tensor:
    """U_ij(τ) = 2π J_ij(π - τ), a sum of terms of the order τ³ at most: [cho2009] with τ cos τ = sin τ - (sin τ - τ cos τ)."""
    sine, cosine, first = tau.sin(), tau.cos(), sine_minus(tau)
    if (i, j) == (1, 1):
        return first
    if (i, j) == (1, 3):
        return 3 * first - sine**3
    if (i, j) == (2, 2):
        return minus_sine(tau) + 2 * sine * (tau / 2).sin().square() - 2 * cosine * first
    return (9 + 6 * cosine.square()) * first - 5 * sine**3


@cache
def _mixed(i: int, j: int) -> tuple[float, ...]:
    """P_ij(ρ) = E u^i v^j = Σ_n n! C(i,n) C(j,n) (i-n-1)!! (j-n-1)!! ρ^n of the same parity, lowest power first."""

    def odd(n: int) -> int:
        return math.prod(range(n - 1, 0, -2))

    return tuple(
        0.0
        if (i - n) % 2
        else float(Fraction(math.factorial(n) * math.comb(i, n) * math.comb(j, n) * odd(i - n) * odd(j - n)))
        for n in range(i + 1)
    )


@cache
def _product_coefficients(i: int, j: int) -> tuple[float, ...]:
    """J_ij of different parity: the series ends, since r_k^(j) = 0 for k > j of the parity of j."""
    return tuple(_constant(i, k) * _constant(j, k) for k in range(j + 1))


def _polynomial(i: int, j: int, rho: Tensor) -> Tensor:
    total = torch.zeros_like(rho)
    for c in reversed(_product_coefficients(i, j)):
        total = total * rho + c
    return total


def _quotient(coefficients: tuple[float, ...], rho: Tensor) -> Tensor:
    """(P(1) - P(ρ)) / (1 - ρ) = Σ_n (Σ_(m>n) c_m) ρ^n."""
    total = torch.zeros_like(rho)
    rest = 0.0
    for c in reversed(coefficients[1:]):
        rest += c
        total = total * rho + rest
    return total
