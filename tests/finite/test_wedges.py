"""Moments of forms of degree two in f(u), f(v): closed forms against mpmath, sampling and brute force."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch

from initscope.finite.wedges import Form, UnitPair

SLOPES = [(1.0, 0.0), (1.0, 0.3), (1.0, -1.0), (1.0, 1.0), (0.7, -0.2)]
FORMS = [Form(0.4, 0.7, 1.0), Form(2.0, -3.0, 0.0), Form(-0.2, -0.2, -1.0), Form(1.0, 1.0, 1.0)]
A, B = 1.3, 0.8


def pair(rho: float, slopes: tuple[float, float]) -> UnitPair:
    variances = torch.tensor([A * A, B * B], dtype=torch.float64)
    distance = variances.sum() - 2 * rho * A * B
    return UnitPair.of(variances[:1], variances[1:], distance[None], slopes)


def value(form: Form, slopes: tuple[float, float], u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    a, b = (torch.where(z > 0, slopes[0] * z, slopes[1] * z) for z in (u, v))
    return (form.beta * a**2 + form.gamma * b**2 - form.mu * (a - b) ** 2) / 2


def on_circle(form: Form, slopes: tuple[float, float], rho: float, points: int) -> torch.Tensor:
    angle = torch.arange(points, dtype=torch.float64) * (2 * math.pi / points)
    return value(form, slopes, A * angle.cos(), B * (angle - math.acos(rho)).cos())


@pytest.mark.parametrize("slopes", SLOPES)
@pytest.mark.parametrize("rho", [-0.9, -0.3, 0.2, 0.8, 0.999])
def test_second_moment_equals_the_integral_over_the_circle(slopes: tuple[float, float], rho: float) -> None:
    for form in FORMS:

        def h(angle: mp.mpf, form: Form = form) -> mp.mpf:
            u, v = A * mp.cos(angle), B * mp.cos(angle - mp.acos(rho))
            a, b = (z * (slopes[0] if z > 0 else slopes[1]) for z in (u, v))
            return ((form.beta * a**2 + form.gamma * b**2 - form.mu * (a - b) ** 2) / 2) ** 2

        t = mp.acos(rho)
        breaks = sorted([-mp.pi / 2, t - mp.pi / 2, mp.pi / 2, t + mp.pi / 2, 3 * mp.pi / 2])
        truth = 8 * mp.quad(h, breaks) / (2 * mp.pi)
        assert float(pair(rho, slopes).second_moment(form)) == pytest.approx(float(truth), rel=1e-12)


@pytest.mark.parametrize("slopes", SLOPES)
def test_second_moment_is_that_of_sampled_units(slopes: tuple[float, float]) -> None:
    rho, form = 0.6, FORMS[0]
    z = torch.randn(2, 400_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    squares = value(form, slopes, A * z[0], B * (rho * z[0] + math.sqrt(1 - rho * rho) * z[1])).square()
    stderr = float(squares.std()) / math.sqrt(len(squares))
    assert abs(float(pair(rho, slopes).second_moment(form)) - float(squares.mean())) < 4 * stderr


@pytest.mark.parametrize("slopes", SLOPES)
@pytest.mark.parametrize("rho", [-0.95, -0.3, 0.2, 0.8, 0.999])
def test_peak_is_the_largest_value_on_the_circle(slopes: tuple[float, float], rho: float) -> None:
    points = 200_000
    for form in FORMS:
        brute = 2 * float(on_circle(form, slopes, rho, points).abs().max())
        peak = float(pair(rho, slopes).peak(form))
        assert brute <= peak
        assert peak <= brute * (1 + 1e-4)  # h has slope of order one: points apart by 2π/points miss less


@pytest.mark.parametrize("slopes", SLOPES)
def test_bernsteins_condition_on_all_moments(slopes: tuple[float, float]) -> None:
    for form in FORMS:
        units = pair(0.4, slopes)
        v, b = float(units.second_moment(form)), float(units.peak(form))
        h = on_circle(form, slopes, 0.4, 20_000).abs()
        for k in range(2, 12):
            moment = 2.0**k * math.factorial(k) * float((h**k).mean())  # E R^2k = 2^k k!
            assert moment <= math.factorial(k) / 2 * v * b ** (k - 2) * (1 + 1e-6)


@pytest.mark.parametrize("slopes", SLOPES)
def test_nodes_agree_with_the_closed_form(slopes: tuple[float, float]) -> None:
    for rho in (-0.99, 0.0, 0.5, 0.9999):
        units, form = pair(rho, slopes), FORMS[0]
        fu, fv, gap, weight = units.nodes()
        h = (form.beta * fu**2 + form.gamma * fv**2 - form.mu * gap**2) / 2
        assert float(weight.sum()) == pytest.approx(1, abs=1e-13)
        assert float(8 * (h**2 * weight).sum()) == pytest.approx(float(units.second_moment(form)), rel=1e-12)
