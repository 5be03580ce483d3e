"""Laws of independent, identically distributed weights: one shape each, and a variance of scale / fan."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from scipy.special import gammainc, zeta
from torch import Generator, Tensor

from initscope.errors import BadInput
from initscope.weights.law import Fan, Fans, WeightLaw, check_fan, check_order, check_positive, normal_moment

_SMALLEST_CUT = 1e-3  # below it the law is uniform to seven digits


@dataclass(frozen=True)
class Independent(WeightLaw):
    """Independent weights w = σz with σ² = scale / fan and z of zero mean and unit variance: the subclass gives z its law.

    fan="none" makes `scale` the variance itself. The same laws serve as laws of biases.
    """

    scale: float = 2.0
    fan: Fan = "in"
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        check_positive(type(self).__name__, "scale", self.scale)
        check_fan(type(self).__name__, self.fan)

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.kind}({self.scale:g}{'' if self.fan == 'none' else f'/fan_{self.fan}'})"

    def variance(self, fans: Fans) -> float:
        return self.scale / fans.count(self.fan)

    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        return self.standard(shape, generator, dtype) * math.sqrt(self.variance(fans))

    @abstractmethod
    def standard(self, shape: tuple[int, ...], generator: Generator, dtype: torch.dtype) -> Tensor:
        """Draws of z."""

    @abstractmethod
    def standard_moment(self, order: int) -> float:
        """E|z|^order."""

    def absolute_moment(self, order: int, fans: Fans) -> float:
        check_order(self.name, order)
        return float(self.variance(fans) ** (order / 2) * self.standard_moment(order))

    @property
    def excess_kurtosis(self) -> float:
        """E z⁴ - 3: zero for a Gaussian, negative for flatter laws, positive for heavier tails."""
        return self.standard_moment(4) - 3


@dataclass(frozen=True)
class Gaussian(Independent):
    """Independent normal weights, Var(w) = scale / fan.

    `Gaussian(2.0)` is He's law, `Gaussian(1.0)` LeCun's, `Gaussian(1.0, fan="mean")` Glorot's.

    >>> Gaussian(2.0).variance(Fans(inputs=100, outputs=50))
    0.02
    >>> round(Gaussian(2.0).moments(Fans(100, 50)).K1, 6) == round(math.pi - 1, 6)
    True
    """

    kind = "gaussian"
    gaussian = True
    isotropic = True

    @classmethod
    def of_deviation(cls, sigma: float) -> Gaussian:
        """Standard deviation sigma, whatever the fan.

        >>> Gaussian.of_deviation(0.02).variance(Fans(768, 768))
        0.0004
        """
        check_positive("Gaussian", "sigma", sigma)
        return cls(sigma * sigma, "none")

    def standard(self, shape: tuple[int, ...], generator: Generator, dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    def standard_moment(self, order: int) -> float:
        return normal_moment(order)

    @property
    def excess_kurtosis(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Uniform(Independent):
    """Independent uniform weights, Var(w) = scale / fan; `Uniform(1/3)` is PyTorch's default of conv and linear layers."""

    kind = "uniform"
    gaussian = False

    @classmethod
    def of_bound(cls, bound: float) -> Uniform:
        """Uniform on [-bound, bound], whatever the fan: Var(w) = bound²/3."""
        check_positive("Uniform", "bound", bound)
        return cls(bound * bound / 3, "none")

    def standard(self, shape: tuple[int, ...], generator: Generator, dtype: torch.dtype) -> Tensor:
        return (torch.rand(shape, generator=generator, dtype=dtype) * 2 - 1) * math.sqrt(3)

    def standard_moment(self, order: int) -> float:
        return float(3 ** (order / 2) / (order + 1))


@dataclass(frozen=True)
class Logistic(Independent):
    """Independent logistic weights, Var(w) = scale / fan: near the normal law in shape, with heavier tails."""

    kind = "logistic"
    gaussian = False

    @classmethod
    def of_width(cls, width: float) -> Logistic:
        """Density exp(-w/s) / (s (1 + exp(-w/s))²) with s = width, whatever the fan: Var(w) = π² s²/3."""
        check_positive("Logistic", "width", width)
        return cls(math.pi**2 * width * width / 3, "none")

    def standard(self, shape: tuple[int, ...], generator: Generator, dtype: torch.dtype) -> Tensor:
        one, two = (_exponential(shape, generator) for _ in range(2))
        return ((one / two).log() * (math.sqrt(3) / math.pi)).to(dtype)

    def standard_moment(self, order: int) -> float:
        eta = math.log(2) if order == 1 else (1 - 2.0 ** (1 - order)) * float(zeta(order))  # Σ (-1)^(k-1) / k^m
        return float((math.sqrt(3) / math.pi) ** order * 2 * math.gamma(order + 1) * eta)


@dataclass(frozen=True)
class Laplace(Independent):
    """Independent Laplace weights, Var(w) = scale / fan: more weights near zero, and heavier tails."""

    kind = "laplace"
    gaussian = False

    @classmethod
    def of_width(cls, width: float) -> Laplace:
        """Density exp(-|w|/λ) / 2λ with λ = width, whatever the fan: Var(w) = 2λ²."""
        check_positive("Laplace", "width", width)
        return cls(2 * width * width, "none")

    def standard(self, shape: tuple[int, ...], generator: Generator, dtype: torch.dtype) -> Tensor:
        one, two = (_exponential(shape, generator) for _ in range(2))
        return ((one - two) / math.sqrt(2)).to(dtype)

    def standard_moment(self, order: int) -> float:
        return float(math.gamma(order + 1) / 2 ** (order / 2))


@dataclass(frozen=True)
class TruncatedNormal(Independent):
    """Independent normal weights without their tails beyond ±`cut` deviations, rescaled so that Var(w) = scale / fan exactly.

    Rescaling is what TensorFlow's and JAX's variance scaling does, with cut = 2. `of_parent` has the other convention,
    that of torch.nn.init.trunc_normal_: the deviation is that of the normal law before the cut, the bounds are absolute.

    >>> TruncatedNormal(2.0).variance(Fans(100, 50))
    0.02
    """

    cut: float = 2.0
    kind = "truncated"
    gaussian = False

    def __post_init__(self) -> None:
        check_positive("TruncatedNormal", "scale", self.scale)
        check_fan("TruncatedNormal", self.fan)
        _check_cut(self.cut)

    @classmethod
    def of_parent(cls, deviation: float, bound: float = 2.0) -> TruncatedNormal:
        """A normal law of that deviation cut off at ±bound: torch.nn.init.trunc_normal_(w, std=deviation, a=-bound, b=bound).

        >>> law = TruncatedNormal.of_parent(1.0, bound=2.0)
        >>> round(law.variance(Fans(1, 1)), 6)
        0.773741
        """
        check_positive("TruncatedNormal", "deviation", deviation)
        check_positive("TruncatedNormal", "bound", bound)
        cut = bound / deviation
        _check_cut(cut)
        return cls(deviation * deviation * _cut_moment(2, cut), "none", cut)

    def standard(self, shape: tuple[int, ...], generator: Generator, dtype: torch.dtype) -> Tensor:
        inside = math.erf(self.cut / math.sqrt(2))  # the share of the parent that is kept
        level = (torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1) * inside
        parent = (torch.erfinv(level) * math.sqrt(2)).clamp(-self.cut, self.cut)
        return (parent / math.sqrt(_cut_moment(2, self.cut))).to(dtype)

    def standard_moment(self, order: int) -> float:
        return float(_cut_moment(order, self.cut) / _cut_moment(2, self.cut) ** (order / 2))


def _check_cut(cut: float) -> None:
    check_positive("TruncatedNormal", "cut", cut)
    if cut < _SMALLEST_CUT:
        problem = f"the cut is at {cut:g} deviations, expected at least {_SMALLEST_CUT:g}"
        raise BadInput("TruncatedNormal", problem, "use Uniform, which it hardly differs from")


def _cut_moment(order: int, cut: float) -> float:
    """E|z|^m of the standard normal law given |z| < c: its moment times P((m+1)/2, c²/2) / P(1/2, c²/2).

    P is the regularised lower incomplete gamma function; the ratio keeps its digits for small c, where 1 - 2cφ(c)/erf(c/√2),
    the same number for m = 2, loses them.
    """
    half = cut * cut / 2
    return normal_moment(order) * float(gammainc((order + 1) / 2, half) / gammainc(0.5, half))


def _exponential(shape: tuple[int, ...], generator: Generator) -> Tensor:
    """Always positive, so that logarithms and quotients are finite."""
    return torch.empty(shape, dtype=torch.float64).exponential_(generator=generator)
