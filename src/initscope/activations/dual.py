"""What every rung of the ladder answers: the moments of f(u), f(v) for a zero-mean Gaussian pair (u, v)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from initscope.activations.triangle import Triangle, gram, opposite, resolved, triangle

Function = Callable[[Tensor], Tensor]
_CLOSE = 0.1  # excess beside the norms down to which 2(ab - E f(u) f(v)) keeps fourteen digits


@dataclass(frozen=True, eq=False)
class DualValue:
    """The answer to one question about (A, B, D), each tensor of the broadcast shape.

    `error` estimates the absolute error of `distance` (a standard error on the Monte Carlo rung).
    """

    distance: Tensor
    product: Tensor
    error: Tensor
    rung: str


@dataclass(frozen=True, eq=False)
class Pair:
    """A Gaussian pair (u, v) of one shape and dtype: A = E u², B = E v², P = E uv, and the excess E = 2(√(AB) - P).

    The excess is given beside the product, so that neither the angle of nearly parallel pairs nor the product of pairs
    of very unequal norms is ever the difference of two large numbers. Where a distance is all that is `given`, everything
    is taken from it, and can be differentiated in A, B and D.
    """

    A: Tensor
    B: Tensor
    excess: Tensor
    product: Tensor
    given: Tensor | None = None

    @classmethod
    def of(cls, A: Tensor, B: Tensor, D: Tensor) -> Pair:
        """The pair at the distance D = E (u-v)²."""
        return cls(A, B, D - (A.sqrt() - B.sqrt()).square(), covariance(A, B, D), D)

    def times(self, factor: float) -> Pair:
        """The pair (√factor u, √factor v)."""
        given = None if self.given is None else factor * self.given
        return Pair(factor * self.A, factor * self.B, factor * self.excess, factor * self.product, given)

    def at(self, chosen: Tensor) -> Pair:
        """The pairs where `chosen` is true, as vectors."""
        A, B, excess, product = (t.expand_as(chosen)[chosen] for t in (self.A, self.B, self.excess, self.product))
        return Pair(A, B, excess, product, None if self.given is None else self.given.expand_as(chosen)[chosen])

    @cached_property
    def triangle(self) -> Triangle:
        return resolved(self.A, self.B, self.excess) if self.given is None else triangle(self.A, self.B, self.given)

    @property
    def distance(self) -> Tensor:
        """D = E (u-v)²."""
        return self.triangle.gap.square() + self.excess if self.given is None else self.given

    @property
    def opposite(self) -> Tensor:
        """E (u+v)²."""
        if self.given is not None:
            return opposite(self.A, self.B, self.given).clamp(min=0)
        shape = self.triangle
        return shape.gap.square() + 4 * shape.a * shape.b * shape.p

    @property
    def gram(self) -> Tensor:
        """(AB - P²) / ((1+A)(1+B)), between 0 and 1."""
        if self.given is not None:
            return gram(self.A, self.B, self.given)
        return 4 * (self.A / (1 + self.A)) * (self.B / (1 + self.B)) * self.triangle.p * self.triangle.q


@dataclass(frozen=True, eq=False)
class PairValue:
    """Excess and product of (f(u), f(v)); what is not exact tells its error to whoever listens."""

    excess: Tensor
    product: Tensor

    @classmethod
    def of_distance(cls, distance: Tensor, a: Tensor, b: Tensor) -> PairValue:
        """Where E (f(u)-f(v))² is all that is known; its error counts relative to the larger norm."""
        excess = torch.minimum((distance - (a - b).square()).clamp_min(0), 4 * a * b)
        return cls(excess, a * b - excess / 2)


class Dual(ABC):
    """The dual map of an activation; A = E u², B = E v², D = E (u-v)² are broadcast tensors of one dtype."""

    rung: str = "closed form"
    wide: bool = True
    """Whether the arithmetic wants float64 whatever the dtype of the question."""

    @abstractmethod
    def second_moment(self, A: Tensor) -> Tensor:
        """E f(u)²."""

    @abstractmethod
    def mean(self, A: Tensor) -> Tensor:
        """E f(u)."""

    @abstractmethod
    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        """E (f(u) - f(v))²."""

    @abstractmethod
    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        """E f(u) f(v)."""

    @abstractmethod
    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        """E f'(u) f'(v) = ∂ E f(u) f(v) / ∂ E uv."""

    def carry(self, pair: Pair, a: Tensor, b: Tensor) -> PairValue:
        """Excess and product of (f(u), f(v)), with a = √E f(u)² and b = √E f(v)².

        The distance knows small excesses, the product large ones; the distance costs more, so only where it is wanted.
        """
        direct = self.defect(2 * pair.triangle.q)  # of f(cz) = c^k f(z): the norms do not matter
        product = self.product_of(pair)
        both = a * b
        if direct is not None:
            return PairValue(2 * both * direct, product)
        excess = 2 * (both - product)
        close = ~(excess > _CLOSE * both)
        count = int(close.sum())
        if 4 * count > close.numel():
            distance = self.distance_of(pair)
            excess = torch.where(close & (distance < both), distance - (a - b).square(), excess)
        elif count:
            first, second = (t.expand_as(close)[close] for t in (a, b))
            distance = self.distance_of(pair.at(close))
            excess[close] = torch.where(distance < first * second, distance - (first - second).square(), excess[close])
        return PairValue(torch.minimum(excess.clamp_min(0), 4 * both), product)

    def distance_of(self, pair: Pair) -> Tensor:
        """E (f(u) - f(v))² of the pair."""
        return self.distance(pair.A, pair.B, pair.distance)

    def product_of(self, pair: Pair) -> Tensor:
        """E f(u) f(v) of the pair."""
        return self.product(pair.A, pair.B, pair.distance)

    def slopes(self, pair: Pair) -> Tensor:
        """E f'(u) f'(v) of the pair, f' taken where it exists: what a tangent kernel is multiplied by.

        Unlike `derivative_product`, which is the slope of the product, it does not know of jumps: gradients do not either.
        """
        return self.derivative_product(pair.A, pair.B, pair.distance)

    def derivative_second_moment(self, A: Tensor) -> Tensor:
        """E f'(u)²."""
        return self.derivative_product(A, A, torch.zeros_like(A))

    def defect(self, d: Tensor) -> Tensor | None:
        """1 - E f(u) f(v) / E f(u)² at unit variances and correlation 1 - d, where the form has a direct expression."""
        return None

    def evaluate(self, A: Tensor, B: Tensor, D: Tensor) -> DualValue:
        """Distance, product, error and rung; a closed form's error is rounding."""
        distance = self.distance(A, B, D)
        return DualValue(distance, self.product(A, B, D), distance * (16 * torch.finfo(distance.dtype).eps), self.rung)


class PairDual(Dual):
    """A closed form in the norms, the product and the angle, whatever they are known from."""

    @abstractmethod
    def distance_of(self, pair: Pair) -> Tensor: ...

    @abstractmethod
    def product_of(self, pair: Pair) -> Tensor: ...

    @abstractmethod
    def slopes(self, pair: Pair) -> Tensor: ...

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return self.distance_of(Pair.of(A, B, D))

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return self.product_of(Pair.of(A, B, D))

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return self.slopes(Pair.of(A, B, D))


def covariance(A: Tensor, B: Tensor, D: Tensor) -> Tensor:
    """c = E uv = (A + B - D) / 2."""
    return (A + B - D) / 2
