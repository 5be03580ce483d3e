"""What every rung of the ladder answers: the moments of f(u), f(v) for a zero-mean Gaussian pair (u, v)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class DualValue:
    """The answer to one question about (A, B, D), each tensor of the broadcast shape.

    `error` estimates the absolute error of `distance` (a standard error on the Monte Carlo rung).
    """

    distance: Tensor
    product: Tensor
    error: Tensor
    rung: str


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


def covariance(A: Tensor, B: Tensor, D: Tensor) -> Tensor:
    """c = E uv = (A + B - D) / 2."""
    return (A + B - D) / 2
