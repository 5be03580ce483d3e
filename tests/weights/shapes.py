"""Weight shapes, draws of weights, and means judged by their standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.weights import Fans, WeightLaw

DRAWS = 400


@dataclass(frozen=True)
class Shape:
    """A layer's weights: `outputs` filters in `groups`, each over `inputs` channels of its group."""

    outputs: int
    inputs: int
    kernel: tuple[int, ...] = ()
    groups: int = 1

    @property
    def fans(self) -> Fans:
        return Fans(self.inputs, self.outputs // self.groups, math.prod(self.kernel))

    @property
    def weights(self) -> tuple[int, ...]:
        return (self.outputs, self.inputs, *self.kernel)

    def __str__(self) -> str:
        return f"{self.outputs}x{self.inputs}x{self.kernel}/{self.groups}"


DENSE = [Shape(24, 10), Shape(8, 20), Shape(12, 12)]
CONV = [
    Shape(24, 3, (2, 3)),
    Shape(24, 3, (3, 2), groups=3),
    Shape(6, 3, (3, 3)),
    Shape(12, 1, (3, 3), groups=12),
    Shape(12, 4, (1, 1), groups=2),
]


def draw(law: WeightLaw, shape: Shape, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return law.sample(shape.weights, shape.fans, torch.Generator().manual_seed(seed), dtype)


def draws(law: WeightLaw, shape: Shape, count: int = DRAWS) -> Tensor:
    """Independent weight tensors, (count, *shape), from one stream."""
    generator = torch.Generator().manual_seed(11)
    return torch.stack([law.sample(shape.weights, shape.fans, generator, torch.float64) for _ in range(count)])


def assert_mean(samples: Tensor, expected: Tensor | float, errors: float = 4) -> None:
    """The mean over the first axis agrees to within standard errors, or to rounding where nothing varies."""
    stderr = samples.std(0) / math.sqrt(len(samples))
    scale = samples.abs().amax()
    assert bool(((samples.mean(0) - expected).abs() <= errors * stderr + 1e-13 * scale).all())
