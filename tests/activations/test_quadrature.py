"""The quadrature against closed forms, mpmath and a brute-force rule in other coordinates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch

from initscope import activations as act
from initscope.activations import Activation
from initscope.errors import NoExactForm

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
    act.polynomial([0.5, -1.0, 0.25, 2.0]),
    act.rectified_power(2),
    act.rectified_power(3),
]
selu_scale, selu_alpha = 1.0507009873554805, 1.6732632423543772
QUADRATURE: list[tuple[Activation, Callable]] = [
    (act.TANH, mpmath.tanh),
    (act.SIGMOID, lambda z: 1 / (1 + mpmath.exp(-z))),
    (act.SILU, lambda z: z / (1 + mpmath.exp(-z))),
    (act.SOFTPLUS, lambda z: mpmath.log1p(mpmath.exp(z))),
    (act.ELU, lambda z: z if z > 0 else mpmath.expm1(z)),
    (act.elu(0.5), lambda z: z if z > 0 else mpmath.expm1(z) / 2),
    (act.SELU, lambda z: selu_scale * (z if z > 0 else selu_alpha * mpmath.expm1(z))),
    (act.HARDSWISH, lambda z: z * min(6, max(0, z + 3)) / 6),
    (act.MISH, lambda z: z * mpmath.tanh(mpmath.log1p(mpmath.exp(z)))),
    (act.RELU6, lambda z: min(mpmath.mpf(6), max(mpmath.mpf(0), z))),
    (act.HARDTANH, lambda z: min(mpmath.mpf(1), max(mpmath.mpf(-1), z))),
]
IDS = [a.name for a, _ in QUADRATURE]


def tensors(states) -> list[torch.Tensor]:
    return [torch.tensor(column, dtype=torch.float64) for column in zip(*states, strict=True)]


def grid():
    for A, ratio, d in itertools.product((0.05, 3.0), (1.0, 1.3, 9.0), (1e-10, 1e-5, 0.3, 1.8, 2 - 1e-6, 2.0)):
        B = A / ratio
        yield A, B, (math.sqrt(A) - math.sqrt(B)) ** 2 + 2 * math.sqrt(A * B) * d


@pytest.mark.parametrize("activation", CLOSED, ids=lambda a: a.name)
def test_agrees_with_the_closed_form(activation: Activation) -> None:
    A, B, D = tensors(grid())
    other = activation.by_quadrature()
    assert (other.rung, activation.rung) == ("quadrature", "closed form")
    scale = (activation.second_moment(A) * activation.second_moment(B)).sqrt()
    truth = activation.distance(A, B, D)
    answer = other.evaluate(A, B, D)
    # Even functions vanish at correlation -1: there only the digits above f's own rounding can be asked for.
    assert bool(((answer.distance - truth).abs() <= 1e-10 * truth + 1e-15 * scale).all())
    assert bool(((answer.distance - truth).abs() <= answer.error + 1e-10 * truth + 1e-15 * scale).all())
    assert bool(((answer.product - activation.product(A, B, D)).abs() <= 1e-10 * scale).all())
    torch.testing.assert_close(other.second_moment(A), activation.second_moment(A), rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(other.mean(A), activation.mean(A), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("activation", [a for a in CLOSED if a.degree != 0], ids=lambda a: a.name)
def test_derivative_products_agree_with_the_closed_form(activation: Activation) -> None:
    A, B, D = tensors(list(grid())[::3])
    scale = (activation.derivative_second_moment(A) * activation.derivative_second_moment(B)).sqrt()
    other = activation.by_quadrature()
    assert bool(
        ((other.derivative_product(A, B, D) - activation.derivative_product(A, B, D)).abs() <= 1e-10 * scale).all()
    )
    torch.testing.assert_close(
        other.derivative_second_moment(A), activation.derivative_second_moment(A), rtol=1e-10, atol=0
    )


def expectation(kernel: Callable, marks: list) -> mpmath.mpf:
    """E kernel(z) over a standard normal z, split at the marks."""
    edges = sorted({-14, -6, -2, 0, 2, 6, 14, *marks})
    return mpmath.quad(lambda z: kernel(z) * mpmath.npdf(z), edges)


@pytest.mark.parametrize(("activation", "exact"), QUADRATURE, ids=IDS)
def test_agrees_with_mpmath_where_one_integral_is_enough(activation: Activation, exact: Callable) -> None:
    """Correlation 1, -1 and 0, unequal norms: E (f(az)-f(±bz))², and E f² + E f² - 2 E f E f."""
    A, B = 1.7, 0.6
    a, b = mpmath.sqrt(mpmath.mpf(A)), mpmath.sqrt(mpmath.mpf(B))
    marks = [s * mpmath.mpf(k) / side for k in activation.kinks for side in (a, b) for s in (1, -1)]
    second = [expectation(lambda z, c=c: exact(c * z) ** 2, marks) for c in (a, b)]
    mean = [expectation(lambda z, c=c: exact(c * z), marks) for c in (a, b)]
    truth = [expectation(lambda z, s=s: (exact(a * z) - exact(s * b * z)) ** 2, marks) for s in (1, -1)]
    truth.append(second[0] + second[1] - 2 * mean[0] * mean[1])
    D = torch.tensor([float((a - b) ** 2), float((a + b) ** 2), A + B], dtype=torch.float64)
    side = torch.full_like(D, A), torch.full_like(D, B)
    for value, right in zip(activation.distance(*side, D).tolist(), truth, strict=True):
        assert abs(value / float(right) - 1) < 1e-10
    variances = torch.tensor([A, B], dtype=torch.float64)
    assert np.allclose(activation.second_moment(variances), [float(x) for x in second], rtol=1e-11, atol=0)
    assert np.allclose(activation.mean(variances), [float(x) for x in mean], rtol=1e-11, atol=1e-14)


def brute_force(fn: Callable, kinks: tuple[float, ...], A: float, B: float, D: float) -> float:
    """The same integral over u, then over v given u, on very fine panels split at the kinks."""
    nodes, weights = np.polynomial.legendre.leggauss(24)

    def panels(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low, high = edges[..., :-1, None], edges[..., 1:, None]
        x = ((low + high + (high - low) * nodes) / 2).reshape(*edges.shape[:-1], -1)
        w = ((high - low) / 2 * weights).reshape(x.shape)
        return x, w * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    c = (A + B - D) / 2
    spread = math.sqrt(B - c * c / A)
    z, outer = panels(np.array(sorted({*np.linspace(-9, 9, 37), *(k / math.sqrt(A) for k in kinks)})))
    u = math.sqrt(A) * z
    centre = c / A * u
    fixed = np.broadcast_to(np.linspace(-9, 9, 13), (len(u), 13))
    cuts = [np.clip((k - centre) / spread, -9, 9)[:, None] for k in kinks]
    w, inner = panels(np.sort(np.concatenate([fixed, *cuts], 1), 1))
    v = centre[:, None] + spread * w
    f = [fn(torch.from_numpy(x)).numpy() for x in (u, v)]
    return float((((f[0][:, None] - f[1]) ** 2 * inner).sum(1) * outer).sum())


@pytest.mark.parametrize("activation", [a for a, _ in QUADRATURE], ids=IDS)
@pytest.mark.parametrize("state", [(1.0, 1.0, 0.8), (2.0, 0.5, 1.2), (0.7, 1.5, 3.9)])
def test_agrees_with_brute_force_in_other_coordinates(
    activation: Activation, state: tuple[float, float, float]
) -> None:
    value = float(activation.distance(*(torch.tensor(x, dtype=torch.float64) for x in state)))
    # The panels of the brute force do not follow the strips where u is near a kink: they are only very fine.
    assert abs(value / brute_force(activation.fn, activation.kinks, *state) - 1) < 1e-8


@pytest.mark.parametrize("size", [1e-8, 1e-13])
def test_tiny_distances_follow_their_expansion(size: float) -> None:
    """At A = B: E (f(m+x/2)-f(m-x/2))² = D E f'(m)² + (D²/4) E f' f''' + O(D³), m of variance A - D/4."""
    with mpmath.workdps(30):
        for activation, exact in QUADRATURE[:3]:
            spread = mpmath.sqrt(1 - mpmath.mpf(size) / 4)
            first = expectation(lambda z, f=exact, s=spread: mpmath.diff(f, s * z) ** 2, [])
            third = expectation(lambda z, f=exact, s=spread: mpmath.diff(f, s * z) * mpmath.diff(f, s * z, 3), [])
            truth = size * first + mpmath.mpf(size) ** 2 / 4 * third
            one = torch.ones((), dtype=torch.float64)
            value = float(activation.distance(one, one, torch.tensor(size, dtype=torch.float64)))
            assert abs(value / float(truth) - 1) < 1e-10


def test_degenerate_states() -> None:
    A, B, D = tensors([(1.0, 1.0, 0.0), (0.0, 2.0, 2.0), (2.0, 0.0, 2.0), (0.0, 0.0, 0.0)])
    for activation, _ in QUADRATURE:
        value = activation.distance(A, B, D)
        at_zero = float(activation.fn(torch.zeros((), dtype=torch.float64)))
        two = B[1:2]
        whole = activation.second_moment(two) - 2 * at_zero * activation.mean(two) + at_zero**2
        torch.testing.assert_close(value, torch.cat([0 * two, whole, whole, 0 * two]), rtol=1e-9, atol=0)


def test_norms_of_very_different_size() -> None:
    """A variance far below the other's rounding leaves E (f(v) - f(0))²."""
    A = torch.tensor([1e-300, 1e-60, 1e-30], dtype=torch.float64)
    one = torch.ones_like(A)
    for activation, _ in QUADRATURE:
        truth = activation.distance(0 * one, one, one)
        torch.testing.assert_close(activation.distance(A, one, one), truth, rtol=1e-10, atol=0)


@pytest.mark.parametrize("activation", [act.HARDTANH, act.RELU6], ids=lambda a: a.name)
def test_a_saturated_function_is_a_step(activation: Activation) -> None:
    size = torch.tensor([1e12, 1e30, 1e300], dtype=torch.float64)
    height = float(activation.fn(size[:1]) - activation.fn(-size[:1]))
    steps = height**2 * act.STEP.distance(size, size, size / 10)
    torch.testing.assert_close(activation.distance(size, size, size / 10), steps, rtol=3e-5, atol=0)


@pytest.mark.parametrize("size", [1e-12, 1e3, 1e6])
def test_extreme_variances(size: float) -> None:
    d = torch.tensor([1e-6, 0.3, 1.0, 1.9], dtype=torch.float64)
    A = torch.full_like(d, size)
    truth = act.ERF.distance(A, A, 2 * size * d)
    answer = act.ERF.by_quadrature().evaluate(A, A, 2 * size * d)
    assert bool(((answer.distance - truth).abs() <= 1e-10 * truth).all())
    tanh = act.TANH.evaluate(A, A, 2 * size * d)
    assert bool((tanh.error <= 1e-8 * tanh.distance).all())
    if size == 1e6:
        torch.testing.assert_close(tanh.distance[1:], act.SIGN.distance(A, A, 2 * size * d)[1:], rtol=4e-3, atol=0)


def test_what_it_cannot_resolve_it_reports() -> None:
    one = torch.ones((), dtype=torch.float64)
    hidden = Activation.from_function(lambda z: (z - 0.3).abs(), name="undeclared kink")
    shown = Activation.from_function(lambda z: (z - 0.3).abs(), name="declared kink", kinks=(0.3,))
    bad, good = hidden.evaluate(one, one, one), shown.evaluate(one, one, one)
    assert float(good.error) < 1e-9
    assert float(bad.error) > 1e-7
    assert abs(float(bad.distance - good.distance)) <= 3 * float(bad.error)
    wild = act.SIN.by_quadrature().evaluate(1e4 * one, 1e4 * one, 1e4 * one)
    truth = act.SIN.distance(1e4 * one, 1e4 * one, 1e4 * one)
    assert float(wild.error) >= abs(float(wild.distance - truth))


@pytest.mark.parametrize("activation", [act.RELU, act.GELU, act.ERF], ids=lambda a: a.name)
def test_many_states_go_through_a_checked_interpolant(activation: Activation) -> None:
    generator = torch.Generator().manual_seed(7)
    A, B, x = torch.rand(3, 8_000, generator=generator, dtype=torch.float64)
    A, B = 0.9 + 0.2 * A, 0.9 + 0.2 * B
    D = (A.sqrt() - B.sqrt()) ** 2 + 4 * (A * B).sqrt() * 10 ** (-10 * x)
    answer = activation.by_quadrature().evaluate(A, B, D)
    truth = activation.distance(A, B, D)
    assert bool(((answer.distance - truth).abs() <= 1e-9 * truth).all())
    assert float((answer.error / answer.distance).max()) < 1e-8
    torch.testing.assert_close(answer.product, activation.product(A, B, D), rtol=1e-9, atol=1e-10)


def test_equal_states_are_integrated_once() -> None:
    calls = []

    def counted(z: torch.Tensor) -> torch.Tensor:
        calls.append(z.numel())
        return torch.tanh(z)

    activation = Activation.from_function(counted, derivative=lambda z: 1 / torch.cosh(z) ** 2)
    one = torch.ones((), dtype=torch.float64)
    calls.clear()
    activation.distance(one, one, one)
    single = sum(calls)
    calls.clear()
    assert activation.distance(one, one, one.expand(100, 40)).shape == (100, 40)
    assert sum(calls) == single


@pytest.mark.parametrize("activation", [act.RELU, act.GELU, act.SIN, act.rectified_power(2)], ids=lambda a: a.name)
def test_slopes_agree_with_the_closed_form(activation: Activation) -> None:
    slopes = []
    for form in (activation, activation.by_quadrature()):
        A, B, D = (x.requires_grad_() for x in tensors([(1.0, 1.4, 0.7), (0.3, 2.0, 2.5), (1.0, 1.0, 1e-8)]))
        slopes.append(torch.stack(torch.autograd.grad(form.distance(A, B, D).sum(), (A, B, D))))
        moments = form.product(A, B, D).sum() + form.mean(A).sum()
        slopes[-1] = torch.cat([slopes[-1], torch.stack(torch.autograd.grad(moments, (A, B, D)))])
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-8, atol=1e-8)


def test_a_jump_has_no_derivative_to_integrate() -> None:
    one = torch.ones((), dtype=torch.float64)
    with pytest.raises(NoExactForm, match="delta function"):
        act.STEP.by_quadrature().derivative_product(one, one, one)
    assert math.isinf(float(act.SIGN.by_quadrature().derivative_second_moment(one)))
