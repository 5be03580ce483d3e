"""Convolution, with any stride, dilation, groups, padding and covariance of the filter taps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from initscope.errors import BadInput, NoExactForm
from initscope.geometry import Draw, Inputs, State, draw_units, merge_kinds, regroup
from initscope.layers.biases import Bias, add_bias, add_drawn_bias, bias_law
from initscope.layers.filtering import Filtering
from initscope.layers.layer import (
    Shape,
    SingleLayer,
    Trace,
    require_image,
    require_number,
    require_positive,
    require_weights,
)
from initscope.layers.shifts import Padding, Window
from initscope.weights import Fans, He, Independent, WeightLaw

Size = int | tuple[int, int]


@dataclass(frozen=True, repr=False)
class Conv(SingleLayer):
    """`channels` random filters (JL Theorem 1): A'_p = g · mean over taps of A_{p+tap} + β², D' likewise without β.

    Filters whose taps have covariance S use `<x_p, S y_p>` instead; zero-sum filters are S = I - 11'/k.
    `padding` keeps the image size ("circular", "zero", "reflect") or not ("valid"); `margin` sets the amount by hand.
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
            for value in _checked_pair(name, getattr(self, name)):
                require_positive("conv", **{name: value})
        for value in () if self.margin is None else _checked_pair("margin", self.margin):
            require_number("conv", margin=value)
        require_positive("conv", channels=self.channels, groups=self.groups)
        if self.padding not in get_args(Padding):
            raise BadInput("conv", f"padding is {self.padding!r}", f"choose from {', '.join(get_args(Padding))}")
        if self.channels % self.groups:
            raise BadInput("conv", f"{self.channels} channels do not split into {self.groups} groups", "use a divisor")
        if self.margin is not None and self.padding == "valid":
            raise BadInput("conv", "padding='valid' has no margin", "use another padding or no margin")
        bias_law("conv", self.bias)
        require_weights("conv", self.weights)
        self.weights.taps(_pair(self.kernel))

    @property
    def word(self) -> str:
        a, b = _pair(self.kernel)
        return f"conv{a}" if a == b else f"conv{a}x{b}"

    @property
    def has_weights(self) -> bool:
        return True

    @property
    def bias_law(self) -> Independent | None:
        """The law that the biases are drawn from, None without biases."""
        return bias_law("conv", self.bias)

    @property
    def needs_all_positions(self) -> bool:
        taps = self.weights.taps(_pair(self.kernel))
        return taps is not None and taps.ndim == 2

    @property
    def window(self) -> Window:
        margin = None if self.margin is None else _pair(self.margin)
        return Window(_pair(self.kernel), _pair(self.stride), _pair(self.dilation), self.padding, margin)

    def fans(self, inputs: int) -> Fans:
        a, b = _pair(self.kernel)
        return Fans(inputs // self.groups, self.channels // self.groups, a * b)

    def output_shape(self, shape: Shape) -> Shape:
        require_image(self, shape)
        c, *size = shape
        if c % self.groups:
            raise BadInput(self.word, f"{c} input channels do not split into {self.groups} groups", "use a divisor")
        reach = [d * (k - 1) + 1 for k, d in zip(self.window.kernel, self.window.dilation, strict=True)]
        fits = [r <= n + sum(m) for r, n, m in zip(reach, size, self.window.margins(), strict=True)]
        if self.padding == "circular":
            fits = [f and r <= n for f, r, n in zip(fits, reach, size, strict=True)]  # r <= n in JL
        if self.padding == "reflect":
            fits = [f and max(m) < n for f, m, n in zip(fits, self.window.margins(), size, strict=True)]
        if not all(fits):
            raise BadInput(
                self.word,
                f"kernel {reach[0]}x{reach[1]} is larger than the {size[0]}x{size[1]} input",
                "use a smaller kernel or larger images",
            )
        return (self.channels, *self.window.output_size((size[0], size[1])))

    def _enter(self, inputs: Inputs) -> State:
        return inputs.state(self.groups)

    def _exact(self, state: State, trace: Trace) -> State:
        if not self.weights.gaussian:
            trace.note(f"{self.word}: {self.weights.name} weights give Gaussian units only as fan-in grows")
        depthwise = self.groups > 1 and state.law != "data" and state.channels == self.groups
        seen = self._depthwise_units(state) if depthwise else self._grouped_units(state)
        size = self.window.output_size((state.positions[0], state.positions[1]))
        filtering = Filtering(self.window, self.weights.taps(self.window.kernel), self.weights.centres_filters, size)
        fans = self.fans(state.channels)
        gain = self.weights.gain(fans)
        linear = filtering.apply(seen).map(
            lambda s: gain * s.norm,
            lambda b: gain * b.distance,
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
            out = F.conv2d(
                images, weights.to(images.device), shift, self.window.stride, 0, self.window.dilation, groups=units
            )
            return out.transpose(0, 1)

        def draw(units: int, generator: Generator) -> Tensor:
            samples = draw_units(state, units, generator)  # (K, units, images, h, w)
            return torch.stack([one_kind(kind, generator) for kind in samples])

        return draw

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return RandomConv2d(self, shape[0], generator, dtype)


class RandomConv2d(nn.Module):
    """The finite face of `Conv`: padding of any kind, then a convolution with weights drawn from the layer's law."""

    def __init__(self, layer: Conv, inputs: int, generator: Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.window, self.groups = layer.window, layer.groups
        shape = (layer.channels, inputs // layer.groups, *layer.window.kernel)
        fans, bias = layer.fans(inputs), layer.bias_law
        self.weight = nn.Parameter(layer.weights.sample(shape, fans, generator, dtype))
        self.bias = None if bias is None else nn.Parameter(bias.sample((layer.channels,), fans, generator, dtype))

    def forward(self, x: Tensor) -> Tensor:
        x = self.window.pad(x)
        return F.conv2d(x, self.weight, self.bias, self.window.stride, 0, self.window.dilation, self.groups)


def _checked_pair(name: str, size: object) -> tuple[int, int]:
    pair = size if isinstance(size, tuple) else (size, size)
    if len(pair) != 2 or not all(isinstance(n, int) for n in pair):
        raise BadInput("conv", f"{name} is {size!r}, expected a whole number or two", f"pass {name}=3 or {name}=(3, 5)")
    return pair


def _pair(size: Size) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)
