"""Dropout in training mode."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Block, Pairs, State, draw_units
from initscope.layers.layer import Shape, SingleLayer, Trace, require_number


@dataclass(frozen=True, repr=False)
class Dropout(SingleLayer):
    """Each unit kept with probability 1 - p and divided by it, independently for the two inputs (training mode).

    A' = A / (1-p), and the product stays: E' = E + 2√(AB) p / (1-p). A unit that meets itself does so under one mask:
    product and tangent kernel grow by 1 / (1-p) as the norm does.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        require_number("dropout", p=self.p)
        if self.p >= 1:
            raise BadInput("dropout", f"p is {self.p}, expected 0 <= p < 1", "pass a probability")

    @property
    def word(self) -> str:
        return f"dropout({self.p:g})"

    @property
    def acts_on_data(self) -> bool:
        return False

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def _exact(self, state: State, trace: Trace) -> State:
        odds = self.p / (1 - self.p)

        def pairs(block: Block, *_: Tensor) -> Pairs:
            apart = 2 * odds * (block.root_a * block.root_b).expand_as(block.excess)
            cross = block.excess is state.excess
            if cross and not state.joint:
                return Pairs(block.excess + apart, block.product)
            same = _same_unit(state, apart, cross)  # under one mask the product grows instead
            return Pairs(block.excess + (apart - same), block.product + same / 2)

        def draw(units: int, generator: Generator) -> Tensor:
            samples = draw_units(state, units, generator)
            keep = torch.rand(samples.shape, generator=generator, dtype=torch.float64) >= self.p
            return samples * keep.to(samples) / (1 - self.p)

        def tangent(t: Tensor) -> Tensor:
            return t + odds * _same_unit(state, t, cross=True) if state.joint else t

        return state.map(
            lambda s: s.norm / (1 - self.p), pairs, lambda s: s.mean, tangent=tangent, law="other", draw=draw
        )

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        return SeededDropout(self.p, generator)


def _same_unit(state: State, total: Tensor, cross: bool) -> Tensor:
    """The entries of `total` where a unit meets itself, zero elsewhere."""
    keep = torch.zeros_like(total)
    if cross:  # a joint batch: image i with image i
        index = torch.arange(total.shape[1], device=total.device)
        lead = keep[:, index, index]
        source = total[:, index, index]
    else:
        lead, source = keep, total
    size = len(state.positions)
    if state.all_positions:
        count = math.prod(state.positions)
        shape = (*lead.shape[: lead.ndim - 2 * size], count, count)
        eye = torch.eye(count, dtype=total.dtype, device=total.device)
        source = (source.reshape(shape) * eye).reshape(lead.shape)
    if cross:
        keep[:, index, index] = source
        return keep
    return source


class SeededDropout(nn.Module):
    """Dropout whose masks come from a generator of its own; off in evaluation mode."""

    def __init__(self, p: float, generator: Generator) -> None:
        super().__init__()
        self.p = p
        self.seed = int(torch.randint(2**62, (1,), generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        generator = torch.Generator().manual_seed(self.seed)
        keep = torch.rand(x.shape, generator=generator) >= self.p
        return x * keep.to(x) / (1 - self.p)
