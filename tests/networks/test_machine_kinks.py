"""The compiled step of functions of pieces beside their duals, an integral over the plane, and the layer-by-layer path."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from initscope.activations import HARDSWISH, HARDTANH, RELU6, Activation
from initscope.layers import Activate, Conv, Dense, GlobalAveragePool
from initscope.networks import Sequential, kernel, kernel_estimate, kernel_with_error, parse, tangent_kernel
from initscope.networks.machine import answer, unknown

pytest.importorskip("numba")
from initscope.networks.machine import bending as bendings
from initscope.networks.machine import kinked
from initscope.networks.machine.bending import Bending
from initscope.networks.machine.frames import ROWS, TILE, WIDTH, Code
from initscope.networks.machine.hinge_cells import HingeCells
from initscope.networks.machine.kinks import Hinges
from initscope.networks.machine.steps import Sides, Window
from initscope.networks.machine.tape import Reach

TYPES = {torch.float32: np.float32, torch.float64: np.float64}


def _from_kinks(
    name: str, kinks: tuple[float, ...], first: tuple[float, ...], jumps: list[tuple[float, float]]
) -> Activation:
    """The leftmost polynomial and what (z - k)_+ and (z - k)²_+ add at every kink."""
    pieces = [np.array([*first, 0.0, 0.0][:3])]
    for k, (c, d) in zip(kinks, jumps, strict=True):
        pieces.append(pieces[-1] + c * np.array([-k, 1.0, 0.0]) + d * np.array([k * k, -2 * k, 1.0]))
    table = torch.tensor(np.array(pieces))

    def value(z: Tensor) -> Tensor:
        a, b, c = table.to(z)[torch.bucketize(z, torch.tensor(kinks, dtype=z.dtype))].unbind(-1)
        return a + z * (b + z * c)

    trimmed = [tuple(p[: 2 if not d else 3]) for p, d in zip(pieces, [p[2] for p in pieces], strict=True)]
    return Activation.from_function(value, name=name, kinks=kinks, pieces=trimmed)


HARDSIGMOID = Activation.from_function(
    functional.hardsigmoid, name="hardsigmoid", kinks=(-3.0, 3.0), pieces=((0,), (0.5, 1 / 6), (1,)), monotone=True
)
LINEAR = _from_kinks("three kinks", (-1.2, 0.4, 2.0), (0.3, -0.5), [(0.9, 0.0), (-1.1, 0.0), (1.6, 0.0)])
QUADRATIC = _from_kinks("parabolas", (-0.8, 1.5), (0.2, 0.4), [(-0.3, 0.7), (0.5, -0.9)])
BENDS = _from_kinks("at zero", (-1.0, 0.0, 1.0), (-0.2, 0.1), [(0.0, 0.5), (0.4, -0.3), (-0.6, -0.2)])
ALL = (HARDSWISH, RELU6, HARDTANH, HARDSIGMOID, LINEAR, QUADRATIC, BENDS)
COSINES = np.concatenate(
    [[-1.0], -1 + 10.0 ** np.arange(-8, -0.5), np.linspace(-0.7, 0.7, 7), 1 - 10.0 ** np.arange(-1, -8.5, -1), [1.0]]
)


def _reach(variances: Any) -> Reach:
    known = np.asarray(variances)
    some = known[known > 0]
    return Reach(float(some.min()), float(some.max()), bool((known == 0).any()))


def _hinged(f: Activation, variances: Any, dtype: torch.dtype) -> Bending:
    pieces = bendings.pieces_of(f)
    assert pieces is not None
    found = bendings._hinged(f, pieces, _reach(variances), dtype, slopes=True)
    assert found is not None
    return found


def _step(how: Bending, a: Any, b: Any, cosines: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    """Products and slopes (len(a), len(b), cosines) of the compiled step."""
    kind, places = TYPES[dtype], len(cosines)
    assert isinstance(how.fields, HingeCells)
    fields, numbers = how.fields.fields, np.array(how.constants, dtype=kind)
    values, slopes = (np.zeros((len(a), len(b), places)) for _ in range(2))
    for i in range(0, len(a), ROWS):
        for j in range(0, len(b), WIDTH):
            sides, deviations = [], []
            for some, count in ((a[i : i + ROWS], ROWS), (b[j : j + WIDTH], WIDTH)):
                images = np.zeros((count, places))
                images[: len(some)] = some[:, None]
                flat = np.zeros(count * places * fields, kind)
                how.fields.fill(torch.from_numpy(images), flat, count)
                sides.append(flat)
                deviations.append(np.sqrt(images))
            registers = np.ones(4 * places * TILE, kind)
            products = deviations[0][:, None] * deviations[1][None] * cosines
            registers[: places * TILE] = products.transpose(2, 0, 1).ravel()
            size = places * TILE
            kinked.hinges[1](
                registers, 0, size, 2 * size, 3 * size, Sides(*sides, 0, 0, fields, 1), Window(0, 1, 0, places, 0, 0), 1,
                places, how.even, how.odd, numbers,
            )  # fmt: skip
            got = registers.reshape(4, places, ROWS, WIDTH).transpose(0, 2, 3, 1)
            rows, columns = min(ROWS, len(a) - i), min(WIDTH, len(b) - j)
            values[i : i + rows, j : j + columns] = got[1, :rows, :columns]
            slopes[i : i + rows, j : j + columns] = got[3, :rows, :columns]
    return values, slopes


@cache
def _exact(f: Activation, low: float, high: float) -> tuple[Any, ...]:
    """Variances of both sides, products, slopes, and the roots of their second moments, by the activation's own dual."""
    generator = np.random.default_rng(0)
    a = np.exp(np.linspace(math.log(low), math.log(high), 6))
    b = np.concatenate([a[::2], 1.001 * a[1:3], np.exp(generator.uniform(math.log(low), math.log(high), 3))])
    A, B, rho = (torch.from_numpy(t) for t in np.meshgrid(a, b, COSINES, indexing="ij"))
    D = (A.sqrt() - B.sqrt()).square() + 2 * (A * B).sqrt() * (1 - rho)
    products, slopes = f.evaluate(A, B, D).product, f.derivative_product(A, B, D)
    scale = (f.second_moment(A) * f.second_moment(B)).sqrt()
    steep = (f.derivative_second_moment(A) * f.derivative_second_moment(B)).sqrt()
    return a, b, products.numpy(), slopes.numpy(), scale.numpy(), steep.numpy()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("low", "high"), [(0.01, 100.0), (0.3, 3.0)])
@pytest.mark.parametrize("f", ALL, ids=lambda f: f.name)
def test_products_and_slopes(f: Activation, low: float, high: float, dtype: torch.dtype) -> None:
    a, b, products, slopes, scale, steep = _exact(f, low, high)
    how = _hinged(f, np.concatenate([a, b]), dtype)
    got, got_slopes = _step(how, a, b, COSINES, dtype)
    eps = torch.finfo(dtype).eps
    assert (np.abs(got - products) / scale).max() < how.error + (4 + how.rounding) * eps
    # the angle of equal and of opposite inputs is known to the root of rounding
    assert (np.abs(got_slopes - slopes) / steep).max() < how.error + 6 * math.sqrt(eps)
    inside = np.abs(COSINES) < 0.95
    off = (np.abs(got_slopes - slopes) / steep)[..., inside].max()
    assert off < how.error + 40 * (4 + how.rounding) * eps


@pytest.mark.parametrize("f", ALL, ids=lambda f: f.name)
def test_errors_stay_small(f: Activation) -> None:
    for dtype, most in ((torch.float32, 5e-6), (torch.float64, 2e-10)):
        assert _hinged(f, [0.3, 3.0], dtype).error < most


def _integral(f: Activation, a: float, b: float, rho: float) -> float:
    """E f(u) f(v) by Gauss's rule on panels of both variables that end at the kinks."""
    nodes, weights = np.polynomial.legendre.leggauss(60)

    def panels(cuts: list[float]) -> tuple[Any, Any]:
        inner = sorted(c for c in cuts if -9 < c < 9)
        edges = np.unique(np.concatenate([[-9.0], inner, [9.0]]))
        edges = np.unique(np.concatenate([np.linspace(p, q, 5) for p, q in itertools.pairwise(edges.tolist())]))
        half = np.diff(edges)[:, None] / 2
        z = (edges[:-1, None] + half + half * nodes).ravel()
        return z, (half * weights).ravel() * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    s, t, root = math.sqrt(a), math.sqrt(b), math.sqrt(1 - rho * rho)
    corners = [k / s for k in f.kinks] + [k / (t * rho) for k in f.kinks if rho]
    z, outer = panels(corners)
    total = 0.0
    for x, w in zip(z.tolist(), outer.tolist(), strict=True):
        y, inner = panels([(k / t - rho * x) / root for k in f.kinks])
        mean = float((f(torch.from_numpy(t * (rho * x + root * y))).numpy() * inner).sum())
        total += w * float(f(torch.tensor(s * x, dtype=torch.float64))) * mean
    return total


@pytest.mark.parametrize("f", [HARDTANH, LINEAR, QUADRATIC], ids=lambda f: f.name)
@pytest.mark.parametrize(("a", "b", "rho"), [(0.7, 2.5, 0.6), (1.0, 1.1, -0.9), (9.0, 0.2, 0.3)])
def test_an_integral_over_the_plane(f: Activation, a: float, b: float, rho: float) -> None:
    how = _hinged(f, [a, b], torch.float64)
    got = _step(how, np.array([a]), np.array([b]), np.array([rho]), torch.float64)[0]
    assert abs(float(got[0, 0, 0]) - _integral(f, a, b, rho)) < 1e-10


@pytest.mark.parametrize("f", ALL, ids=lambda f: f.name)
def test_an_input_beside_itself_has_its_norm(f: Activation) -> None:
    a = np.array([0.02, 0.5, 1.0, 3.0, 20.0])
    for dtype in TYPES:
        how = _hinged(f, a, dtype)
        got = np.diagonal(_step(how, a, a, np.array([1.0]), dtype)[0][..., 0])
        own = how.moments(torch.from_numpy(a))[0].numpy()
        assert (np.abs(got / own - 1) < how.error + (1 + how.rounding) * torch.finfo(dtype).eps).all()
        assert np.allclose(own, f.second_moment(torch.from_numpy(a)).numpy(), rtol=1e-12)


def test_inputs_of_zeros() -> None:
    how = _hinged(HARDSIGMOID, [1.0, 2.0], torch.float64)
    got, slopes = _step(how, np.array([0.0, 1.0]), np.array([0.0, 2.0]), np.array([0.0, 0.5]), torch.float64)
    assert np.allclose(got[0], 0.25, atol=1e-15)
    assert np.allclose(got[:, 0], 0.25, atol=1e-15)
    assert np.isfinite(slopes).all()


def test_hinges_of_pieces() -> None:
    z = torch.linspace(-5, 5, 101, dtype=torch.float64)
    for f in ALL:
        pieces = bendings.pieces_of(f)
        assert pieces is not None
        hinges = Hinges.of(pieces)
        total = sum(c * z**n for n, c in enumerate(hinges.center))
        for h, *sides in zip(hinges.places, hinges.upper, hinges.lower, strict=True):
            for sign, (c, d) in zip((1, -1), sides, strict=True):
                over = (sign * z - h).clamp_min(0)
                total = total + c * over + d * over.square()
        assert torch.allclose(torch.as_tensor(total), f(z), atol=1e-12)


def test_the_step_is_chosen_where_series_are_long() -> None:
    for slopes in (False, True):
        for dtype in TYPES:
            wide = bendings.bending(HARDTANH, Reach(0.01, 100.0), bendings.Precision.of(dtype), slopes)
            assert wide is not None
            assert wide.code == Code.HINGES
    short = bendings.bending(HARDSWISH, Reach(0.01, 0.02), bendings.Precision.of(torch.float32), False)
    assert short is not None
    assert short.code in (Code.SERIES, Code.MODES)


def _net(f: Activation, kind: str) -> Sequential:
    if kind == "vectors":
        return Sequential(Dense(8), Activate(f), Dense(8), Activate(f), Dense(1))
    layers = (Conv(8, kernel=3), Activate(f), Conv(8, kernel=3), Activate(f))
    return Sequential(*layers, GlobalAveragePool()) if kind == "pooled" else Sequential(*layers)


def _inputs(kind: str) -> tuple[Tensor, Tensor]:
    shape = (7,) if kind == "vectors" else (2, 3, 3)
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[1], x[2], x[3] = 0, 1e-2 * x[0], -x[0]
    return x, 3 * torch.randn(2, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def _off(got: Tensor, expected: Tensor) -> float:
    return float((got.double() - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize(
    ("f", "kind"), [*((f, "vectors") for f in ALL), (HARDSWISH, "pooled"), (RELU6, "positions")],
    ids=lambda part: getattr(part, "name", part),
)  # fmt: skip
def test_networks(f: Activation, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, (x, y) = _net(f, kind), _inputs(kind)
    assert unknown(net, x) is None
    whole, across, single = (kernel_with_error(net, *t) for t in ((x,), (x, y), (x.float(), y.float())))
    tangent = tangent_kernel(net, x, y)
    monkeypatch.setenv("INITSCOPE_NO_NUMBA", "1")
    assert _off(whole.value, kernel(net, x)) < whole.accuracy.error + 1e-12
    assert _off(across.value, kernel(net, x, y)) < across.accuracy.error + 1e-12
    assert _off(single.value, kernel(net, x.float().double(), y.float().double())) < single.accuracy.error + 3e-6
    assert _off(tangent, tangent_kernel(net, x, y)) < 3e-8
    assert torch.equal(whole.value, whole.value.T)


def test_estimates_name_the_steps() -> None:
    estimate = kernel_estimate(parse("3x(conv3 hardtanh) gap"), _inputs("pooled")[0])
    assert estimate.method == "steps"


def test_far_norms_run_in_float64() -> None:
    """Rounding grows with how far inputs reach beyond the kinks."""
    net = parse("dense hardtanh dense")
    x = 100 * torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    found = answer(net, x)
    assert found.accuracy.error < 1e-7
    assert float((found.product - answer(net, x.double()).product).abs().max()) < 1e-9
