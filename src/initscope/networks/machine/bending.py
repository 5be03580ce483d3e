"""Which step serves an activation, and the numbers that it needs of every input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from initscope.activations import Activation, SeriesTable, rectified_constants, series_table
from initscope.networks.machine.frames import SNAP, Code

# Of a series that is cut off: its error, relative to the second moments, and its largest order, as they are tried.
ATTEMPTS = {
    torch.float32: ((3e-7, 96), (1e-6, 128), (3e-6, 192), (8e-6, 256)),
    torch.float64: ((1e-12, 128), (1e-10, 256)),
}
ROUNDING = {torch.float32: 1e-6, torch.float64: 1e-12}  # what the arithmetic of a network leaves

PART = 1 << 16  # variances whose coefficients are held at once


@dataclass(frozen=True, eq=False)
class Bending:
    """`fields` maps variances (images, places) to (images, places, fields); `passes`: gradients pass the activation."""

    activation: Activation
    code: Code
    constants: tuple[float, ...]
    fields: Callable[[Tensor], Tensor]
    even: int = 0
    odd: int = 0
    error: float = 0.0
    passes: bool = True
    own: Callable[[Tensor], Tensor] | None = None  # what the step makes of a unit beside itself, if not exactly E f(u)²

    def second_moment(self, a: Tensor) -> Tensor:
        """E f(u)², short of what a series leaves out: an input beside itself must have a cosine of one behind the step."""
        if self.own is None:
            return self.activation.second_moment(a)
        return torch.cat([self.own(part) for part in torch.split(a, max(1, PART // max(1, a[0].numel())))])


def bending(f: Activation, variances: Tensor, dtype: torch.dtype, slopes: bool) -> Bending | None:
    """The step for f at these variances; None where no step is exact enough."""
    slope = leaky_slope(f)
    constants: tuple[float, ...]
    if slope is not None:
        numbers = (0.0, 1.0, slope, (1 - slope) ** 2 / 2, 0.5, 1 / math.pi, SNAP)
        return Bending(f, Code.BEND, numbers, _norms)
    if f.rung not in ("closed form", "quadrature"):  # of a dual that somebody gave nothing is known
        return None
    if f.name == "erf":  # (2/π) asin(2P / √((1+2A)(1+2B))) [williams1997]
        constants = (0.0, 1.0, 2 / math.pi, 0.0, 2 / math.pi, 0.0)
        return Bending(f, Code.ARC, constants, lambda a: ((0.5 + a).rsqrt())[..., None])
    if f.name == "gelu":
        constants = (0.0, 1.0, 0.25, 1 / (2 * math.pi), 1e-30, 2.0)
        return Bending(f, Code.GELU, constants, lambda a: torch.stack([a, (1 + a).rsqrt()], -1))
    return _series(f, variances, dtype, slopes)


def _series(f: Activation, variances: Tensor, dtype: torch.dtype, slopes: bool) -> Bending | None:
    """By Hermite coefficients, with as few orders as the tolerance allows."""
    some = variances[variances > 0]
    if not len(some) or not bool(variances.isfinite().all()):
        return None
    low, high = (math.sqrt(float(end)) for end in some.aminmax())
    closed = f.rung == "closed form"  # which only rounds: a series must do the same
    for tolerance, most in ATTEMPTS[dtype]:
        if closed and tolerance > ROUNDING[dtype]:
            break
        table = series_table(f, low, high, tolerance, most, slope_tolerance=100 * tolerance if slopes else math.inf)
        if table is not None:
            found = _tabled(f, table, slopes)
            return replace(found, error=0.0) if closed else found
    return None


def _tabled(f: Activation, table: SeriesTable, slopes: bool) -> Bending:
    even = max((k for k in table.orders if k % 2 == 0), default=-2) // 2 + 1
    odd = (max((k for k in table.orders if k % 2), default=-1) + 1) // 2
    error = max(table.bound, table.slope_bound) if slopes else table.bound
    rows = torch.tensor([k // 2 if k % 2 == 0 else even + k // 2 for k in table.orders])
    if table.powers:
        numbers = (0.0, 1.0, 1 / (2 * math.pi), math.pi / 2, *_low_orders(), SNAP)
        fields = _with_powers(table, rows, even + odd)
        return Bending(
            f, Code.BENT_SERIES, numbers, fields, even, odd, error, own=lambda a: _own_with_powers(fields(a))
        )

    def plain(a: Tensor) -> Tensor:
        out = torch.zeros(1 + even + odd, *a.shape, dtype=torch.float64)
        out[0] = _inverse(a)
        out[1 + rows] = table.coefficients(a)
        return out.movedim(0, -1)

    own = lambda a: table.coefficients(a).square().sum(0)  # noqa: E731
    return Bending(f, Code.SERIES, (0.0, 1.0), plain, even, odd, error, own=own)


_MEETING = ((1, 1), (1, 3), (2, 2), (3, 3))  # rectified powers that meet in orders beyond 3
_ALONE = (0.5, 1.5, 1.5, 7.5)  # E relu(u)^(i+j) of those


def _low_orders() -> tuple[float, ...]:
    """r_k^(i) r_k^(j) for k from 0 to 3, of the powers that meet."""
    low = (0, 1, 2, 3)
    return tuple(float(c) for i, j in _MEETING for c in rectified_constants(i, low) * rectified_constants(j, low))


def _with_powers(table: SeriesTable, rows: Tensor, terms: int) -> Callable[[Tensor], Tensor]:
    """1/|a|, u_j = c_j s^j, the coefficients of f and, from order 4 on, those of the powers."""
    orders = torch.tensor(table.orders)
    constants = torch.stack([rectified_constants(j, table.orders) for j in (1, 2, 3)])
    constants[:, orders < 4] = 0

    def fields(a: Tensor) -> Tensor:
        out = torch.zeros(4 + 2 * terms, *a.shape, dtype=torch.float64)
        out[0] = _inverse(a)
        for j, c in enumerate(table.powers, 1):
            out[j] = c * a.sqrt() ** j
        out[4 + rows] = table.coefficients(a)
        out[4 + terms + rows] = torch.tensordot(constants.T, out[1:4], dims=1)
        return out.movedim(0, -1)

    return fields


def _own_with_powers(fields: Tensor) -> Tensor:
    """The sum that `bent_series` forms at a cosine of one."""
    _, u1, u2, u3 = fields[..., :4].unbind(-1)
    own, powers = fields[..., 4:].square().chunk(2, -1)
    low = torch.tensor(_low_orders(), dtype=torch.float64).view(4, 4).sum(1)
    met = torch.stack([u1 * u1, 2 * u1 * u3, u2 * u2, u3 * u3], -1)
    return own.sum(-1) - powers.sum(-1) + met @ (torch.tensor(_ALONE, dtype=torch.float64) - low)


def leaky_slope(f: Activation) -> float | None:
    """The slope below zero of f(z) = z above and s z below it; None for other functions."""
    if f.degree != 1:
        return None
    low, high = f(torch.tensor([-1.0, 1.0], dtype=torch.float64)).tolist()
    return -low if high == 1.0 else None


def _inverse(a: Tensor) -> Tensor:
    """1/√a, zero beside zero."""
    return torch.where(a > 0, a.rsqrt(), 0)


def _norms(a: Tensor) -> Tensor:
    return torch.stack([a.sqrt(), _inverse(a)], -1)
