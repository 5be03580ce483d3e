"""Which step serves an activation, and the numbers that it needs of every input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from initscope.activations import Activation, SeriesTable, largest_share, series_table, tail_polynomial
from initscope.activations.pieces import Pieces
from initscope.activations.quadrature import QuadratureDual
from initscope.networks.machine.cells import Cells, Laid, cells_of
from initscope.networks.machine.frames import SNAP, Code
from initscope.networks.machine.hinge_cells import RULES, HingeCells
from initscope.networks.machine.kinks import Hinges, losses, moments

# Of a series that is cut off: its error, relative to the second moments, and its largest order, as they are tried.
ATTEMPTS = {
    torch.float32: ((3e-7, 96), (1e-6, 128), (3e-6, 192), (8e-6, 256), (8e-6, 1024)),
    torch.float64: ((1e-12, 128), (1e-10, 256), (1e-10, 1024)),
}
FEW_ORDERS = 128  # of functions of pieces, which also have a step without orders
ROUNDING = {torch.float32: 1e-6, torch.float64: 1e-12}  # what the arithmetic of a network leaves

_POWERS = {torch.float32: (4, 5), torch.float64: (8, 9)}  # rectified powers that may be taken out of a kink at 0
_TAILS = 0.2  # of the tolerance, that polynomials of tails may add
_SAMPLES = 17  # standard deviations at which shares are compared with moments


@dataclass(frozen=True, eq=False)
class Bending:
    """`fields` maps variances (images, places) to (images, places, fields); `passes`: gradients pass the activation.

    `own`: what the step makes of E f(u)² and E f(u), if not exactly these. `rounding`: in units of the last place.
    """

    activation: Activation
    code: Code
    constants: tuple[float, ...]
    fields: Callable[[Tensor], Tensor] | Laid
    even: int = 0
    odd: int = 0
    error: float = 0.0
    passes: bool = True
    own: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None
    rounding: float = 1.0

    def moments(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """E f(u)² and E f(u), short of what a series leaves out: an input beside itself must have a cosine of one behind it."""
        if self.own is not None:
            return self.own(a)
        return self.activation.second_moment(a), self.activation.mean(a)


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
    pieces = pieces_of(f)
    if pieces is None:
        return _series(f, variances, dtype, slopes)
    return _series(f, variances, dtype, slopes, FEW_ORDERS) or _hinged(f, pieces, variances, dtype, slopes)


def pieces_of(f: Activation) -> Pieces | None:
    """The pieces of f, if there are any and none is of more than degree two."""
    pieces = f.dual.pieces if isinstance(f.dual, QuadratureDual) else None
    return pieces if pieces is not None and pieces.degree <= 2 else None


def _hinged(f: Activation, pieces: Pieces, variances: Tensor, dtype: torch.dtype, slopes: bool) -> Bending | None:
    """By hinges, at any variances."""
    some = variances[variances > 0]
    if not len(some) or not bool(variances.isfinite().all()):
        return None
    low, high = (math.sqrt(float(end)) for end in some.aminmax())
    cells = HingeCells(Hinges.of(pieces), RULES[dtype])
    lost = losses(pieces, (low, high), cells.rule)
    return Bending(
        f, Code.HINGES, cells.constants, cells, int(cells.hinges.quadratic), len(cells.hinges.vertices),
        max(lost.error, lost.slope_error) if slopes else lost.error, own=partial(moments, pieces), rounding=lost.rounding,
    )  # fmt: skip


def _series(
    f: Activation, variances: Tensor, dtype: torch.dtype, slopes: bool, most_orders: float = math.inf
) -> Bending | None:
    """By Hermite coefficients, with as few orders as the tolerance allows."""
    some = variances[variances > 0]
    if not len(some) or not bool(variances.isfinite().all()):
        return None
    low, high = (math.sqrt(float(end)) for end in some.aminmax())
    closed = f.rung == "closed form"  # which only rounds: a series must do the same
    for tolerance, most in ATTEMPTS[dtype]:
        if closed and tolerance > ROUNDING[dtype]:
            break
        if most > most_orders:
            break
        found = _shortest(Wanted(f, low, high, tolerance, dtype, slopes), most)
        if found is not None:
            return replace(found, error=0.0) if closed else found
    return None


@dataclass(frozen=True)
class Wanted:
    """A series for standard deviations from low to high; without `slopes` only products count."""

    activation: Activation
    low: float
    high: float
    tolerance: float
    dtype: torch.dtype
    slopes: bool

    @property
    def slope_tolerance(self) -> float:
        return 100 * self.tolerance if self.slopes else math.inf

    def table(self, most: int, powers: int) -> SeriesTable | None:
        return series_table(
            self.activation,
            self.low,
            self.high,
            self.tolerance,
            most,
            slope_tolerance=self.slope_tolerance,
            powers=powers,
        )

    @cached_property
    def deviations(self) -> Tensor:
        """Some, with both ends."""
        ends = torch.tensor([self.low, self.high], dtype=torch.float64).log()
        return torch.linspace(float(ends[0]), float(ends[1]), _SAMPLES, dtype=torch.float64).exp()

    @cached_property
    def moments(self) -> tuple[Tensor, Tensor]:
        """E f² and s² E f'² there."""
        a = self.deviations.square()
        return self.activation.second_moment(a), a * self.activation.derivative_second_moment(a)


def _shortest(wanted: Wanted, most: int) -> Bending | None:
    """With the number of rectified powers that leaves the least work; functions without a kink at 0 have none."""
    found: list[tuple[float, Bending]] = []
    for count in _POWERS[wanted.dtype]:
        table = wanted.table(most, count)
        if table is not None:
            bent = _tabled(wanted, table)
            if bent is not None:
                found.append((_work(bent), bent))
        if table is None or not table.powers:
            break
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _work(bent: Bending) -> float:
    """Of one pair: an order takes a product of sides and a step of Horner's rule, a number of a tail a step."""
    return bent.even + bent.odd + 0.5 * len(bent.constants)


def _tabled(wanted: Wanted, table: SeriesTable) -> Bending | None:
    f = wanted.activation
    even = max((k for k in table.orders if k % 2 == 0), default=-2) // 2 + 1
    odd = (max((k for k in table.orders if k % 2), default=-1) + 1) // 2
    error = max(table.bound, table.slope_bound) if wanted.slopes else table.bound
    rows = torch.tensor([k // 2 if k % 2 == 0 else even + k // 2 for k in table.orders])
    powers = sorted((j for j, c in enumerate(table.powers, 1) if c), key=lambda j: (j % 2 == 0, j))
    shares = tuple(table.powers[j - 1] for j in powers)
    cells = cells_of(
        table, rows, even + odd, (wanted.low, wanted.high), wanted.tolerance, wanted.dtype, shares, tuple(powers)
    )
    if cells is None:
        return None
    if not powers:
        return Bending(f, Code.SERIES, (0.0, 1.0), cells, even, odd, error + cells.error, own=cells.moments)
    tails = Tails.of(wanted, tuple(powers), shares, (2 * even - 2, 2 * odd - 1))
    return Bending(
        f, Code.BENT_SERIES, (0.0, 1.0, *tails.numbers), cells, even, odd, error + cells.error + tails.error,
        own=partial(_with_tails, cells, tails),
    )  # fmt: skip


def _with_tails(cells: Cells, tails: Tails, a: Tensor) -> tuple[Tensor, Tensor]:
    squares, mean = cells.moments(a)
    return squares + tails.own(a), mean


@dataclass(frozen=True)
class Tails:
    """Σ_ij u_i u_j' T_ij of rectified powers u_j = c_j s^j, odd powers first: see `arc_tails`.

    `numbers`: how many odd and even powers there are, then for every pair i <= j of odd, then of even ones the count of its
    coefficients and these, highest first; with slopes the same again for the derivative.
    """

    numbers: tuple[float, ...]
    error: float
    own: Callable[[Tensor], Tensor]  # what it adds to a unit beside itself

    @classmethod
    def of(cls, wanted: Wanted, powers: tuple[int, ...], shares: tuple[float, ...], last: tuple[int, int]) -> Tails:
        """`last`: the last even and the last odd order that are kept."""
        groups = [[(j, c) for j, c in zip(powers, shares, strict=True) if j % 2 == parity] for parity in (1, 0)]
        pairs = [(i, c, j, d) for group in groups for n, (i, c) in enumerate(group) for j, d in group[n:]]
        numbers: list[float] = [len(groups[0]), len(groups[1])]
        errors, ends = [0.0, 0.0], []
        for i, c, j, d in pairs:
            for slope in (False, True) if wanted.slopes else (False,):
                moments = wanted.moments[slope]
                weight = largest_share(c, i, wanted.deviations, moments) * largest_share(
                    d, j, wanted.deviations, moments
                )
                weight *= 1 if i == j else 2
                tolerance = wanted.slope_tolerance if slope else wanted.tolerance
                allowed = _TAILS * tolerance / (len(pairs) * max(weight, 1e-300))
                found, error = tail_polynomial(i, j, last[i % 2 == 0], allowed, slope)
                numbers += [len(found), *reversed(found)]
                errors[slope] += weight * error
                if not slope:
                    end = sum(c * (-1) ** n for n, c in enumerate(found))  # at a cosine of one
                    ends.append((c * d * end * (1 if i == j else 2), i + j))

        def own(a: Tensor) -> Tensor:
            s = a.sqrt()
            return sum((end * s**exponent for end, exponent in ends), torch.zeros_like(a))

        return cls(tuple(numbers), max(errors), own)


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
