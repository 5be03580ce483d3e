"""Orthogonal filters: the whole weight matrix, or the centre tap."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.special import poch
from torch import Generator, Tensor

from initscope.weights.law import Fans, WeightLaw, check_order, check_positive


@dataclass(frozen=True)
class Orthogonal(WeightLaw):
    """A uniformly random (semi-)orthogonal matrix (out, fan_in), times sqrt(scale): rows or columns orthonormal.

    A row is isotropic: w²/scale ~ Beta(1/2, (d-1)/2) with d the larger of out and fan_in. Rows depend on each other.

    >>> round(Orthogonal(1.0).moments(Fans(inputs=4, outputs=4)).k4, 12)  # ½ · 3 / (d (d + 2))
    0.0625
    """

    scale: float = 2.0
    gaussian = False
    isotropic = True
    name = "orthogonal"

    def __post_init__(self) -> None:
        check_positive("Orthogonal", "scale", self.scale)

    def variance(self, fans: Fans) -> float:
        return self.scale / max(fans.fan_in, fans.outputs)

    def absolute_moment(self, order: int, fans: Fans) -> float:
        check_order(self.name, order)
        return float(self.scale ** (order / 2) * _entry_moment(order, max(fans.fan_in, fans.outputs)))

    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        blocks = shape[0] // fans.outputs
        matrices = [_orthogonal(fans.outputs, fans.fan_in, generator) for _ in range(blocks)]
        return (torch.cat(matrices) * math.sqrt(self.scale)).reshape(shape).to(dtype)


@dataclass(frozen=True)
class DeltaOrthogonal(WeightLaw):
    """A random orthogonal matrix over channels at the centre tap, zeros at the others (Xiao et al. 2018)."""

    scale: float = 2.0
    gaussian = False
    name = "delta_orthogonal"

    def __post_init__(self) -> None:
        check_positive("DeltaOrthogonal", "scale", self.scale)

    def variance(self, fans: Fans) -> float:
        return self.scale / max(fans.inputs, fans.outputs) / fans.taps

    def absolute_moment(self, order: int, fans: Fans) -> float:
        check_order(self.name, order)
        entry = _entry_moment(order, max(fans.inputs, fans.outputs))
        return float(self.scale ** (order / 2) * entry / fans.taps)  # one tap in `taps` is not zero

    def taps(self, kernel: tuple[int, ...]) -> Tensor:
        weights = torch.zeros(kernel, dtype=torch.float64)
        weights[tuple((k - 1) // 2 for k in kernel)] = math.prod(kernel)
        return weights.flatten()

    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        weights = torch.zeros(shape, dtype=dtype)
        blocks = shape[0] // fans.outputs
        matrices = [_orthogonal(fans.outputs, fans.inputs, generator) for _ in range(blocks)]
        matrix = torch.cat(matrices).to(dtype) * math.sqrt(self.scale)
        if len(shape) == 2:
            return matrix
        centre = [slice((k - 1) // 2, (k - 1) // 2 + 1) for k in shape[2:]]
        weights[(slice(None), slice(None), *centre)] = matrix[(..., *(None,) * len(centre))]
        return weights


def _entry_moment(order: int, size: int) -> float:
    """E|q|^m = Γ((m+1)/2) Γ(d/2) / (√π Γ((d+m)/2)) for an entry q of a uniformly random orthogonal matrix of size d."""
    # Pochhammer's symbol (d/2)_(m/2) = Γ((d+m)/2) / Γ(d/2) keeps its digits where the gammas are huge.
    return math.gamma((order + 1) / 2) / (math.sqrt(math.pi) * float(poch(size / 2, order / 2)))


def _orthogonal(rows: int, columns: int, generator: Generator) -> Tensor:
    """Haar-random with orthonormal rows or columns, whichever are fewer."""
    tall = torch.randn(max(rows, columns), min(rows, columns), generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(tall)
    q = q * r.diagonal().sign()
    result: Tensor = q if rows >= columns else q.T
    return result
