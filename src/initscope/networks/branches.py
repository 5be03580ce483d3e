"""Branches on the same input: added up, multiplied, side by side."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Inputs, State
from initscope.geometry.inputs import MOST_AXES
from initscope.layers import Layer, Scale, Shape, Trace
from initscope.networks.composition import Composition, Sequential, require_layers, trim
from initscope.networks.merging import add, concatenate, join, multiply


@dataclass(frozen=True, init=False, repr=False)
class Branches(Composition):
    """Layers on the same input, whose outputs become one: `merge` of their states, `unite` of their values."""

    branches: tuple[Layer, ...]

    kind: ClassVar[str]  # its name in the language

    def __init__(self, *branches: Layer) -> None:
        require_layers(self.kind, branches)
        if len(branches) < 2:
            raise BadInput(self.kind, f"got {len(branches)} branches", "pass at least two")
        object.__setattr__(self, "branches", branches)

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self.branches

    @property
    def word(self) -> str:
        return f"{self.kind}({' | '.join(b.word for b in self.branches)})"

    def output_shape(self, shape: Shape) -> Shape:
        shapes = [b.output_shape(shape) for b in self.branches]
        if len(set(shapes)) > 1:
            raise BadInput(self.word, f"branches end in shapes {', '.join(map(str, shapes))}", "make them equal")
        return shapes[0]

    def propagate(self, state: State | Inputs, trace: Trace | None = None) -> State | Inputs:
        trace = trace if trace is not None else Trace()
        self.output_shape(state.shape)
        return self.merge(_run_branches(self.branches, state, trace))

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return Parallel([b.sample(shape, generator=generator, dtype=dtype) for b in self.branches], self.unite)

    def draw(self, inputs: Tensor, generator: Generator) -> Tensor:
        return self.unite([b.draw(inputs, generator) for b in self.branches])

    @abstractmethod
    def merge(self, outs: list[State | Inputs]) -> State | Inputs:
        """What the branches' states become."""

    @abstractmethod
    def unite(self, outputs: list[Tensor]) -> Tensor:
        """What the branches' values become."""


@dataclass(frozen=True, init=False, repr=False)
class Sum(Branches):
    """The sum of branches on the same input.

    Branches with weights of their own are independent of the others, so
    A' = Σ A_i + 2 Σ_{i<j} m_i m_j and D' = Σ D_i + 2 Σ_{i<j} (m_i^a - m_i^b)(m_j^a - m_j^b), m being the units' means.
    """

    kind = "sum"

    def __init__(self, *branches: Layer) -> None:
        super().__init__(*branches)
        _require_independent(self, "write nested skips as one sum")

    def merge(self, outs: list[State | Inputs]) -> State | Inputs:
        return reduce(add, outs)

    def unite(self, outputs: list[Tensor]) -> Tensor:
        return torch.stack(outputs).sum(0)


@dataclass(frozen=True, init=False, repr=False)
class Product(Branches):
    """The elementwise product of branches on the same input.

    Branches with weights of their own are independent of the others: second moments, products and means multiply,
    A' = A₁ A₂ and E u'v' = E u₁v₁ · E u₂v₂. A skip and a branch with an activation at its end make a gate.
    """

    kind = "prod"

    def __init__(self, *branches: Layer) -> None:
        super().__init__(*branches)
        _require_independent(self, "give every branch but one a dense or conv layer")

    def merge(self, outs: list[State | Inputs]) -> State | Inputs:
        return reduce(multiply, outs)

    def unite(self, outputs: list[Tensor]) -> Tensor:
        return reduce(torch.mul, outputs)


@dataclass(frozen=True, init=False, repr=False)
class Residual(Composition):
    """The input plus `scale` times a branch."""

    layers: tuple[Layer, ...]
    scale: float

    def __init__(self, *layers: Layer, scale: float = 1.0) -> None:
        require_layers("res", layers)
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
class Concat(Branches):
    """Branches on the same input side by side: along channels (`axis=0`), or along a position axis (1, 2 or 3).

    Along channels each branch stays a kind of units of its own. Along positions the products between positions of two
    branches are those of their means: as in a sum, all branches but one need weights of their own.
    """

    axis: int

    kind = "cat"

    def __init__(self, *branches: Layer, axis: int = 0) -> None:
        super().__init__(*branches)
        if isinstance(axis, bool) or not isinstance(axis, int) or not 0 <= axis <= MOST_AXES:
            raise BadInput(
                "cat", f"axis is {axis!r}, expected 0 to {MOST_AXES}", "0 are channels, 1 the first position axis"
            )
        object.__setattr__(self, "axis", axis)

    @property
    def word(self) -> str:
        axis = f", axis={self.axis}" if self.axis else ""
        return f"cat({' | '.join(b.word for b in self.branches)}{axis})"

    def output_shape(self, shape: Shape) -> Shape:
        shapes = [b.output_shape(shape) for b in self.branches]
        axis = self.axis
        if axis >= len(shapes[0]):
            raise BadInput(
                self.word, f"the branches end in shape {shapes[0]}, which has no axis {axis}", "use another axis"
            )
        if len({(*s[:axis], *s[axis + 1 :]) for s in shapes}) > 1:
            raise BadInput(self.word, f"branches end in shapes {', '.join(map(str, shapes))}", "make the sizes equal")
        return *shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :]

    def merge(self, outs: list[State | Inputs]) -> State | Inputs:
        if all(isinstance(o, Inputs) for o in outs):
            first = outs[0]
            assert isinstance(first, Inputs)
            x, y = (self.unite([getattr(o, side) for o in outs]) for side in "xy")
            return replace(first, x=x, y=x if first.joint else y)
        states = [o.state() if isinstance(o, Inputs) else o for o in outs]
        if self.axis == 0:
            return concatenate(states)
        _require_independent(self, "concatenate along channels, which needs no independence")
        return join(states, self.axis - 1)

    def unite(self, outputs: list[Tensor]) -> Tensor:
        return torch.cat(outputs, self.axis + 1)


class Parallel(nn.Module):
    """The finite face of sums, products and concatenations: `merge` makes one output of the branches'."""

    def __init__(self, branches: list[nn.Module], merge: Callable[[list[Tensor]], Tensor]) -> None:
        super().__init__()
        self.branches, self.merge = nn.ModuleList(branches), merge

    def forward(self, x: Tensor) -> Tensor:
        return self.merge([branch(x) for branch in self.branches])


def _require_independent(layer: Branches, remedy: str) -> None:
    if sum(not b.has_weights for b in layer.branches) > 1:
        raise BadInput(
            layer.kind,
            "more than one branch has a path without a dense or conv layer, so their units are not independent",
            f"{remedy}, and activations of the same units as one activation",
        )


def _run_branches(branches: tuple[Layer, ...], state: State | Inputs, trace: Trace) -> list[State | Inputs]:
    needed = trace.keep_positions
    if isinstance(state, State):
        state = replace(state, tied=False)  # what ties units before the fork does not tie the branches to each other
    return [trim(Sequential(branch).propagate(state, trace), needed) for branch in branches]
