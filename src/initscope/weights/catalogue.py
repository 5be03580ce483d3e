"""The weight laws by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import Generator, Tensor

from initscope.errors import BadInput
from initscope.weights.law import Fan, Fans, WeightLaw, check_positive


@dataclass(frozen=True)
class Gaussian(WeightLaw):
    """Independent normal weights, Var(w) = gain / fan.

    `Gaussian(2.0)` is He's law, `Gaussian(1.0)` LeCun's, `Gaussian(1.0, fan="mean")` Glorot's.

    >>> Gaussian(2.0).variance(Fans(inputs=100, outputs=50))
    0.02
    """

    scale: float = 2.0
    fan: Fan = "in"
    gaussian = True

    def __post_init__(self) -> None:
        check_positive("Gaussian", "scale", self.scale)

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"gaussian({self.scale:g}/fan_{self.fan})"

    def variance(self, fans: Fans) -> float:
        return self.scale / fans.count(self.fan)

    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype) * math.sqrt(self.variance(fans))


@dataclass(frozen=True)
class Uniform(WeightLaw):
    """Independent uniform weights with Var(w) = scale / fan; `Uniform(1/3)` is PyTorch's default for conv and linear layers."""

    scale: float = 2.0
    fan: Fan = "in"
    gaussian = False

    def __post_init__(self) -> None:
        check_positive("Uniform", "scale", self.scale)

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"uniform({self.scale:g}/fan_{self.fan})"

    def variance(self, fans: Fans) -> float:
        return self.scale / fans.count(self.fan)

    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        bound = math.sqrt(3 * self.variance(fans))  # Var of U(-b, b) is b²/3
        return (torch.rand(shape, generator=generator, dtype=dtype) * 2 - 1) * bound


@dataclass(frozen=True)
class Orthogonal(WeightLaw):
    """A uniformly random (semi-)orthogonal matrix (out, fan_in), times sqrt(scale): rows or columns orthonormal."""

    scale: float = 2.0
    gaussian = False
    name = "orthogonal"

    def __post_init__(self) -> None:
        check_positive("Orthogonal", "scale", self.scale)

    def variance(self, fans: Fans) -> float:
        return self.scale / max(fans.fan_in, fans.outputs)

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

    def taps(self, kernel: tuple[int, int]) -> Tensor:
        weights = torch.zeros(kernel, dtype=torch.float64)
        weights[(kernel[0] - 1) // 2, (kernel[1] - 1) // 2] = kernel[0] * kernel[1]
        return weights.flatten()

    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        weights = torch.zeros(shape, dtype=dtype)
        blocks = shape[0] // fans.outputs
        matrices = [_orthogonal(fans.outputs, fans.inputs, generator) for _ in range(blocks)]
        matrix = torch.cat(matrices).to(dtype) * math.sqrt(self.scale)
        if len(shape) == 2:
            return matrix
        row, column = ((k - 1) // 2 for k in shape[2:])
        weights[:, :, row, column] = matrix
        return weights


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

    def taps(self, kernel: tuple[int, int]) -> Tensor | None:
        if self.over == "filter":
            return None
        size = kernel[0] * kernel[1]
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

    def gain(self, fans: Fans) -> float:
        return self.scale

    def taps(self, kernel: tuple[int, int]) -> Tensor:
        if len(self.matrix) != kernel[0] * kernel[1]:
            raise BadInput(
                "TapCovariance",
                f"the matrix has {len(self.matrix)} taps, the {kernel[0]}x{kernel[1]} filter {kernel[0] * kernel[1]}",
                "pass a matrix of the filter's size",
            )
        return self.matrix.double()

    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        values, vectors = torch.linalg.eigh(self.matrix.double())
        root = vectors * values.clamp_min(0).sqrt()
        noise = torch.randn(*shape[:2], fans.taps, generator=generator, dtype=torch.float64)
        weights: Tensor = (noise @ root.T * math.sqrt(self.scale / fans.fan_in)).reshape(shape).to(dtype)
        return weights


def _orthogonal(rows: int, columns: int, generator: Generator) -> Tensor:
    """Haar-random with orthonormal rows or columns, whichever are fewer."""
    tall = torch.randn(max(rows, columns), min(rows, columns), generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(tall)
    q = q * r.diagonal().sign()
    result: Tensor = q if rows >= columns else q.T
    return result


def He(fan: Fan = "in", gain: float = 2.0) -> Gaussian:  # noqa: N802 - reads as the law's name
    """He et al. 2015: Var(w) = 2 / fan keeps the norm through ReLU."""
    return Gaussian(gain, fan)


_BY_NAME: dict[str, Callable[[], WeightLaw]] = {
    "he": lambda: Gaussian(2.0),
    "he_fan_out": lambda: Gaussian(2.0, "out"),
    "he_geometric": lambda: Gaussian(2.0, "geometric"),
    "he_uniform": lambda: Uniform(2.0),
    "glorot": lambda: Gaussian(1.0, "mean"),
    "glorot_uniform": lambda: Uniform(1.0, "mean"),
    "lecun": lambda: Gaussian(1.0),
    "pytorch": lambda: Uniform(1 / 3),
    "orthogonal": lambda: Orthogonal(),
    "delta_orthogonal": lambda: DeltaOrthogonal(),
    "zero_sum": lambda: ZeroSum(),
    "zero_sum_channel": lambda: ZeroSum(over="channel"),
}


def by_name(name: str) -> WeightLaw:
    """The law called `name`.

    >>> by_name("lecun").gain(Fans(inputs=3, outputs=64, taps=9))
    1.0
    """
    if name not in _BY_NAME:
        near = get_close_matches(name, _BY_NAME, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else f"choose from {', '.join(sorted(_BY_NAME))}"
        raise BadInput("weights", f"unknown weight law {name!r}", hint)
    return _BY_NAME[name]()
