"""Gaussian filters whose taps depend on each other: filters that sum to zero, and any covariance of the taps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from initscope.errors import BadInput
from initscope.weights.law import Fans, WeightLaw, check_order, check_positive, normal_moment


@dataclass(frozen=True)
class ZeroSum(WeightLaw):
    """Gaussian filters conditioned on summing to zero: covariance `S = I - 11'/k` (JL §4.2).

    `over="filter"`: all taps and channels together, as in the paper; `over="channel"`: the taps of each channel.
    `scale` is the gain of the unconditioned filters.
    """

    scale: float = 2.0
    over: str = "filter"
    gaussian = True

    def __post_init__(self) -> None:
        check_positive("ZeroSum", "scale", self.scale)
        if self.over not in ("filter", "channel"):
            raise BadInput("ZeroSum", f"over is {self.over!r}", "use 'filter' or 'channel'")

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"zero_sum({self.over})"

    @property
    def centres_filters(self) -> bool:
        return self.over == "filter"

    def gain(self, fans: Fans) -> float:
        return self.scale  # of the unconditioned filter; the centring is taken off where the layer knows its inputs

    def variance(self, fans: Fans) -> float:
        size = fans.fan_in if self.over == "filter" else fans.taps
        return self.scale / fans.fan_in * (1 - 1 / size)

    def absolute_moment(self, order: int, fans: Fans) -> float:
        check_order(self.name, order)
        return float(self.variance(fans) ** (order / 2) * normal_moment(order))

    def taps(self, kernel: tuple[int, ...]) -> Tensor | None:
        if self.over == "filter":
            return None
        size = math.prod(kernel)
        return torch.eye(size, dtype=torch.float64) - 1 / size  # S = I - 11'/k

    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        weights = torch.randn(shape, generator=generator, dtype=dtype) * math.sqrt(self.scale / fans.fan_in)
        axes = tuple(range(1 if self.over == "filter" else 2, weights.ndim))
        return weights - weights.mean(axes, keepdim=True) if axes else weights


@dataclass(frozen=True, eq=False)
class TapCovariance(WeightLaw):
    """Gaussian filters whose taps have a given covariance `S` (taps, taps) in each channel, times scale / fan_in."""

    matrix: Tensor
    scale: float = 2.0
    gaussian = True
    name = "tap_covariance"

    def __post_init__(self) -> None:
        check_positive("TapCovariance", "scale", self.scale)
        m = self.matrix
        if m.ndim != 2 or m.shape[0] != m.shape[1]:
            raise BadInput("TapCovariance", f"got shape {tuple(m.shape)}", "pass a square (taps, taps) matrix")
        if not torch.allclose(m, m.T) or torch.linalg.eigvalsh(m.double())[0] < -1e-9 * m.diagonal().abs().max():
            raise BadInput("TapCovariance", "the matrix is no covariance", "pass a symmetric positive semidefinite one")

    def variance(self, fans: Fans) -> float:
        return self.scale / fans.fan_in * float(self.matrix.diagonal().mean())

    def absolute_moment(self, order: int, fans: Fans) -> float:
        check_order(self.name, order)
        variances = self.scale / fans.fan_in * self.matrix.double().diagonal()
        return float((variances ** (order / 2)).mean()) * normal_moment(order)

    def gain(self, fans: Fans) -> float:
        return self.scale

    def taps(self, kernel: tuple[int, ...]) -> Tensor:
        if len(self.matrix) != math.prod(kernel):
            raise BadInput(
                "TapCovariance",
                f"the matrix has {len(self.matrix)} taps, the {'x'.join(map(str, kernel))} filter {math.prod(kernel)}",
                "pass a matrix of the filter's size",
            )
        return self.matrix.double()

    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        values, vectors = torch.linalg.eigh(self.matrix.double())
        root = vectors * values.clamp_min(0).sqrt()
        noise = torch.randn(*shape[:2], fans.taps, generator=generator, dtype=torch.float64)
        weights: Tensor = (noise @ root.T * math.sqrt(self.scale / fans.fan_in)).reshape(shape).to(dtype)
        return weights
