"""Integrals of pairs whose norms differ by orders of magnitude: products keep their digits, and say what they have lost."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from torch import Tensor

from initscope import Activate, Dense, Sequential
from initscope.activations import Activation
from initscope.networks import kernel_with_error, tangent_kernel

RHO = 0.5


def _inputs(ratio: float) -> tuple[Tensor, Tensor]:
    x = torch.tensor([[ratio, 0.0]], dtype=torch.float64)
    return x, torch.tensor([[RHO, math.sqrt(1 - RHO**2)]], dtype=torch.float64)


def _odd_moment(n: int, rho: float) -> float:
    """E uⁿ vⁿ / E u²ⁿ of unit variances: Σ c_k² k! ρ^k, zⁿ = Σ c_k He_k with c_k = n! / (k! h! 2^h), h = (n - k)/2."""
    total = 0.0
    for k in range(n % 2, n + 1, 2):
        half = (n - k) // 2
        c = math.factorial(n) / (math.factorial(k) * math.factorial(half) * 2**half)
        total += c * c * math.factorial(k) * rho**k
    return total / math.prod(range(1, 2 * n, 2))


def _cosine(f: Callable[[Tensor], Tensor], ratio: float) -> tuple[float, float]:
    result = kernel_with_error(
        Sequential(Dense(64), Activate(Activation.from_function(f))), *_inputs(ratio), quantity="cosine"
    )
    return float(result.value), result.accuracy.error


@pytest.mark.parametrize("ratio", [0.3, 0.1, 1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("n", [3, 5, 7])
def test_powers(n: int, ratio: float) -> None:
    found, error = _cosine(lambda z: z**n, ratio)
    assert abs(found - _odd_moment(n, RHO)) <= max(error, 1e-11)
    assert error < 1e-6


def test_a_function_that_grows_faster_than_the_rule() -> None:
    """sinh³ from exponentials: E e^(su + tv) = e^((s²a + t²b)/2 + stc)."""
    ratio = 0.1
    found, error = _cosine(lambda z: torch.sinh(z) ** 3, ratio)
    with mpmath.workdps(40):
        weights = {3: mpmath.mpf(1) / 8, 1: -mpmath.mpf(3) / 8, -1: mpmath.mpf(3) / 8, -3: -mpmath.mpf(1) / 8}
        x, y = _inputs(ratio)

        def product(p: Tensor, q: Tensor) -> mpmath.mpf:
            a, b, c = (mpmath.mpf(float((s * t).sum())) for s, t in ((p, p), (q, q), (p, q)))  # He: 2/d = 1
            return mpmath.fsum(
                v * w * mpmath.exp((s * s * a + t * t * b) / 2 + s * t * c)
                for s, v in weights.items()
                for t, w in weights.items()
            )

        truth = float(product(x, y) / mpmath.sqrt(product(x, x) * product(y, y)))
    assert abs(found - truth) <= error


def test_many_states_and_one_agree() -> None:
    """The interpolant answers for many of them."""
    f = Activation.from_function(lambda z: z - torch.tanh(z))
    net = Sequential(Dense(64), Activate(f))
    g = torch.Generator().manual_seed(0)
    x = torch.randn(30, 6, generator=g, dtype=torch.float64)
    y = 0.02 * torch.randn(30, 6, generator=g, dtype=torch.float64)
    many = kernel_with_error(net, x, y, quantity="cosine").value
    for i, j in ((0, 0), (3, 7), (29, 12)):
        one = kernel_with_error(net, x[i : i + 1], y[j : j + 1], quantity="cosine").value
        assert float(many[i, j]) == pytest.approx(float(one), abs=1e-9)


def test_tangents() -> None:
    """Θ = K + 2 E f'f' <x, y> of two layers with gain 2, f = z⁷: closed form by Hermite sums."""
    ratio, n = 1e-2, 7
    x, y = _inputs(ratio)
    net = Sequential(Dense(64), Activate(Activation.from_function(lambda z: z**n)), Dense(1))
    size = ratio**n  # inputs of mean square (ratio² and 1)/2, times the gain 2
    product = size * _odd_moment(n, RHO) * math.prod(range(1, 2 * n, 2))
    # ∂/∂c of E u^n v^n: n² E u^(n-1) v^(n-1), even moments
    slope = 0.0
    for k in range(0, n, 2):
        half = (n - 1 - k) // 2
        c = math.factorial(n - 1) / (math.factorial(k) * math.factorial(half) * 2**half)
        slope += c * c * math.factorial(k) * RHO**k
    slopes = n * n * ratio ** (n - 1) * slope
    covariance = ratio * RHO
    expected = 2 * product + 2 * covariance * slopes
    assert float(tangent_kernel(net, x, y)) == pytest.approx(expected, rel=1e-8)
