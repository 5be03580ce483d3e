"""Weight laws: how the weights of a layer are drawn, and the second moments that this implies.

A law has two faces, like a layer: `sample` draws a weight tensor (out, in/groups, *kernel), `gain` and `taps` say what
the infinitely wide layer needs: fan_in · Var(w), and how the variance is spread over the taps of a filter.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from initscope.errors import BadInput

Fan = Literal["in", "out", "mean", "geometric"]


@dataclass(frozen=True)
class Fans:
    """Connections of a layer: `taps` filter positions, `inputs` and `outputs` channels seen by one weight group."""

    inputs: int
    outputs: int
    taps: int = 1

    @property
    def fan_in(self) -> int:
        return self.inputs * self.taps

    @property
    def fan_out(self) -> int:
        return self.outputs * self.taps

    def count(self, fan: Fan) -> float:
        if fan == "in":
            return self.fan_in
        if fan == "out":
            return self.fan_out
        return (self.fan_in + self.fan_out) / 2 if fan == "mean" else math.sqrt(self.fan_in * self.fan_out)


class WeightLaw(ABC):
    """A law of weights with zero mean."""

    name: str
    gaussian: bool  # each filter is exactly Gaussian at any width; otherwise units are Gaussian only as fan-in grows

    @abstractmethod
    def variance(self, fans: Fans) -> float:
        """Mean over the weights of Var(w)."""

    @abstractmethod
    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        """Weights of shape (out, in/groups, *kernel)."""

    def gain(self, fans: Fans) -> float:
        """By how much the layer multiplies the second moment of its units: fan_in · Var(w)."""
        return fans.fan_in * self.variance(fans)

    def taps(self, kernel: tuple[int, int]) -> Tensor | None:
        """Covariance of the taps of one channel's filter, relative to Var(w).

        None: independent and equal; (taps,): variances of independent taps; (taps, taps): in general.
        """
        return None

    @property
    def centres_filters(self) -> bool:
        """Whether each whole filter (all taps, all channels) sums to zero."""
        return False


def check_positive(place: str, name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise BadInput(place, f"{name} is {value}, expected a positive number", f"pass {name} > 0")
