"""From layers to steps: which registers a network needs, and what each step must know of every input.

What belongs to one input (its norms after every layer) costs linear time and is computed here, in float64; the machine only sees
pairs. A layer that the machine does not know raises `Unknown`, and the network is answered by `propagate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from typing import Literal

import torch
from torch import Tensor

from initscope.layers import (
    Activate,
    Conv,
    Dense,
    Dropout,
    GroupNorm,
    Layer,
    LayerNorm,
    Scale,
)  # fmt: skip
from initscope.layers.biases import not_gaussian
from initscope.networks.branches import Concat, Product, Residual, Sum
from initscope.networks.composition import Sequential
from initscope.networks.machine.bending import Bending, Precision, bending, slope_loss, steepness_of
from initscope.networks.machine.frames import Code
from initscope.networks.machine.norms import averaged
from initscope.networks.machine.tape import Kind, OfNorms, Reach, Tape, Unknown, Value, largest
from initscope.networks.own_share import variances
from initscope.weights import Fans

Padding = Literal["wraps", "ends"]
GROWN = 80.0  # times that centering may make rounding grow
LOST = {torch.float32: 1e-5, torch.float64: 1e-10}  # error that centering may make of a series'


@dataclass(eq=False)
class Writer:
    """Steps of one segment: from raw inputs or an average over windows to the next one.

    `standard`: the parametrization of a tangent kernel, None without one; `vectors`: inputs have no positions.
    """

    precision: Precision
    standard: bool | None = None
    vectors: bool = False
    tape: Tape = field(default_factory=Tape)
    padding: Padding | None = None  # how borders are treated, once a layer has said so
    summed: float = 0.0  # errors of all series that are cut off, each relative to the second moments there
    bias_error: float = 0.0  # of biases that are taken as Gaussian
    lowest: float = math.inf  # squared norms that the steps meet, but for zeros
    highest: float = 0.0
    rounding: float = 1.0  # the most that steps make of rounding, in units of the last place
    kinked: bool = False  # slopes behind a kink take the root of it
    slope_loss: float = 0.0  # what rounding of float32 takes from slopes of near inputs, of all activations
    dropped: bool = False  # an input beside itself is one pass through dropout

    @property
    def dtype(self) -> torch.dtype:
        return self.precision.dtype

    @singledispatchmethod
    def write(self, layer: Layer, value: Value) -> Value:
        """Steps for the layer; the registers of `value` are used up."""
        raise Unknown(f"{layer.word} has no compiled step")

    @write.register
    def _sequence(self, layer: Sequential, value: Value) -> Value:
        for part in layer.layers:
            value = self.write(part, value)
        return value

    @write.register
    def _scale(self, layer: Scale, value: Value) -> Value:
        return _each(value, lambda kind: self.tape.scaled(kind, value, layer.factor))

    @write.register
    def _dropout(self, layer: Dropout, value: Value) -> Value:
        self.dropped = True
        return _each(value, lambda k: replace(k, norm=k.norm / (1 - layer.p), gaussian=False))

    @write.register
    def _activation(self, layer: Activate, value: Value) -> Value:
        f = layer.activation
        if not all(kind.gaussian for kind in value.kinds):
            raise Unknown(f"{layer.word} acts on units that are not Gaussian")
        reach = Reach.of(value.kinds)
        how = bending(f, reach, self.precision, self.standard is not None)
        if how is None:
            raise Unknown(f"{layer.word} has no short series at these norms")
        self._meet(reach, squared=how.code == Code.GELU)
        self.summed += how.error
        self.kinked = self.kinked or bool(f.kinks)
        if self.standard is not None and how.passes and self.dtype == torch.float32:
            half = torch.finfo(self.dtype).eps / 2
            self.slope_loss += max(slope_loss(f, reach, kind.rounding * half) for kind in value.kinds)
        steepness = steepness_of(f, reach)
        return _each(value, lambda kind: self._bent(kind, value, how, steepness))

    def _meet(self, reach: Reach, squared: bool) -> None:
        """Remember how far norms reach, which the type of the registers must hold; gelu multiplies those of both sides."""
        if not reach.finite:
            raise Unknown("norms leave the range of float64")
        self.lowest = min(self.lowest, reach.lowest)
        self.highest = max(self.highest, reach.highest**2 if squared else reach.highest)

    def _biased(self, layer: Dense | Conv, fans: Fans, norm: Tensor) -> None:
        law = layer.bias_law
        if law is not None and not law.gaussian:
            self.bias_error += not_gaussian(law, fans, float(norm.min()))

    def _bent(self, kind: Kind, value: Value, how: Bending, steepness: float) -> Kind:
        norm = kind.norm
        self.tape.emit(
            how.code, how.constants, OfNorms(how.fields, norm.flatten(1)), out=kind.register, a=kind.register,
            slope_a=kind.slopes, slope_out=kind.slopes, even=how.even, odd=how.odd, **self.tape.place(value),
        )  # fmt: skip
        if not how.passes:  # gradients do not pass a jump
            self.tape.release(kind.slopes)
        slopes = kind.slopes if how.passes else -1
        own, mean = how.moments(norm)
        error = how.error + (steepness * kind.error if kind.error else 0.0)
        rounding = math.hypot(how.rounding, steepness * kind.rounding)
        self._rounded(rounding)
        return Kind(kind.register, slopes, own, mean, False, error, rounding)

    def _rounded(self, rounding: float) -> None:
        """Remember how far rounding may have grown; `max` alone would pass over NaN."""
        self.rounding = max(self.rounding, rounding) if math.isfinite(rounding) else math.inf

    @write.register
    def _conv(self, layer: Conv, value: Value) -> Value:
        value = self.tape.merged(value)
        height, width = value.size
        if layer.groups != 1:
            raise Unknown(f"{layer.word} has groups")
        layer = layer.on(2)
        window, fans = layer.window, layer.fans(value.channels)
        if layer.weights.taps(window.kernel) is not None or layer.weights.centres_filters:
            raise Unknown(f"{layer.word} has taps that depend on each other")
        self._pads(layer, (height, width))
        size = window.output_size((height, width))
        before = [m[0] for m in window.margins((height, width))]
        gain, bias = layer.weights.gain(fans), _bias(layer, fans)
        count = math.prod(window.kernel)
        kind = value.kinds[0]
        stride = (value.stride[0] * window.stride[0], value.stride[1] * window.stride[1])
        out = self.tape.take()
        geometry = {
            "height": size[0], "width": size[1], "stride_y": stride[0], "stride_x": stride[1],
            "in_height": height, "in_width": width, "taps_y": window.kernel[0], "taps_x": window.kernel[1],
            "step_y": window.stride[0], "step_x": window.stride[1], "between_y": window.dilation[0],
            "between_x": window.dilation[1], "before_y": before[0], "before_x": before[1],
        }  # fmt: skip
        norm = averaged(kind.norm, geometry, layer.padding == "circular", gain / count, bias)
        self._biased(layer, fans, norm)
        made = Kind(out, -1, norm, _nothing(norm), error=kind.error, rounding=math.hypot(1, kind.rounding))
        after = Value((made,), (1.0,), layer.channels, stride)
        self.tape.emit(Code.CONV, (gain / count, bias), None, out=out, a=kind.register, **geometry)
        slopes = -1
        if kind.slopes >= 0:
            slopes = self.tape.take()
            self.tape.emit(Code.CONV, (gain / count, 0.0), None, out=slopes, a=kind.slopes, **geometry)
        self.tape.release(kind.register, kind.slopes)
        return self._own(replace(after, kinds=(replace(after.kinds[0], slopes=slopes),)), layer, value.channels)

    def _pads(self, layer: Conv, size: tuple[int, int]) -> None:
        window = layer.window
        if layer.padding == "reflect" and max(window.kernel) > 1:
            raise Unknown(f"{layer.word} reflects its borders")
        if max(window.reach) == 1 and max(window.stride) == 1:
            return
        here: Padding = "wraps" if layer.padding == "circular" else "ends"
        if here == "wraps" and any(n % s for n, s in zip(size, window.stride, strict=True)):
            raise Unknown(f"{layer.word} wraps with a stride that does not divide the size")
        if self.padding not in (None, here):
            raise Unknown(f"{layer.word} treats borders in another way than a layer before it")
        self.padding = here

    @write.register
    def _dense(self, layer: Dense, value: Value) -> Value:
        if not self.vectors:
            raise Unknown(f"{layer.word} joins all positions inside a branch")
        value = self.tape.merged(value)
        if layer.weights.centres_filters:
            raise Unknown(f"{layer.word} has weights that sum to zero")
        fans = Fans(value.channels, layer.width)
        gain, bias = layer.weights.gain(fans), _bias(layer, fans)
        kind = value.kinds[0]
        norm = gain * kind.norm + bias
        self._biased(layer, fans, norm)
        self.tape.mix(value, kind.register, kind.register, kind.register, gain, 0.0, bias)
        if kind.slopes >= 0:
            self.tape.mix(value, kind.slopes, kind.slopes, kind.slopes, gain, 0.0, 0.0)
        made = replace(kind, norm=norm, mean=_nothing(norm), gaussian=True, rounding=math.hypot(1, kind.rounding))
        after = Value((made,), (1.0,), layer.width, value.stride)
        return self._own(after, layer, value.channels)

    def _own(self, value: Value, layer: Dense | Conv, inputs: int) -> Value:
        """What the layer's weights add to the tangent kernel: the product by ω, (product - β²)/Var(w) + [bias] by w."""
        if self.standard is None:
            return value
        factor, shift = 1.0, 0.0
        if self.standard:
            weight, bias = variances(layer, inputs)
            factor = 1 / weight
            shift = 0.0 if bias is None else 1 - bias / weight
        kind = value.kinds[0]
        before, out = kind.slopes, kind.slopes if kind.slopes >= 0 else self.tape.take()
        self.tape.mix(
            value, out, kind.register, before if before >= 0 else kind.register, factor, float(before >= 0), shift
        )
        return replace(value, kinds=(replace(kind, slopes=out),))

    @write.register
    def _residual(self, layer: Residual, value: Value) -> Value:
        return self._sum(layer.sum, value)

    @write.register
    def _sum(self, layer: Sum, value: Value) -> Value:
        return self._branches(layer.branches, value, self.tape.add)

    @write.register
    def _product(self, layer: Product, value: Value) -> Value:
        return self._branches(layer.branches, value, self.tape.multiply)

    @write.register
    def _concat(self, layer: Concat, value: Value) -> Value:
        if layer.axis:
            raise Unknown(f"{layer.word} joins positions")
        outs = self._fork(layer.branches, value)
        total = sum(out.channels for out in outs)
        kinds = tuple(kind for out in outs for kind in out.kinds)
        shares = tuple(share * out.channels / total for out in outs for share in out.shares)
        return Value(kinds, shares, total, outs[0].stride)

    def _fork(self, branches: tuple[Layer, ...], value: Value) -> list[Value]:
        """Every branch on a copy of the registers."""
        outs = []
        for i, branch in enumerate(branches):
            last = i == len(branches) - 1
            start = value if last else _each(value, lambda kind: self.tape.copied(kind, value))
            outs.append(self.write(Sequential(branch), start))
        if len({out.size for out in outs}) > 1 or len({out.stride for out in outs}) > 1:
            raise Unknown("branches end at different positions")
        return outs

    def _branches(self, branches: tuple[Layer, ...], value: Value, join: Callable[[Value, Kind, Kind], Kind]) -> Value:
        total, *others = self._fork(branches, value)
        for other in others:
            if len(total.kinds) != len(other.kinds) or total.shares != other.shares:
                raise Unknown("branches split their units into kinds in different ways")
            kinds = tuple(join(total, a, b) for a, b in zip(total.kinds, other.kinds, strict=True))
            total = replace(total, kinds=kinds)
        return total

    @write.register
    def _layer_norm(self, layer: LayerNorm, value: Value) -> Value:
        return self._normalized(value, layer.axes(2), layer.epsilon)

    @write.register
    def _group_norm(self, layer: GroupNorm, value: Value) -> Value:
        if layer.groups > 1 and (len(value.kinds) > 1 or value.channels == layer.groups):
            raise Unknown(f"{layer.word} has groups of one channel or of several kinds of units")
        return self._normalized(value, (0, 1), layer.epsilon)

    def _normalized(self, value: Value, axes: tuple[int, ...], epsilon: float) -> Value:
        """(P - m_a m_b + d_a d_b) s_a s_b; d: mean less the common one, s: one over the deviation; see `LayerNorm`."""
        dims = tuple(a + 1 for a in axes)

        def pooled(parts: list[Tensor]) -> Tensor:
            total = sum((share * t for share, t in zip(value.shares, parts, strict=True)), torch.zeros(()))
            return total.mean(dims, keepdim=True) if dims else total

        centre = pooled([k.mean for k in value.kinds])
        spread = pooled([(k.norm - k.mean.square()).clamp_min(0) + (k.mean - centre).square() for k in value.kinds])
        scale = (spread + epsilon).rsqrt()

        def one(kind: Kind) -> Kind:
            away = kind.mean - centre
            still = not bool(kind.mean.any()) and not bool(away.any())
            if not still:
                self._center(kind, scale)
            parts = (scale.expand_as(kind.norm), scale * away, scale * kind.mean)
            self.tape.by_sides(value, kind.register, parts, 0.0 if still else 1.0, 0.0 if still else -1.0)
            if kind.slopes >= 0:
                self.tape.by_sides(value, kind.slopes, parts, 0.0, 0.0)
            variance = (kind.norm - kind.mean.square()).clamp_min(0)
            norm = scale.square() * (variance + away.square())
            growth = largest(scale.square() * kind.norm, norm)
            rounding = math.hypot(1, growth * math.hypot(1, kind.rounding))
            self._rounded(rounding)
            return Kind(
                kind.register, kind.slopes, norm, scale * away, kind.gaussian and still, growth * kind.error, rounding
            )  # fmt: skip

        return _each(value, one)

    def _center(self, kind: Kind, scale: Tensor) -> None:
        """Count by how much taking away the mean makes errors grow; refuse units that hardly differ from it."""
        grown = float((kind.norm * scale.square()).max()) - 1
        if grown > GROWN or grown * kind.error > LOST[self.dtype]:
            raise Unknown("a norm leaves too little of units that hardly differ from their mean")


def _bias(layer: Dense | Conv, fans: Fans) -> float:
    return 0.0 if layer.bias_law is None else layer.bias_law.variance(fans)


def _nothing(like: Tensor) -> Tensor:
    """Zeros that take no memory."""
    return torch.zeros((), dtype=like.dtype).expand(like.shape)


def _each(value: Value, change: Callable[[Kind], Kind]) -> Value:
    return replace(value, kinds=tuple(change(kind) for kind in value.kinds))
