"""Smooth closed forms and polynomials against their 60-digit products, down to the smallest distances."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest
import torch

from initscope.activations import COS, ERF, EXP, GAUSSIAN, GELU, SIN, Activation, hermite, polynomial

mpf = mpmath.mpf


def gelu(A, B, c):
    W = (1 + A) * (1 + B) - c * c
    even = c * mpmath.asin(c / mpmath.sqrt((1 + A) * (1 + B)))
    rational = (A * (B + A * B - c * c) / (1 + A) + c * c / (1 + B)) / mpmath.sqrt(W)
    return c / 4 + (even + rational) / (2 * mpmath.pi)


def wick(coefficients):
    """Σ c_i c_j E u^i v^j with the Gaussian moments counted by pairings."""

    def moment(i: int, j: int, A, B, c):
        if i == 0:
            return mpmath.fac2(j - 1) * B ** (j // 2) if j % 2 == 0 else mpf(0)
        paired_within = (i - 1) * A * moment(i - 2, j, A, B, c) if i > 1 else mpf(0)
        return paired_within + (j * c * moment(i - 1, j - 1, A, B, c) if j else mpf(0))

    return lambda A, B, c: mpmath.fsum(
        x * y * moment(i, j, A, B, c) for i, x in enumerate(coefficients) for j, y in enumerate(coefficients)
    )


HE3 = [mpf(0), -3 / mpmath.sqrt(6), mpf(0), 1 / mpmath.sqrt(6)]
HE4 = [3 / mpmath.sqrt(24), mpf(0), -6 / mpmath.sqrt(24), mpf(0), 1 / mpmath.sqrt(24)]
PRODUCTS: list[tuple[Activation, Callable]] = [
    (ERF, lambda A, B, c: 2 / mpmath.pi * mpmath.asin(2 * c / mpmath.sqrt((1 + 2 * A) * (1 + 2 * B)))),
    (GELU, gelu),
    (SIN, lambda A, B, c: mpmath.exp(-(A + B) / 2) * mpmath.sinh(c)),
    (COS, lambda A, B, c: mpmath.exp(-(A + B) / 2) * mpmath.cosh(c)),
    (EXP, lambda A, B, c: mpmath.exp((A + B) / 2 + c)),
    (GAUSSIAN, lambda A, B, c: 1 / mpmath.sqrt((1 + A) * (1 + B) - c * c)),
    (hermite(3), wick(HE3)),
    (hermite(4), wick(HE4)),
    (polynomial([0.5, -1.0, 0.25, 2.0]), wick([mpf("0.5"), mpf(-1), mpf("0.25"), mpf(2)])),
]
IDS = [activation.name for activation, _ in PRODUCTS]


def states():
    for A in (1e-5, 0.3, 1.0, 7.0):
        for ratio in (1.0, 1 + 1e-4, 1.5):
            for d in (1e-12, 1e-8, 1e-3, 0.5, 1.0, 1.9):
                B = A * ratio
                yield A, B, (math.sqrt(A) - math.sqrt(B)) ** 2 + 2 * math.sqrt(A * B) * d


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(60):
        yield


@pytest.mark.parametrize(("activation", "exact"), PRODUCTS, ids=IDS)
def test_distance_is_accurate_down_to_the_smallest(activation: Activation, exact: Callable) -> None:
    table = list(states())
    A, B, D = (torch.tensor(column, dtype=torch.float64) for column in zip(*table, strict=True))
    worst = 0.0
    for value, (a, b, d) in zip(activation.distance(A, B, D).tolist(), table, strict=True):
        a, b, d = mpf(a), mpf(b), mpf(d)
        truth = exact(a, a, a) + exact(b, b, b) - 2 * exact(a, b, (a + b - d) / 2)
        worst = max(worst, abs(float((value - truth) / truth)))
    assert worst < 1e-12


@pytest.mark.parametrize(("activation", "exact"), PRODUCTS, ids=IDS)
def test_product_moments_and_slope(activation: Activation, exact: Callable) -> None:
    step = mpf(10) ** -18
    for A, B, D in [(1.0, 1.0, 0.7), (0.3, 2.0, 1.9), (2.5, 0.4, 4.9), (1.0, 1.0, 0.0)]:
        a, b, c = mpf(A), mpf(B), (mpf(A) + mpf(B) - mpf(D)) / 2
        state = [torch.tensor(x, dtype=torch.float64) for x in (A, B, D)]
        size = float(mpmath.sqrt(exact(a, a, a) * exact(b, b, b)))
        assert abs(float(activation.product(*state)) - float(exact(a, b, c))) < 1e-14 * size
        assert abs(float(activation.second_moment(state[0])) / float(exact(a, a, a)) - 1) < 1e-13
        slope = (exact(a, b, c + step) - exact(a, b, c - step)) / (2 * step)
        assert abs(float(activation.derivative_product(*state)) - float(slope)) < 1e-12 * max(1.0, abs(float(slope)))
        mean = mpmath.sqrt(exact(a, a, mpf(0)))  # independent u, v of one variance: E f(u) f(v) = (E f)²
        assert abs(abs(float(activation.mean(state[0]))) - float(mpmath.re(mean))) < 1e-13


@pytest.mark.parametrize("activation", [a for a, _ in PRODUCTS], ids=IDS)
@pytest.mark.parametrize("quantity", ["distance", "product", "derivative_product"])
def test_slopes_agree_with_finite_differences(activation: Activation, quantity: str) -> None:
    A = torch.tensor([1.0, 0.3], dtype=torch.float64, requires_grad=True)
    B = torch.tensor([1.4, 2.0], dtype=torch.float64, requires_grad=True)
    D = torch.tensor([0.7, 2.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(activation, quantity), (A, B, D))


@pytest.mark.parametrize("activation", [a for a, _ in PRODUCTS], ids=IDS)
def test_nothing_is_lost_at_the_corners(activation: Activation) -> None:
    A = torch.tensor([1.0, 1.0, 0.0, 0.0, 2.0], dtype=torch.float64)
    B = torch.tensor([1.0, 1.0, 0.0, 2.0, 0.0], dtype=torch.float64)
    D = torch.tensor([0.0, 4.0, 0.0, 2.0, 2.0], dtype=torch.float64)
    distance, product = activation.distance(A, B, D), activation.product(A, B, D)
    assert bool(distance.isfinite().all())
    assert float(distance[0]) == 0
    assert float(distance[2]) == 0
    whole = activation.second_moment(A) + activation.second_moment(B) - 2 * product
    torch.testing.assert_close(distance, whole, rtol=1e-13, atol=1e-13)


def test_float32_is_answered_in_float32_through_float64() -> None:
    A, D = torch.tensor(1.0), torch.tensor(1e-9)
    value = GELU.distance(A, A, D)
    wide = GELU.distance(A.double(), A.double(), D.double())
    assert value.dtype == torch.float32
    assert float(value) == float(wide.float())
