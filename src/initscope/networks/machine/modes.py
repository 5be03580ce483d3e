"""A Hermite series over a range of variances as few products: what changes with the variance are a handful of functions.

The coefficients of f(s z), a_k(s) and the shares c_j s^j of rectified powers, run through a short curve while s runs through a
range. A few directions V_r hold that curve, with coordinates φ_r(s):

    E f(u) f(v) = Σ_pq φ_p(√A) φ_q(√B) Q_pq(ρ),    Q_pq = Σ_k V_kp V_kq ρ^k + Σ_ij V_ip V_jq T_ij(ρ).

What leaving out the others costs is compared at many pairs of variances and cosines. Each Q is a short polynomial in
2√(1-ρ²) - 1 or 2ρ² - 1, times ρ for odd orders. For one input of x the sums over p are one polynomial for each q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.polynomial import chebyshev

from initscope.activations import SeriesTable
from initscope.networks.machine.curves import COSINES, Array, Curve, Strand
from initscope.networks.machine.directions import Directions
from initscope.networks.machine.frames import MIXED, WIDTH
from initscope.networks.machine.rows import Rows

MOST = 16  # directions of both strands
FETCHED = 8.0  # work of getting a field, which comes from far: those of all layers and places are more than caches hold
_PLACES = 128  # Chebyshev points at which a Q is taken
_LONGEST = 48  # coefficients of one
_LAST = 8  # of all its waves, which tell what comes after them
_HALVINGS = 7  # of the range in which the size of waves is searched
# Shares of the tolerance: directions of a strand, these and their polynomials, rows; and a strand that is exact.
_LEFT_OUT, _POLYNOMIALS, _ROOM, _LITTLE = 0.2, 0.35, 0.02, 0.02
_ROOT = 30.0  # work of a root
_EPSILON = 2.0**-24  # rounding of the loops
_ROUNDING = 1e-6  # that they may leave


@dataclass(frozen=True, eq=False)
class Modes:
    """`rows`: the φ_r(s) of even orders, then those of odd ones; `even`, `odd`: how many there are.

    `numbers`: 0, 1, whether the Q are in √(1-ρ²), then those of `_Table` for even orders, with slopes those of the derivative,
    and the same for odd orders.
    """

    rows: Rows
    even: int
    odd: int
    numbers: tuple[float, ...]
    error: float
    polynomials: float  # work of them

    @property
    def work(self) -> float:
        """Steps of one pair."""
        return self.polynomials + FETCHED * self.rows.fields


@lru_cache(maxsize=256)
def modes_of(
    table: SeriesTable, span: tuple[float, float], tolerance: float, slope_tolerance: float, zeros: bool
) -> Modes | None:
    """The modes of a table over standard deviations in `span`; None where a few do not do.

    `zeros`: some variances are 0.
    """
    curve = Curve.of(table, *span)
    room = (tolerance, slope_tolerance)
    sides: list[Directions] = []
    for strand in curve.strands:
        share = _LEFT_OUT * _share(strand)
        found = Directions.of(strand, (share * tolerance, share * slope_tolerance), zeros)
        if found is None:
            return None
        sides.append(found)
    if not 0 < sum(side.count for side in sides) <= MOST:
        return None
    polynomials = [Polynomials.of(sides, room, rooted) for rooted in ((True,) if curve.powers else (False, True))]
    best = min((p for p in polynomials if p is not None), key=lambda p: p.work, default=None)
    if best is None:
        return None
    points, zero = (np.concatenate([getattr(s, name) for s in sides]) for name in ("coordinates", "at_zero"))
    own = np.einsum("pm,pq,qm->m", points, best.form, points)
    rows = Rows.of(curve, points, zero, own, _ROOM * tolerance)
    if rows is None:
        return None
    error = max(table.bound, table.slope_bound) if slope_tolerance < math.inf else table.bound
    return Modes(
        rows,
        sides[0].count,
        sides[1].count,
        (0.0, 1.0, float(best.rooted), *best.numbers),
        error + rows.error + best.error,
        best.work,
    )


def _share(strand: Strand) -> float:
    """Of the tolerance of both strands: half, or nearly all beside a strand of one order."""
    own, other = (len(s.orders) > 1 or bool(s.powers) for s in (strand, strand.curve.strands[1 - strand.parity]))
    return 1.0 if own == other else 2.0 - _LITTLE if own else _LITTLE


@dataclass(frozen=True, eq=False)
class Polynomials:
    """The numbers of all Q_pq, their values at ρ = 1, and the error that they and the directions left out make."""

    rooted: bool
    numbers: tuple[float, ...]
    form: Array
    error: float
    work: float

    @classmethod
    def of(cls, sides: list[Directions], room: tuple[float, float], rooted: bool) -> Polynomials | None:
        """As short as the tolerances of product and slopes allow; None where some are too long."""
        slopes = (False, True) if room[1] < math.inf else (False,)
        numbers: list[float] = []
        forms, errors, rounding, work = [], [0.0, 0.0], 0.0, _ROOT if rooted else 0.0
        for side in sides:
            for slope in slopes:
                some = _Pairs(side, slope, rooted)
                cut = some.shortest(_POLYNOMIALS * _share(side.strand) * room[slope])
                if cut is None:
                    return None
                table = _Table.of(some, cut)
                if table.values.shape[1] > MIXED:
                    return None
                numbers += table.numbers
                work += table.work
                errors[slope] += cut.error
                rounding = max(rounding, table.rounding * (0.01 if slope else 1))
                if not slope:
                    forms.append(table.form)
        return cls(rooted, tuple(numbers), _blocks(forms), max(errors), work) if rounding <= _ROUNDING else None


def _blocks(forms: list[Array]) -> Array:
    """Matrices along a diagonal."""
    whole = np.zeros((sum(map(len, forms)),) * 2)
    at = 0
    for form in forms:
        whole[at : at + len(form), at : at + len(form)] = form
        at += len(form)
    return whole


@dataclass(frozen=True, eq=False)
class _Table:
    """The coefficients of Q_pq for one strand, as the loops read them.

    `columns`: how many coefficients the Q_pq of each q have, an even number; `values` (p, columns of all q), highest powers
    first, filled up to whole lanes.
    """

    columns: tuple[int, ...]
    values: Array
    form: Array
    rounding: float

    @classmethod
    def of(cls, some: _Pairs, cut: _Cut) -> _Table:
        count = some.side.count
        columns = tuple(int(n + n % 2) for n in cut.counts.max(0, initial=0))
        values = np.zeros((count, -(-sum(columns) // WIDTH) * WIDTH))
        form, rounding = np.zeros((count, count)), 0.0
        for p in range(count):
            at = 0
            for q, length in enumerate(columns):
                kept = int(cut.counts[p, q])
                found = chebyshev.cheb2poly(some.waves[p, q, :kept]) if kept else np.zeros(0)
                values[p, at + length - kept : at + length] = found[::-1]
                rounding = max(rounding, float(some.weights[p, q] * np.abs(found).sum()) * _EPSILON)
                form[p, q] = float(found @ (-1.0 if some.rooted else 1.0) ** np.arange(kept))
                at += length
        return cls(columns, values, form, rounding)

    @property
    def numbers(self) -> list[float]:
        return [float(self.values.shape[1]), *map(float, self.columns), *self.values.flatten().tolist()]

    @property
    def work(self) -> float:
        """Steps of one pair: mixing the directions of an input of x, polynomials, products with those of y."""
        count, size = self.values.shape
        found: float = size // WIDTH * (count + 1) + sum(self.columns) + 2 * count
        return found


@dataclass(frozen=True)
class _Cut:
    """How many waves of every Q_pq are kept, and what that misses."""

    counts: Array
    error: float


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The Q_pq of even or odd orders, or their derivatives, as Chebyshev series."""

    side: Directions
    slope: bool
    rooted: bool

    @cached_property
    def waves(self) -> Array:
        """(directions, directions, waves)."""
        places, transform = _transform()
        rho = np.sqrt((1 - places) * (3 + places)) / 2 if self.rooted else np.sqrt((places + 1) / 2)
        values = self.side.strand.products(self.side.vectors, rho, self.slope)
        return np.asarray(np.einsum("wn,pqn->pqw", transform, values))

    @cached_property
    def weights(self) -> Array:
        """The most that an error of each counts, beside E f² or s² E f'²."""
        sizes = self.side.sizes(self.slope)
        return np.outer(sizes, sizes) * (2 - np.eye(len(sizes)))

    @cached_property
    def _values(self) -> Array:
        """The waves at `COSINES`, (waves, cosines)."""
        square = COSINES * COSINES
        places = 2 * np.sqrt(1 - square) - 1 if self.rooted else 2 * square - 1
        return np.asarray(chebyshev.chebvander(places, _PLACES - 1).T)

    def shortest(self, allowed: float) -> _Cut | None:
        """Waves below a common size are cut off, as large as allowed; None where more than a polynomial may have are left."""
        sizes = self.weights[..., None] * np.abs(self.waves)
        beyond = float(sizes[..., -_LAST:].sum())
        low, high = math.log(allowed) - 7, math.log(allowed)
        best: _Cut | None = None
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            kept = sizes > math.exp(middle)
            counts = np.where(kept.any(-1), _PLACES - kept[..., ::-1].argmax(-1), 0)
            made = np.where(np.arange(_PLACES) < counts[..., None], self.waves, 0) @ self._values
            error = self.side.misses.largest(made, self.slope) + beyond
            if error <= allowed:
                best, low = _Cut(counts, error), middle
            else:
                high = middle
        return best if best is not None and best.counts.max(initial=0) <= _LONGEST else None


@lru_cache
def _transform() -> tuple[Array, Array]:
    """Chebyshev points, and what makes values there waves."""
    places = np.cos(np.pi * (2 * np.arange(_PLACES) + 1) / (2 * _PLACES))
    transform = chebyshev.chebvander(places, _PLACES - 1).T * (2 / _PLACES)
    transform[0] /= 2
    return places, transform
