"""Laws that every activation meets, whatever rung answers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from initscope import activations as act
from initscope.activations import Activation

CLOSED = [
    act.RELU,
    act.leaky_relu(0.2),
    act.leaky_relu(-0.4),
    act.ABS,
    act.IDENTITY,
    act.STEP,
    act.SIGN,
    act.ERF,
    act.GELU,
    act.SIN,
    act.COS,
    act.EXP,
    act.GAUSSIAN,
    act.hermite(3),
    act.hermite(4),
    act.polynomial([0.5, -1.0, 0.25, 2.0]),
    act.rectified_power(2),
    act.rectified_power(3),
]
OTHERS = [
    act.TANH,
    act.SIGMOID,
    act.SILU,
    act.SOFTPLUS,
    act.ELU,
    act.SELU,
    act.HARDSWISH,
    act.MISH,
    act.RELU6,
    act.HARDTANH,
]
every = pytest.mark.parametrize("activation", CLOSED + OTHERS, ids=lambda a: a.name)
closed = pytest.mark.parametrize("activation", CLOSED, ids=lambda a: a.name)

variances = st.floats(1e-3, 6.0)
defects = st.one_of(st.floats(0.0, 2.0), st.floats(-12.0, 0.0).map(lambda e: 10.0**e))
states = st.lists(st.tuples(variances, variances, defects), min_size=4, max_size=12)


def resolve(rows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    A, B, d = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
    return A, B, (A.sqrt() - B.sqrt()) ** 2 + 2 * (A * B).sqrt() * d


FIXED = [(1.0, 1.0, 1e-9), (0.4, 2.0, 0.3), (1.5, 1.4, 1.0), (0.9, 0.1, 1.7), (2.0, 2.0, 2.0)]


def check_geometry(activation: Activation, rows) -> None:
    A, B, D = resolve(rows)
    distance, product = activation.distance(A, B, D), activation.product(A, B, D)
    first, second = activation.second_moment(A), activation.second_moment(B)
    size = (first * second).sqrt()
    assert bool((distance >= 0).all())
    torch.testing.assert_close(activation.distance(B, A, D), distance, rtol=1e-9, atol=1e-15)
    assert bool((product.abs() <= size * (1 + 1e-9)).all())
    torch.testing.assert_close(first + second - 2 * product, distance, rtol=1e-9, atol=1e-9 * float(size.max()))
    assert bool((first >= activation.mean(A) ** 2 * (1 - 1e-9)).all())
    lowest = (first.sqrt() - second.sqrt()) ** 2
    assert bool((distance >= lowest * (1 - 1e-6) - 1e-12 * size).all())


@closed
@settings(max_examples=40, deadline=None)
@given(rows=states)
def test_closed_forms_keep_the_geometry(activation: Activation, rows) -> None:
    check_geometry(activation, rows)


@pytest.mark.parametrize("activation", OTHERS, ids=lambda a: a.name)
def test_quadratures_keep_the_geometry(activation: Activation) -> None:
    check_geometry(activation, FIXED)


@every
def test_derivative_product_is_the_slope_of_the_product(activation: Activation) -> None:
    """Price's theorem: at fixed A and B, ∂ distance / ∂D = E f'(u) f'(v)."""
    A, B, D = resolve(FIXED[1:4])
    step = 1e-4
    ahead, behind = activation.distance(A, B, D + step), activation.distance(A, B, D - step)
    slope = activation.derivative_product(A, B, D)
    torch.testing.assert_close((ahead - behind) / (2 * step), slope, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("activation", [a for a in CLOSED if a.degree is not None], ids=lambda a: a.name)
@settings(max_examples=40, deadline=None)
@given(rows=states, factor=st.integers(-4, 4).map(lambda e: 2.0**e))
def test_homogeneous_ones_scale(activation: Activation, rows, factor: float) -> None:
    # Powers of two scale the state without rounding it, which at correlation ±1 would move the angle by 1e-8.
    A, B, D = resolve(rows)
    scale = factor ** (2 * float(activation.degree or 0))
    grown = activation.distance(factor**2 * A, factor**2 * B, factor**2 * D)
    torch.testing.assert_close(grown, scale * activation.distance(A, B, D), rtol=1e-12, atol=1e-318)  # subnormal
    z = torch.linspace(-3, 3, 31, dtype=torch.float64)
    torch.testing.assert_close(activation(factor * z), factor ** float(activation.degree or 0) * activation(z))


@pytest.mark.parametrize("activation", [a for a in CLOSED if a.degree is not None], ids=lambda a: a.name)
def test_correlation_is_the_normalised_product(activation: Activation) -> None:
    rho = torch.linspace(-1, 1, 21, dtype=torch.float64)
    one = torch.ones_like(rho)
    normalised = activation.product(one, one, 2 - 2 * rho) / activation.second_moment(one)
    torch.testing.assert_close(activation.correlation(rho), normalised, rtol=1e-12, atol=1e-12)
    assert float(activation.correlation(one)[0]) == 1.0


@every
def test_declared_monotone_means_monotone(activation: Activation) -> None:
    z = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    rising = bool((activation(z).diff() >= -1e-15).all())
    assert rising == activation.monotone


@every
def test_a_seeded_simulation_agrees(activation: Activation) -> None:
    A, B, D = resolve(FIXED[1:4])
    drawn = activation.by_monte_carlo(samples=40_000, seed=3).evaluate(A, B, D)
    assert drawn.rung == "monte carlo"
    # Five standard errors; the identity's antithetic draws and a saturated state may have none.
    tolerance = 5 * drawn.error + 1e-12
    assert bool(((drawn.distance - activation.distance(A, B, D)).abs() <= tolerance).all())


@every
def test_float32_questions_get_float32_answers(activation: Activation) -> None:
    A = torch.tensor([[1.0], [0.5]])
    D = torch.tensor([0.1, 1.0, 1.5])
    value = activation.distance(A, A, D * A)
    assert value.dtype == torch.float32
    assert value.shape == (2, 3)
    wide = activation.distance(A.double(), A.double(), (D * A).double())
    torch.testing.assert_close(value.double(), wide, rtol=2e-6, atol=0)
    answer = activation.evaluate(A, A, D * A)
    assert answer.distance.shape == answer.product.shape == answer.error.shape == (2, 3)
    assert math.isfinite(float(answer.error.max()))
