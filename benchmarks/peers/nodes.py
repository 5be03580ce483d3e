"""A network of initscope as plain data, the form in which the peers and the judge of the differential suite read it."""

from __future__ import annotations

import math
from typing import Any

from initscope import layers, networks, weights

Node = dict[str, Any]


def nodes(net: networks.Sequential) -> list[Node]:
    """One dictionary for each layer; raises ValueError for what the peers do not have."""
    return [_node(layer) for layer in net.layers]


def _deviation(law: Any) -> float:
    """Root of the gain: weights have variance w² / fan-in on both sides."""
    if not isinstance(law, weights.Gaussian) or law.fan != "in":
        raise ValueError(f"{law!r}: only Gaussian weights scaled by the fan-in are compared")
    return math.sqrt(law.scale)


def _both(size: int | tuple[int, ...]) -> list[int]:
    return [size, size] if isinstance(size, int) else list(size)


def _conv(layer: layers.Conv) -> Node:
    if layer.dilation != 1 or layer.groups != 1 or layer.margin is not None:
        raise ValueError(f"{layer!r}: dilation, groups and margins are not compared")
    place = {"kernel": _both(layer.kernel), "stride": _both(layer.stride), "padding": layer.padding}
    return {"op": "conv", "width": layer.channels, **place, "w": _deviation(layer.weights), "b": layer.bias}


def _node(layer: layers.Layer) -> Node:
    match layer:
        case layers.Conv():
            return _conv(layer)
        case layers.Dense():
            return {"op": "dense", "width": layer.width, "w": _deviation(layer.weights), "b": layer.bias}
        case layers.Activate():
            name, _, numbers = layer.activation.name.rstrip(")").partition("(")
            return {"op": "act", "name": name, "numbers": [float(number) for number in numbers.split(",") if number]}
        case layers.LayerNorm():
            return {"op": "ln", "over": layer.over, "epsilon": layer.epsilon}
        case layers.AveragePool(padding="valid"):
            return {"op": "avgpool", "window": layer.window, "stride": layer.stride or layer.window}
        case layers.GlobalAveragePool():
            return {"op": "gap"}
        case networks.Residual(scale=1.0):
            return {"op": "sum", "branches": [[], [_node(inner) for inner in layer.layers]]}
    raise ValueError(f"{layer!r} is not compared")
