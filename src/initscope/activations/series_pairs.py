"""Very many pairs answered by one table of Hermite coefficients, tile by tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from initscope.activations.dual import Pair, PairValue
from initscope.activations.evidence import tell
from initscope.activations.hermite import Expansion
from initscope.activations.series_dual import Coefficients, Index, Series, compact, cut, find_table, series_of, tiles
from initscope.activations.triangle import Triangle, resolved, triangle

_CLOSE = 1e-3  # distance beside the second moments below which it is summed without cancellation
_FEW = 4  # close pairs are taken out of a tile that has fewer than one in so many
_ROUNDING = 1e-14
_ENOUGH = 200  # states from which on a series pays for its table
_MORE_TO_COME = 4  # the same where the table serves later questions too
RUNG = "series"
_enough: ContextVar[int] = ContextVar("enough", default=_ENOUGH)


@contextmanager
def more_to_come() -> Iterator[None]:
    """Inside, few states make the table of a series too, because many questions about the same function follow.

    >>> from initscope.activations import TANH, listen
    >>> with more_to_come(), listen() as evidence:
    ...     moment = TANH.second_moment(torch.linspace(0.5, 1, 10, dtype=torch.float64))
    >>> list(evidence.errors)
    ['series']
    """
    token = _enough.set(_MORE_TO_COME)
    try:
        yield
    finally:
        _enough.reset(token)


@dataclass(frozen=True, eq=False)
class Answer:
    """What the series says of pairs, and `served`: which of them its table covers (None: all)."""

    first: Tensor
    second: Tensor
    served: Tensor | None
    bound: float  # of products, beside the second moments
    slope_bound: float  # of slopes, and of small distances beside themselves


@dataclass(frozen=True, eq=False)
class Known:
    """The moments at a tensor, as long as it lives and stays as it was."""

    tensor: ref[Tensor]
    version: int
    answer: tuple[Tensor, Tensor]
    bound: float

    def of(self, A: Tensor) -> bool:
        return self.tensor() is A and A._version == self.version


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of one shape, their variances without copies, and the series that serves them."""

    pair: Pair
    A: Tensor
    B: Tensor
    series: Series
    served: Tensor | None

    @classmethod
    def of(cls, expansion: Expansion, pair: Pair) -> Pairs | None:
        """None where there is no table for these variances, or a number is not finite."""
        shape = pair.excess.shape
        A, B = (compact(t.expand(shape)) for t in (pair.A, pair.B))
        everything = (A, B, pair.excess if pair.given is None else pair.given)
        if A.dtype != torch.float64 or not all(bool(t.isfinite().all()) for t in everything):
            return None
        extremes = [_extremes(t) for t in (A, B)]
        some = [e for e in extremes if e is not None]
        if not some:
            return None
        low, high = min(e[0] for e in some), max(e[1] for e in some)
        found = find_table(expansion, low, high)
        if found is None:
            return None
        table, reach = found
        served = None
        if reach < high:
            served = ((A.sqrt() <= reach) & (B.sqrt() <= reach)).expand(shape)
            if 2 * int(served.sum()) < served.numel():
                return None
        return cls(pair, A, B, series_of(table), served)

    def _shape(self, part: Index) -> Triangle:
        A, B = cut(self.A, part), cut(self.B, part)
        if self.pair.given is not None:
            return triangle(A, B, self.pair.given[part])
        return resolved(A, B, self.pair.excess[part])

    def _answer(self, first: Tensor, second: Tensor) -> Answer:
        table = self.series.table
        return Answer(first, second, self.served, table.bound + _ROUNDING, table.slope_bound + _ROUNDING)

    def distances(self, *, normalized: bool) -> Answer:
        """E (f(u)-f(v))² and E f(u) f(v); normalized: of f(u) and f(v) of second moment 1."""
        left, right = self.series.side(self.A), self.series.side(self.B)
        sizes = [self.series.second_moment(side) for side in (left, right)]
        if normalized:
            left, right = (side.over(size.sqrt()) for side, size in zip((left, right), sizes, strict=True))
            sizes = [(size > 0).double() for size in sizes]
        distance, product = (
            torch.empty(self.pair.excess.shape, dtype=torch.float64, device=self.A.device) for _ in "01"
        )
        for part in tiles(tuple(distance.shape)):
            one, two, shape = _cut(left, part), _cut(right, part), self._shape(part)
            both = (cut(sizes[0], part) + cut(sizes[1], part)).expand_as(shape.q)
            product[part] = self.series.product(one, two, shape)
            distance[part] = both - 2 * product[part]
            self._close(distance[part], both, one, two, shape)
        return self._answer(distance, product)

    def _close(self, distance: Tensor, both: Tensor, one: Coefficients, two: Coefficients, shape: Triangle) -> None:
        """Sum small distances anew, in place."""
        close = distance < _CLOSE * both
        count = int(close.sum())
        if not count:
            return
        if _FEW * count > close.numel():
            distance[close] = self.series.distance(one, two, shape)[close]
            return
        fields = (shape.a, shape.b, shape.gap, shape.q, shape.p)
        chosen = Triangle(*(t.expand_as(close)[close] for t in fields))
        distance[close] = self.series.distance(_pick(one, close), _pick(two, close), chosen)

    def slopes(self) -> Answer:
        """E f'(u) f'(v)."""
        left, right = self.series.slope_side(self.A), self.series.slope_side(self.B)
        value = torch.empty(self.pair.excess.shape, dtype=torch.float64, device=self.A.device)
        for part in tiles(tuple(value.shape)):
            value[part] = self.series.slopes(_cut(left, part), _cut(right, part), self._shape(part))
        return self._answer(value, value)


def moments(expansion: Expansion, A: Tensor) -> tuple[Tensor, Tensor] | None:
    """E f(u)² and E f(u) for many variances; None where no table covers them. Asked twice, the same tensor has its answer."""
    known: Known | None = expansion.latest.get("moments")
    if known is not None and known.of(A):
        _tell(known.bound)
        return known.answer
    flat = compact(A)
    if flat.numel() < _enough.get() or A.requires_grad or A.dtype != torch.float64 or not bool(flat.isfinite().all()):
        return None
    extremes = _extremes(flat)
    found = None if extremes is None else find_table(expansion, *extremes)
    if found is None or extremes is None or found[1] < extremes[1]:
        return None
    series = series_of(found[0])
    side = series.side(flat)
    mean = side.a[0] if series.table.orders[0] == 0 else torch.zeros_like(flat)
    _tell(series.table.bound)
    answer = series.second_moment(side).expand(A.shape), mean.expand(A.shape)
    expansion.latest["moments"] = Known(ref(A), A._version, answer, series.table.bound)
    return answer


def carry(
    expansion: Expansion, pair: Pair, a: Tensor, b: Tensor, rest: Callable[[Pair, Tensor, Tensor], PairValue]
) -> PairValue:
    """Excess and product of (f(u), f(v)) as `Dual.carry` gives them; `rest` answers what the series does not."""
    pairs = _pairs(expansion, pair)
    if pairs is None:
        return rest(pair, a, b)
    answer = pairs.distances(normalized=True)
    both = a * b
    excess = torch.minimum(answer.first.clamp_(min=0).mul_(both), 4 * both)
    product = answer.second.mul_(both)
    if answer.served is not None:
        left = ~answer.served
        other = rest(pair.at(left), a.expand_as(excess)[left], b.expand_as(excess)[left])
        excess[left], product[left] = other.excess, other.product
    _tell(answer.bound)
    return PairValue(excess, product)


def slopes(expansion: Expansion, pair: Pair, rest: Callable[[Pair], Tensor]) -> Tensor:
    """E f'(u) f'(v)."""
    pairs = _pairs(expansion, pair)
    if pairs is None:
        return rest(pair)
    answer = pairs.slopes()
    if answer.served is not None:
        answer.first[~answer.served] = rest(pair.at(~answer.served))
    _tell(answer.slope_bound)
    return answer.first


def distance(expansion: Expansion, pair: Pair, rest: Callable[[Pair], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """E (f(u)-f(v))² and its error."""
    pairs = _pairs(expansion, pair)
    if pairs is None:
        return rest(pair)
    answer = pairs.distances(normalized=False)
    value = answer.first.clamp_(min=0)
    error = 4 * answer.slope_bound * value
    if answer.served is not None:
        left = ~answer.served
        value[left], error[left] = rest(pair.at(left))
    _tell(answer.bound)
    return value, error


def reaches(expansion: Expansion, A: Tensor) -> bool:
    """Whether a series serves all of these variances; 0 needs none."""
    extremes = _extremes(A)
    if extremes is None:
        return True
    found = find_table(expansion, *extremes) if math.isfinite(extremes[1]) else None
    return found is not None and found[1] >= extremes[1]


def _pairs(expansion: Expansion, pair: Pair) -> Pairs | None:
    tensors = (pair.A, pair.B, pair.excess, pair.product, pair.given)
    if _states(pair) < _enough.get() or any(t is not None and t.requires_grad for t in tensors):
        return None
    return Pairs.of(expansion, pair)


def _states(pair: Pair) -> int:
    """How many states there are, copies made by broadcasting counted once."""
    shape = pair.excess.shape
    given = pair.excess if pair.given is None else pair.given
    parts = [compact(t.expand(shape)).shape for t in (pair.A, pair.B, given)]
    return math.prod(np.broadcast_shapes(*parts))


def _tell(bound: float) -> None:
    tell(RUNG, torch.tensor(bound), torch.ones(()))


def _extremes(A: Tensor) -> tuple[float, float] | None:
    """The smallest and the largest standard deviation that is not 0."""
    some = A[A > 0]
    return (float(some.min()) ** 0.5, float(some.max()) ** 0.5) if some.numel() else None


def _cut(side: Coefficients, part: Index) -> Coefficients:
    sizes = side.a.shape[1:]
    return side[tuple(s if n > 1 else slice(None) for s, n in zip(part, sizes, strict=True))]


def _pick(side: Coefficients, chosen: Tensor) -> Coefficients:
    def pick(t: Tensor) -> Tensor:
        return t.expand(len(t), *chosen.shape)[:, chosen]

    return Coefficients(pick(side.a), pick(side.x), pick(side.m))
