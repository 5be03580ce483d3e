"""Upsampling by repetition or by zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Pairs, State, then
from initscope.layers.layer import Shape, SingleLayer, Trace, require_positions, require_positive


@dataclass(frozen=True, repr=False)
class Upsample(SingleLayer):
    """Each position repeated (`nearest`) or followed by zeros (`zeros`), `factor` times along every position axis."""

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
        require_positions(self, shape)
        return shape[0], *(n * self.factor for n in shape[1:])

    def _exact(self, state: State, trace: Trace) -> State:
        size = tuple(n * self.factor for n in state.positions)
        k, axes = self.factor, len(size)
        first, second = tuple(range(-2 * axes, -axes)), tuple(range(-axes, 0))

        def spread(t: Tensor, axes: tuple[int, ...]) -> Tensor:
            for axis in axes:
                t = t.repeat_interleave(k, dim=axis)
            return t

        filled = torch.ones(size, dtype=state.excess.dtype, device=state.excess.device)
        if self.mode == "zeros":
            filled = torch.zeros_like(filled)
            filled[(slice(None, None, k),) * axes] = 1

        def one(t: Tensor) -> Tensor:
            return spread(t, second) * filled

        def pair(t: Tensor) -> Tensor:
            """Excess, product and tangent kernel beside a zero position are zero."""
            if not state.all_positions:
                return one(t)
            return spread(t, first + second) * (filled[(..., *(None,) * axes)] * filled)

        return state.map(
            lambda s: one(s.norm),
            lambda block, *_: Pairs(pair(block.excess), pair(block.product)),
            lambda s: one(s.mean),
            tangent=pair,
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
        wide = x.new_zeros(*x.shape[:2], *(n * k for n in x.shape[2:]))
        wide[:, :, *(slice(None, None, k),) * (x.ndim - 2)] = x
        return wide
