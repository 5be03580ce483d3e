"""Inputs with positions that do not count, such as the padding of sequences.

Units at masked positions are zero. A layer acts as it always does; then every unit of input i at position p is multiplied by
α_ip: 0 where the output is masked, 1 where it is not, and for means the ratio of all positions of the window to those that
count. So A' = α²A, E u'v' = αβ E uv, and both faces share the rule of each layer, `after`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Block, Inputs, Pairs, State, push, then
from initscope.layers import (
    BatchNorm,
    GlobalMaxPool,
    GroupNorm,
    Layer,
    LayerNorm,
    MaxPool,
    Shape,
    Trace,
)
from initscope.layers.layer import SingleLayer
from initscope.layers.layer_norm import normalise
from initscope.layers.pooling import on_units
from initscope.networks.branches import Concat, Parallel, Product, Residual, Sum
from initscope.networks.composition import Composition, Sequential, needed_after, require_layers, trim
from initscope.networks.mask_rules import Mask, after, counted


@dataclass(frozen=True, init=False, repr=False)
class Masked(Composition):
    """Layers one after the other that leave out masked positions: those at which all channels of an input are `value`.

    A convolution reads zeros there; its output counts where the window's middle does (with `padding="valid"`: the whole
    window), so that a padded sequence gives what the sequence itself would give. Pools and layer norm take the positions
    that count. Batch and group norm are refused.
    """

    layers: tuple[Layer, ...]
    value: float

    def __init__(self, *layers: Layer, value: float = 0.0) -> None:
        require_layers("masked", layers)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise BadInput("masked", f"value is {value!r}, expected a finite number", "pass for example value=0")
        for part in _all_parts(layers):
            if isinstance(part, BatchNorm | GroupNorm | Masked):
                raise BadInput(
                    "masked", f"{part.word} does not leave out masked positions", "use ln, or put it outside"
                )
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "value", float(value))

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self.layers

    @property
    def has_weights(self) -> bool:
        return any(layer.has_weights for layer in self.layers)

    @property
    def word(self) -> str:
        value = "" if self.value == 0 else f", value={self.value:g}"
        return f"masked({' '.join(layer.word for layer in self.layers)}{value})"

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) == 1:
            raise BadInput(self.word, f"got vectors of shape {shape}, expected inputs with positions", "put it first")
        return Sequential(*self.layers).output_shape(shape)

    def propagate(self, state: State | Inputs, trace: Trace | None = None) -> State | Inputs:
        if not isinstance(state, Inputs):
            raise BadInput(self.word, "masks are read off the data, and there are layers before it", "put it first")
        self.output_shape(state.shape)
        x = counted(state.x, self.value)
        masks = (x, x if state.joint else counted(state.y, self.value))
        shown = [torch.where(mask[:, None], t, 0) for mask, t in zip(masks, (state.x, state.y), strict=True)]
        inputs = replace(state, x=shown[0], y=shown[0] if state.joint else shown[1])
        return _propagate(Sequential(*self.layers), inputs, masks, trace if trace is not None else Trace())[0]

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        inside = Sequential(*self.layers)
        return MaskedModule(inside, inside.sample(shape, generator=generator, dtype=dtype), self.value)


class MaskedModule(nn.Module):
    """The finite face of `Masked`."""

    def __init__(self, layers: Sequential, inside: nn.Sequential, value: float) -> None:
        super().__init__()
        self.layers, self.inside, self.value = layers, inside, value

    def forward(self, x: Tensor) -> Tensor:
        mask = counted(x, self.value)
        return _forward(self.layers, self.inside, torch.where(mask[:, None], x, 0), mask)[0]


def _merged_mask(layer: Sum | Product | Concat, masks: list[Mask]) -> Mask:
    """Sums and channels side by side count where any branch does, products where all do."""
    known = [mask for mask in masks if mask is not None]
    if len(known) < len(masks):
        return None
    if isinstance(layer, Concat) and layer.axis > 0:
        return torch.cat(known, layer.axis)
    return reduce(torch.logical_and if isinstance(layer, Product) else torch.logical_or, known)


def _forward(layer: Layer, module: nn.Module, x: Tensor, mask: Mask) -> tuple[Tensor, Mask]:
    """The finite layer on values (n, c, *positions) that are zero where they are masked."""
    if isinstance(layer, Residual):
        layer = layer.sum
    if isinstance(layer, Sequential):
        assert isinstance(module, nn.Sequential)
        for part, inside in zip(layer.layers, module, strict=True):
            x, mask = _forward(part, inside, x, mask)
        return x, mask
    if isinstance(layer, Sum | Product | Concat):
        assert isinstance(module, Parallel)
        outs = [_forward(b, m, x, mask) for b, m in zip(layer.branches, module.branches, strict=True)]
        return module.merge([out for out, _ in outs]), _merged_mask(layer, [m for _, m in outs])
    if mask is None:
        return module(x), None
    if isinstance(layer, LayerNorm):
        return _standardised(layer, x, mask), mask
    if isinstance(layer, MaxPool | GlobalMaxPool):
        x = torch.where(mask[:, None], x, -math.inf)
    behind, factor = after(layer, mask)
    out = module(x)
    if factor is None:
        return out, behind
    factor = factor[:, None].to(out)
    return torch.where(factor > 0, factor * out, 0), behind


def _standardised(layer: LayerNorm, x: Tensor, mask: Tensor) -> Tensor:
    axes = tuple(a + 2 for a in layer.axes(x.ndim - 2))
    weight = mask[:, None].to(x)
    count = weight.sum(axes, keepdim=True).clamp_min(1) if axes else 1.0

    def mean(t: Tensor) -> Tensor:
        return (weight * t).sum((1, *axes), keepdim=True) / (count * x.shape[1])

    centred = weight * (x - mean(x))
    return weight * torch.where(weight > 0, centred * (mean(centred.square()) + layer.epsilon).rsqrt(), 0)


def _propagate(
    layer: Layer, state: State | Inputs, masks: tuple[Mask, Mask], trace: Trace
) -> tuple[State | Inputs, tuple[Mask, Mask]]:
    """The infinitely wide layer on a state whose units are zero where they are masked."""
    if isinstance(layer, Residual):
        layer = layer.sum
    if isinstance(layer, Sequential):
        keep = trace.keep_positions
        for part, rest in zip(layer.layers, needed_after(layer.layers, keep), strict=True):
            trace.keep_positions = rest
            state, masks = _propagate(part, trim(state, rest or part.needs_all_positions), masks, trace)
        trace.keep_positions = keep
        return trim(state, keep), masks
    if isinstance(layer, Sum | Product | Concat):
        shared = replace(state, tied=False) if isinstance(state, State) else state
        outs = [_propagate(Sequential(branch), shared, masks, trace) for branch in layer.branches]
        x, y = (_merged_mask(layer, [m[side] for _, m in outs]) for side in (0, 1))
        return layer.merge([out for out, _ in outs]), (x, x if state.joint else y)
    if masks[0] is None or masks[1] is None:
        return layer.propagate(state, trace), (None, None)
    if isinstance(state, Inputs) and isinstance(layer, SingleLayer) and layer.acts_on_data:
        return _on_data(layer, state, (masks[0], masks[1]), trace)
    x, factor_x = after(layer, masks[0])
    y, factor_y = (x, factor_x) if state.joint else after(layer, masks[1])
    out = _unmasked(layer, state, (masks[0], masks[1]), (factor_x, factor_y), trace)
    if factor_x is not None and factor_y is not None:
        out = rescaled(out, factor_x, factor_y)
    return out, (x, y)


def _on_data(
    layer: SingleLayer, inputs: Inputs, masks: tuple[Tensor, Tensor], trace: Trace
) -> tuple[State | Inputs, tuple[Mask, Mask]]:
    module = layer.sample(inputs.shape, generator=trace.generator, dtype=inputs.x.dtype).to(inputs.x.device)
    x, mask_x = _forward(layer, module, inputs.x, masks[0])
    y, mask_y = (x, mask_x) if inputs.joint else _forward(layer, module, inputs.y, masks[1])
    return replace(inputs, x=x, y=y), (mask_x, mask_y)


def _unmasked(
    layer: Layer, state: State | Inputs, masks: tuple[Tensor, Tensor], factors: tuple[Mask, Mask], trace: Trace
) -> State:
    """The layer's own law; those that would take zeros for values are told the mask."""
    if isinstance(state, State) and isinstance(layer, LayerNorm):
        axes = layer.axes(len(state.positions))
        shares = [m.to(state.excess).mean(tuple(a + 1 for a in axes), keepdim=True) if axes else None for m in masks]
        known = [torch.ones(()) if s is None else torch.where(s > 0, s, 1) for s in shares]
        return normalise(state, axes, layer.epsilon, shares=(known[0], known[1]))
    if isinstance(state, State) and isinstance(layer, MaxPool | GlobalMaxPool):
        trace.simulated = True
        shown, kept = (m[0] if state.joint else torch.cat([t for t in m if t is not None]) for m in (masks, factors))
        assert shown is not None
        assert kept is not None
        module = layer.sample(state.shape, generator=trace.generator)

        def largest(samples: Tensor) -> Tensor:
            return torch.where(kept, on_units(module)(torch.where(shown, samples, -math.inf)), 0)

        return push(state, largest, state.channels, trace.units, trace.generator)
    out = layer.propagate(state, trace)
    assert isinstance(out, State)
    return out


def rescaled(state: State, alpha: Tensor, beta: Tensor) -> State:
    """Units of input i at position p times α_ip (x) and β_ip (y): A' = α²A, and excess, product, tangent kernel times αβ."""
    factors = {state.x: alpha.to(state.excess)[None], state.y: beta.to(state.excess)[None]}

    def times(t: Tensor, factor: Tensor) -> Tensor:
        """Zero where the factor is, whatever t is there."""
        return torch.where(factor > 0, factor * t, 0)

    def both(block: Block) -> Tensor:
        return block.left(factors[block.a]) * block.right(factors[block.b])

    def pairs(block: Block, *_: Tensor) -> Pairs:
        return Pairs(times(block.excess, both(block)), times(block.product, both(block)))

    images = factors[state.x] if state.joint else torch.cat([factors[state.x], factors[state.y]], 1)
    keeps = state.law == "gaussian" and state.draw is None
    apply: Callable[[Tensor], Tensor] = lambda t: times(t, images[:, None])  # noqa: E731 - an argument with a type
    return state.map(
        lambda s: times(s.norm, factors[s].square()),
        pairs,
        lambda s: times(s.mean, factors[s]),
        tangent=lambda t: times(t, both(state.cross())),
        draw=None if keeps else then(state, apply),
    )


def _all_parts(layers: tuple[Layer, ...]) -> list[Layer]:
    inside = [part for layer in layers if isinstance(layer, Composition) for part in _all_parts(layer.parts)]
    return [*layers, *inside]
