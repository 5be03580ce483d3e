"""Networks of DC's Definition 1, read off from layers: random filters and ReLU, pooling, upsampling, a mean over channels.

DC divides the feature maps by sqrt(channels); here the weight law holds that factor. Networks of this kind are homogeneous, so
factors change the length of the output image and no angle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from initscope.activations import Activation
from initscope.errors import BadInput, NoExactForm
from initscope.geometry import check_inputs
from initscope.layers import Activate, AveragePool, Conv, Dense, L2Pool, Layer, MaxPool, Scale, Shape, Upsample
from initscope.networks import Sequential, as_network
from initscope.weights import FilterMoments, Orthogonal

_REMEDY = "build the network of Conv, ReLU, L2Pool or AveragePool, Upsample and Scale, ending in Conv, ReLU"


@dataclass(frozen=True)
class Filters:
    """One layer of random filters w and its activation, f(t) = rise·max(t, 0) + fall·max(-t, 0).

    For an isotropic filter and a patch y: E f(wy)^m = (rise^m + fall^m) k_m |y|^m with k_m = ½ E|w_1|^m (DC Lemma 5).
    """

    conv: Conv
    activation: Activation
    moments: FilterMoments
    independent: bool  # filters of one layer are independent of each other
    rise: float = 1.0
    fall: float = 0.0

    @property
    def count(self) -> int:
        return self.conv.channels

    @property
    def mean(self) -> float:
        """E f(wy) / |y|; k1 for ReLU."""
        return (self.rise + self.fall) * self.moments.k1

    @property
    def square(self) -> float:
        """E f(wy)² / |y|²; k2 for ReLU."""
        return (self.rise**2 + self.fall**2) * self.moments.k2

    @property
    def fourth(self) -> float:
        """E f(wy)⁴ / |y|⁴; k4 for ReLU."""
        return (self.rise**4 + self.fall**4) * self.moments.k4

    @property
    def K1(self) -> float:  # noqa: N802 - the symbol of the paper
        """Relative variance of f(wy); DC's K_1, π - 1 for ReLU and Gaussian filters."""
        return self.square / self.mean**2 - 1

    @property
    def K2(self) -> float:  # noqa: N802 - the symbol of the paper
        """Relative variance of f(wy)²; DC's K_2, 5 for ReLU and Gaussian filters."""
        return self.fourth / self.square**2 - 1


@dataclass(frozen=True)
class Step:
    """One layer of DC's network (an activation belongs to its convolution) and what it does to squared norms."""

    layer: Layer
    shape: Shape  # of its input
    filters: Filters | None = None

    def gather(self, squares: Tensor) -> Tensor:
        """Sums over the windows: (n, h, w) -> (n, h', w'); the identity for upsampling (DC's z² from |X|²)."""
        layer = self.layer
        if not isinstance(layer, Conv | L2Pool):
            return squares
        window = layer.window if isinstance(layer, Conv) else layer.frame(2)
        taps = squares.new_ones(math.prod(window.kernel))
        size = window.output_size(tuple(squares.shape[-2:]))
        return window.weighted(window.pad(squares), size, False, taps)  # counts of routes stay whole numbers

    def spread(self, squares: Tensor) -> Tensor:
        """From z² to the next |X|², constants left out: (n, h, w) -> (n, kh, kw) for upsampling, else the identity."""
        if not isinstance(self.layer, Upsample):
            return squares
        module = self.layer.sample(self.shape, generator=torch.Generator())
        wide: Tensor = module(squares[:, None])
        return wide[:, 0]

    @property
    def constant(self) -> float:
        """By how much the step multiplies squared norms, summed over channels, beyond its windows."""
        if isinstance(self.layer, Scale):
            return self.layer.factor**2
        return 1.0 if self.filters is None else self.filters.count * self.filters.square


@dataclass(frozen=True)
class RandomCNN:
    """A network of DC's Definition 1 on images of one shape."""

    steps: tuple[Step, ...]

    @property
    def last(self) -> Filters:
        found = self.steps[-1].filters
        assert found is not None
        return found

    @property
    def filters(self) -> tuple[Filters, ...]:
        """Every layer of filters, in order."""
        return tuple(step.filters for step in self.steps if step.filters is not None)

    @cached_property
    def head(self) -> int:
        """How many steps come before the last average pooling, itself included: there squared norms are not enough."""
        return max((i for i, s in enumerate(self.steps, 1) if isinstance(s.layer, AveragePool)), default=0)

    @property
    def averages_features(self) -> bool:
        """Whether an average pooling comes after random filters."""
        return any(step.filters is not None for step in self.steps[: self.head])

    @property
    def depth(self) -> int:
        """DC's L: convolutions, poolings and upsamplings, and the final mean."""
        return sum(not isinstance(step.layer, Scale) for step in self.steps) + 1

    def squares(self, squares: Tensor) -> Tensor:
        """z*² of the last layer from squared norms after the head: sums over windows, step by step (DC Theorem 4)."""
        for step in self.steps[self.head :]:
            squares = step.spread(step.gather(squares))
        return squares

    def head_layers(self) -> tuple[Layer, ...]:
        """The layers of the head, activations included."""
        found: list[Layer] = []
        for step in self.steps[: self.head]:
            found += [step.layer] if step.filters is None else [step.layer, Activate(step.filters.activation)]
        return tuple(found)

    def data_layers(self) -> tuple[Layer, ...]:
        """The layers before the first filters: they act on the image itself."""
        first = next(i for i, step in enumerate(self.steps) if step.filters is not None)
        return tuple(step.layer for step in self.steps[:first])


def read_random_cnn(place: str, net: Layer, shape: Shape) -> RandomCNN:
    """The network as DC's Definition 1 has it, or a clear error that says which layer does not fit.

    >>> from initscope.layers import ReLU
    >>> cnn = read_random_cnn("here", Sequential(Conv(64), ReLU(), L2Pool(2), Conv(32), ReLU()), (3, 8, 8))
    >>> cnn.depth, [f.count for f in cnn.filters], round(cnn.last.K2, 9)
    (4, [64, 32], 5.0)
    """
    if len(shape) != 3:
        raise BadInput(place, f"got inputs of shape {shape}, expected images (c, h, w)", "pass images (n, c, h, w)")
    layers = _flat(as_network(place, net))
    steps: list[Step] = []
    for number, layer in enumerate(layers, start=1):
        if isinstance(layer, Activate):
            if number == 1 or not isinstance(layers[number - 2], Conv):
                raise BadInput(place, f"layer {number} is {layer.word}, not right after a convolution", _REMEDY)
        else:
            after = layers[number] if number < len(layers) else None
            steps.append(_step(place, number, layer, after, shape))
        shape = layer.output_shape(shape)
    if not steps or steps[-1].filters is None:
        ends = f"ends in {layers[-1].word}" if layers else "is empty"
        raise BadInput(place, f"the network {ends}, expected a convolution and its activation last", _REMEDY)
    return RandomCNN(tuple(steps))


def check_images(place: str, images: Tensor) -> Tensor:
    """The images (n, c, h, w) in double precision, or a clear error."""
    check_inputs(images, None, zipped=False)
    if images.ndim != 4:
        raise BadInput(place, f"images have shape {tuple(images.shape)}, expected (n, c, h, w)", "add dimensions")
    return images.detach().to(torch.float32 if images.device.type == "mps" else torch.float64)


def check_not_zero(place: str, images: Tensor) -> None:
    zero = (images == 0).flatten(1).all(1).nonzero().flatten().tolist()
    if zero:
        listed = ", ".join(map(str, zero[:8])) + (", ..." if len(zero) > 8 else "")
        raise BadInput(place, f"images {listed} give nothing but zeros, which have no angle", "leave them out")


def _flat(net: Layer) -> tuple[Layer, ...]:
    if isinstance(net, Sequential):
        return tuple(inner for layer in net.layers for inner in _flat(layer))
    return (net,)


def _step(place: str, number: int, layer: Layer, after: Layer | None, shape: Shape) -> Step:
    if isinstance(layer, Conv):
        return Step(layer, shape, _filters(place, number, layer, after, shape[0]))
    if isinstance(layer, Scale):
        if layer.factor <= 0:
            raise BadInput(place, f"layer {number} multiplies by {layer.factor:g}", "use a positive factor")
        return Step(layer, shape)
    if isinstance(layer, L2Pool | AveragePool | Upsample):
        return Step(layer, shape)
    remedy = _REMEDY
    if isinstance(layer, MaxPool):
        remedy = f"use L2Pool({layer.window}) or AveragePool({layer.window}), which DC's theorems cover"
    if isinstance(layer, Dense):
        remedy = "use convolutions only: the output is an image"
    raise BadInput(place, f"layer {number} is {layer.word}, which a random CNN (DC Definition 1) does not have", remedy)


def _filters(place: str, number: int, conv: Conv, after: Layer | None, inputs: int) -> Filters:
    where = f"{place}, layer {number} ({conv.word})"
    if conv.groups > 1:
        raise BadInput(where, f"has {conv.groups} groups, expected filters over all channels", "use groups=1")
    if conv.bias_law is not None:
        raise BadInput(where, f"has biases ({conv.bias}), which DC Definition 1 does not have", "use bias=0")
    if not conv.weights.isotropic:
        raise NoExactForm(
            where,
            f"{conv.weights.name} filters prefer some directions, and DC Definition 1 asks for isotropic ones",
            "use Gaussian or Orthogonal weights",
        )
    if not isinstance(after, Activate):
        raise BadInput(where, "is not followed by an activation", "put ReLU() after every convolution")
    if after.activation.degree != 1:
        name = after.activation.name
        raise BadInput(where, f"is followed by {name}, expected f(ct) = c f(t)", "use ReLU() or a leaky ReLU")
    both = torch.tensor([1.0, -1.0], dtype=torch.float64)
    rise, fall = (float(v) for v in after.activation(both))
    if rise + fall == 0:
        raise BadInput(where, f"the mean of {after.word} over random filters is zero", "use ReLU() or a leaky ReLU")
    moments = conv.weights.moments(conv.fans(inputs))
    return Filters(conv, after.activation, moments, not isinstance(conv.weights, Orthogonal), rise, fall)


def require_independent_filters(place: str, cnn: RandomCNN) -> None:
    for filters in cnn.filters:
        if not filters.independent:
            raise NoExactForm(
                place,
                f"{filters.conv.word}: the filters of {filters.conv.weights.name} weights depend on each other",
                "use Gaussian weights, or measure_angle",
            )
