"""How a simulation is cut into pieces: pairs that go through a network together, draws that run side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.layers import Conv, Dense, Layer, Shape
from initscope.networks import Concat, Masked, Product, Residual, Sequential, Sum
from initscope.networks.planning import budget, require_memory

# Activations that travel together. A constant: if it followed the memory at hand, so would the last digits of the results.
TILE_BYTES = 1 << 24
# Peak memory over the numbers counted here, measured: padded and reordered copies; going back, gradients and patches, too.
_LIVE_FORWARD, _LIVE_BACKWARD = 4, 6


@dataclass(frozen=True)
class Plan:
    """Inputs in tiles of so many at once, draws on so many threads."""

    tile: int
    workers: int


@dataclass(frozen=True)
class _Sizes:
    values: int  # the most numbers alive inside the layer, for one input
    weights: int  # of the whole layer
    largest: int  # of its largest part


def plan_draws(
    place: str, net: Layer, inputs: Tensor, *, draws: int, memory: int | None, backward: bool = False, group: int = 1
) -> Plan:
    """Tiles and threads that fit the memory; inputs (n, ...) come in groups that may not be separated.

    `backward`: all layers' activations and weights are kept for gradients.
    """
    count, shape, item = len(inputs) // group, tuple(inputs.shape[1:]), inputs.element_size()
    sizes = _sizes(net, shape)
    values = _total(net, shape) if backward else sizes.values
    each = group * values * item
    tile = count if net.needs_joint_batch else max(1, min(count, TILE_BYTES // each))
    weights = sizes.weights if backward or tile < count else sizes.largest
    live = _LIVE_BACKWARD if backward else _LIVE_FORWARD
    needed = live * tile * each + 2 * weights * item  # weights are drawn, then scaled
    allowed = budget(memory, inputs.device)
    whole = "batch norm takes the whole batch at once: use fewer or smaller inputs"
    rest = whole if net.needs_joint_batch else "use smaller inputs"
    require_memory(place, needed, allowed, f"{rest}, narrower layers, or raise memory=")
    threads = 1 if inputs.device.type != "cpu" else torch.get_num_threads()
    return Plan(tile, max(1, min(threads, draws, allowed // needed)))


def _sizes(layer: Layer, shape: Shape) -> _Sizes:
    if isinstance(layer, Residual):
        layer = layer.sum
    if isinstance(layer, Sum | Product | Concat):
        parts = [_sizes(branch, shape) for branch in layer.branches]
        values = math.prod(shape) + sum(p.values for p in parts)  # every branch's output waits for the others
        return _Sizes(values, sum(p.weights for p in parts), max(p.largest for p in parts))
    if isinstance(layer, Sequential | Masked):
        found = _Sizes(math.prod(shape), 0, 0)
        for part in layer.layers:
            s = _sizes(part, shape)
            found = _Sizes(max(found.values, s.values), found.weights + s.weights, max(found.largest, s.largest))
            shape = part.output_shape(shape)
        return found
    weights = 0
    if isinstance(layer, Dense):
        weights = layer.width * math.prod(shape)
    elif isinstance(layer, Conv):
        weights = layer.channels * layer.on(len(shape) - 1).fans(shape[0]).fan_in
    return _Sizes(math.prod(shape) + math.prod(layer.output_shape(shape)), weights, weights)


def _total(net: Layer, shape: Shape) -> int:
    """Numbers of one input that a backward pass needs: what every layer was given and made of it."""
    layers = net.layers if isinstance(net, Sequential) else (net,)
    total = 0
    for layer in layers:
        total += _sizes(layer, shape).values
        shape = layer.output_shape(shape)
    return total
