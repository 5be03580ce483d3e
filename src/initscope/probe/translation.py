"""From a traced call to the layer of initscope that has its theory, with the law of the weights that are really there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

import torch
from torch import Generator, Tensor

from initscope.layers import (
    Activate,
    AveragePool,
    Conv,
    Dense,
    GlobalAveragePool,
    GroupNorm,
    Layer,
    LayerNorm,
    MaxPool,
    Scale,
)
from initscope.layers.pooling import PoolPadding
from initscope.probe.arguments import Arguments, Unknown
from initscope.probe.elementwise import ELEMENTWISE, activation_of
from initscope.probe.trace import Call
from initscope.weights import Fans, WeightLaw

NOISE = 5.0  # standard errors by which the taps' variances must differ to count as different
ZERO_SUM = 1e-4  # a filter sums to zero if its sum is this small beside the root of its size times its spread


@dataclass(frozen=True, eq=False)
class MeasuredWeights(WeightLaw):
    """Weights known by their second moments: Var(w) and how it is spread over the taps, read off the tensor itself."""

    weight: Tensor  # (out, in/groups, *kernel), or (out, in)
    gaussian = True
    name = "measured"

    @cached_property
    def second_moment(self) -> float:
        rows = self.weight.detach().flatten(1)
        norms = torch.linalg.vector_norm(
            rows if rows.element_size() > 2 else rows.float(), dim=1
        )  # ten times faster than
        return float(norms.double().square().sum()) / max(rows.numel(), 1)  # all in float64, and right to 7 digits

    @cached_property
    def centres_filters(self) -> bool:
        rows = self.weight.detach().flatten(1)
        size = rows.shape[1]
        scale = math.sqrt(self.second_moment * size)
        if size < 2 or scale == 0 or float(rows[0].sum().abs()) >= ZERO_SUM * scale:
            return False  # one filter is enough to tell
        return float(rows.sum(1).abs().max()) < ZERO_SUM * scale

    @cached_property
    def tap_variances(self) -> Tensor | None:
        """Relative to their mean; None if they are equal but for sampling noise."""
        if self.weight.ndim < 3 or self.weight[0, 0].numel() == 1 or self.second_moment == 0 or self.centres_filters:
            return None
        weight = self.weight.detach().flatten(0, 1).flatten(1)
        weight = weight if weight.dtype == torch.float64 else weight.float()
        weight = weight / math.sqrt(self.second_moment)  # near 1: fourth powers stay in the range of float32
        square = weight.square_()
        count = len(square)
        mean = square.new_full((1, count), 1 / count)  # as a product: a sum along the first axis is slower
        each, fourth = (mean @ square).double()[0], (mean @ square.square_()).double()[0]
        noise = (fourth - each.square()).clamp_min(1e-300).div(count).sqrt()
        if bool(((each - each.mean()).abs() <= NOISE * noise.max()).all()):
            return None
        return each / each.mean()

    def variance(self, fans: Fans) -> float:
        return self.second_moment

    def taps(self, kernel: tuple[int, ...]) -> Tensor | None:
        return self.tap_variances

    def gain(self, fans: Fans) -> float:
        gain = fans.fan_in * self.second_moment
        return gain * fans.fan_in / (fans.fan_in - 1) if self.centres_filters else gain

    def sample(self, shape: tuple[int, ...], fans: Fans, generator: Generator, dtype: torch.dtype) -> Tensor:
        order = torch.randperm(self.weight.numel(), generator=generator)
        return self.weight.detach().flatten()[order].reshape(shape).to(dtype)


def layer_for(call: Call) -> Layer | None:
    """The layer whose theory describes the call; None if there is none.

    Sums and concatenations are no single layer: `theory` joins the states of their operands itself.
    """
    translate = _TABLE.get(call.function)
    if translate is None:
        return None
    try:
        return translate(Arguments(call))
    except Unknown:
        return None


def drops_units(call: Call) -> bool:
    """Whether a call of the kind "dropout" really drops any."""
    a = Arguments(call)
    return bool(a.get(2, "training", a.get(2, "train", True))) and float(a.get(1, "p", 0.5)) > 0


def _dense(a: Arguments) -> Layer:
    if len(a.input_shape) != 2:
        raise Unknown  # tokens: each position by itself
    weight = a.weight(1, "weight")
    return Dense(len(weight), weights=MeasuredWeights(weight), bias=a.bias(2, "bias"))


def _conv(a: Arguments) -> Layer:
    weight = a.weight(1, "weight")
    padding = a.get(4, "padding", 0)
    kernel = tuple(int(n) for n in weight.shape[2:])
    axes = len(kernel)
    if isinstance(padding, str):
        margin: tuple[int, ...] | None = None
        style = "zero" if padding == "same" else "valid"
    else:
        margin, style = a.sizes(4, "padding", 0, axes), "zero"
    return Conv(
        len(weight),
        kernel=kernel,
        stride=a.sizes(3, "stride", 1, axes),
        padding=style,  # type: ignore[arg-type]
        margin=margin,
        dilation=a.sizes(5, "dilation", 1, axes),
        groups=int(a.get(6, "groups", 1)),
        weights=MeasuredWeights(weight),
        bias=a.bias(2, "bias"),
    )


class _Window(TypedDict):
    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: PoolPadding
    margin: tuple[int, ...]


def _window(a: Arguments) -> _Window:
    axes = len(a.input_shape) - 2
    kernel = a.sizes(1, "kernel_size", 1, axes)
    stride, margin = a.sizes(2, "stride", kernel, axes), a.sizes(3, "padding", 0, axes)
    return {"window": kernel, "stride": stride, "padding": "zero", "margin": margin}


def _average_pool(a: Arguments) -> Layer:
    if a.get(4, "ceil_mode", False) or a.get(6, "divisor_override") is not None:
        raise Unknown
    return AveragePool(**_window(a), edges="count" if a.get(5, "count_include_pad", True) else "skip")


def _max_pool(a: Arguments) -> Layer:
    axes = len(a.input_shape) - 2
    if a.get(5, "ceil_mode", False) or a.sizes(4, "dilation", 1, axes) != (1,) * axes:
        raise Unknown
    return MaxPool(**_window(a))


def _global_mean(a: Arguments) -> Layer:
    axes, size = len(a.input_shape) - 2, a.get(1, "output_size")
    if axes < 1 or (tuple(size) if isinstance(size, Sequence) else (size,) * axes) not in ((1,), (1,) * axes):
        raise Unknown
    return GlobalAveragePool()


def _mean(a: Arguments) -> Layer:
    axes = a.get(1, "dim")
    size = len(a.input_shape)
    if size != 4 or not isinstance(axes, Sequence) or sorted(d % size for d in axes) != [2, 3]:
        raise Unknown
    return GlobalAveragePool()


def _layer_norm(a: Arguments) -> Layer:
    normalised = tuple(a.get(1, "normalized_shape"))
    if normalised != a.input_shape[1:] or not _plain(a, 2, 3):
        raise Unknown
    return LayerNorm(epsilon=float(a.get(4, "eps", 1e-5)))


def _group_norm(a: Arguments) -> Layer:
    if not _plain(a, 2, 3):
        raise Unknown
    return GroupNorm(int(a.get(1, "num_groups")), epsilon=float(a.get(4, "eps", 1e-5)))


def _plain(a: Arguments, weight: int, bias: int) -> bool:
    """Whether a normalisation's own scale and shift do nothing, as at initialization."""
    scale, shift = a.get(weight, "weight"), a.get(bias, "bias")
    same = scale is None or (isinstance(scale, Tensor) and bool((scale == 1).all()))
    return same and (shift is None or (isinstance(shift, Tensor) and bool((shift == 0).all())))


def _scale(a: Arguments) -> Layer:
    factor = a.get(1, "other")
    multiplies = a.call.function in ("mul", "imul", "rmul")
    if not isinstance(factor, int | float) or not math.isfinite(factor) or not (multiplies or factor):
        raise Unknown
    return Scale(float(factor) if multiplies else 1 / float(factor))


def _activation(a: Arguments) -> Layer:
    return Activate(activation_of(a))


_TABLE: dict[str, Callable[[Arguments], Layer]] = {
    "linear": _dense,
    **{
        f"{name}{axes}d": translate
        for axes in (1, 2, 3)
        for name, translate in (
            ("conv", _conv), ("avg_pool", _average_pool), ("max_pool", _max_pool), ("adaptive_avg_pool", _global_mean),
        )
    },
    "mean": _mean,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    **dict.fromkeys(("mul", "imul", "rmul", "div", "truediv"), _scale),
    **dict.fromkeys(ELEMENTWISE, _activation),
}  # fmt: skip
