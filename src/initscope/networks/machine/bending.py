"""Which step serves an activation, and the numbers that it needs of every input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np
import torch
from torch import Tensor

from initscope.activations import Activation, SeriesTable, largest_share, series_table, tail_polynomial
from initscope.activations.pieces import Pieces
from initscope.activations.quadrature import QuadratureDual
from initscope.networks.machine.cells import Cells, Laid, cells_of
from initscope.networks.machine.curves import Curve
from initscope.networks.machine.formulas import Formulas, erf_root, exact_moments, gelu_roots, norms
from initscope.networks.machine.frames import SNAP, Code
from initscope.networks.machine.hinge_cells import RULES, HingeCells
from initscope.networks.machine.kinks import Hinges, losses, moments
from initscope.networks.machine.modes import FETCHED, modes_of
from initscope.networks.machine.rows import Rows
from initscope.networks.machine.tape import Reach, largest

# Where a series is longer than the first of its attempts: its error, relative to the second moments, and its largest order.
LATER = {
    torch.float32: ((1e-6, 128), (3e-6, 192), (8e-6, 256), (8e-6, 1024)),
    torch.float64: ((1e-10, 256), (1e-10, 1024)),
}
FIRST = {torch.float32: 96, torch.float64: 128}  # orders of the first attempt
ALTOGETHER, MOST = 6e-6, 1e-6  # what all series of a network and one of them should leave of float32 answers
CLOSED, FINEST = 3e-7, 1e-12  # of functions with a closed form, which only round; and of answers in float64
COARSE = 1e-10  # a few products of polynomials need at least that
LONGEST = 1024  # orders of a table
FEW_ORDERS = 256  # of functions of pieces, which also have a step without orders

_POWERS = {torch.float32: (4, 5), torch.float64: (8, 9)}  # rectified powers that may be taken out of a kink at 0
_NARROW = 2.0**-10  # octaves, to which ranges are widened
_ROWS = 0.02  # of the tolerance, that the rows of a series may add
_EXACT = 0.25  # of the tolerance, that the table of modes may have
_TAILS = 0.2  # of the tolerance, that polynomials of tails may add
_FEW = 5  # standard deviations at which slopes are compared
_SAMPLES = 17  # standard deviations at which shares are compared with moments


@dataclass(frozen=True)
class Precision:
    """The type of the steps, and what the series of one activation should leave out at most, relative to second moments."""

    dtype: torch.dtype
    tolerance: float

    @classmethod
    def of(
        cls, dtype: torch.dtype, wanted: torch.dtype | None = None, activations: int = 1, growth: float = 1.0
    ) -> Precision:
        """For answers of type `wanted`; `growth`: by how much errors of the first layers may grow in the others."""
        if (wanted or dtype) == torch.float64:
            return cls(dtype, FINEST)
        return cls(dtype, max(min(MOST, ALTOGETHER / max(activations, 1)) / max(growth, 1.0), FINEST))

    def attempts(self, closed: bool) -> list[tuple[float, int]]:
        """Errors and largest orders, as they are tried; functions with a closed form get no others."""
        first = min(self.tolerance, CLOSED) if closed else self.tolerance
        wanted = torch.float32 if self.tolerance > FINEST else torch.float64
        found = [(first, FIRST[self.dtype]), *((max(first, error), most) for error, most in LATER[wanted])]
        return [(first, most) for _, most in found] if closed else found


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
    work: float = 0.0  # operations of a pair, of a series
    rounding: float = 1.0

    def moments(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """E f(u)² and E f(u), short of what a series leaves out: an input beside itself must have a cosine of one behind it."""
        if self.own is not None:
            return self.own(a)
        return exact_moments(self.activation, a)


def bending(f: Activation, reach: Reach, precision: Precision, slopes: bool) -> Bending | None:
    """The step for f at variances within `reach`; None where no step is exact enough."""
    found = closed(f)
    if found is not None:
        return found
    if f.rung not in ("closed form", "quadrature"):  # of a dual that somebody gave nothing is known
        return None
    pieces = pieces_of(f)
    if pieces is None:
        return _series(f, reach, precision, slopes)
    return _series(f, reach, precision, slopes, FEW_ORDERS) or _hinged(f, pieces, reach, precision.dtype, slopes)


def closed(f: Activation) -> Bending | None:
    """The step of a function whose products are a formula; None of others."""
    slope = leaky_slope(f)
    if slope is not None:
        numbers = (0.0, 1.0, slope, (1 - slope) ** 2 / 2, 0.5, 1 / math.pi, SNAP)
        return Bending(f, Code.BEND, numbers, Formulas(2, norms))
    if f.rung not in ("closed form", "quadrature"):
        return None
    if f.name == "erf":  # (2/π) asin(2P / √((1+2A)(1+2B))) [williams1997]
        return Bending(f, Code.ARC, (0.0, 1.0, 2 / math.pi, 0.0, 2 / math.pi, 0.0), Formulas(1, erf_root))
    if f.name == "gelu":
        return Bending(f, Code.GELU, (0.0, 1.0, 0.25, 1 / (2 * math.pi), 1e-30, 2.0), Formulas(2, gelu_roots))
    return None


def pieces_of(f: Activation) -> Pieces | None:
    """The pieces of f, if there are any and none is of more than degree two."""
    pieces = f.dual.pieces if isinstance(f.dual, QuadratureDual) else None
    return pieces if pieces is not None and pieces.degree <= 2 else None


def _hinged(f: Activation, pieces: Pieces, reach: Reach, dtype: torch.dtype, slopes: bool) -> Bending | None:
    """By hinges, at any variances."""
    if not reach.some or not reach.finite:
        return None
    low, high = (math.sqrt(end) for end in (reach.lowest, reach.highest))
    cells = HingeCells(Hinges.of(pieces), RULES[dtype])
    lost = losses(pieces, (low, high), cells.rule)
    return Bending(
        f, Code.HINGES, cells.constants, cells, int(cells.hinges.quadratic), len(cells.hinges.vertices),
        max(lost.error, lost.slope_error) if slopes else lost.error, own=partial(moments, pieces), rounding=lost.rounding,
    )  # fmt: skip


def _series(f: Activation, reach: Reach, precision: Precision, slopes: bool, longest: int = LONGEST) -> Bending | None:
    """By Hermite coefficients up to order `longest`, with as little work as the tolerance allows."""
    if not reach.some or not reach.finite:
        return None
    return _in_range(f, *_rounded(reach), reach.zeros, precision, slopes, longest)


def _rounded(reach: Reach) -> tuple[float, float]:
    """Standard deviations around it, so that nearly the same norms have the same range."""
    low, high = (math.log2(end) / 2 for end in (reach.lowest, reach.highest))
    step = 2.0 ** math.floor(math.log2(max(high - low, _NARROW))) / 4
    first, last = math.floor(low / step), math.ceil(high / step)
    return 2.0 ** (step * first), 2.0 ** (
        step * max(last, first + 1)
    )  # a range, even if all norms are one power of two


def steepness_of(f: Activation, reach: Reach) -> float:
    """By how much f makes an error of its products grow, relative to the norms: A E f'(u)² / E f(u)² at most."""
    return _steepest(f, *_rounded(reach)) if reach.some else 1.0


@lru_cache(maxsize=256)
def _steepest(f: Activation, low: float, high: float) -> float:
    a = torch.logspace(2 * math.log2(low), 2 * math.log2(high), _SAMPLES, 2.0, dtype=torch.float64)
    return largest(a * f.derivative_second_moment(a), f.second_moment(a))


def slope_loss(f: Activation, reach: Reach, lost: float) -> float:
    """What slopes of equal inputs lose, relative to E f'(u)², where rounding leaves their cosine at 1 - lost."""
    if not reach.some or not 0 < lost < 1:
        return 0.0 if lost == 0 else math.inf
    return _slope_loss(f, *_rounded(reach), 2.0 ** (math.ceil(4 * math.log2(lost)) / 4))


@lru_cache(maxsize=1024)
def _slope_loss(f: Activation, low: float, high: float, lost: float) -> float:
    a = torch.logspace(2 * math.log2(low), 2 * math.log2(high), _FEW, 2.0, dtype=torch.float64)
    whole = f.derivative_second_moment(a)
    return largest((whole - f.derivative_product(a, a, 2 * lost * a)).abs(), whole)


@lru_cache(maxsize=256)
def _in_range(
    f: Activation, low: float, high: float, zeros: bool, precision: Precision, slopes: bool, longest: int
) -> Bending | None:  # fmt: skip
    closed = f.rung == "closed form"  # which only rounds: a series must do the same
    for tolerance, most in precision.attempts(closed):
        if most > longest:
            break
        wanted = Wanted(f, low, high, tolerance, precision.dtype, slopes, zeros)
        found = [bent for bent in (_by_modes(wanted, longest), _shortest(wanted, most)) if bent is not None]
        if found:
            best = min(found, key=lambda bent: bent.work)
            return replace(best, error=0.0) if closed else best
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
    zeros: bool = False  # whether some deviations are 0

    @property
    def slope_tolerance(self) -> float:
        return 100 * self.tolerance if self.slopes else math.inf

    @property
    def coarse(self) -> bool:
        """Whether polynomials of log s and of the cosine are exact enough.

        Not for slopes in float64: those of a kink take the root of what equal inputs miss of a cosine of one.
        """
        return self.tolerance >= COARSE and not (self.slopes and self.dtype == torch.float64)

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


def _by_modes(wanted: Wanted, longest: int) -> Bending | None:
    """With few products: the polynomials of more digits would be too long."""
    if not wanted.coarse:
        return None
    table = replace(wanted, tolerance=_EXACT * wanted.tolerance).table(longest, max(_POWERS[wanted.dtype]))
    if table is None:
        return None
    modes = modes_of(table, (wanted.low, wanted.high), wanted.tolerance, wanted.slope_tolerance, wanted.zeros)
    if modes is None:
        return None
    return Bending(
        wanted.activation, Code.MODES, modes.numbers, modes.rows, modes.even, modes.odd, modes.error,
        own=modes.rows.moments, work=modes.work,
    )  # fmt: skip


def _shortest(wanted: Wanted, most: int) -> Bending | None:
    """With the number of rectified powers that leaves the least work; functions without a kink at 0 have none."""
    found: list[Bending] = []
    for count in _POWERS[wanted.dtype]:
        table = wanted.table(most, count)
        if table is not None:
            bent = _tabled(wanted, table)
            if bent is not None:
                found.append(bent)
        if table is None or not table.powers:
            break
    return min(found, key=lambda bent: bent.work, default=None)


def _tabled(wanted: Wanted, table: SeriesTable) -> Bending | None:
    """One order after the other."""
    even = max((k for k in table.orders if k % 2 == 0), default=-2) // 2 + 1
    odd = (max((k for k in table.orders if k % 2), default=-1) + 1) // 2
    error = max(table.bound, table.slope_bound) if wanted.slopes else table.bound
    rows = torch.tensor([k // 2 if k % 2 == 0 else even + k // 2 for k in table.orders])
    powers = sorted((j for j, c in enumerate(table.powers, 1) if c), key=lambda j: (j % 2 == 0, j))
    shares = tuple(table.powers[j - 1] for j in powers)
    tails = Tails.of(wanted, tuple(powers), shares, (2 * even - 2, 2 * odd - 1)) if powers else None
    fields: Rows | Cells | None = None
    if wanted.coarse:
        curve = Curve.of(table, wanted.low, wanted.high)
        a, points = curve.coefficients, np.zeros((even + odd, len(curve.s)))
        points[rows.numpy()] = a
        own, zero = np.square(a).sum(0), np.zeros(len(powers) + even + odd)
        if tails is not None:
            own = own + tails.own(torch.from_numpy(curve.s).square()).numpy()
        if even:
            zero[len(powers)] = table.at_zero[0]
        taken = [np.atleast_2d(c * curve.s**j) for j, c in zip(powers, shares, strict=True)]
        fields = Rows.of(curve, np.concatenate([*taken, points]), zero, own, _ROWS * wanted.tolerance)
    if fields is None:
        fields = cells_of(
            table, rows, even + odd, (wanted.low, wanted.high), wanted.tolerance, wanted.dtype, shares, tuple(powers)
        )
    if fields is None:
        return None
    work = 2.0 * (even + odd) + FETCHED * fields.fields  # a product of sides and a step of Horner's rule
    if tails is None:
        return Bending(
            wanted.activation,
            Code.SERIES,
            (0.0, 1.0),
            fields,
            even,
            odd,
            error + fields.error,
            own=fields.moments,
            work=work,
        )
    pairs = sum(n * (n + 1) // 2 for n in (int(tails.numbers[0]), int(tails.numbers[1])))
    return Bending(
        wanted.activation, Code.BENT_SERIES, (0.0, 1.0, *tails.numbers), fields, even, odd,
        error + fields.error + tails.error, work=work + len(tails.numbers) + 5 * pairs,
        own=fields.moments if isinstance(fields, Rows) else partial(_with_tails, fields, tails),
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
