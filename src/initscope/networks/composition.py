"""Compositions of layers: one after the other, added up, side by side."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Inputs, State
from initscope.layers import Layer, Scale, Shape, Trace
from initscope.networks.merging import add, concatenate


class _Composition(Layer):
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
class Sequential(_Composition):
    """Layers one after the other."""

    layers: tuple[Layer, ...]

    def __init__(self, *layers: Layer) -> None:
        _require_layers("sequential", layers)
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
            state = _trim(state, rest or layer.needs_all_positions)
            trace.keep_positions = rest
            state = layer.propagate(state, trace)
        trace.keep_positions = keep
        return _trim(state, keep)

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Sequential:
        modules = []
        for layer in self.layers:
            modules.append(layer.sample(shape, generator=generator, dtype=dtype))
            shape = layer.output_shape(shape)
        return nn.Sequential(*modules)

    def draw(self, inputs: Tensor, generator: Generator) -> Tensor:
        return reduce(lambda h, layer: layer.draw(h, generator), self.layers, inputs)


@dataclass(frozen=True, init=False, repr=False)
class Sum(_Composition):
    """The sum of branches on the same input.

    Branches with weights of their own are independent of the others, so
    A' = Σ A_i + 2 Σ_{i<j} m_i m_j and D' = Σ D_i + 2 Σ_{i<j} (m_i^a - m_i^b)(m_j^a - m_j^b), m being the units' means.
    """

    branches: tuple[Layer, ...]

    def __init__(self, *branches: Layer) -> None:
        _require_layers("sum", branches)
        if len(branches) < 2:
            raise BadInput("sum", f"got {len(branches)} branches", "pass at least two")
        if sum(not b.has_weights for b in branches) > 1:
            raise BadInput(
                "sum",
                "more than one branch has a path without a dense or conv layer, so their units are not independent",
                "write nested skips as one sum, and activations of the same units as one activation",
            )
        object.__setattr__(self, "branches", branches)

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self.branches

    @property
    def word(self) -> str:
        return f"sum({' | '.join(b.word for b in self.branches)})"

    def output_shape(self, shape: Shape) -> Shape:
        shapes = [b.output_shape(shape) for b in self.branches]
        if len(set(shapes)) > 1:
            raise BadInput(self.word, f"branches end in shapes {', '.join(map(str, shapes))}", "make them equal")
        return shapes[0]

    def propagate(self, state: State | Inputs, trace: Trace | None = None) -> State | Inputs:
        trace = trace if trace is not None else Trace()
        self.output_shape(_shape(state))
        return reduce(add, _run_branches(self.branches, state, trace))

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return Parallel([b.sample(shape, generator=generator, dtype=dtype) for b in self.branches], add=True)

    def draw(self, inputs: Tensor, generator: Generator) -> Tensor:
        return _merge([b.draw(inputs, generator) for b in self.branches], add=True)


@dataclass(frozen=True, init=False, repr=False)
class Residual(_Composition):
    """The input plus `scale` times a branch."""

    layers: tuple[Layer, ...]
    scale: float

    def __init__(self, *layers: Layer, scale: float = 1.0) -> None:
        _require_layers("res", layers)
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "scale", scale)
        _ = self.sum  # refuses a branch without weights, and a scale that is no number

    @property
    def sum(self) -> Sum:
        tail = () if self.scale == 1.0 else (Scale(self.scale),)
        return Sum(Sequential(), Sequential(*self.layers, *tail))

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self.layers

    @property
    def has_weights(self) -> bool:
        return False  # the skip has none

    @property
    def word(self) -> str:
        inside = " ".join(layer.word for layer in self.layers)
        return f"res({inside})" if self.scale == 1.0 else f"res({inside}, scale={self.scale:g})"

    def output_shape(self, shape: Shape) -> Shape:
        return self.sum.output_shape(shape)

    def propagate(self, state: State | Inputs, trace: Trace | None = None) -> State | Inputs:
        return self.sum.propagate(state, trace)

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        return self.sum.sample(shape, generator=generator, dtype=dtype)

    def draw(self, inputs: Tensor, generator: Generator) -> Tensor:
        return self.sum.draw(inputs, generator)


@dataclass(frozen=True, init=False, repr=False)
class Concat(_Composition):
    """Branches on the same input side by side along channels: each stays a kind of units of its own."""

    branches: tuple[Layer, ...]

    def __init__(self, *branches: Layer) -> None:
        _require_layers("cat", branches)
        if len(branches) < 2:
            raise BadInput("cat", f"got {len(branches)} branches", "pass at least two")
        object.__setattr__(self, "branches", branches)

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self.branches

    @property
    def word(self) -> str:
        return f"cat({' | '.join(b.word for b in self.branches)})"

    def output_shape(self, shape: Shape) -> Shape:
        shapes = [b.output_shape(shape) for b in self.branches]
        if len({s[1:] for s in shapes}) > 1:
            raise BadInput(self.word, f"branches end in shapes {', '.join(map(str, shapes))}", "make the sizes equal")
        return sum(s[0] for s in shapes), *shapes[0][1:]

    def propagate(self, state: State | Inputs, trace: Trace | None = None) -> State | Inputs:
        trace = trace if trace is not None else Trace()
        self.output_shape(_shape(state))
        outs = _run_branches(self.branches, state, trace)
        if all(isinstance(o, Inputs) for o in outs):
            first = outs[0]
            assert isinstance(first, Inputs)
            x, y = (torch.cat([getattr(o, side) for o in outs], 1) for side in "xy")
            return replace(first, x=x, y=x if first.joint else y)
        return concatenate([o.state() if isinstance(o, Inputs) else o for o in outs])

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return Parallel([b.sample(shape, generator=generator, dtype=dtype) for b in self.branches], add=False)

    def draw(self, inputs: Tensor, generator: Generator) -> Tensor:
        return _merge([b.draw(inputs, generator) for b in self.branches], add=False)


class Parallel(nn.Module):
    """The finite face of sums and concatenations."""

    def __init__(self, branches: list[nn.Module], *, add: bool) -> None:
        super().__init__()
        self.branches, self.add = nn.ModuleList(branches), add

    def forward(self, x: Tensor) -> Tensor:
        return _merge([branch(x) for branch in self.branches], add=self.add)


def _merge(outputs: list[Tensor], *, add: bool) -> Tensor:
    return torch.stack(outputs).sum(0) if add else torch.cat(outputs, 1)


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


def _run_branches(branches: tuple[Layer, ...], state: State | Inputs, trace: Trace) -> list[State | Inputs]:
    needed = trace.keep_positions
    if isinstance(state, State):
        state = replace(state, tied=False)  # what ties units before the fork does not tie the branches to each other
    return [_trim(Sequential(branch).propagate(state, trace), needed) for branch in branches]


def _trim(state: State | Inputs, needed: bool) -> State | Inputs:
    """Pairs of different positions are carried only as far as a layer needs them."""
    if needed:
        return state
    return replace(state, all_positions=False) if isinstance(state, Inputs) else state.same_position()


def _shape(state: State | Inputs) -> Shape:
    return state.shape if isinstance(state, Inputs) else (state.channels, *state.positions)


def _require_layers(place: str, layers: tuple[object, ...]) -> None:
    for i, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            raise BadInput(
                place, f"part {i} is a {type(layer).__name__}, expected a layer", "pass layers, for example Conv(64)"
            )
