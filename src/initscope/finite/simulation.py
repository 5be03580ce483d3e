"""`simulate`: finite random networks, drawn again and again, and what they do to pairs of inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from initscope.errors import BadInput
from initscope.finite.estimate import Estimate
from initscope.geometry import check_inputs, generator
from initscope.layers import Layer
from initscope.networks import Sequential
from initscope.networks.prediction import QUANTITIES, geometry, warn_zero_layers
from initscope.networks.progress import Progress


@dataclass(frozen=True)
class LayerEstimate:
    """Pairs of inputs after one layer of the sampled networks: the quantities of `LayerGeometry`, each an `Estimate`."""

    name: str
    shape: tuple[int, ...]
    norm_x: Estimate
    norm_y: Estimate
    distance: Estimate
    defect: Estimate
    cosine: Estimate
    angle: Estimate

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), **{q: getattr(self, q).to_dict() for q in QUANTITIES}}


@dataclass(frozen=True)
class Simulation:
    """The estimates at the input and after each layer, in order."""

    layers: tuple[LayerEstimate, ...]
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return {"layers": [layer.to_dict() for layer in self.layers], "seed": self.seed}


def simulate(
    net: Layer,
    x: Tensor,
    y: Tensor,
    *,
    draws: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> Simulation:
    """Norms, distances and angles of zipped pairs after each layer of `draws` independent finite networks.

    x, y: (n, c, h, w) or (n, d). Every draw has weights of its own; the same seed gives the same networks.
    """
    check_inputs(x, y, zipped=True)
    if not isinstance(draws, int) or draws < 2:
        raise BadInput(
            "simulate", f"draws is {draws}, expected at least 2", "pass draws >= 2: one draw has no interval"
        )
    net = net if isinstance(net, Sequential) else Sequential(net)
    net.output_shape(tuple(x.shape[1:]))
    both = torch.cat([x, y]).to(x.dtype if x.is_floating_point() else torch.float32)
    rows: list[list[dict[str, Tensor]]] = []
    for draw in range(draws):
        if progress is not None:
            progress(draw, draws)
        rows.append([measure(h) for h in activations(net, both, seed, draw)])
    if progress is not None:
        progress(draws, draws)
    names = ["input", *(f"{i} {layer.word}" for i, layer in enumerate(net.layers, start=1))]
    layers = []
    shape: tuple[int, ...] = tuple(x.shape[1:])
    for i, name in enumerate(names):
        shape = net.layers[i - 1].output_shape(shape) if i else shape
        values = {q: Estimate.from_draws(torch.stack([row[i][q] for row in rows])) for q in QUANTITIES}
        layers.append(LayerEstimate(name=name, shape=shape, **values))
    warn_zero_layers("simulate", [(layer.name, layer.norm_x.value, layer.norm_y.value) for layer in layers])
    return Simulation(tuple(layers), seed)


@torch.no_grad()
def activations(net: Sequential, inputs: Tensor, seed: int, draw: int = 0) -> Iterator[Tensor]:
    """The inputs and what each layer of one sampled network makes of them."""
    source = generator(seed, draw)
    module = net.sample(tuple(inputs.shape[1:]), generator=source, dtype=inputs.dtype).to(inputs.device)
    yield inputs
    for layer in module:
        assert isinstance(layer, nn.Module)
        inputs = layer(inputs)
        yield inputs


def measure(both: Tensor) -> dict[str, Tensor]:
    """Norms, distance and angle of the pairs (first half, second half) of a batch."""
    x, y = both.flatten(1).double().chunk(2)
    a, b, d = x.square().sum(1), y.square().sum(1), (x - y).square().sum(1)
    return {"norm_x": a.sqrt(), "norm_y": b.sqrt(), "distance": d.sqrt(), **geometry(a, b, d)}
