"""Moments of very many pairs by the Hermite series of an activation.

With the coefficients a_k, b_k of both sides, normalized to Σ a_k² = Σ b_k² = 1, and d = 1 - ρ from the pair's excess,

    product = Σ_k a_k b_k ρ^k,    excess = Σ_k (a_k - b_k)² + 2 Σ_k a_k b_k (1 - ρ^k),

where the second line has no difference of large numbers: 1 - ρ^k is a multiple of d, and the sum a Horner loop over
S_k = Σ_(m>=k) a_m b_m. Without the normalization it is the distance E (f(u)-f(v))². Of a function with a kink at 0, the part
that the kept orders do not reach is that of its rectified powers, in closed form (`Arcs`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from initscope.activations.arcs import Arcs, arcs_of
from initscope.activations.hermite import HIGHEST, LOWEST, MOST_POWERS, Expansion
from initscope.activations.series_losses import Span
from initscope.activations.series_table import SeriesTable, table_of
from initscope.activations.triangle import Triangle

_COUNTS = (MOST_POWERS, 7, 5)  # of rectified powers, which cancel the more the more there are
_TOLERANCES = (2e-11, 1e-10)  # of products and slopes, beside the second moments of f and f'
_MOST = 1024
_SHARED = (8, 2)  # steps to which the ends of a span are rounded first, so that layers of similar norms share a table
_FAR_OUT = 6.0  # standard deviations
_TILE = 1 << 14  # pairs at once: what a loop over the orders touches stays in the cache
Index = tuple[slice, ...]


def find_table(expansion: Expansion, low: float, high: float) -> tuple[SeriesTable, float] | None:
    """A table for deviations from `low` to as far towards `high` as `_MOST` orders reach, and how far that is."""
    if expansion.jumps or not 2.0**LOWEST <= low <= high < 2.0**HIGHEST:
        return None
    span = _before_kinks(expansion, Span.of(low, high))
    wider = _before_kinks(expansion, span.rounded(_SHARED))
    for found in dict.fromkeys([wider, *(Span(span.first, last) for last in range(span.last, span.first, -4))]):
        for count in _COUNTS if expansion.powers(1) else (0,):
            table = table_of(expansion, found, _TOLERANCES, _MOST, count)
            if table is not None:
                return table, 2.0 ** (found.last / 8)
    return None


def _before_kinks(expansion: Expansion, span: Span) -> Span:
    """The part of the span where a kink away from 0 is far out: closer, no `_MOST` orders meet the tolerances."""
    nearest = min((abs(k) for k in expansion.kinks if k), default=math.inf)
    if math.isinf(nearest):
        return span
    last = math.ceil(8 * math.log2(nearest / _FAR_OUT))
    return Span(span.first, min(span.last, max(last, span.first)))


@dataclass(frozen=True, eq=False)
class Coefficients:
    """One side of many pairs: a_k, the shares x_j = c_j s^j of the powers taken out and their m_k, (orders or powers, ...)."""

    a: Tensor
    x: Tensor
    m: Tensor

    def __getitem__(self, index: object) -> Coefficients:
        where = (slice(None), *index) if isinstance(index, tuple) else (slice(None), index)
        return Coefficients(self.a[where], self.x[where], self.m[where])

    def over(self, size: Tensor) -> Coefficients:
        divisor = torch.where(size > 0, size, 1)
        return Coefficients(self.a / divisor, self.x / divisor, self.m / divisor)


@dataclass(frozen=True, eq=False)
class Series:
    """The sums over the orders of one table."""

    table: SeriesTable

    @cached_property
    def _arcs(self) -> Arcs | None:
        return arcs_of(tuple(range(1, len(self.table.powers) + 1))) if self.table.powers else None

    @cached_property
    def _slope_arcs(self) -> Arcs:
        return arcs_of(tuple(range(len(self.table.powers))))

    @cached_property
    def _constants(self) -> Tensor:
        """r_k^(j) of the kept orders, without the half of the power that is a polynomial, (powers, orders)."""
        assert self._arcs is not None
        return self._arcs.constants(self.table.orders)

    @cached_property
    def _slope_constants(self) -> Tensor:
        """The same for f', order k - 1 in the place of k."""
        constants = self._slope_arcs.constants([max(k - 1, 0) for k in self.table.orders])
        return torch.where(torch.tensor(self.table.orders) == 0, 0.0, constants)

    @cached_property
    def _tail(self) -> Tensor:
        """Σ r_k^(i) r_k^(j) over the orders that are not kept, (powers, powers)."""
        assert self._arcs is not None
        return self._arcs.whole - self._constants @ self._constants.T

    def side(self, A: Tensor) -> Coefficients:
        return self._side(self.table.coefficients(A), A, self._arcs, 0)

    def slope_side(self, A: Tensor) -> Coefficients:
        """The same of f': √k a_k/s at order k - 1."""
        orders = torch.tensor(self.table.orders, dtype=torch.float64, device=A.device)
        a = self.table.scaled(A) * orders.sqrt().view(-1, *(1,) * A.ndim)
        return self._side(a, A, self._slope_arcs if self.table.powers else None, 1)

    def _side(self, a: Tensor, A: Tensor, arcs: Arcs | None, drop: int) -> Coefficients:
        if arcs is None:
            return Coefficients(a, a[:0], a[:0])
        s = A.double().sqrt()
        x = torch.stack([c * (j if drop else 1) * s ** (j - drop) for j, c in enumerate(self.table.powers, 1)])
        constants = self._slope_constants if drop else self._constants
        return Coefficients(a, x, torch.tensordot(constants.T.to(x.device), x, dims=1))

    def second_moment(self, side: Coefficients) -> Tensor:
        whole = side.a.square().sum(0)
        return whole if self._arcs is None else whole + self._rest(side.x)

    def _rest(self, x: Tensor) -> Tensor:
        """Σ (Σ_j x_j r_k^(j))² over the orders that are not kept."""
        total: Tensor = (x * torch.tensordot(self._tail.to(x.device), x, dims=1)).sum(0).clamp(min=0)
        return total

    def product(self, left: Coefficients, right: Coefficients, shape: Triangle) -> Tensor:
        """Σ a_k b_k ρ^k."""
        orders = self.table.orders
        total = self._horner(left, right, shape.p - shape.q, orders)
        return total if self._arcs is None else total + self._arcs.value(left.x, right.x, shape)

    def slopes(self, left: Coefficients, right: Coefficients, shape: Triangle) -> Tensor:
        """Σ k a_k b_k ρ^(k-1) / √(AB), the coefficients being those of f'."""
        start = 1 if self.table.orders[0] == 0 else 0
        orders = tuple(k - 1 for k in self.table.orders[start:])
        one, two = (Coefficients(c.a[start:], c.x, c.m[start:]) for c in (left, right))
        total = self._horner(one, two, shape.p - shape.q, orders)
        return total + self._slope_arcs.value(left.x, right.x, shape) if self.table.powers else total

    def _horner(self, left: Coefficients, right: Coefficients, rho: Tensor, orders: tuple[int, ...]) -> Tensor:
        powers = _Powers(rho)
        total: Tensor | None = None
        for i in range(len(orders) - 1, -1, -1):
            term = self._term(left, right, i)
            total = term if total is None else torch.addcmul(term, total, powers[orders[i + 1] - orders[i]])
        if total is None:
            return torch.zeros_like(rho)
        return (total * powers[orders[0]] if orders[0] else total).expand_as(rho)

    def _term(self, left: Coefficients, right: Coefficients, i: int) -> Tensor:
        term = left.a[i] * right.a[i]
        return term if self._arcs is None else torch.addcmul(term, left.m[i], right.m[i], value=-1)

    def distance(self, left: Coefficients, right: Coefficients, shape: Triangle) -> Tensor:
        """Σ (a_k - b_k)² + 2 Σ a_k b_k (1 - ρ^k) = Σ (a_k - b_k)² + 2d Σ_k S_k (ρ^j + ... + ρ^(k-1)), j the order before k."""
        orders, rho = self.table.orders, shape.p - shape.q
        powers = _Powers(rho)
        apart, turned, rest = torch.zeros_like(rho), torch.zeros_like(rho), torch.zeros_like(rho)
        for i in range(len(orders) - 1, -1, -1):
            apart += (left.a[i] - right.a[i]).square()
            rest += self._term(left, right, i)
            gap = orders[i] - (orders[i - 1] if i else 0)
            turned = torch.addcmul(rest * powers.sum(gap), turned, powers[gap]) if gap else turned
        total = apart + 4 * shape.q * turned
        if self._arcs is not None:
            total = total + self._rest(left.x - right.x) + 2 * self._arcs.defect(left.x, right.x, shape)
        return total


@lru_cache(maxsize=256)
def series_of(table: SeriesTable) -> Series:
    """The sums of a table, with what they need kept for the next time."""
    return Series(table)


class _Powers:
    """ρ^g, and 1 + ρ + ... + ρ^(g-1), for the gaps g between orders."""

    def __init__(self, rho: Tensor) -> None:
        self._powers = {0: torch.ones_like(rho), 1: rho}
        self._sums: dict[int, Tensor | float] = {1: 1.0}

    def __getitem__(self, gap: int) -> Tensor:
        if gap not in self._powers:
            half = gap // 2
            self._powers[gap] = self[half] * self[gap - half]
        return self._powers[gap]

    def sum(self, gap: int) -> Tensor | float:
        if gap not in self._sums:
            half = gap // 2
            self._sums[gap] = self.sum(half) + self[half] * self.sum(gap - half)
        return self._sums[gap]


def compact(t: Tensor) -> Tensor:
    """The tensor without the copies that broadcasting makes: axes of stride 0 have length 1."""
    where = tuple(slice(0, 1) if step == 0 else slice(None) for step in t.stride())
    return t[where]


def tiles(shape: tuple[int, ...]) -> Iterator[Index]:
    """Parts of a tensor of at most about `_TILE` elements, cut along its first axes."""
    axis = next((i for i, n in enumerate(shape) if n > 1), None)
    if axis is None or math.prod(shape) <= _TILE:
        yield (slice(None),) * len(shape)
        return
    inner = math.prod(shape[axis + 1 :])
    step = max(1, _TILE // inner)
    for start in range(0, shape[axis], step):
        count = min(step, shape[axis] - start)
        for rest in tiles(shape[axis + 1 :]) if count == 1 else [(slice(None),) * (len(shape) - axis - 1)]:
            yield (*(slice(None),) * axis, slice(start, start + count), *rest)


def cut(t: Tensor, part: Index) -> Tensor:
    """The part of a tensor that broadcasts to a larger one."""
    return t[tuple(s if n > 1 else slice(None) for s, n in zip(part, t.shape, strict=True))]
