"""Which networks the fused loops can compute, and how they are asked to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from initscope.geometry import Inputs
from initscope.layers import Activate, Conv, Dense, Flatten, GlobalAveragePool, Layer, Trace
from initscope.networks.accuracy import Accuracy
from initscope.networks.composition import Sequential
from initscope.networks.fused import (
    ConvStack,
    Own,
    dense_kernel,
    dense_layer_norms,
    dense_norms,
    dense_tangents,
    estimate,
    layer_norms,
    mean_norms,
    pooled_kernel,
    pooled_norms,
    same_position_kernel,
    stack_tangents,
)
from initscope.networks.progress import Progress
from initscope.weights import Fans

_PROBED = 64  # inputs whose norms are propagated at once
_ROOM = (
    1e10  # between the squared norms that the loops may meet and the ends of their type's range: sums, shares of layers
)

Variances = tuple[float, float | None]  # of the weights and of the biases, None without biases


@dataclass(frozen=True)
class FastPlan:
    """A stack of layers that the fused loops know, then a linear readout K -> gain · K + bias."""

    gains: tuple[float, ...]
    biases: tuple[float, ...]
    slopes: tuple[float, ...]
    stack: ConvStack | None  # None: dense layers on (flattened) inputs
    pooled: bool = False
    readout: tuple[float, float] = (1.0, 0.0)
    variances: tuple[Variances, ...] = ()  # one for each layer with weights, the readout last

    def run(
        self, x: Tensor, y: Tensor | None, quantity: Literal["product", "distance"], progress: Progress | None
    ) -> Tensor:
        if self.stack is None:
            flat = None if y is None else y.flatten(1)
            out = dense_kernel(
                self.gains, self.biases, self.slopes, x.flatten(1), flat, quantity=quantity, progress=progress
            )
        else:
            run = pooled_kernel if self.pooled else same_position_kernel
            out = run(self.stack, x, y, quantity=quantity, progress=progress)
        gain, bias = self.readout
        return out if self.readout == (1.0, 0.0) else gain * out + (bias if quantity == "product" else 0.0)

    def tangents(self, x: Tensor, y: Tensor | None, standard: bool, progress: Progress | None) -> Tensor | None:
        """The tangent kernel by ω or (standard) by w, in the type of x; None where the compiled loops cannot be used."""
        shares, layers = self._shares(standard)
        if self.stack is None:
            flat = None if y is None else y.flatten(1)
            both = dense_tangents(self.gains, self.biases, self.slopes, layers, x.flatten(1), flat, progress)
        else:
            both = stack_tangents(self.stack, layers, x, y, self.pooled, len(shares) > len(layers), progress)
        if both is None:
            return None
        product, tangent = both[0], both[1]
        if len(shares) > len(layers):
            gain, bias = self.readout
            tangent = gain * tangent + shares[-1].factor * (gain * product + bias) + shares[-1].offset
        return tangent.to(x.dtype)

    def tangent_bytes(self, x: Tensor, m: int, standard: bool) -> int:
        """Peak memory of `tangents`."""
        if self.stack is None:
            return (4 if any(self.biases) else 2) * self.peak_bytes(x, m)
        shares, layers = self._shares(standard)
        wide = (
            any(self.biases) or any(layer.offset for layer in layers) or (self.pooled and self.stack.padding == "zero")
        )
        dtype = torch.float64 if wide else x.dtype
        n, c, h, w = x.shape
        found = estimate(self.stack, n, m, h, w, c, self.pooled, dtype, layers, len(shares) > len(layers))
        return found.bytes + (n + m) * c * h * w * dtype.itemsize  # the inputs once more

    def _shares(self, standard: bool) -> tuple[list[Own], list[Own]]:
        """What the weights of each layer add, the readout last; and without it."""
        shares = [_own(*v) if standard else Own() for v in self.variances]
        return shares, shares[: len(self.gains)]

    def norms(self, x: Tensor) -> Tensor:
        """E h(x)² per unit, (n,) in float64."""
        if self.stack is None:
            norms = dense_norms(self.gains, self.biases, self.slopes, x.flatten(1))
        else:
            norms = pooled_norms(self.stack, x) if self.pooled else mean_norms(self.stack, x)
        return self.readout[0] * norms + self.readout[1]

    def in_range(self, *inputs: Tensor) -> bool:
        """Whether the loops, which run in the type of the inputs, can hold the norms of all layers.

        Of an image the brightest position counts: what is 1e-10 of it adds nothing.
        """
        limits = torch.finfo(inputs[0].dtype)
        low, high = limits.tiny * _ROOM, limits.max / _ROOM
        return all(self._bounded(x, low, high) or self._inside(x, low, high) for x in inputs if len(x))

    def _bounded(self, x: Tensor, low: float, high: float) -> bool:
        """By the mean square of the darkest image and the largest number of all: quick, and seldom wrong."""
        flat = x.flatten(1)
        lengths = torch.linalg.vector_norm(flat, dim=1)
        black = lengths == 0
        if bool(flat[black].any()) or bool(black.all()):  # squares that underflow; or nothing but zeros
            return False
        least = float(lengths[~black].min()) ** 2 / flat.shape[1]
        most = max(abs(float(end)) for end in flat.aminmax()) ** 2
        for layer, (gain, bias, slope) in enumerate(zip(self.gains, self.biases, self.slopes, strict=True)):
            least, most = self._kept(layer) * gain * least + bias, gain * most + bias
            if not (low < least and most < high):
                return False
            least, most = ((1 + slope**2) / 2 * end for end in (least, most))
        return True

    def _kept(self, layer: int) -> float:
        """The share of an image's squares that a layer keeps at least, whatever lies at its border."""
        if self.stack is None or self.stack.padding == "circular":
            return 1.0
        kernel = self.stack.kernels[layer]
        return 1 / kernel**2 if self.stack.padding == "valid" else ((kernel + 1) / (2 * kernel)) ** 2

    def _inside(self, x: Tensor, low: float, high: float) -> bool:
        """By all norms of all layers; images that are zero have none."""
        for part in torch.split(x, _PROBED):
            if self.stack is None:
                each = dense_layer_norms(self.gains, self.biases, self.slopes, part.flatten(1))[1]
            else:
                each = torch.stack([a.flatten(1).amax(1) for a in layer_norms(self.stack, part)[1]])
            bright = each[:, part.flatten(1).any(1)].square()
            if not bool(((bright > low) & (bright < high)).all()):
                return False
        return True

    def peak_bytes(self, x: Tensor, m: int) -> int:
        dtype = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
        if self.stack is None:
            return 3 * len(x) * m * dtype.itemsize
        n, c, h, w = x.shape
        return estimate(self.stack, n, m, h, w, c, self.pooled, dtype).bytes


def fast_plan(net: Sequential, shape: tuple[int, ...]) -> FastPlan | None:
    """The plan for `conv [leaky relu] ... [gap | flatten] [dense]` and `dense [leaky relu] ...`, or None for other networks."""
    layers = [layer for layer in net.layers if not isinstance(layer, Flatten)]
    if not layers:
        return None
    if isinstance(layers[0], Dense):
        return _dense_plan(layers, math.prod(shape))
    return _conv_plan(layers, shape) if isinstance(layers[0], Conv) and len(shape) == 3 else None


def fast_accuracy(net: Sequential, x: Tensor, y: Tensor | None) -> Accuracy:
    """Of what the fused loops compute: exact, but for biases that are not Gaussian and are taken as if they were."""
    laws = [layer.bias_law for layer in net.layers if isinstance(layer, Dense | Conv)]
    if all(law is None or law.gaussian for law in laws):
        return Accuracy()
    pooled = [i for i, layer in enumerate(net.layers) if isinstance(layer, GlobalAveragePool)]
    before = Sequential(*net.layers[: pooled[0] if pooled else None])  # no activation follows the pool
    parts = [part for inputs in (x, y) if inputs is not None for part in torch.split(inputs, _PROBED)]
    traces = [Trace() for _ in parts]
    for part, trace in zip(parts, traces, strict=True):
        before.propagate(Inputs(part.double(), part.double(), all_positions=False), trace)
    return Accuracy.of(traces)


def _dense_plan(layers: list[Layer], inputs: int) -> FastPlan | None:
    gains, biases, slopes, variances = [], [], [], []
    i = 0
    while i < len(layers):
        layer = layers[i]
        if not isinstance(layer, Dense) or layer.weights.centres_filters:
            return None
        slope = _slope(layers[i + 1]) if i + 1 < len(layers) else None
        fans = Fans(inputs, layer.width)
        gains.append(layer.weights.gain(fans))
        biases.append(_bias(layer, fans))
        slopes.append(1.0 if slope is None else slope)
        variances.append(variances_of(layer, fans))
        inputs = layer.width
        i += 1 if slope is None else 2
    return FastPlan(tuple(gains), tuple(biases), tuple(slopes), None, variances=tuple(variances))


def _conv_plan(layers: list[Layer], shape: tuple[int, ...]) -> FastPlan | None:
    gains, biases, slopes, variances, kernels, paddings = [], [], [], [], [], set()
    i = 0
    while i < len(layers) and isinstance(layer := layers[i], Conv):
        if not _simple(layer):
            return None
        slope = _slope(layers[i + 1]) if i + 1 < len(layers) else None
        fans = layer.fans(shape[0])
        gains.append(layer.weights.gain(fans))
        biases.append(_bias(layer, fans))
        slopes.append(1.0 if slope is None else slope)
        variances.append(variances_of(layer, fans))
        kernels.append(layer.window.kernel[0])
        if kernels[-1] > 1:
            paddings.add("zero" if layer.padding == "same" else layer.padding)  # one and the same at stride 1
        shape = layer.output_shape(shape)
        i += 1 if slope is None else 2
    pooled = i < len(layers) and isinstance(layers[i], GlobalAveragePool)
    i += pooled
    readout = (1.0, 0.0)
    if i < len(layers) and isinstance(last := layers[i], Dense) and not last.weights.centres_filters:
        fans = Fans(shape[0] if pooled else math.prod(shape), last.width)
        readout = (last.weights.gain(fans), _bias(last, fans))
        variances.append(variances_of(last, fans))
        i += 1
    if i < len(layers) or len(paddings) > 1:
        return None
    parts = (tuple(gains), tuple(biases), tuple(slopes))
    stack = ConvStack(tuple(kernels), *parts, paddings.pop() if paddings else "valid")
    return FastPlan(*parts, stack, pooled, readout, tuple(variances))


def variances_of(layer: Dense | Conv, fans: Fans) -> Variances:
    """Of the layer's weights and of its biases."""
    return layer.weights.variance(fans), None if layer.bias_law is None else layer.bias_law.variance(fans)


def _own(weight: float, bias: float | None) -> Own:
    """(v - β²)/Var(w) by the weights, 1 by the bias."""
    return Own(1 / weight, 0.0 if bias is None else 1 - bias / weight)


def _bias(layer: Dense | Conv, fans: Fans) -> float:
    """Variance of the biases."""
    return 0.0 if layer.bias_law is None else layer.bias_law.variance(fans)


def _simple(layer: Conv) -> bool:
    """Stride, dilation and groups of one, square odd filters with independent taps, padding that keeps the size."""
    window = layer.window
    plain = window.stride == window.dilation == (1, 1) and layer.groups == 1 and layer.margin is None
    square = window.kernel[0] == window.kernel[1] and (window.kernel[0] % 2 == 1 or layer.padding == "valid")
    return plain and square and layer.weights.taps(window.kernel) is None and not layer.weights.centres_filters


def _slope(layer: Layer) -> float | None:
    """The slope below zero if the layer is a (leaky) ReLU or the identity."""
    if not isinstance(layer, Activate) or layer.activation.degree != 1:
        return None
    low, high = layer.activation(torch.tensor([-1.0, 1.0], dtype=torch.float64)).tolist()
    return -low if high == 1.0 and -1.0 <= low <= 0.0 else None
