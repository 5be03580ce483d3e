"""The Hermite series against mpmath and against integrals, and whether its stated bound covers its error."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from torch import Tensor

from initscope import activations as act
from initscope.activations import Activation, Pair, listen, rectified_constants, rectified_product, series_table
from initscope.activations.series import expansion_of
from initscope.activations.series_dual import find_table
from initscope.activations.series_pairs import Pairs, more_to_come

SMOOTH = [act.TANH, act.SIGMOID, act.SILU, act.SOFTPLUS, act.MISH, act.GELU, act.ERF, act.SIN, act.COS, act.GAUSSIAN]
AT_ZERO = [act.ELU, act.SELU, act.elu(0.3), act.RELU, act.leaky_relu(0.2), act.rectified_power(2)]
ELSEWHERE = [act.RELU6, act.HARDTANH, act.HARDSWISH]
ALL = [*SMOOTH, *AT_ZERO, *ELSEWHERE]
DEFECTS = (2.0, 1.7, 1.0, 0.3, 1e-2, 1e-5, 1e-8)
EXACT: dict[str, Callable] = {
    "tanh": mpmath.tanh,
    "silu": lambda z: z / (1 + mpmath.exp(-z)),
    "selu": lambda z: 1.0507009873554805 * (z if z > 0 else 1.6732632423543772 * mpmath.expm1(z)),
    "hardtanh": lambda z: min(mpmath.mpf(1), max(mpmath.mpf(-1), z)),
}


def named(a: Activation) -> str:
    return a.name


def by_table(activation: Activation, table: act.SeriesTable, A: Tensor, B: Tensor, rho: Tensor) -> Tensor:
    """E f(u) f(v) as whoever asks for a table would sum it."""
    powers = rho ** torch.tensor(table.orders).unsqueeze(-1)
    total = (table.coefficients(A) * table.coefficients(B) * powers).sum(0)
    t = rho.clamp(-1, 1).acos()
    for i, c in enumerate(table.powers, 1):
        for j, d in enumerate(table.powers, 1):
            both = rectified_constants(i, table.orders) * rectified_constants(j, table.orders)
            left = rectified_product(i, j, t) - (both.unsqueeze(-1) * powers).sum(0)
            total = total + c * d * A.sqrt() ** i * B.sqrt() ** j * left
    return total


def grid(low: float, high: float) -> tuple[Tensor, Tensor, Tensor]:
    sides = [low, (low * high) ** 0.5, high]
    states = [(s * s, r * r, d) for s, r, d in itertools.product(sides, sides, DEFECTS)]
    return tuple(torch.tensor(column, dtype=torch.float64) for column in zip(*states, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("activation", ALL, ids=named)
@pytest.mark.parametrize(("low", "high"), [(0.03, 0.2), (0.32, 1.0), (0.9, 1.7)])
def test_the_bound_of_a_table_covers_its_error(activation: Activation, low: float, high: float) -> None:
    table = series_table(activation, low, high, 3e-5)
    if table is None:
        assert activation in ELSEWHERE
        return
    A, B, d = grid(low, high)
    product = by_table(activation, table, A, B, 1 - d)
    scale = (activation.second_moment(A) * activation.second_moment(B)).sqrt()
    truth = activation.product(A, B, (A.sqrt() - B.sqrt()).square() + 2 * (A * B).sqrt() * d)
    assert table.bound <= 3e-5
    assert float(((product - truth).abs() / scale).max()) <= table.bound + 2e-9
    assert list(table.orders) == sorted(set(table.orders))


@pytest.mark.parametrize(("i", "j"), list(itertools.product((1, 2, 3), repeat=2)))
def test_products_of_rectified_powers(i: int, j: int) -> None:
    t = torch.tensor([0.2, 1.0, math.pi / 2, 2.5, math.pi], dtype=torch.float64)
    orders = tuple(range(2000))
    series = (rectified_constants(i, orders) * rectified_constants(j, orders)).unsqueeze(-1)
    truth = (series * t.cos() ** torch.arange(2000).unsqueeze(-1)).sum(0)
    torch.testing.assert_close(rectified_product(i, j, t)[:-1], truth[:-1], rtol=1e-12, atol=1e-14)
    assert abs(float(rectified_product(i, j, t)[-1])) < 1e-14  # relu(u) and relu(-u) are never both positive


def many(states: tuple[Tensor, ...], copies: int) -> tuple[Tensor, ...]:
    return tuple(t.repeat(copies) for t in states)


def quadrature_of(activation: Activation) -> Activation:
    return activation if activation.rung == "quadrature" else activation.by_quadrature()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("activation", [a for a in ALL if a not in ELSEWHERE], ids=named)
def test_many_pairs_and_few_agree(activation: Activation, dtype: torch.dtype) -> None:
    """Value and 1 - cosine, variances 0.1 to 10, cosines -1 to 1 - 1e-8: few pairs are integrated, many summed."""
    f = quadrature_of(activation)
    A, B, d = (t.to(dtype).double() for t in grid(0.1**0.5, 10**0.5))
    both = (A * B).sqrt()
    pair = Pair(A, B, 2 * both * d, both * (1 - d))
    a, b = activation.second_moment(A).sqrt(), activation.second_moment(B).sqrt()
    few = activation.carry(pair, a, b)
    states = [t.to(dtype) for t in many((A, B, pair.excess, pair.product, a, b), 4)]
    result = f.carry(Pair(*states[:4]), *states[4:])
    eps = torch.finfo(dtype).eps
    count = len(A)
    assert result.excess.dtype == dtype
    slack = max(4e-9, 200 * eps)
    allowed = slack * few.excess + 1e-13 * a * b  # even functions have no excess left at cosine -1
    assert bool(((result.excess[:count].double() - few.excess).abs() <= allowed).all())
    assert bool(((result.product[:count].double() - few.product).abs() <= slack * a * b).all())


@pytest.mark.parametrize("activation", [act.TANH, act.SILU, act.SELU, act.ELU], ids=named)
def test_evidence_says_series_and_covers_the_error(activation: Activation) -> None:
    A, B, d = grid(0.5, 1.2)
    both = (A * B).sqrt()
    pair = Pair(*many((A, B, 2 * both * d, both * (1 - d)), 4))
    a, b = (activation.second_moment(x).sqrt() for x in (pair.A, pair.B))
    with listen() as evidence:
        result = activation.carry(pair, a, b)
    assert list(evidence.errors) == ["series"]
    assert evidence.errors["series"] < 1e-10
    f = EXACT.get(activation.name, lambda z: z if z > 0 else mpmath.expm1(z))
    for i in torch.nonzero((d == 2) & (A != B)).flatten().tolist():
        s, r = (mpmath.sqrt(mpmath.mpf(float(x))) for x in (A[i], B[i]))
        truth = mpmath.quad(lambda z, s=s, r=r: f(s * z) * f(-r * z) * mpmath.npdf(z), [-12, -4, 0, 4, 12])
        assert abs(float(result.product[i]) - float(truth)) <= evidence.errors["series"] * float(a[i] * b[i])


@pytest.mark.parametrize("activation", [act.TANH, act.SOFTPLUS, act.SELU], ids=named)
def test_dark_ranges_and_zero_variances(activation: Activation) -> None:
    """Standard deviations from 1e-4 to 1, and 0 among them, in one call."""
    s = torch.cat([torch.zeros(1), torch.logspace(-4, 0, 16, dtype=torch.float64)])
    A, B = (t.flatten() for t in torch.meshgrid(s.square(), s.square(), indexing="ij"))
    both = (A * B).sqrt()
    pair = Pair(A, B, 0.6 * both, 0.7 * both)
    roots = [activation.second_moment(x).sqrt() for x in (A, B)]
    result, slopes = activation.carry(pair, *roots), activation.slopes(pair)
    for part in torch.arange(len(A)).split(100):
        one = Pair(*(t[part] for t in (pair.A, pair.B, pair.excess, pair.product)))
        a, b = (activation.second_moment(x[part]).sqrt() for x in (A, B))
        few = activation.carry(one, a, b)
        torch.testing.assert_close(roots[0][part], a, rtol=1e-9, atol=0)
        assert bool(((result.product[part] - few.product).abs() <= 4e-9 * a * b).all())
        assert bool(((result.excess[part] - few.excess).abs() <= 4e-9 * few.excess + 1e-13 * a * b).all())
        some = (one.A > 0) & (one.B > 0)  # f' at 0 itself is a matter of taste where f has a kink
        torch.testing.assert_close(slopes[part][some], activation.slopes(one)[some], rtol=1e-8, atol=1e-9)


def test_small_distances_keep_their_digits() -> None:
    """Down to 1 - cosine = 1e-14 the excess of equal norms is that of the slope, E f'² A, times it."""
    d = torch.logspace(-14, -10, 300, dtype=torch.float64)
    one = torch.ones_like(d)
    for f in (act.TANH, act.SILU, act.SELU):
        a = f.second_moment(one[:1]).sqrt()
        excess = f.carry(Pair(one, one, 2 * d, 1 - d), a, a).excess
        truth = 2 * d * f.derivative_second_moment(one[:1])
        loose = 2e-5 if f is act.SELU else 1e-8  # a kink adds a term of the order d^(3/2)
        torch.testing.assert_close(excess, truth, rtol=loose, atol=0)


def test_what_the_series_cannot_reach_is_integrated() -> None:
    """A kink away from 0 next to the middle of the Gaussian, a jump, and a variance far beyond the tables."""
    assert (
        Pairs.of(act.HARDTANH.dual.expansion, Pair.of(*(torch.ones(300, dtype=torch.float64) for _ in "123"))) is None
    )  # type: ignore[attr-defined]
    assert series_table(act.STEP, 0.5, 1.0, 1e-6) is None
    assert series_table(act.TANH, 0.5, 1e9, 1e-6) is None
    assert series_table(act.TANH, math.nan, 1.0, 1e-6) is None


def test_tables_are_made_once() -> None:
    assert series_table(act.SILU, 0.51, 0.98, 1e-6) is series_table(act.SILU, 0.505, 0.99, 1e-6)


@pytest.mark.parametrize("activation", [act.TANH, act.SELU, act.SOFTSIGN, act.TANH_SHRINK], ids=named)
@pytest.mark.parametrize("octave", [-3, 0, 2])
def test_coefficients_are_those_of_an_integral(activation: Activation, octave: int) -> None:
    """a_k/s by mpmath, in the panels whose waves are shared and at low and high orders."""
    panel = expansion_of(activation).panel(octave, 256)
    assert panel is not None
    node = 7
    s = float(panel.deviations[node])
    exact = {"tanh": mpmath.tanh, "selu": EXACT["selu"], "softsign": lambda z: z / (1 + abs(z))}
    f = exact.get(activation.name, lambda z: z - mpmath.tanh(z))
    marks = [-14, *(m / 2 for m in range(-20, 21)), 14]
    for order in (0, 1, 2, 3, 10, 31):

        def wave(z: mpmath.mpf, order: int = order) -> mpmath.mpf:
            before, now = mpmath.mpf(0), mpmath.mpf(1)
            for n in range(order):
                before, now = now, (z * now - mpmath.sqrt(n) * before) / mpmath.sqrt(n + 1)
            return now

        truth = mpmath.quad(lambda z, wave=wave: f(s * z) * wave(z) * mpmath.npdf(z), marks)
        found = float(panel.scaled[node, order]) * (s if order else 1.0)
        assert abs(found - float(truth)) <= 2e-13 * math.sqrt(float(panel.energy[node])), order


def test_layers_of_similar_norms_share_a_table() -> None:
    tables = {find_table(expansion_of(act.TANH), low, 2.3 * low)[0] for low in (0.52, 0.54, 0.58)}  # type: ignore[index]
    assert len(tables) == 1


def test_few_states_are_summed_where_more_are_to_come() -> None:
    """The same numbers, to the precision of both, from the integrals and from the series."""
    A, B, d = grid(0.4, 1.3)
    both = (A * B).sqrt()
    pair = Pair(A, B, 2 * both * d, both * (1 - d))
    for activation in (act.TANH, act.MISH, act.SELU, act.celu(0.5)):
        roots = [activation.second_moment(x).sqrt() for x in (A, B)]
        with listen() as evidence:
            few = activation.carry(pair, *roots)
        assert "series" not in evidence.errors
        with more_to_come(), listen() as evidence:
            summed = activation.carry(pair, *roots)
        assert list(evidence.errors) == ["series"]
        size = roots[0] * roots[1]
        assert bool(((summed.product - few.product).abs() <= 4e-9 * size).all())
        assert bool(((summed.excess - few.excess).abs() <= 4e-9 * few.excess + 1e-13 * size).all())


def test_a_kink_near_the_middle_is_not_searched_for() -> None:
    """No table reaches deviations at which a kink lies closer than six of them, and none is tried."""
    expansion = expansion_of(act.clip(-0.9, 1.1))
    assert find_table(expansion, 0.5, 1.0) is None
    assert not any(panel for panel, _ in expansion._panels if panel >= -1)
