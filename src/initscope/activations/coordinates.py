"""The coordinates in which a Gaussian pair is integrated.

The pair is written as u = a (C x + S y), v = σ b (C x - S y) with independent standard normal x, y, where
C = cos h >= S = sin h and h is half the acute angle between u and ±v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.activations.triangle import triangle


@dataclass(frozen=True, eq=False)
class Plane:
    """The coordinates of n states: every field has shape (n,), `gap` = a - σb relatively accurate."""

    a: Tensor
    b: Tensor
    gap: Tensor
    C: Tensor
    S: Tensor
    sign: Tensor

    @classmethod
    def of(cls, A: Tensor, B: Tensor, D: Tensor) -> Plane:
        shape = triangle(A, B, D)
        aligned = shape.q <= shape.p
        C, S = torch.maximum(shape.p, shape.q).sqrt(), torch.minimum(shape.p, shape.q).sqrt()
        gap = torch.where(aligned, shape.gap, shape.a + shape.b)
        return cls(shape.a, shape.b, gap, C, S, torch.where(aligned, 1.0, -1.0).to(A.dtype))

    @classmethod
    def at_angle(cls, a: Tensor, b: Tensor, t: Tensor) -> Plane:
        """From norms and the angle, where D would round a small angle away."""
        half = t / 2
        aligned = half <= math.pi / 4
        C, S = torch.maximum(half.cos(), half.sin()), torch.minimum(half.cos(), half.sin()).clamp(min=0)
        return cls(a, b, torch.where(aligned, a - b, a + b), C, S, torch.where(aligned, 1.0, -1.0).to(a.dtype))

    def __getitem__(self, index: Tensor | slice) -> Plane:
        return Plane(*(field[index] for field in (self.a, self.b, self.gap, self.C, self.S, self.sign)))

    def __len__(self) -> int:
        return len(self.a)

    def points(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """u, v and u - v at the nodes x, y of shape (n, ...)."""
        column = (-1,) + (1,) * (max(x.dim(), y.dim()) - 1)
        a, b, gap, C, S, sign = (f.view(column) for f in (self.a, self.b, self.gap, self.C, self.S, self.sign))
        along, across = C * x, S * y
        other = torch.where(sign > 0, a + b, a - b)
        return a * (along + across), sign * b * (along - across), gap * along + other * across
