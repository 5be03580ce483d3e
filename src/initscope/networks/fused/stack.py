"""What a stack of convolutions and leaky ReLUs is, what it does to norms, and the numbers its layers give to the loops.

Per-unit second moments: with `A_p` the mean over channels of `x_p²`, a layer does `A' = g mean_taps A + beta` and then
`A'' = (1 + s²)/2 A'`. A pair travels as X, either the product `E[uv]` or the squared distance `E(u - v)²`; both obey

    v = scale * sum_taps X + shift,    X' = alpha v + gamma |a||b| psi(u),
    u = centre + slope (v - chord (|a|-|b|)²) / (|a||b|)

    product:  u = (1 + rho)/2,                             alpha = s,          gamma = (1-s)²/2,  shift = beta
    distance: u = sin²(t/2) = (D - (|a|-|b|)²)/(4|a||b|),  alpha = (1+s²)/2,   gamma = -(1-s)²,   shift = 0

because leaky ReLU is `s x + (1-s) relu(x)`, `E[relu relu'] = |a||b| rhat/2` and `rhat = psi((1 + rho)/2)`. Each
quantity is carried in the form in which it keeps its own relative accuracy: the distance never by subtracting products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.errors import BadInput

PADDINGS = ("valid", "zero", "circular", "reflect")  # the position in this tuple is the code used by the compiled loops


NORM_IMAGES = 16


@dataclass(frozen=True)
class ConvStack:
    """Convolutions with stride 1, each followed by leaky ReLU; one entry per layer in every tuple.

    kernels: side of the square filter; gains: fan-in times weight variance (He: 2); biases: bias variance;
    slopes: of the negative side (0 ReLU, 1 identity); padding: "zero", "circular", "reflect" (same size) or "valid".

    >>> ConvStack(kernels=(3, 3), gains=(2.0, 2.0), biases=(0.0, 0.0), slopes=(0.0, 0.0), padding="valid").sizes(32, 20)
    ((30, 18), (28, 16))
    """

    kernels: tuple[int, ...]
    gains: tuple[float, ...]
    biases: tuple[float, ...]
    slopes: tuple[float, ...]
    padding: str

    def __post_init__(self) -> None:
        check_layers(self.gains, self.biases, self.slopes, len(self.kernels))
        if self.padding not in PADDINGS:
            raise BadInput("ConvStack", f"padding {self.padding!r}", f"use one of {', '.join(PADDINGS)}")
        for layer, kernel in enumerate(self.kernels):
            if kernel < 1 or (kernel % 2 == 0 and self.padding != "valid"):
                raise BadInput(f"ConvStack layer {layer}", f"kernel {kernel}", "use an odd size, or padding='valid'")

    @property
    def border(self) -> int:
        """Widest padding of any layer, in positions."""
        return 0 if self.padding == "valid" else max(self.kernels) // 2

    def sizes(self, height: int, width: int) -> tuple[tuple[int, int], ...]:
        """Height and width after each layer; raises BadInput where a layer does not fit."""
        sizes = []
        for layer, kernel in enumerate(self.kernels):
            place = f"ConvStack layer {layer}"
            smallest = min(height, width)
            if self.padding == "valid":
                if kernel > smallest:
                    problem = f"kernel {kernel}x{kernel} is larger than the {height}x{width} input"
                    raise BadInput(place, problem, "use padding='circular' or a smaller kernel")
                height, width = height - kernel + 1, width - kernel + 1
            elif self.padding == "reflect" and kernel // 2 >= smallest:
                problem = f"kernel {kernel}x{kernel} reflects further than the {height}x{width} input"
                raise BadInput(place, problem, "use padding='circular' or a smaller kernel")
            sizes.append((height, width))
        return tuple(sizes)


def check_layers(gains: tuple[float, ...], biases: tuple[float, ...], slopes: tuple[float, ...], count: int) -> None:
    """One finite number per layer, gains and bias variances not negative."""
    lengths = (len(gains), len(biases), len(slopes))
    if count < 1 or lengths != (count, count, count):
        problem = f"{count} layers but {lengths[0]} gains, {lengths[1]} biases, {lengths[2]} slopes"
        raise BadInput("layers", problem, "give one entry per layer and at least one layer")
    for layer, (gain, bias, slope) in enumerate(zip(gains, biases, slopes, strict=True)):
        if not (gain >= 0 and bias >= 0 and all(map(math.isfinite, (gain, bias, slope)))):
            problem = f"gain {gain}, bias variance {bias}, slope {slope}"
            raise BadInput(f"layer {layer}", problem, "gain and bias variance must be finite and not negative")


@dataclass(frozen=True)
class Law:
    """The numbers of one layer for one quantity; the formulas are at the top of this file."""

    scale: float
    shift: float
    alpha: float
    gamma: float
    centre: float
    slope: float
    chord: float


@dataclass(frozen=True)
class Own:
    """What one layer's weights and biases add to the tangent kernel where they act: `factor v + offset`, v the covariance."""

    factor: float = 1.0
    offset: float = 0.0


def make_laws(
    gains: tuple[float, ...],
    biases: tuple[float, ...],
    slopes: tuple[float, ...],
    fans: tuple[int, ...],
    distance: bool,
) -> tuple[Law, ...]:
    """One Law per layer; fans: how many terms the layer's plain sum has (taps, and channels in the first layer)."""
    laws = []
    for gain, bias, s, fan in zip(gains, biases, slopes, fans, strict=True):
        if distance:
            laws.append(Law(gain / fan, 0.0, (1 + s * s) / 2, -((1 - s) ** 2), 0.0, 0.25, 1.0))
        else:
            laws.append(Law(gain / fan, bias, s, (1 - s) ** 2 / 2, 0.5, 0.5, 0.0))
    return tuple(laws)


def stack_laws(stack: ConvStack, channels: int, distance: bool) -> tuple[Law, ...]:
    """The laws of a convolutional stack on inputs with that many channels."""
    fans = tuple(k * k * (channels if layer == 0 else 1) for layer, k in enumerate(stack.kernels))
    return make_laws(stack.gains, stack.biases, stack.slopes, fans, distance)


def positions(size: int, border: int, padding: str) -> Tensor:
    """Index of the position that each padded place repeats: `size + 2 border` entries, circular or reflect."""
    index = torch.arange(-border, size + border)
    if padding == "circular":
        return index % size
    return (size - 1) - ((size - 1) - index.abs()).abs()


def pad_axis(x: Tensor, axis: int, border: int, padding: str) -> Tensor:
    """x with `border` more positions on both ends of one axis, any width of border for circular."""
    if border == 0 or padding == "valid":
        return x
    if padding == "zero":
        shape = list(x.shape)
        shape[axis] = border
        zeros = x.new_zeros(shape)
        return torch.cat([zeros, x, zeros], axis)
    return x.index_select(axis, positions(x.shape[axis], border, padding).to(x.device))


def pad(x: Tensor, border: int, padding: str) -> Tensor:
    """x (..., h, w) with `border` positions on each side."""
    return pad_axis(pad_axis(x, -2, border, padding), -1, border, padding)


def layer_norms(stack: ConvStack, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Squared norms after the last layer, |a| before each activation; x (n, c, h, w), each (n, h', w') in float64."""
    # A few images at a time: their float64 copies stay in the cache.
    square = torch.cat([part.double().square().mean(1) for part in torch.split(x, NORM_IMAGES)])
    norms = []
    for kernel, gain, bias, s in zip(stack.kernels, stack.gains, stack.biases, stack.slopes, strict=True):
        padded = pad(square, kernel // 2, stack.padding)
        square = gain * torch.nn.functional.avg_pool2d(padded.unsqueeze(1), kernel, stride=1).squeeze(1) + bias
        norms.append(square.sqrt())
        square = (1 + s * s) / 2 * square  # E f² of leaky ReLU
    return square, norms


def smallest_norm(dtype: torch.dtype) -> float:
    """|a| up to which its square is no normal number of its type: no angle there, no NaN."""
    return math.sqrt(torch.finfo(dtype).tiny)


def inverse(norm: Tensor) -> Tensor:
    """1/|a|, and 0 for the smallest norms."""
    return torch.where(norm > smallest_norm(norm.dtype), norm.reciprocal(), torch.zeros_like(norm))


def displacements(size: int, final: int, padding: str) -> list[tuple[int, int, int]]:
    """Every q - p along one axis as (start in x, start in y, length)."""
    if padding == "circular":
        return [(0, shift, size) for shift in range(size)]
    return [(max(0, -shift), max(0, shift), size - abs(shift)) for shift in range(1 - final, final)]


def lead(place: Any, count: int, padding: str) -> Any:
    """1 for a displacement that comes before its negation in `displacements`, -1 behind it, 0 for one that is its own.

    An image with itself has the same sum at both: they count `1 + lead` times.
    """
    return np.sign(((count - place) % count if padding == "circular" else count - 1 - place) - place)
