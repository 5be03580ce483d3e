"""Compositions of layers: what all of them share, and layers one after the other."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Inputs, State
from initscope.layers import Layer, Shape, Trace


class Composition(Layer):
    """What a composition asks for is what any of its parts asks for; its weights count only if no path avoids them."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Layer, ...]: ...

    @property
    def needs_all_positions(self) -> bool:
        return any(p.needs_all_positions for p in self.parts)

    @property
    def needs_joint_batch(self) -> bool:
        return any(p.needs_joint_batch for p in self.parts)

    @property
    def needs_draws(self) -> bool:
        return any(p.needs_draws for p in self.parts)

    @property
    def has_weights(self) -> bool:
        return all(p.has_weights for p in self.parts)


@dataclass(frozen=True, init=False, repr=False)
class Sequential(Composition):
    """Layers one after the other."""

    layers: tuple[Layer, ...]

    def __init__(self, *layers: Layer) -> None:
        require_layers("sequential", layers)
        object.__setattr__(self, "layers", layers)

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self.layers

    @property
    def has_weights(self) -> bool:
        return any(layer.has_weights for layer in self.layers)

    @property
    def word(self) -> str:
        return " ".join(layer.word for layer in self.layers)

    def output_shape(self, shape: Shape) -> Shape:
        return reduce(lambda s, layer: layer.output_shape(s), self.layers, shape)

    def propagate(self, state: State | Inputs, trace: Trace | None = None) -> State | Inputs:
        trace = trace if trace is not None else Trace()
        keep = trace.keep_positions
        for layer, rest in zip(self.layers, needed_after(self.layers, keep), strict=True):
            state = trim(state, rest or layer.needs_all_positions)
            trace.keep_positions = rest
            state = layer.propagate(state, trace)
        trace.keep_positions = keep
        return trim(state, keep)

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Sequential:
        modules = []
        for layer in self.layers:
            modules.append(layer.sample(shape, generator=generator, dtype=dtype))
            shape = layer.output_shape(shape)
        return nn.Sequential(*modules)

    def draw(self, inputs: Tensor, generator: Generator) -> Tensor:
        return reduce(lambda h, layer: layer.draw(h, generator), self.layers, inputs)


def as_network(place: str, net: object) -> Sequential:
    """The network as a sequence of layers, or one clear error that says how to get one."""
    if isinstance(net, Sequential):
        return net
    if isinstance(net, Layer):
        return Sequential(net)
    if isinstance(net, str):
        raise BadInput(place, f"net is the text {_quoted(net)}, expected a network", f"pass parse({_quoted(net)})")
    problem = f"net is a {type(net).__name__}, expected a network"
    if isinstance(net, nn.Module):
        raise BadInput(
            place, problem, "write it as a network, for example with parse(...), or pass the module to check"
        )
    raise BadInput(place, problem, 'pass for example parse("conv3 relu gap") or Sequential(Conv(64), ReLU())')


def _quoted(text: str) -> str:
    short = text if len(text) <= 60 else f"{text[:57]}..."
    return f'"{short}"'


def needed_after(layers: tuple[Layer, ...], keep: bool = False) -> list[bool]:
    """For each layer, whether any later one (or what follows them all: `keep`) looks at pairs of different positions."""
    needed = []
    for layer in reversed(layers):
        needed.append(keep)
        keep = keep or layer.needs_all_positions
    return needed[::-1]


def trim(state: State | Inputs, needed: bool) -> State | Inputs:
    """Pairs of different positions are carried only as far as a layer needs them."""
    if needed:
        return state
    return replace(state, all_positions=False) if isinstance(state, Inputs) else state.same_position()


def require_layers(place: str, layers: tuple[object, ...]) -> None:
    for i, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            raise BadInput(
                place, f"part {i} is a {type(layer).__name__}, expected a layer", "pass layers, for example Conv(64)"
            )
