"""One random layer, linear map and activation, as a set of pairs of inputs meets it: moments at every position."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from initscope.activations import RELU, Activation, by_name
from initscope.errors import BadInput
from initscope.finite.wedges import Slopes, UnitPair
from initscope.geometry import Inputs, check_inputs, excess_of
from initscope.layers import Conv, Dense
from initscope.layers.layer import require_positive
from initscope.layers.shifts import Padding, Window
from initscope.networks.prediction import geometry
from initscope.weights import Fans, He, WeightLaw

_TILE = 1 << 20  # positions of all pairs held at once
_BAND = 1 << 18  # numbers in the patches of an image held at once
_SHOWN = 8


@dataclass(frozen=True)
class LayerSpec:
    """Filters of `kernel` taps per side (JL: r), or dense units on vectors, then an activation.

    The weights are independent Gaussians. `weights` matters only where the activation is not homogeneous.
    """

    kernel: int | tuple[int, int] = 3
    stride: int | tuple[int, int] = 1
    padding: Padding = "circular"
    activation: str | Activation = RELU
    weights: WeightLaw | None = None

    def function(self) -> Activation:
        """The activation itself, looked up where it was named."""
        if isinstance(self.activation, Activation):
            return self.activation
        if not isinstance(self.activation, str):
            raise BadInput("activation", f"got {self.activation!r}, expected a name or an Activation", "pass 'relu'")
        return by_name(self.activation)

    def linear(self, shape: tuple[int, ...]) -> Conv | Dense:
        """A single filter or unit for inputs of this shape."""
        if len(shape) not in (1, 3):
            raise BadInput("x", f"got inputs of shape {shape}, expected vectors or images (c, h, w)", "add dimensions")
        law = He() if self.weights is None else self.weights
        layer = (
            Dense(1, law)
            if len(shape) == 1
            else Conv(1, self.kernel, stride=self.stride, padding=self.padding, weights=law)
        )
        layer.output_shape(shape)
        self._check_weights(layer, shape)
        return layer

    def _check_weights(self, layer: Conv | Dense, shape: tuple[int, ...]) -> None:
        law, taps = layer.weights, 1
        if isinstance(layer, Conv):
            taps = math.prod(layer.window.kernel)
        if not law.gaussian or law.centres_filters or law.taps((1, taps)) is not None:
            raise BadInput("weights", f"{law.name} filters", "use independent Gaussian weights, such as weights.He()")
        one, two = (law.variance(Fans(shape[0], count, taps)) for count in (1, 2))
        if one != two and homogeneous_slopes(self.function()) is None:
            raise BadInput(
                "weights",
                f"{law.name} depends on the number of filters, which {self.function().name} feels",
                "use a law of fan_in, such as weights.He()",
            )


@dataclass(frozen=True, eq=False)
class OneLayer:
    """A tile of pairs before and after the layer, in float64.

    `norm_x`, `norm_y`, `distance`, (n, P): E u², E v², E (u - v)² of a unit at each of P positions.
    `mean_x`, `mean_y`, (n,): q = E Q, s = E S, the squared norms of one filter's output; `defect`, (n,): 1 - ρ̄.
    """

    x: Tensor
    y: Tensor
    first: int  # number of the tile's first pair
    linear: Conv | Dense
    activation: Activation
    norm_x: Tensor
    norm_y: Tensor
    distance: Tensor
    mean_x: Tensor
    mean_y: Tensor
    defect: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def similarity(self) -> Tensor:
        """ρ̄, the mean similarity of JL eq. 1."""
        return 1 - self.defect

    @property
    def positions(self) -> int:
        return self.norm_x.shape[1]

    @property
    def window(self) -> Window | None:
        return self.linear.window if isinstance(self.linear, Conv) else None

    @property
    def slopes(self) -> Slopes | None:
        return homogeneous_slopes(self.activation)

    @property
    def variance(self) -> float:
        """ν², the variance of a weight."""
        fans = Fans(self.x.shape[1], 1) if isinstance(self.linear, Dense) else self.linear.fans(self.x.shape[1])
        return self.linear.weights.variance(fans)

    @property
    def filter_size(self) -> int:
        """Weights of one filter: r²d in JL."""
        return self.x.shape[1] * (1 if self.window is None else math.prod(self.window.kernel))

    def unit_pair(self) -> UnitPair:
        """The units at each position, (n, P), scaled so that each output has mean squared norm one."""
        assert self.slopes is not None
        pair = UnitPair.of(self.norm_x, self.norm_y, self.distance, self.slopes)
        return pair.scaled(self.mean_x.sqrt()[:, None], self.mean_y.sqrt()[:, None])

    def patches(self, image: Tensor) -> Iterator[Tensor]:
        """What the filter sees of one input (c, h, w) or (d,): (weights, positions), in bands of rows of bounded size."""
        window = self.window
        if window is None:
            yield image[:, None]
            return
        padded = window.pad(image[None])
        height, width = window.output_size((image.shape[1], image.shape[2]))
        rows = max(1, _BAND // (width * self.filter_size))
        reach = window.dilation[0] * (window.kernel[0] - 1) + 1
        for top in range(0, height, rows):
            bottom = min(height, top + rows) - 1
            band = padded[:, :, top * window.stride[0] : bottom * window.stride[0] + reach]
            yield F.unfold(band, window.kernel, dilation=window.dilation, stride=window.stride)[0]


def homogeneous_slopes(activation: Activation) -> Slopes | None:
    """(g₊, g₋) of f(z) = g₊ z for z > 0 and g₋ z below, which every activation of degree one is; None for others.

    >>> from initscope.activations import RELU, TANH
    >>> homogeneous_slopes(RELU), homogeneous_slopes(TANH)
    ((1.0, 0.0), None)
    """
    if activation.degree != 1:
        return None
    ends = activation(torch.tensor([1.0, -1.0], dtype=torch.float64)).tolist()
    return ends[0], 0.0 - ends[1]


def layer_tiles(spec: LayerSpec, x: Tensor, y: Tensor) -> Iterator[OneLayer]:
    """Pairs in tiles of bounded size; zero inputs, which have no angle, are refused."""
    check_inputs(x, y, zipped=True)
    shape = tuple(x.shape[1:])
    linear = spec.linear(shape)
    _, *size = linear.output_shape(shape)
    step = max(1, _TILE // max(math.prod(size), math.prod(shape)))
    for first in range(0, len(x), step):
        yield _tile(spec, linear, x[first : first + step].double(), y[first : first + step].double(), first)


def _tile(spec: LayerSpec, linear: Conv | Dense, x: Tensor, y: Tensor, first: int) -> OneLayer:
    state = linear.propagate(Inputs(x, y))
    assert not isinstance(state, Inputs)
    norm_x, norm_y, distance = (t[0].reshape(len(x), -1) for t in (state.x.norm, state.y.norm, state.distance))
    _refuse_zero("x", norm_x, first)
    _refuse_zero("y", norm_y, first)
    f = spec.function()
    mean_x, mean_y = f.second_moment(norm_x).sum(1), f.second_moment(norm_y).sum(1)
    apart = excess_of(mean_x, mean_y, f.distance(norm_x, norm_y, distance).sum(1))
    defect = geometry(mean_x, mean_y, apart)["defect"]
    return OneLayer(x, y, first, linear, f, norm_x, norm_y, distance, mean_x, mean_y, defect)


def _refuse_zero(name: str, norm: Tensor, first: int) -> None:
    zero = (norm == 0).all(1).nonzero().flatten().tolist()
    if zero:
        shown = ", ".join(str(first + i) for i in zero[:_SHOWN]) + (", ..." if len(zero) > _SHOWN else "")
        raise BadInput(name, f"inputs {shown} are zero wherever the filters look", "leave them out: they have no angle")


def check_draws(place: str, draws: int, least: int) -> None:
    require_positive(place, draws=draws)
    if draws < least:
        raise BadInput(place, f"draws is {draws}, too few for an interval", f"pass draws >= {least}")
