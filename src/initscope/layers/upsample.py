"""Upsampling by repetition or by zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Block, State, then
from initscope.layers.layer import Shape, SingleLayer, Trace, require_image, require_positive


@dataclass(frozen=True, repr=False)
class Upsample(SingleLayer):
    """Each position repeated (`nearest`) or followed by zeros (`zeros`), `factor` times along both axes."""

    factor: int = 2
    mode: Literal["nearest", "zeros"] = "nearest"

    def __post_init__(self) -> None:
        require_positive("up", factor=self.factor)
        if self.mode not in ("nearest", "zeros"):
            raise BadInput("up", f"mode is {self.mode!r}", "use 'nearest' or 'zeros'")

    @property
    def word(self) -> str:
        return f"up{self.factor}" if self.mode == "nearest" else f"zeroup{self.factor}"

    def output_shape(self, shape: Shape) -> Shape:
        require_image(self, shape)
        return shape[0], shape[1] * self.factor, shape[2] * self.factor

    def _exact(self, state: State, trace: Trace) -> State:
        size = tuple(n * self.factor for n in state.positions)
        k = self.factor

        def spread(t: Tensor, axes: tuple[int, ...]) -> Tensor:
            for axis in axes:
                t = t.repeat_interleave(k, dim=axis)
            return t

        filled = torch.ones(size, dtype=state.distance.dtype, device=state.distance.device)
        if self.mode == "zeros":
            filled = torch.zeros_like(filled)
            filled[::k, ::k] = 1

        def one(t: Tensor) -> Tensor:
            return spread(t, (-2, -1)) * filled

        def distance(block: Block) -> Tensor:
            if not state.all_positions:
                return one(block.distance)
            both = filled[:, :, None, None] * filled
            left, right = filled[:, :, None, None] * (1 - filled), (1 - filled[:, :, None, None]) * filled
            wide = spread(block.distance, (-4, -3, -2, -1)) * both
            # The distance to a zero position is the norm of the other one.
            return wide + spread(block.norm_a, (-4, -3)) * left + spread(block.norm_b, (-2, -1)) * right

        return state.map(
            lambda s: one(s.norm),
            distance,
            lambda s: one(s.mean),
            positions=size,
            draw=then(state, one),
        )

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return Enlarge(self.factor, self.mode)


class Enlarge(nn.Module):
    """The finite face of `Upsample`."""

    def __init__(self, factor: int, mode: str) -> None:
        super().__init__()
        self.factor, self.mode = factor, mode

    def forward(self, x: Tensor) -> Tensor:
        if self.mode == "nearest":
            return F.interpolate(x, scale_factor=self.factor, mode="nearest")
        k = self.factor
        wide = x.new_zeros(*x.shape[:-2], x.shape[-2] * k, x.shape[-1] * k)
        wide[..., ::k, ::k] = x
        return wide
