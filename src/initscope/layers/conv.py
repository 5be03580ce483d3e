"""Convolution along one, two or three axes, with any stride, dilation, groups, padding and covariance of the filter taps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import get_args

import torch
from torch import Generator, Tensor, nn

from initscope.errors import BadInput, NoExactForm
from initscope.geometry import Draw, Inputs, Pairs, State, draw_units, merge_kinds, regroup
from initscope.layers.biases import Bias, add_bias, add_drawn_bias, bias_law
from initscope.layers.filtering import Filtering
from initscope.layers.layer import (
    Shape,
    SingleLayer,
    Trace,
    require_number,
    require_positions,
    require_positive,
    require_weights,
)
from initscope.layers.shifts import Padding, Size, Window, axes_of, check_size, short_size, size_text, spread
from initscope.weights import Fans, He, Independent, WeightLaw

_CONVOLUTIONS = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}


@dataclass(frozen=True, repr=False)
class Conv(SingleLayer):
    """`channels` random filters (JL Theorem 1): A'_p = g · mean over taps of A_{p+tap} + β², P' likewise.

    Filters whose taps have covariance S use `<x_p, S y_p>` instead; zero-sum filters are S = I - 11'/k.
    A size that is one number holds along every position axis: the same layer filters sequences, images and volumes.
    `padding` keeps the image size ("circular", "zero", "reflect") or not ("valid"); `margin` sets the amount by hand.
    "same" adds zeros as TensorFlow does: ceil(size / stride) outputs, whatever the stride.
    `bias` is the standard deviation β of Gaussian biases, or a law of independent weights.
    """

    channels: int
    kernel: Size = 3
    stride: Size = 1
    padding: Padding = "circular"
    dilation: Size = 1
    groups: int = 1
    weights: WeightLaw = field(default_factory=He)
    bias: Bias = 0.0
    margin: Size | None = None

    def __post_init__(self) -> None:
        for name in ("kernel", "stride", "dilation"):
            for value in check_size("conv", name, getattr(self, name)):
                require_positive("conv", **{name: value})
        for value in () if self.margin is None else check_size("conv", "margin", self.margin):
            require_number("conv", margin=value)
        require_positive("conv", channels=self.channels, groups=self.groups)
        if self.padding not in get_args(Padding):
            raise BadInput("conv", f"padding is {self.padding!r}", f"choose from {', '.join(get_args(Padding))}")
        if self.channels % self.groups:
            raise BadInput("conv", f"{self.channels} channels do not split into {self.groups} groups", "use a divisor")
        if self.margin is not None and self.padding in ("valid", "same"):
            raise BadInput("conv", f"padding={self.padding!r} has no margin", "use another padding or no margin")
        bias_law("conv", self.bias)
        require_weights("conv", self.weights)
        self.weights.taps(self.window.kernel)

    @property
    def axes(self) -> int | None:
        """How many position axes the layer is written for; None: as many as the input has."""
        return axes_of("conv", kernel=self.kernel, stride=self.stride, dilation=self.dilation, margin=self.margin)

    def on(self, axes: int) -> Conv:
        """The layer for inputs with so many position axes, every size written out."""
        kernel, stride, dilation = (spread(size, axes) for size in (self.kernel, self.stride, self.dilation))
        margin = None if self.margin is None else spread(self.margin, axes)
        return replace(self, kernel=kernel, stride=stride, dilation=dilation, margin=margin)

    @property
    def word(self) -> str:
        return f"conv{short_size(self.kernel)}"

    @property
    def has_weights(self) -> bool:
        return True

    @property
    def bias_law(self) -> Independent | None:
        """The law that the biases are drawn from, None without biases."""
        return bias_law("conv", self.bias)

    @property
    def needs_all_positions(self) -> bool:
        taps = self.weights.taps(self.window.kernel)
        return taps is not None and taps.ndim == 2

    @property
    def window(self) -> Window:
        """On images where the sizes leave the number of axes open; `on` fixes it."""
        axes = self.axes or 2
        margin = None if self.margin is None else spread(self.margin, axes)
        kernel, stride, dilation = (spread(size, axes) for size in (self.kernel, self.stride, self.dilation))
        return Window(kernel, stride, dilation, self.padding, margin)

    def fans(self, inputs: int) -> Fans:
        """Of a layer on so many channels; on images where the sizes leave the number of axes open."""
        return Fans(inputs // self.groups, self.channels // self.groups, math.prod(self.window.kernel))

    def output_shape(self, shape: Shape) -> Shape:
        require_positions(self, shape, self.axes)
        c, *size = shape
        if c % self.groups:
            raise BadInput(self.word, f"{c} input channels do not split into {self.groups} groups", "use a divisor")
        window = self.on(len(size)).window
        reach, margins = window.reach, window.margins(tuple(size))
        fits = [r <= n + sum(m) for r, n, m in zip(reach, size, margins, strict=True)]
        if self.padding == "circular":
            fits = [f and r <= n for f, r, n in zip(fits, reach, size, strict=True)]  # r <= n in JL
        if self.padding == "reflect":
            fits = [f and max(m) < n for f, m, n in zip(fits, margins, size, strict=True)]
        if not all(fits):
            raise BadInput(
                self.word,
                f"kernel {size_text(reach)} is larger than the {size_text(tuple(size))} input",
                "use a smaller kernel or larger images",
            )
        return (self.channels, *window.output_size(tuple(size)))

    def _enter(self, inputs: Inputs) -> State:
        return inputs.state(self.groups)

    def _exact(self, state: State, trace: Trace) -> State:
        return self.on(len(state.positions))._on_axes(state, trace)

    def _on_axes(self, state: State, trace: Trace) -> State:
        if not self.weights.gaussian:
            trace.note(f"{self.word}: {self.weights.name} weights give Gaussian units only as fan-in grows")
        depthwise = self.groups > 1 and state.law != "data" and state.channels == self.groups
        seen = self._depthwise_units(state) if depthwise else self._grouped_units(state)
        size = self.window.output_size(state.positions)
        filtering = Filtering(self.window, self.weights.taps(self.window.kernel), self.weights.centres_filters, size)
        fans = self.fans(state.channels)
        gain = self.weights.gain(fans)
        linear = filtering.apply(seen).map(
            lambda s: gain * s.norm,
            lambda block, *_: Pairs(gain * block.excess, gain * block.product),
            tangent=lambda t: gain * t,
            channels=self.channels,
            law="other" if depthwise else "gaussian",
            independent_units=not depthwise or (state.independent_units and self.channels == self.groups),
            alike=state.alike or not depthwise,
            tied=depthwise,
            draw=self._draw_depthwise(state) if depthwise else None,
        )
        if depthwise:
            return add_drawn_bias(linear, self.bias_law, fans)
        return add_bias(linear, self.bias_law, fans, self.word, trace)

    def _grouped_units(self, state: State) -> State:
        """What the filters see: all kinds of units together, or each group its own channels."""
        seen = merge_kinds(state) if self.groups == 1 else regroup(state, self.groups)
        if seen is None:
            raise NoExactForm(
                self.word,
                f"{self.groups} groups of channels cut across {len(state.shares)} kinds of units",
                "use groups=1 after a concatenation or a skip of raw data",
            )
        return seen

    def _depthwise_units(self, state: State) -> State:
        if self.weights.centres_filters:
            raise NoExactForm(
                self.word,
                "zero-sum filters over all channels of a depthwise layer have one channel each",
                "use init=zero_sum_channel, in Python ZeroSum(over='channel'), which is the same law there",
            )
        return state

    def _draw_depthwise(self, state: State) -> Draw:
        """One filter per channel: each unit of the sample gets a filter of its own."""
        fans, bias = self.fans(self.groups), self.bias_law

        def one_kind(samples: Tensor, generator: Generator) -> Tensor:
            units = len(samples)
            weights = self.weights.sample((units, 1, *self.window.kernel), fans, generator, samples.dtype)
            images = self.window.pad(samples.transpose(0, 1))
            shift = None if bias is None else bias.sample((units,), fans, generator, samples.dtype).to(images.device)
            return convolve(self.window, images, weights.to(images.device), shift, units).transpose(0, 1)

        def draw(units: int, generator: Generator) -> Tensor:
            samples = draw_units(state, units, generator)  # (K, units, images, *positions)
            return torch.stack([one_kind(kind, generator) for kind in samples])

        return draw

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return RandomConv(self.on(len(shape) - 1), shape[0], generator, dtype)


class RandomConv(nn.Module):
    """The finite face of `Conv`: padding of any kind, then a convolution with weights drawn from the layer's law."""

    def __init__(self, layer: Conv, inputs: int, generator: Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.window, self.groups = layer.window, layer.groups
        shape = (layer.channels, inputs // layer.groups, *layer.window.kernel)
        fans, bias = layer.fans(inputs), layer.bias_law
        self.weight = nn.Parameter(layer.weights.sample(shape, fans, generator, dtype))
        self.bias = None if bias is None else nn.Parameter(bias.sample((layer.channels,), fans, generator, dtype))

    def forward(self, x: Tensor) -> Tensor:
        return convolve(self.window, self.window.pad(x), self.weight, self.bias, self.groups)


def convolve(window: Window, padded: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
    """The convolution of padded inputs, along as many axes as the window has."""
    convolution = _CONVOLUTIONS[window.axes]
    out: Tensor = convolution(padded, weight, bias, window.stride, 0, window.dilation, groups)
    return out
