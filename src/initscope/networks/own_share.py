"""What the weights of one layer contribute to the tangent kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from initscope.errors import NoExactForm
from initscope.geometry import State
from initscope.layers import Conv, Dense, Layer
from initscope.networks.fast import Variances, variances_of
from initscope.weights import Fans

Parametrization = Literal["ntk", "standard"]


@dataclass(frozen=True)
class OwnShare:
    """Behind each layer with weights: what those weights contribute to the tangent kernel."""

    parametrization: Parametrization

    def __call__(self, layer: Layer, before: State, after: State) -> State:
        own = after.product  # by ω: the covariance itself, bias and all
        if self.parametrization == "standard":
            assert isinstance(layer, Dense | Conv)
            if isinstance(layer, Conv):
                weight, bias = variances(layer.on(len(before.positions)), before.channels)
            else:
                weight, bias = variances(layer, before.units)
            own = (own - (bias or 0.0)) / weight + (0.0 if bias is None else 1.0)
        return replace(after, tangent=own if after.tangent is None else after.tangent + own)


def variances(layer: Dense | Conv, inputs: int) -> Variances:
    """Of the layer's weights and of its biases, None without biases; `inputs`: channels, or units of a dense layer's input."""
    if (
        layer.weights.centres_filters
        or layer.weights.taps(layer.window.kernel if isinstance(layer, Conv) else (1, 1)) is not None
    ):
        raise NoExactForm(
            layer.word,
            f"{layer.weights.name} weights are not independent",
            "use another weight law, or the exact kernel with parametrization='ntk'",
        )
    fans = layer.fans(inputs) if isinstance(layer, Conv) else Fans(inputs, layer.width)
    return variances_of(layer, fans)
