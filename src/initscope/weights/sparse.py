"""Weights most of which are zero."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from initscope.errors import BadInput
from initscope.weights.law import Fan, Fans, WeightLaw, check_fan, check_order, check_positive, normal_moment


@dataclass(frozen=True)
class Sparse(WeightLaw):
    """Normal weights, of which each input (each channel and tap of a filter) keeps those to a fixed number of random outputs.

    Of `out` outputs, z = ceil(sparsity · out) get a zero, as in torch.nn.init.sparse_; the others a normal weight whose variance
    makes Var(w) = scale / fan, zeros counted. `of_parent` is PyTorch's own convention, a given deviation before the zeros:
    then Var(w) = deviation² (out - z) / out.

    >>> Sparse(0.9).variance(Fans(inputs=100, outputs=50))
    0.02
    >>> round(Sparse.of_parent(0.9).variance(Fans(inputs=100, outputs=50)), 12)
    1e-05
    """

    sparsity: float = 0.9
    scale: float = 2.0
    fan: Fan = "in"
    before_zeros: bool = False  # scale / fan is the variance of the weights that are kept
    gaussian = False

    def __post_init__(self) -> None:
        bad = isinstance(self.sparsity, bool) or not isinstance(self.sparsity, int | float)
        if bad or not 0 <= self.sparsity < 1:
            raise BadInput(
                "Sparse", f"sparsity is {self.sparsity!r}, expected 0 <= sparsity < 1", "pass for example 0.9"
            )
        check_positive("Sparse", "scale", self.scale)
        check_fan("Sparse", self.fan)

    @classmethod
    def of_parent(cls, sparsity: float, deviation: float = 0.01) -> Sparse:
        """torch.nn.init.sparse_(w, sparsity, std=deviation), for filters too."""
        check_positive("Sparse", "deviation", deviation)
        return cls(sparsity, deviation * deviation, "none", before_zeros=True)

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"sparse({self.sparsity:g})"

    def zeros(self, outputs: int) -> int:
        """How many of the weights of one input are zero."""
        count = math.ceil(self.sparsity * outputs)
        if count == outputs:
            raise BadInput(
                self.name,
                f"of {outputs} weights of each input {count} would be zero, which leaves none",
                f"use more outputs, or sparsity <= {1 - 1 / outputs:g}",
            )
        return count

    def variance(self, fans: Fans) -> float:
        variance = self.scale / fans.count(self.fan)
        kept = self._kept(fans)
        return variance * kept if self.before_zeros else variance

    def absolute_moment(self, order: int, fans: Fans) -> float:
        check_order(self.name, order)
        kept = self._kept(fans)
        return float(kept * (self.variance(fans) / kept) ** (order / 2) * normal_moment(order))

    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        zeros, deviation = self.zeros(fans.outputs), math.sqrt(self.variance(fans) / self._kept(fans))
        blocks = (shape[0] // fans.outputs, fans.outputs, math.prod(shape[1:]))
        weights = torch.randn(blocks, generator=generator, dtype=dtype) * deviation
        order = torch.rand(blocks, generator=generator, dtype=torch.float64).argsort(1)  # a permutation of each column
        return weights.masked_fill(order < zeros, 0.0).reshape(shape)

    def _kept(self, fans: Fans) -> float:
        return (fans.outputs - self.zeros(fans.outputs)) / fans.outputs
