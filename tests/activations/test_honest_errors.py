"""The error that the quadrature states covers its true error, for functions of every kind and variances 1e-4 to 1e6.

Truths are closed forms, of which the quadrature sees only the function.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from initscope import activations as act
from initscope.activations import Activation


class Wave:
    """√2 sin(z + π/4) = sin z + cos z."""

    def fn(self, z: torch.Tensor) -> torch.Tensor:
        return math.sqrt(2) * torch.sin(z + math.pi / 4)

    def second_moment(self, A: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(A)

    def distance(self, A: torch.Tensor, B: torch.Tensor, D: torch.Tensor) -> torch.Tensor:
        return act.SIN.distance(A, B, D) + act.COS.distance(A, B, D)

    def derivative_product(self, A: torch.Tensor, B: torch.Tensor, D: torch.Tensor) -> torch.Tensor:
        return act.SIN.derivative_product(A, B, D) + act.COS.derivative_product(A, B, D)


# closed form, factor on z, declared kinks
FUNCTIONS = {
    "slow wave": (Wave(), 0.1, ()),
    "wave": (Wave(), 1.0, ()),
    "quick wave": (Wave(), 7.0, ()),
    "bounded": (act.ERF, 1.0, ()),
    "steep": (act.ERF, 30.0, ()),
    "bump": (act.GAUSSIAN, 1.0, ()),
    "growing": (act.GELU, 1.0, ()),
    "cubic": (act.polynomial([0.0, 0.0, 0.0, 1.0]), 1.0, ()),
    "exponential": (act.EXP, 0.1, ()),
    "kinked": (act.RELU, 1.0, (0.0,)),
    "secretly kinked": (act.RELU, 1.0, ()),
    "secretly folded": (act.ABS, 1.0, ()),
    "jumping": (act.STEP, 1.0, (0.0,)),
    "secretly jumping": (act.STEP, 1.0, ()),
}
SLOW = ("steep", "secretly jumping", "secretly folded", "quick wave")
VARIANCES = (1e-4, 1.0, 30.0, 1e3, 1e6)


def states(size: float) -> list[torch.Tensor]:
    rows = []
    for ratio in (1.0, 0.7, 1e-2):
        for d in (1e-8, 1e-3, 0.3, 1.0, 1.7, 2.0):
            A, B = size, size * ratio
            rows.append((A, B, (math.sqrt(A) - math.sqrt(B)) ** 2 + 2 * math.sqrt(A * B) * d))
    return [torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True)]


def by_quadrature(form: Activation | Wave, factor: float, kinks: tuple[float, ...]) -> Activation:
    fn: Callable = form.fn
    return Activation.from_function(lambda z: fn(factor * z), name="hidden", kinks=kinks)


@pytest.mark.parametrize("size", VARIANCES)
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in FUNCTIONS])
def test_the_stated_error_covers_the_true_one(name: str, size: float) -> None:
    form, factor, kinks = FUNCTIONS[name]
    if name == "exponential" and size > 1e3:
        pytest.skip("its moments overflow")
    A, B, D = states(size)
    hidden = by_quadrature(form, factor, kinks)
    found = hidden.evaluate(A, B, D)
    wide = [factor**2 * x for x in (A, B, D)]
    truth = form.distance(*wide)
    scale = (form.second_moment(wide[0]) * form.second_moment(wide[1])).sqrt()
    # A kink that nobody declared turns a tiny D into D + O(D^1.5): below 5e-12 of the moments, no node can see it.
    rounding = 1e-13 * truth + 5e-12 * scale
    assert bool(((found.distance - truth).abs() <= found.error + rounding).all())
    moment, error = hidden.dual.line_with_error(lambda u, v, _: hidden.fn(u) ** 2, A)  # type: ignore[attr-defined]
    exact = form.second_moment(wide[0])
    assert bool(((moment - exact).abs() <= error + 1e-12 * exact).all())


@pytest.mark.parametrize("size", [1.0, 900.0, 1e5])
def test_oscillating_functions_converge(size: float) -> None:
    A, B, D = (x[::5] for x in states(size))
    wave = by_quadrature(Wave(), 1.0, ())
    found = wave.evaluate(A, B, D)
    assert float(found.error.max()) < 1e-8
    assert float((found.distance - Wave().distance(A, B, D)).abs().max()) < 1e-10
    slopes = wave.derivative_product(A, B, D)
    assert float((slopes - Wave().derivative_product(A, B, D)).abs().max()) < 1e-8


def test_what_is_cut_off_is_counted() -> None:
    """E e^(u/5) has its mass where a Gaussian has none."""
    A = torch.tensor([1e3], dtype=torch.float64)
    growing = by_quadrature(act.EXP, 0.1, ())
    found = growing.evaluate(A, A, A)
    truth = act.EXP.distance(0.01 * A, 0.01 * A, 0.01 * A)
    assert abs(float(found.distance - truth)) <= float(found.error)


def test_an_integral_that_overflows_has_an_infinite_error() -> None:
    A = torch.tensor([1e5], dtype=torch.float64)
    assert math.isinf(float(by_quadrature(act.EXP, 1.0, ()).evaluate(A, A, A).error))
