"""Tables of Hermite coefficients: as many orders as a tolerance needs, and a bound of what the others amount to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from initscope.activations.evidence import making
from initscope.activations.hermite import Expansion, Panel
from initscope.activations.series_losses import Losses, Span

_LEVELS = (64, 128, 256, 512, 1024)  # highest orders that are tried, one after the other
_BUILT = (64, 256, 1024)  # highest orders that are integrated
_CHUNK = 1 << 15  # variances interpolated at once


@dataclass(frozen=True, eq=False)
class SeriesTable:
    """Hermite coefficients of f for a range of standard deviations, and how far a series of them may be off.

    E f(u) f(v) = Σ_(k in orders) a_k a_k' ρ^k + Σ_ij c_i c_j √A^i √B^j (J_ij(ρ) - Σ_(k in orders) r_k^(i) r_k^(j) ρ^k) with
    the c_j in `powers`. `bound` and `slope_bound` are relative to the second moments of f and f', for every |ρ| <= 1.

    >>> from initscope.activations import TANH, series_table
    >>> table = series_table(TANH, 0.5, 1.0, 1e-7)
    >>> table.orders[:3], table.bound < 1e-7, table.coefficients(torch.ones(2, 5)).shape[1:]
    ((1, 3, 5), True, torch.Size([2, 5]))
    """

    orders: tuple[int, ...]
    bound: float
    slope_bound: float
    powers: tuple[float, ...]
    lowest: int
    at_zero: tuple[float, float]  # f and f'
    _panels: tuple[Panel, ...] = field(repr=False)

    def coefficients(self, A: Tensor) -> Tensor:
        """a_k at the variances A, float64, (orders, *A.shape); at A = 0 that is f(0) for k = 0 and 0 for the others."""
        scaled, s = self.scaled(A), A.double().sqrt()
        first = torch.tensor(self.orders, device=A.device) == 0
        return torch.where(first.view(-1, *(1,) * A.ndim), scaled, scaled * s)

    def scaled(self, A: Tensor) -> Tensor:
        """a_0 and a_k/√A for k > 0, which have limits at A = 0."""
        flat = A.detach().double().flatten().cpu()
        logs = flat.clamp(min=1e-300).log() / 2
        octave = (logs / math.log(2)).floor().clamp(self.lowest, self.lowest + len(self._panels) - 1) - self.lowest
        orders = torch.tensor(self.orders)
        used, counts = torch.unique(octave, return_counts=True)
        # Octave after octave, then back in order: rows of one order stay in one piece of memory.
        order = torch.argsort(octave, stable=True) if len(used) > 1 else None
        sorted_logs = logs if order is None else logs[order]
        blocks, start = [], 0
        for i, count in zip(used.int().tolist(), counts.tolist(), strict=True):
            for part in range(start, start + count, _CHUNK):
                blocks.append(self._panels[i].at(sorted_logs[part : min(part + _CHUNK, start + count)], orders))
            start += count
        value = torch.cat(blocks, 1)
        if order is not None:
            value = value.index_select(1, torch.argsort(order))
        zero = flat == 0
        if bool(zero.any()):
            value[:, zero] = self._limits.unsqueeze(-1)
        return value.view(-1, *A.shape).to(A.device)

    @cached_property
    def _limits(self) -> Tensor:
        limits = dict(enumerate(self.at_zero))
        return torch.tensor([limits.get(k, 0.0) for k in self.orders], dtype=torch.float64)


def table_of(
    expansion: Expansion, span: Span, tolerances: tuple[float, float], most: int, count: int
) -> SeriesTable | None:
    """The same of an expansion, for this span and the tolerances of product and slopes; made once.

    Of a kink at 0 the rectified powers up to `count` are taken out.
    """
    if not span.octaves:
        return None
    with expansion.lock:
        key = (span.first, span.last, *tolerances, most, count)
        if key not in expansion.tables:
            with making():
                fails = _fails_inside(expansion, key)
                expansion.tables[key] = None if fails else _search(expansion, span, tolerances, most, count)
        found: SeriesTable | None = expansion.tables[key]
        return found


def _fails_inside(expansion: Expansion, key: tuple[float, ...]) -> bool:
    """Whether there is no table for a part of the span, and so none for the span."""
    first, last, *rest = key
    return any(
        table is None and first <= known[0] and known[1] <= last and list(known[2:]) == rest
        for known, table in expansion.tables.items()
    )


def _search(
    expansion: Expansion, span: Span, tolerances: tuple[float, float], most: int, count: int
) -> SeriesTable | None:
    trend: list[float] = []
    levels = sorted({min(level, most) for level in (*_LEVELS, most)})
    for level in levels:
        found = [expansion.panel(octave, next(b for b in _BUILT if b >= level)) for octave in span.octaves]
        panels = tuple(p.up_to(level) for p in found if p is not None)
        if len(panels) < len(found):
            return None
        losses = Losses(expansion, panels, span, level, count)
        shortest = losses.shortest(tolerances)
        if shortest is not None:
            zero = torch.zeros(1, dtype=torch.float64)
            at_zero = float(expansion.fn(zero)), float(expansion.slope(zero))
            return SeriesTable(*shortest, losses.powers, span.octaves.start, at_zero, panels)
        trend.append(losses.least / min(tolerances))
        if _hopeless(trend, len(levels) - len(trend)):
            return None
    return None


def _hopeless(trend: list[float], left: int) -> bool:
    """Whether the loss, level by level, will still be too large after the levels that are left.

    The logarithm of the quotient of two levels stays as it is where coefficients fall as a power of k, and grows by the
    same factor from level to level where they fall faster.
    """
    if len(trend) < 3 or not left:
        return False
    first, second = (math.log(max(trend[i], 1e-300) / max(trend[i - 1], 1e-300)) for i in (-2, -1))
    growth = min(max(second / first, 1.0), 2.0) if first < 0 else 1.0
    expected = math.log(max(trend[-1], 1e-300)) + sum(second * growth**i for i in range(1, left + 1))
    return expected > math.log(10.0)
