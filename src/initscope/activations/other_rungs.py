"""The two outer rungs of the ladder: a dual that the user gives, and Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.activations.coordinates import Plane
from initscope.activations.dual import Dual, DualValue, Function, Pair, PairValue
from initscope.activations.evidence import heard, tell
from initscope.activations.quadrature import QuadratureDual

Distance = Callable[[Tensor, Tensor, Tensor], Tensor]

_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class OwnDual(Dual):
    """The user's own E (f(u)-f(v))²; what that does not determine comes from the quadrature."""

    own: Distance
    helper: QuadratureDual
    rung = "own dual"

    def second_moment(self, A: Tensor) -> Tensor:
        return self.helper.second_moment(A)

    def mean(self, A: Tensor) -> Tensor:
        return self.helper.mean(A)

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        value = self.own(A, B, D)
        tell(self.rung, torch.zeros_like(value), value)  # as exact as its author says
        return value

    def carry(self, pair: Pair, a: Tensor, b: Tensor) -> PairValue:
        return PairValue.of_distance(self.distance(pair.A, pair.B, pair.distance), a, b)

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return (self.second_moment(A) + self.second_moment(B) - self.distance(A, B, D)) / 2

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return self.helper.derivative_product(A, B, D)

    def slopes(self, pair: Pair) -> Tensor:
        return self.helper.slopes(pair)

    def derivative_second_moment(self, A: Tensor) -> Tensor:
        return self.helper.derivative_second_moment(A)


@dataclass(frozen=True, eq=False)
class MonteCarloDual(Dual):
    """Averages over `samples` antithetic pairs of draws, the same for every state; the error is the standard error."""

    fn: Function
    slope: Function
    samples: int
    seed: int
    rung = "monte carlo"

    def second_moment(self, A: Tensor) -> Tensor:
        return self._told(lambda u, v, _: self.fn(u) ** 2, self.fn, A, A, torch.zeros_like(A))[0]

    def mean(self, A: Tensor) -> Tensor:
        return self._average(lambda u, v, _: self.fn(u), A, A, torch.zeros_like(A))[0]

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return self._distance(A, B, D)[0]

    def _distance(self, A: Tensor, B: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
        return self._told(lambda u, v, _: (self.fn(u) - self.fn(v)) ** 2, self.fn, A, B, D)

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return self._told(lambda u, v, _: self.fn(u) * self.fn(v), self.fn, A, B, D)[0]

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        return self._told(lambda u, v, _: self.slope(u) * self.slope(v), self.slope, A, B, D)[0]

    def evaluate(self, A: Tensor, B: Tensor, D: Tensor) -> DualValue:
        distance, error = self._distance(A, B, D)
        return DualValue(distance, self.product(A, B, D), error, self.rung)

    def _told(self, kernel: Distance, f: Function, A: Tensor, B: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
        """The average, its error told beside the roots of E f(u)² and E f(v)²."""
        value, error = self._average(kernel, A, B, D)
        if heard():
            squares = [self._average(lambda u, v, _: f(u) ** 2, x, x, torch.zeros_like(x))[0] for x in (A, B)]
            tell(self.rung, error, (squares[0] * squares[1]).sqrt())
        return value, error

    def _average(self, kernel: Distance, A: Tensor, B: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard error of the kernel, the mean of each antithetic pair counted as one draw."""
        generator = torch.Generator().manual_seed(self.seed)
        x, y = torch.randn(2, 1, self.samples, generator=generator, dtype=torch.float64).to(A.device)
        plane = Plane.of(A.flatten(), B.flatten(), D.flatten())
        step = max(1, _CHUNK // self.samples)
        means, errors = [], []
        for start in range(0, len(plane), step):
            u, v, gap = plane[slice(start, start + step)].points(x, y)
            draws = (kernel(u, v, gap) + kernel(-u, -v, -gap)) / 2
            means.append(draws.mean(-1))
            errors.append(draws.std(-1) / math.sqrt(self.samples))
        if not means:
            return torch.zeros_like(A), torch.zeros_like(A)
        return torch.cat(means).view(A.shape), torch.cat(errors).view(A.shape)
