"""What every layer is: an exact face (`propagate`) and a finite face (`sample`)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Literal, get_args

import torch
from torch import Generator, Tensor, nn

from initscope.activations import listen
from initscope.errors import BadInput, NoExactForm
from initscope.geometry import Inputs, State
from initscope.weights import WeightLaw

Shape = tuple[int, ...]  # of one input: (c, l), (c, h, w), (c, d, h, w) or (d,)
Rung = Literal["exact", "own dual", "quadrature", "approximate", "monte carlo", "simulated"]
RUNGS: tuple[Rung, ...] = get_args(Rung)  # from the most to the least certain
_INTEGRALS: dict[str, Rung] = {  # a series is one of integrals, of its coefficients
    "own dual": "own dual", "series": "quadrature", "quadrature": "quadrature", "monte carlo": "monte carlo",
}  # fmt: skip


@dataclass
class Trace:
    """What a propagation may use and what it leaves behind: the random source, and how each answer came about."""

    generator: Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))
    units: int = 4096  # units drawn where a layer is simulated
    keep_positions: bool = False  # a later layer needs pairs of different positions
    simulated: bool = False
    error: float = 0.0  # relative error estimate so far, that of each layer added
    integral_error: float = 0.0  # the part of it that integrals of activations have
    rung: Rung = "exact"  # the least certain way an answer came about so far
    notes: list[str] = field(default_factory=list)
    own: Callable[[Layer, State, State], State] | None = None  # adds what a layer's weights give to the tangent kernel

    def answer(self, rung: Rung, error: float) -> None:
        """A layer's answer that is not a closed form: how it was found, and its relative error estimate."""
        self.error += error
        self.rung = max(self.rung, rung, key=RUNGS.index)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


class Layer(ABC):
    """A layer of a random network. `propagate` is its exact face, `sample` its finite twin."""

    @property
    @abstractmethod
    def word(self) -> str:
        """A short name, as the architecture language writes it."""

    def __repr__(self) -> str:
        """The text that `parse` reads, or the Python call where the language has no words for the layer."""
        text: str = import_module("initscope.networks.language").text_of(self)  # the language stands on this room
        return text

    @property
    def needs_all_positions(self) -> bool:
        """Whether the layer looks at pairs of different positions."""
        return False

    @property
    def needs_joint_batch(self) -> bool:
        """Whether the layer couples the inputs of a batch."""
        return False

    @property
    def needs_draws(self) -> bool:
        """Whether the layer has no exact form on images, so that units are drawn."""
        return False

    @property
    def has_weights(self) -> bool:
        """Whether fresh weights make the layer's units independent of those before it."""
        return False

    @abstractmethod
    def propagate(self, state: State | Inputs, trace: Trace | None = None) -> State | Inputs:
        """The second moments after the layer, infinitely wide; raw inputs stay raw through layers without weights."""

    @abstractmethod
    def output_shape(self, shape: Shape) -> Shape:
        """Shape of one output for one input of this shape, or a clear error."""

    @abstractmethod
    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        """A finite module with random weights for inputs of this shape."""

    @torch.no_grad()
    def draw(self, inputs: Tensor, generator: Generator) -> Tensor:
        """What one random layer makes of these inputs (n, ...), in the law of `sample`.

        A layer that knows the law of its outputs draws those instead of its weights.
        """
        module = self.sample(tuple(inputs.shape[1:]), generator=generator, dtype=inputs.dtype)
        outputs: Tensor = module.to(inputs.device)(inputs)
        return outputs


class SingleLayer(Layer):
    """A layer that is no composition: `_exact` is its formula."""

    @property
    def acts_on_data(self) -> bool:
        """Whether raw data can be sent through the layer as it is (no weights, no randomness)."""
        return not self.has_weights

    def propagate(self, state: State | Inputs, trace: Trace | None = None) -> State | Inputs:
        trace = trace if trace is not None else Trace()
        if isinstance(state, Inputs):
            self.output_shape(state.shape)
            if self.acts_on_data:
                module = self.sample(state.shape, generator=trace.generator, dtype=state.x.dtype)
                return state.apply(module.to(state.x.device))
            state = self._enter(state)
        else:
            self.output_shape(state.shape)
        with listen() as evidence:
            out = self._exact(state, trace)
        for name, error in evidence.errors.items():
            trace.answer(_INTEGRALS[name], error)
            trace.integral_error += error
        if state.tangent is not None and out.tangent is None:
            raise NoExactForm(self.word, "its integral has no derivative here", "leave it out")
        return trace.own(self, state, out) if trace.own is not None and self.has_weights else out

    def _enter(self, inputs: Inputs) -> State:
        return inputs.state()

    @abstractmethod
    def _exact(self, state: State, trace: Trace) -> State: ...


def require_positions(layer: Layer, shape: Shape, axes: int | None = None) -> None:
    """Refuse vectors, and inputs with another number of position axes than the layer is written for."""
    found = len(shape) - 1
    if not found:
        raise BadInput(
            layer.word,
            f"got vectors of shape {shape}, expected sequences (c, l), images (c, h, w) or volumes (c, d, h, w)",
            "use it before flatten, gap or dense",
        )
    if axes is not None and found != axes:
        raise BadInput(
            layer.word,
            f"its sizes are for {axes} position axes, the input {shape} has {found}",
            "give one number, which holds along every axis, or one for each",
        )


def require_positive(place: str, **values: int | None) -> None:
    for name, value in values.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise BadInput(place, f"{name} is {value!r}, expected a whole number of at least 1", f"pass {name} >= 1")


def require_number(place: str, **values: float) -> None:
    """Finite and not negative."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise BadInput(place, f"{name} is {value!r}, expected a number of at least 0", f"pass {name} >= 0")


def require_weights(place: str, weights: object) -> None:
    if not isinstance(weights, WeightLaw):
        raise BadInput(
            place, f"weights is {weights!r}, expected a weight law", "pass for example weights=weights.by_name('he')"
        )
