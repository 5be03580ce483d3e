"""Fully connected layer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Side, State, variance
from initscope.layers.layer import Shape, SingleLayer, Trace, require_number, require_positive, require_weights
from initscope.weights import Fans, He, WeightLaw


@dataclass(frozen=True)
class Dense(SingleLayer):
    """`width` units, each a random weighting of all inputs; images are flattened first.

    With gain g = fan_in · Var(w): A' = g · mean A + β², D' = g · mean D, the mean over all units and positions before it.
    `bias` is the standard deviation β of Gaussian biases, which both inputs share.
    """

    width: int
    weights: WeightLaw = field(default_factory=He)
    bias: float = 0.0

    def __post_init__(self) -> None:
        require_positive("dense", width=self.width)
        require_number("dense", bias=self.bias)
        require_weights("dense", self.weights)
        taps = self.weights.taps((1, 1))
        if taps is not None and taps.ndim == 2:
            raise BadInput("dense", f"{self.weights.name} weights relate the taps of a filter", "use them in Conv")

    @property
    def word(self) -> str:
        return f"dense({self.width})"

    @property
    def has_weights(self) -> bool:
        return True

    def output_shape(self, shape: Shape) -> Shape:
        return (self.width,)

    def _exact(self, state: State, trace: Trace) -> State:
        state = state.same_position()
        size = len(state.positions)
        gain = self.weights.gain(Fans(state.units, self.width))

        def mean(t: Tensor) -> Tensor:
            t = state.collapse_kinds(t)
            return t.flatten(t.ndim - size).mean(-1) if size else t

        def side(s: Side) -> Side:
            norm = mean(s.norm)
            if self.weights.centres_filters:
                norm = variance(norm, mean(s.mean))  # S = I - 11'/k
            return Side(gain * norm + self.bias**2, torch.zeros_like(norm))

        cross = state.cross()
        distance = mean(cross.distance)
        if self.weights.centres_filters:
            distance = (distance - mean(cross.mean_a - cross.mean_b).square()).clamp_min(0)
        if not self.weights.gaussian:
            trace.note(f"{self.word}: {self.weights.name} weights give Gaussian units only as fan-in grows")
        x = side(state.x)
        return State(
            x=x,
            y=x if state.joint else side(state.y),
            distance=gain * distance,
            shares=torch.ones(1, dtype=distance.dtype, device=distance.device),
            channels=self.width,
            positions=(),
            zipped=state.zipped,
            all_positions=False,
            joint=state.joint,
        )

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        inputs = math.prod(shape)
        with torch.random.fork_rng(devices=[]):  # PyTorch draws weights of its own from the global random state
            linear = nn.Linear(inputs, self.width, bias=self.bias > 0, dtype=dtype)
        with torch.no_grad():
            fans = Fans(inputs, self.width)
            linear.weight.copy_(self.weights.sample((self.width, inputs), fans, generator, dtype))
            if self.bias > 0:
                linear.bias.copy_(torch.randn(self.width, generator=generator, dtype=dtype) * self.bias)
        return linear if len(shape) == 1 else nn.Sequential(nn.Flatten(), linear)
