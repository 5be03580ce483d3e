"""Piecewise polynomials by one integral over the angle, against closed forms and the rule in the plane; and the cost."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import mpmath
import pytest
import torch

from initscope import activations as act
from initscope.activations import Activation, DualValue, plane, price, series_pairs
from initscope.activations.pieces import Pieces
from initscope.activations.quadrature import QuadratureDual

LEAKY = Activation.from_function(
    act.leaky_relu(0.2).fn, name="leaky in pieces", kinks=(0.0,), pieces=[[0, 0.2], [0, 1]]
)
SQUARE = Activation.from_function(
    lambda z: torch.relu(z) ** 2, name="square in pieces", kinks=(0.0,), pieces=[[0], [0, 0, 1]]
)
CUBIC = Activation.from_function(
    lambda z: torch.where(z > 0.5, (z - 0.5) ** 3, 0.15 - 0.3 * z),
    name="line, then cubic",
    kinks=(0.5,),
    pieces=[[0.15, -0.3], [-0.125, 0.75, -1.5, 1]],
)
PLANE = [act.HARDTANH, act.RELU6, act.HARDSWISH, CUBIC]
CLOSED = [(LEAKY, act.leaky_relu(0.2)), (SQUARE, act.rectified_power(2))]


@functools.cache
def states() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Variances from tiny to large, equal, nearly equal and far apart, correlations up to both ends."""
    rows = []
    for A, ratio, d in itertools.product(
        (1e-8, 0.05, 1.0, 30.0), (1.0, 1 + 1e-9, 1 + 1e-4, 1.3, 1e3), (1e-12, 1e-6, 1e-2, 0.3, 1.8, 2 - 1e-5, 2.0)
    ):
        B = A / ratio
        rows.append((A, B, (math.sqrt(A) - math.sqrt(B)) ** 2 + 2 * math.sqrt(A * B) * d))
    A, B, D = torch.tensor(rows, dtype=torch.float64).unbind(-1)
    return A, B, D


@functools.cache
def by_plane(activation: Activation) -> DualValue:
    return activation.by_quadrature().evaluate(*states())


@pytest.mark.parametrize("activation", PLANE, ids=lambda a: a.name)
def test_one_integral_agrees_with_two(activation: Activation) -> None:
    answer, truth = activation.evaluate(*states()), by_plane(activation)
    assert activation.rung == "quadrature"
    gap = (answer.distance - truth.distance).abs()
    assert bool((gap <= 1e-10 * truth.distance).all())
    assert bool((gap <= answer.error + truth.error + 1e-13 * truth.distance).all())
    size = activation.second_moment(states()[0]) * activation.second_moment(states()[1])
    assert bool(((answer.product - truth.product).abs() <= 1e-10 * size.sqrt()).all())
    scale = activation.derivative_second_moment(states()[0]) * activation.derivative_second_moment(states()[1])
    slopes = [a.derivative_product(*states()) for a in (activation, activation.by_quadrature())]
    assert bool(((slopes[0] - slopes[1]).abs() <= 1e-11 * scale.sqrt()).all())


@pytest.mark.parametrize(("activation", "closed"), CLOSED, ids=lambda a: a.name)
def test_one_integral_agrees_with_the_closed_form(activation: Activation, closed: Activation) -> None:
    answer, truth = activation.evaluate(*states()), closed.distance(*states())
    assert bool(((answer.distance - truth).abs() <= 1e-11 * truth).all())
    assert bool(((answer.distance - truth).abs() <= answer.error + 1e-13 * truth).all())


@pytest.mark.parametrize("activation", PLANE, ids=lambda a: a.name)
def test_most_states_need_no_second_integral(activation: Activation, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the rule in the plane was asked")

    monkeypatch.setattr("initscope.activations.quadrature.integrate", refuse)
    one = torch.ones(3, dtype=torch.float64)
    activation.distance(one, one / 2, torch.tensor([0.1, 1.0, 2.5], dtype=torch.float64))


def test_gaussian_means_of_pieces() -> None:
    pieces = Pieces((-0.4, 0.7), ((0.2, -1.0, 0.5), (1.0, 1.0), (0.5, 0.0, -2.0, 1.0)))
    for order, mean, spread in itertools.product((0, 1, 2, 3), (-1.3, 0.2, 4.0), (0.3, 2.0)):
        f = pieces.derivative(order)

        def integrand(w: mpmath.mpf, f=f, mean=mean, spread=spread) -> mpmath.mpf:
            return float(f(torch.tensor(float(w), dtype=torch.float64))) * mpmath.npdf(w, mean, spread)

        edges = sorted({-0.4, 0.7, mean, mean - 4 * spread, mean + 4 * spread, mean - 9 * spread, mean + 9 * spread})
        truth = float(mpmath.quad(integrand, edges, maxdegree=5))
        value = pieces.gaussian_mean(order, *(torch.tensor(x, dtype=torch.float64) for x in (mean, spread)))
        assert abs(float(value) - truth) < 1e-10 * max(1.0, abs(truth))


FAST = [act.HARDTANH, act.RELU6, act.HARDSWISH, act.ELU, act.SELU, act.TANH]


@pytest.mark.parametrize("activation", FAST, ids=lambda a: a.name)
@pytest.mark.parametrize(("count", "most"), [(1_000, 2_500), (20_000, 1_200)])
@pytest.mark.parametrize("series", [True, False], ids=["series", "no series"])
def test_a_state_costs_few_nodes(
    activation: Activation, count: int, most: int, series: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule in the plane takes 10⁴ to 10⁵ nodes for a state; the ways around it must be the ones taken."""
    assert isinstance(activation.dual, QuadratureDual)
    new = replace(activation, dual=replace(activation.dual))  # without the tables that other tests have made
    if not series:
        monkeypatch.setattr(series_pairs, "_ENOUGH", count + 1)
    nodes = 0
    points, panels = plane.Plane.points, price.panels

    def counted_points(self: plane.Plane, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nonlocal nodes
        answer = points(self, x, y)
        nodes += answer[0].numel()
        return answer

    def counted_panels(edges: torch.Tensor, order: int) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal nodes
        answer = panels(edges, order)
        nodes += answer[0].numel()
        return answer

    monkeypatch.setattr(plane.Plane, "points", counted_points)
    monkeypatch.setattr(price, "panels", counted_panels)
    A, B, x = torch.rand(3, count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    A, B, rho = A + 0.2, B + 0.2, 1.6 * x - 0.7
    new.evaluate(A, B, A + B - 2 * rho * (A * B).sqrt())
    assert 0 < nodes <= most * count


CLIPPED = [
    act.RELU6,
    act.HARDTANH,
    act.HARDSWISH,
    act.HARDSIGMOID,
    act.clip(-2.0, 0.5),
    act.clip(0.2, 0.7),
    act.clip_below(-1.0),
    act.clip_above(0.3),
    act.soft_shrink(1.3),
]


@pytest.mark.parametrize("activation", CLIPPED, ids=lambda a: a.name)
def test_moments_of_pieces_in_closed_form(activation: act.Activation) -> None:
    """Against mpmath, from deviations far below the kinks to far above; where rounding is too large, nothing is said."""
    pieces = activation.dual.pieces  # type: ignore[attr-defined]
    for s in (1e-2, 0.1, 0.3, 1.0, 3.0, 30.0, 1e3):
        known = activation.dual._by_pieces(torch.tensor([s * s], dtype=torch.float64))  # type: ignore[attr-defined]
        if known is None:
            assert s not in (0.3, 1.0, 3.0) or activation.name.startswith("soft_shrink")
            continue
        square, mean = _moments(pieces, s)
        assert float(known[0]) == pytest.approx(square, rel=1e-9)
        assert float(known[1]) == pytest.approx(mean, rel=0, abs=1e-9 * math.sqrt(square))


def _moments(pieces: Pieces, s: float) -> tuple[float, float]:
    ends = [mpmath.mpf(-30), *(min(max(mpmath.mpf(k) / mpmath.mpf(s), -30), 30) for k in pieces.kinks), mpmath.mpf(30)]
    square = mean = mpmath.mpf(0)
    for piece, low, high in zip(pieces.coefficients, ends, ends[1:], strict=False):
        marks = [low, *(m for m in (-12, -6, -2, 0, 2, 6, 12) if low < m < high), high]

        def f(z: mpmath.mpf, piece: tuple[float, ...] = piece) -> mpmath.mpf:
            return sum(mpmath.mpf(c) * (s * z) ** power for power, c in enumerate(piece))

        square += mpmath.quad(lambda z, f=f: f(z) ** 2 * mpmath.npdf(z), marks)
        mean += mpmath.quad(lambda z, f=f: f(z) * mpmath.npdf(z), marks)
    return float(square), float(mean)
