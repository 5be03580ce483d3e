"""Weight laws: how the weights of a layer are drawn, and the moments that this implies.

A law has two faces, like a layer: `sample` draws a weight tensor (out, in/groups, *kernel), `gain` and `taps` say what
the infinitely wide layer needs: fan_in · Var(w), and how the variance is spread over the taps of a filter.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Generator, Tensor

from initscope.errors import BadInput, NoExactForm

Fan = Literal["in", "out", "mean", "geometric", "none"]
HIGHEST_ORDER = 50  # of moments; those of much higher order leave the range of floating-point numbers


@dataclass(frozen=True)
class Fans:
    """Connections of a layer: `taps` filter positions, `inputs` and `outputs` channels seen by one weight group."""

    inputs: int
    outputs: int
    taps: int = 1

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "taps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput("fans", f"{name} is {value!r}, expected a whole number from 1 on", f"pass {name} >= 1")

    @property
    def fan_in(self) -> int:
        return self.inputs * self.taps

    @property
    def fan_out(self) -> int:
        return self.outputs * self.taps

    def count(self, fan: Fan) -> float:
        """Connections of that kind; "none" is 1, so that a law without a fan has an absolute variance.

        >>> Fans(inputs=3, outputs=64, taps=9).count("mean")
        301.5
        """
        check_fan("fans", fan)
        if fan == "none":
            return 1
        if fan == "mean":
            return (self.fan_in + self.fan_out) / 2
        if fan == "geometric":
            return math.sqrt(self.fan_in * self.fan_out)
        return self.fan_in if fan == "in" else self.fan_out


@dataclass(frozen=True)
class FilterMoments:
    """Half the absolute moments of one weight of an isotropic filter, k_m = ½ E|w|^m (DC Definition 1)."""

    k1: float
    k2: float
    k4: float

    @property
    def K1(self) -> float:  # noqa: N802 - the symbol of the paper
        """(k2 - k1²) / k1²: the variance of ReLU(w) relative to its squared mean."""
        return self.k2 / self.k1**2 - 1  # K_m = (k_2m - k_m²) / k_m², DC Definition 1

    @property
    def K2(self) -> float:  # noqa: N802 - the symbol of the paper
        """(k4 - k2²) / k2²: the variance of ReLU(w)² relative to its squared mean."""
        return self.k4 / self.k2**2 - 1


class WeightLaw(ABC):
    """A law of weights with zero mean."""

    name: str
    gaussian: bool  # each filter is exactly Gaussian at any width; otherwise units are Gaussian only as fan-in grows
    isotropic: ClassVar[bool] = False  # no direction is preferred: a rotated filter has the same law

    @abstractmethod
    def variance(self, fans: Fans) -> float:
        """Mean over the weights of Var(w)."""

    @abstractmethod
    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        """Weights of shape (out, in/groups, *kernel)."""

    def absolute_moment(self, order: int, fans: Fans) -> float:
        """Mean over the weights of E|w|^order, order a whole number from 1 to 50."""
        raise NoExactForm(self.name, "the absolute moments of this law are not known", "estimate them from `sample`")

    def moments(self, fans: Fans) -> FilterMoments:
        """k1, k2, k4 of DC Definition 1, which asks for an isotropic law; other laws raise NoExactForm."""
        if not self.isotropic:
            raise NoExactForm(
                self.name,
                "k1, k2, k4 (DC Definition 1) are defined for isotropic filters, and this law prefers some directions",
                "use Gaussian or Orthogonal weights, or absolute_moment for one weight by itself",
            )
        return FilterMoments(*(self.absolute_moment(m, fans) / 2 for m in (1, 2, 4)))

    def gain(self, fans: Fans) -> float:
        """By how much the layer multiplies the second moment of its units: fan_in · Var(w)."""
        return fans.fan_in * self.variance(fans)

    def taps(self, kernel: tuple[int, ...]) -> Tensor | None:
        """Covariance of the taps of one channel's filter, relative to Var(w).

        None: independent and equal; (taps,): variances of independent taps; (taps, taps): in general.
        """
        return None

    @property
    def centres_filters(self) -> bool:
        """Whether each whole filter (all taps, all channels) sums to zero."""
        return False


def normal_moment(order: int) -> float:
    """E|z|^m = 2^(m/2) Γ((m+1)/2) / √π of the standard normal law.

    >>> round(normal_moment(4), 12)
    3.0
    """
    return math.exp(order / 2 * math.log(2) + math.lgamma((order + 1) / 2)) / math.sqrt(math.pi)


def check_order(place: str, order: int) -> None:
    if isinstance(order, bool) or not isinstance(order, int) or not 1 <= order <= HIGHEST_ORDER:
        problem = f"order is {order!r}, expected a whole number from 1 to {HIGHEST_ORDER}"
        raise BadInput(place, problem, "pass for example 4")


def check_fan(place: str, fan: object) -> None:
    if fan not in get_args(Fan):
        raise BadInput(place, f"fan is {fan!r}", f"choose from {', '.join(get_args(Fan))}")


def check_positive(place: str, name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise BadInput(place, f"{name} is {value!r}, expected a positive number", f"pass {name} > 0")
