"""Integrals over the plane of a Gaussian pair, split along the lines where an activation has its kinks.

The pair is written as u = a (C x + S y), v = σ b (C x - S y) with independent standard normal x, y, where
C = cos h >= S = sin h and h is half the acute angle between u and ±v. A kink k draws the two lines u = k and v = k; in
these coordinates both cross the x direction steeply, however strong the correlation, so the inner integral over x is
split at both, and the outer one over y at the points where two such lines meet. A single kink at 0 draws two lines
through the origin, and polar coordinates need no other split.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from initscope.activations.coordinates import Plane
from initscope.activations.rules import CAUTION, TOLERANCE, Rule, climb, gauss, panels, slices
from initscope.activations.triangle import triangle

Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(u, v, u - v) -> the integrand, elementwise."""

# Orders, and how well an oblique grid must confirm two of them that agree: the sooner they agree, the better.
_SMOOTH_STAGES = (((12, 18, 27), 1e-9), ((27, 40, 60, 90, 135), 1e-5))
_LEGENDRE_ORDERS = (12, 17, 24, 34)
_LINE_ORDERS = (12, 18, 27, 40, 60, 90, 135, 200)
# Odd after even: a step that hides between the nodes of one grid stands on a node of the next.
_FINE_ORDERS = {
    1: (1024, 1449, 2048, 2897, 4096, 5793, 8192, 11585, 16384, 32769, 65536, 131073, 262144),
    2: (181, 256, 363, 512, 725, 1024, 1449, 2048, 2897, 4096, 5793, 8192),
}
_OBLIQUE, _TURN = 40, 0.6
_BUDGET = 1 << 27  # values of f in one order of the finest grids: a few seconds
_VANISHED = 38.0  # where e^(-z²/2) underflows
_POLAR_ORDERS = (12, 17, 24, 34)
_SMOOTH_UP_TO = 4.0


def integrate(kernel: Kernel, A: Tensor, B: Tensor, D: Tensor, kinks: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E kernel(u, v, u - v) and an estimate of its error from the last two orders, for float64 vectors A, B, D.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> value, error = integrate(lambda u, v, _: u.abs() * v.abs(), one, one, 2 * one, (0.0,))
    >>> bool((value - 2 / math.pi).abs() < 1e-12)
    True
    """
    return integrate_plane(kernel, Plane.of(A, B, D), kinks)


def integrate_plane(kernel: Kernel, plane: Plane, kinks: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """The same for states that are already resolved."""
    value, error = torch.full_like(plane.a, math.nan), torch.full_like(plane.a, math.inf)
    size = torch.maximum(plane.a, plane.b)
    pending = torch.arange(len(plane), device=plane.a.device)
    early = {(): (_smooth_sum, _SMOOTH_STAGES), (0.0,): (_polar_sum, ((_POLAR_ORDERS, 0.0),))}.get(kinks)
    if early is not None:
        rule, stages = early
        small = pending[size <= _SMOOTH_UP_TO]
        for orders, precision in stages:
            rest = climb(lambda part, n: rule(kernel, plane[part], n), orders, small, value, error)
            if not kinks:
                _confirm(kernel, plane, small[~torch.isin(small, rest)], value, error, precision)
            small = rest
        pending = pending[~(error <= TOLERANCE * value.abs())]
    rungs, left = _ladder_steps(size), [pending[:0]]
    for steps in torch.unique(rungs[pending]).tolist():
        marks = _marks(kinks, int(steps))
        left.append(
            climb(
                lambda part, n, marks=marks: _panel_sum(kernel, plane[part], n, kinks, marks),  # type: ignore[misc]
                _LEGENDRE_ORDERS,
                pending[rungs[pending] == steps],
                value,
                error,
            )
        )
    error[pending] += _tail(kernel, plane[pending])
    if not kinks:
        _go_on(lambda part, n: _smooth_sum(kernel, plane[part], n), torch.cat(left), 2, value, error)
    return value, error


def _confirm(kernel: Kernel, plane: Plane, chosen: Tensor, value: Tensor, error: Tensor, precision: float) -> None:
    """Ask a grid at another angle: u and v strongly correlated run side by side through the nodes of a straight one,
    which may then agree with its neighbor on never having seen a kink, or the one place where f bends."""
    for part in slices(len(chosen), _OBLIQUE**2):
        states = chosen[part]
        oblique, size = _oblique_sum(kernel, plane[states], _OBLIQUE)
        gap = (oblique - value[states]).abs()
        doubt = torch.where(gap > precision * size, CAUTION * gap, 0)
        error[states] = torch.where(oblique.isfinite(), torch.maximum(error[states], doubt), math.inf)


def _oblique_sum(kernel: Kernel, plane: Plane, order: int) -> tuple[Tensor, Tensor]:
    x, weight = (t.to(plane.a.device) for t in gauss("normal", order))
    grid = (weight.view(-1, 1) * weight).flatten()
    first, second = x.view(-1, 1).expand(order, order).flatten(), x.expand(order, order).flatten()
    across, along = (
        math.cos(_TURN) * first - math.sin(_TURN) * second,
        math.sin(_TURN) * first + math.cos(_TURN) * second,
    )
    f = kernel(*plane.points(across.unsqueeze(0), along.unsqueeze(0)))
    return f @ grid, f.abs() @ grid


def _go_on(rule: Rule, pending: Tensor, dimensions: int, value: Tensor, error: Tensor) -> None:
    """Ever finer grids for an f that oscillates below the scale of its Gaussian, as far as the budget reaches."""
    pending = pending[value[pending].isfinite()]
    orders = [n for n in _FINE_ORDERS[dimensions] if len(pending) * n**dimensions <= _BUDGET]
    finer, doubt = value.clone(), error.clone()
    climb(rule, orders, pending, finer, doubt, impatient=True)
    better = doubt < error
    value[better], error[better] = finer[better], doubt[better]


def _tail(kernel: Kernel, plane: Plane) -> Tensor:
    """About how much of the integral of |kernel| lies where it is cut off: along the directions of u and of v."""
    if not len(plane):
        return torch.zeros_like(plane.a)
    step = torch.linspace(0, 1, 41, dtype=plane.a.dtype, device=plane.a.device)
    reach = _reach(plane).unsqueeze(-1)
    z = reach + (_VANISHED - reach) * step
    density = torch.exp(-z * z / 2) * (_VANISHED - reach) / (40 * math.sqrt(2 * math.pi))
    total = torch.zeros_like(plane.a)
    for x, y in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        f = kernel(*plane.points(x * z * plane.C.unsqueeze(-1), y * z * plane.S.unsqueeze(-1)))
        total += (f.abs() * density).nan_to_num(nan=math.inf, posinf=math.inf).sum(-1)
    return CAUTION * total


_FEWER = ((0.02, 0.3), (0.12, 0.45), (0.35, 0.7), (1.0, 1.0))
"""(largest S, share of the order spent on y): the integrand varies in y only as fast as S allows."""


def _smooth_sum(kernel: Kernel, plane: Plane, order: int) -> tuple[Tensor, Tensor]:
    """The product rule for integrands without kinks."""
    value, size = torch.empty_like(plane.a), torch.empty_like(plane.a)
    x, weight_x = (t.to(plane.a.device) for t in gauss("normal", order))
    above = 0.0
    for limit, share in _FEWER:
        chosen = torch.nonzero((above <= plane.S) & (limit > plane.S)).flatten()
        above = limit
        y, weight_y = (t.to(plane.a.device) for t in gauss("normal", max(8, round(share * order))))
        grid = (weight_x.view(-1, 1) * weight_y).flatten()
        for part in slices(len(chosen), len(grid)):
            f = kernel(*plane[chosen[part]].points(x.view(1, -1, 1), y.view(1, 1, -1))).flatten(1)
            value[chosen[part]], size[chosen[part]] = f @ grid, f.abs() @ grid
    return value, size


def _polar_sum(kernel: Kernel, plane: Plane, order: int) -> tuple[Tensor, Tensor]:
    """The rule for a single kink at 0: x, y in polar coordinates, split at u = 0 and v = 0.

    Those lines stand at the angles ±h from the y axis, so the sectors are two thin ones of opening 2h around it and
    two wide ones of opening π - 2h around the x axis.
    """
    nodes, weights = (t.to(plane.a.device) for t in gauss("legendre", order))
    radius, mass = (t.to(plane.a.device) for t in gauss("radial", order))
    values, sizes = [], []
    for part in slices(len(plane), 4 * order * order):
        cell = plane[part]
        half = torch.atan2(cell.S, cell.C).view(-1, 1, 1)
        value, size = torch.zeros_like(cell.a), torch.zeros_like(cell.a)
        for width, thin in ((half, True), (math.pi / 2 - half, False)):
            turn = width * nodes.view(1, -1, 1)
            near, off = radius * turn.cos(), radius * turn.sin()
            x, y = (off, near) if thin else (near, off)
            weight = width.flatten(1) / (2 * math.pi) * (weights.view(-1, 1) * mass).flatten()
            for side in (1, -1):
                f = kernel(*cell.points(side * x, side * y)).flatten(1)
                value += (f * weight).sum(-1)
                size += (f.abs() * weight).sum(-1)
        values.append(value)
        sizes.append(size)
    return torch.cat(values), torch.cat(sizes)


def _ladder_steps(size: Tensor) -> Tensor:
    """How many powers of 4 it takes from 3 to beyond the largest |u| that counts; 0 for an ordinary size."""
    steps = torch.ceil(torch.log(3 * size.clamp(min=1e-300)) / math.log(4)).clamp(0, 40)
    return torch.where(size > 1.2, steps, 0)


def _marks(kinks: tuple[float, ...], steps: int) -> tuple[float, ...]:
    """Kinks, and for a wide Gaussian a geometric ladder, since f then bends on a scale far below the Gaussian's."""
    ladder = {s * 3 * 4.0**j for j in range(steps) for s in (1, -1)} | ({0.0} if steps else set())
    return tuple(sorted(set(kinks) | ladder))


def _reach(plane: Plane) -> Tensor:
    """Where the integral is cut off: beyond it the density, even times e^(2u), is below rounding."""
    return 8.7 + 2 * torch.maximum(plane.a, plane.b).clamp(max=2)


def _panel_sum(
    kernel: Kernel, plane: Plane, order: int, kinks: tuple[float, ...], marks: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    """The composite Gauss-Legendre rule on the cells between the lines of the marks."""
    inner = 2 * len(marks) + 4
    outer = 4 + 2 * len(marks) + len(kinks) ** 2
    values, sizes = [], []
    for part in slices(len(plane), inner * outer * order * order):
        cell = plane[part]
        y, weight_y = _weighted_panels(_outer_edges(cell, kinks, marks), order)
        x, weight_x = _weighted_panels(_inner_edges(cell, y, marks), order)
        f = kernel(*cell.points(x, y.unsqueeze(-1)))
        values.append(((f * weight_x).sum(-1) * weight_y).sum(-1))
        sizes.append(((f.abs() * weight_x).sum(-1) * weight_y).sum(-1))
    return torch.cat(values), torch.cat(sizes)


def integrate_line(kernel: Kernel, A: Tensor, B: Tensor, kinks: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """The same at correlation 1, u = a z and v = b z with one standard normal z: a single integral.

    >>> two = torch.full((1,), 2.0, dtype=torch.float64)
    >>> value, error = integrate_line(lambda u, v, _: u.abs() * v.abs(), two, two, (0.0,))
    >>> bool((value - 2).abs() < 1e-12)
    True
    """
    shape = triangle(A, B, torch.zeros_like(A))
    one = torch.ones_like(A)
    plane = Plane(shape.a, shape.b, shape.gap, C=one, S=0 * one, sign=one)
    value, error = torch.full_like(A, math.nan), torch.full_like(A, math.inf)
    rungs, left = _ladder_steps(torch.maximum(plane.a, plane.b)), []
    for steps in torch.unique(rungs).tolist():
        marks = _marks(kinks, int(steps))
        left.append(
            climb(
                lambda part, n, marks=marks: _line_sum(kernel, plane[part], n, marks),  # type: ignore[misc]
                _LINE_ORDERS,
                torch.nonzero(rungs == steps).flatten(),
                value,
                error,
            )
        )
    error += _tail(kernel, plane)
    if not kinks and left:
        _go_on(lambda part, n: _line_grid(kernel, plane[part], n), torch.cat(left), 1, value, error)
    return value, error


def _line_grid(kernel: Kernel, plane: Plane, order: int) -> tuple[Tensor, Tensor]:
    """The rule on equal steps."""
    x, weight = (t.to(plane.a.device) for t in gauss("normal", order))
    values, sizes = [], []
    for part in slices(len(plane), order):
        f = kernel(*plane[part].points(x.unsqueeze(0), torch.zeros_like(x).unsqueeze(0)))
        values.append(f @ weight)
        sizes.append(f.abs() @ weight)
    return torch.cat(values), torch.cat(sizes)


def _line_sum(kernel: Kernel, plane: Plane, order: int, marks: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    values, sizes = [], []
    for part in slices(len(plane), (2 * len(marks) + 4) * order):
        cell = plane[part]
        y = torch.zeros_like(cell.a).unsqueeze(-1)
        x, weight = _weighted_panels(_inner_edges(cell, y, marks), order)
        f = kernel(*cell.points(x, y.unsqueeze(-1)))
        values.append((f * weight).sum((-1, -2)))
        sizes.append((f.abs() * weight).sum((-1, -2)))
    return torch.cat(values), torch.cat(sizes)


def _weighted_panels(edges: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """Nodes and Gaussian-weighted weights of every panel between sorted edges, (..., panels × order)."""
    x, weight = panels(edges, order)
    return x, weight * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


_FIXED = (-1.0, -0.42, 0.0, 0.42, 1.0)


def _outer_edges(plane: Plane, kinks: tuple[float, ...], marks: tuple[float, ...]) -> Tensor:
    """Fixed panels, the heights where two kink lines meet, and a ladder around 0 as fine as the marks."""
    reach = _reach(plane)
    edges = [reach * f for f in _FIXED]
    for k in kinks:
        for m in kinks:
            height = (k / plane.a - plane.sign * m / plane.b) / (2 * plane.S)
            edges.append(height)
    largest = torch.maximum(plane.a, plane.b)
    edges += [m / (largest * plane.S) for m in marks if m not in kinks or m == 0.0]
    return _sorted(torch.stack(edges, -1), reach)


def _inner_edges(plane: Plane, y: Tensor, marks: tuple[float, ...]) -> Tensor:
    """Fixed panels and the places where u or v meets a mark, for every height y of shape (n, heights)."""
    reach = _reach(plane).unsqueeze(-1)
    edges = [(reach * f).expand_as(y) for f in _FIXED]
    a, b, C, sign = (t.unsqueeze(-1) for t in (plane.a, plane.b, plane.C, plane.sign))
    shift = plane.S.unsqueeze(-1) * y
    for m in marks:
        edges += [(m / a - shift) / C, (sign * m / b + shift) / C]
    return _sorted(torch.stack(edges, -1), reach)


def _sorted(edges: Tensor, reach: Tensor) -> Tensor:
    """Sort, with what is undefined or beyond the reach moved to its end."""
    limit = reach.unsqueeze(-1).expand_as(edges)
    inside = torch.where(edges.isnan(), limit, torch.minimum(torch.maximum(edges, -limit), limit))
    return inside.sort(-1).values
