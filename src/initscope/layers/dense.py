"""Fully connected layer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Side, State, centred_pairs, together, variance
from initscope.layers.biases import Bias, add_bias, bias_law
from initscope.layers.layer import Shape, SingleLayer, Trace, require_positive, require_weights
from initscope.layers.outputs import gaussian_outputs, saves_weights
from initscope.weights import Fans, Gaussian, He, Independent, WeightLaw


@dataclass(frozen=True, repr=False)
class Dense(SingleLayer):
    """`width` units, each a random weighting of all inputs; images are flattened first.

    With gain g = fan_in · Var(w): A' = g · mean A + β², P' = g · mean P + β², the mean over all units and positions before it.
    `bias` is the standard deviation β of Gaussian biases, which both inputs share, or a law of independent weights.
    """

    width: int
    weights: WeightLaw = field(default_factory=He)
    bias: Bias = 0.0

    def __post_init__(self) -> None:
        require_positive("dense", width=self.width)
        bias_law("dense", self.bias)
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

    @property
    def bias_law(self) -> Independent | None:
        """The law that the biases are drawn from, None without biases."""
        return bias_law("dense", self.bias)

    def output_shape(self, shape: Shape) -> Shape:
        return (self.width,)

    def _exact(self, state: State, trace: Trace) -> State:
        fans = Fans(state.units, self.width)
        gain = self.weights.gain(fans)
        state = together(state)  # one kind of units, no positions
        block = state.cross()
        excess, product = block.excess, block.product

        def side(s: Side) -> Side:
            norm = s.norm
            if self.weights.centres_filters:
                norm = variance(norm, s.mean)  # S = I - 11'/k
            return Side(gain * norm, torch.zeros_like(norm))

        if self.weights.centres_filters:
            roots = variance(state.x.norm, state.x.mean).sqrt(), variance(state.y.norm, state.y.mean).sqrt()
            excess, product = centred_pairs(
                block, block.mean_a, block.mean_b, block.left(roots[0]), block.right(roots[1])
            )
        if not self.weights.gaussian:
            trace.note(f"{self.word}: {self.weights.name} weights give Gaussian units only as fan-in grows")
        x = side(state.x)
        linear = State(
            x=x,
            y=x if state.joint else side(state.y),
            excess=gain * excess,
            product=gain * product,
            shares=torch.ones(1, dtype=excess.dtype, device=excess.device),
            channels=self.width,
            positions=(),
            zipped=state.zipped,
            all_positions=False,
            joint=state.joint,
            tangent=None if state.tangent is None else gain * state.tangent,
        )
        return add_bias(linear, self.bias_law, fans, self.word, trace)

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        inputs, bias = math.prod(shape), self.bias_law
        fans = Fans(inputs, self.width)
        # On the meta device PyTorch draws no weights of its own, which would take time and the global random state.
        linear = nn.Linear(inputs, self.width, bias=bias is not None, dtype=dtype, device="meta")
        linear.weight = nn.Parameter(self.weights.sample((self.width, inputs), fans, generator, dtype))
        if bias is not None:
            linear.bias = nn.Parameter(bias.sample((self.width,), fans, generator, dtype))
        return linear if len(shape) == 1 else nn.Sequential(nn.Flatten(), linear)

    def draw(self, inputs: Tensor, generator: Generator) -> Tensor:
        flat = inputs.flatten(1)
        count, fan_in = flat.shape
        # Sums that overflow have no factorisation; the weights themselves show where.
        known = type(self.weights) is Gaussian and bool(flat.sum().isfinite())
        if not (known and saves_weights(count, fan_in, self.width, flat.dtype)):
            return super().draw(inputs, generator)
        fans, bias = Fans(fan_in, self.width), self.bias_law
        outputs = gaussian_outputs(flat, self.width, self.weights.variance(fans), generator)
        if bias is not None:
            outputs += bias.sample((self.width,), fans, generator, flat.dtype).to(flat.device)
        return outputs
