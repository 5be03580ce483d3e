"""ReLU, leaky ReLU, |u|, step and sign against mpmath, at both ends of the correlation and in the backward pass."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from initscope.activations import ABS, RELU, SIGN, STEP, Activation, leaky_relu, rectified_power

LEAKY = [(RELU, 0.0), (leaky_relu(0.2), 0.2), (leaky_relu(-0.3), -0.3), (leaky_relu(1.7), 1.7), (ABS, -1.0)]
BARS = {torch.float32: 1e-5, torch.float64: 1e-12}
mpf = mpmath.mpf


def leaky_product(A, B, c, slope):
    """E f(u) f(v) from J1, at 80 digits."""
    s, root = mpf(slope), mpmath.sqrt(A * B)
    t = mpmath.acos(max(mpf(-1), min(mpf(1), c / root)))
    return s * c + (1 - s) ** 2 * root / (2 * mpmath.pi) * (mpmath.sin(t) + (mpmath.pi - t) * mpmath.cos(t))


def leaky_distance(A, B, D, slope):
    A, B, D = mpf(A), mpf(B), mpf(D)
    half = (1 + mpf(slope) ** 2) / 2
    return half * (A + B) - 2 * leaky_product(A, B, (A + B - D) / 2, slope)


def relative(value: torch.Tensor, truth: list) -> float:
    return max(float(abs((mpf(v) - r) / r)) for v, r in zip(value.tolist(), truth, strict=True))


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(80):
        yield


@pytest.mark.parametrize("dtype", BARS)
@pytest.mark.parametrize(("activation", "slope"), LEAKY)
def test_defect_keeps_its_relative_accuracy(activation: Activation, slope: float, dtype: torch.dtype) -> None:
    d = torch.logspace(-12, math.log10(2) - 1e-6, 300, dtype=torch.float64).to(dtype)
    truth = [leaky_distance(1, 1, 2 * mpf(x), slope) / (1 + mpf(slope) ** 2) for x in d.tolist()]
    assert relative(activation.defect(d), truth) < BARS[dtype]


@pytest.mark.parametrize("dtype", BARS)
@pytest.mark.parametrize(("activation", "slope"), LEAKY)
@pytest.mark.parametrize("ratio", [1.0, 1 + 2.0**-7, 1.5, 40.0])
def test_distance_keeps_its_relative_accuracy(
    activation: Activation, slope: float, ratio: float, dtype: torch.dtype
) -> None:
    d = torch.logspace(-12, math.log10(2) - 1e-6, 120, dtype=torch.float64)
    A = torch.full_like(d, 3.0)
    B = A * ratio
    D = ((A.sqrt() - B.sqrt()) ** 2 + 2 * (A * B).sqrt() * d).to(dtype)
    A, B = A.to(dtype), B.to(dtype)
    # The rounding of D itself may push the state past correlation ±1, where the nearest state is meant.
    states = list(zip(A.tolist(), B.tolist(), D.tolist(), strict=True))
    truth = [leaky_distance(*state, slope) for state in states]
    assert relative(activation.distance(A, B, D), truth) < BARS[dtype]


def test_abs_is_accurate_next_to_correlation_minus_one() -> None:
    for dtype, bar in BARS.items():
        short = (
            torch.logspace(-6, -1, 30, dtype=torch.float64)
            if dtype == torch.float32
            else torch.logspace(-14, -1, 30).double()
        )
        D = (4 - short).to(dtype)
        one = torch.ones_like(D)
        assert relative(ABS.distance(one, one, D), [leaky_distance(1, 1, x, -1) for x in D.tolist()]) < bar


@pytest.mark.parametrize(("activation", "slope"), LEAKY)
def test_product_is_accurate_down_to_correlation_minus_one(activation: Activation, slope: float) -> None:
    D = torch.cat([torch.linspace(0, 3.9, 40).double(), 4 - torch.logspace(-10, -1, 30).double()])
    A = torch.ones_like(D)
    truth = [leaky_product(mpf(1), mpf(1), 1 - mpf(x) / 2, slope) for x in D.tolist()]
    size = [abs(r) if slope <= 0 else mpf(1) for r in truth]
    assert (
        max(
            float(abs(mpf(v) - r) / s)
            for v, r, s in zip(activation.product(A, A, D).tolist(), truth, size, strict=True)
        )
        < 1e-12
    )


@pytest.mark.parametrize("dtype", BARS)
@pytest.mark.parametrize(("activation", "slope"), LEAKY)
def test_slopes_are_finite_and_right_at_the_ends(activation: Activation, slope: float, dtype: torch.dtype) -> None:
    A = torch.full((2,), 2.0, dtype=dtype, requires_grad=True)
    B = torch.full((2,), 2.0, dtype=dtype, requires_grad=True)
    D = torch.tensor([0.0, 8.0], dtype=dtype, requires_grad=True)
    by_a, by_b, by_d = torch.autograd.grad(activation.distance(A, B, D).sum(), (A, B, D))
    # At t = 0 and π: ∂/∂D = α² + β²(1 - 2t/π), ∂/∂A = ∂/∂B = β² (2/π) t.
    odd, even = ((1 + slope) / 2) ** 2, ((1 - slope) / 2) ** 2
    torch.testing.assert_close(by_d, torch.tensor([odd + even, odd - even], dtype=dtype))
    torch.testing.assert_close(by_a, torch.tensor([0.0, 2 * even], dtype=dtype))
    torch.testing.assert_close(by_b, by_a)
    d = torch.tensor([0.0, 2.0], dtype=dtype, requires_grad=True)
    (by_defect,) = torch.autograd.grad(activation.defect(d).sum(), d)
    torch.testing.assert_close(by_defect, torch.tensor([1.0, (odd - even) / (odd + even)], dtype=dtype))


@pytest.mark.parametrize("activation", [*(a for a, _ in LEAKY), rectified_power(2), rectified_power(3)])
@pytest.mark.parametrize("quantity", ["distance", "product"])
def test_slopes_agree_with_finite_differences(activation: Activation, quantity: str) -> None:
    A = torch.tensor([1.0, 0.3, 2.0], dtype=torch.float64, requires_grad=True)
    B = torch.tensor([1.4, 2.0, 0.5], dtype=torch.float64, requires_grad=True)
    D = torch.tensor([0.7, 2.5, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(activation, quantity), (A, B, D))


@pytest.mark.parametrize("activation", [RELU, ABS, leaky_relu(0.1), rectified_power(2)])
def test_a_vanishing_norm_has_its_limits(activation: Activation) -> None:
    A = torch.tensor([0.0, 2.0, 0.0], dtype=torch.float64, requires_grad=True)
    B = torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    D = torch.tensor([2.0, 2.0, 0.0], dtype=torch.float64, requires_grad=True)
    value = activation.distance(A, B, D)
    whole = float(activation.second_moment(torch.tensor(2.0, dtype=torch.float64)))
    torch.testing.assert_close(value, torch.tensor([whole, whole, 0.0], dtype=torch.float64))
    assert torch.equal(activation.product(A, B, D), torch.zeros(3, dtype=torch.float64))
    for slope in torch.autograd.grad(value.sum(), (A, B, D)):
        assert bool(slope.isfinite().all())


def test_a_thousand_layers_track_the_exact_angle() -> None:
    d, exact = torch.tensor(1.0, dtype=torch.float64), mpf(1)
    for _ in range(1000):
        d = RELU.defect(d)
        t = mpmath.acos(1 - exact)
        exact = 1 - (mpmath.sin(t) + (mpmath.pi - t) * mpmath.cos(t)) / mpmath.pi
    angle = 2 * math.asin(math.sqrt(float(d) / 2))
    assert abs(angle / float(mpmath.acos(1 - exact)) - 1) < 1e-10


def test_step_and_sign_count_crossings() -> None:
    t = torch.logspace(-8, math.log10(math.pi), 50, dtype=torch.float64)
    one = torch.ones_like(t)
    D = 4 * torch.sin(t / 2) ** 2
    # Near t = π the state (1, 1, D) itself fixes t only to the square root of rounding.
    inner = t < 3
    torch.testing.assert_close(STEP.distance(one, one, D)[inner], t[inner] / math.pi, rtol=1e-12, atol=0)
    torch.testing.assert_close(SIGN.distance(one, one, D)[inner], 4 * t[inner] / math.pi, rtol=1e-12, atol=0)
    assert float(SIGN.distance(torch.tensor(0.0), torch.tensor(1.0), torch.tensor(1.0))) == 1.0
    assert bool(STEP.derivative_second_moment(one).isinf().all())
    torch.testing.assert_close(
        STEP.derivative_product(one, one, D)[inner], 1 / (2 * math.pi * t.sin()[inner]), rtol=1e-9, atol=0
    )


@pytest.mark.parametrize("order", [2, 3, 4, 6])
def test_rectified_powers_against_their_integral(order: int) -> None:
    with mpmath.workdps(60):
        one = torch.ones((), dtype=torch.float64)
        for t in (1e-5, 0.4, 1.3, 2.4):
            D = torch.tensor(4 * math.sin(t / 2) ** 2, dtype=torch.float64)
            tau = mpmath.pi - 2 * mpmath.asin(mpmath.sqrt(mpf(float(D))) / 2)
            exact = cumulated(order, tau) / (2 * mpmath.pi)
            whole = mpmath.fac2(2 * order - 1) / 2
            power = rectified_power(order)
            assert abs(float(power.product(one, one, D)) / float(exact) - 1) < 1e-12
            assert abs(float(power.distance(one, one, D)) / float(2 * (whole - exact)) - 1) < 1e-9


def cumulated(k: int, tau):
    """U_k by Taylor's series of its defining recursion, J_k(t) = U_k(π - t)."""
    terms = 120
    series = [mpf(0), mpf(1)] + [mpf(0)] * (terms - 2)
    sine = [mpf(0) if n % 2 == 0 else mpf(-1) ** ((n - 1) // 2) / mpmath.factorial(n) for n in range(terms)]
    for order in range(1, k + 1):
        product = [mpmath.fsum(series[i] * sine[n - i] for i in range(n + 1)) for n in range(terms - 1)]
        series = [mpf(0)] + [order**2 * c / (n + 1) for n, c in enumerate(product)]
    return mpmath.polyval(series[::-1], tau)
