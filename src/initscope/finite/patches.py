"""Positions of a stack of convolutions as the patches of the input that they see, and the kernel κ between positions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from initscope.networks.fused import ConvStack, dense_kernel, same_position_kernel
from initscope.networks.fused.plain import activate, box_sum
from initscope.networks.fused.stack import layer_norms, pad, stack_laws

_BLOCK = 1 << 22  # numbers that exist at once

_Layer = tuple[Tensor, Tensor | None]


@dataclass(frozen=True)
class Patches:
    """Positions of the last layer: what they see of the image, and which of its features exist behind each layer.

    values (n, c, side, side) in float64; masks (n, h, w) behind each layer, False where zero padding stands for a feature.
    """

    values: Tensor
    masks: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, which: Tensor | slice) -> Patches:
        return Patches(self.values[which], tuple(mask[which] for mask in self.masks))

    def whole(self) -> Tensor:
        """Which of them see no padded feature, (n,): their kernel needs no masks."""
        inside = torch.ones(len(self), dtype=torch.bool)
        for mask in self.masks:
            inside &= mask.flatten(1).all(1)
        return inside

    @staticmethod
    def join(parts: list[Patches]) -> Patches:
        masks = zip(*(part.masks for part in parts), strict=True)
        return Patches(torch.cat([part.values for part in parts]), tuple(torch.cat(layer) for layer in masks))


@dataclass(frozen=True)
class Field:
    """The stack on images of one size."""

    stack: ConvStack
    size: tuple[int, int]  # of the images

    @property
    def span(self) -> int:
        """A position of the last layer sees span + 1 inputs along each side."""
        return sum(kernel - 1 for kernel in self.stack.kernels)

    @property
    def final(self) -> tuple[int, int]:
        """Positions of the last layer, rows and columns."""
        return self.stack.sizes(*self.size)[-1]

    @property
    def positions(self) -> int:
        return math.prod(self.final)

    def patches(self, image: Tensor, index: Tensor) -> Patches:
        """Of the positions `index` (row by row) of one image (c, h, w)."""
        rows, columns = index // self.final[1], index % self.final[1]
        side = self.span + 1
        wide = pad(image, self.span // 2, self.stack.padding)
        values = wide.unfold(1, side, 1).unfold(2, side, 1)[:, rows, columns].transpose(0, 1)
        if self.stack.padding != "zero" or len(self.stack.kernels) == 1:
            return Patches(values)
        return Patches(values, self._masks(rows, columns))

    def _masks(self, rows: Tensor, columns: Tensor) -> tuple[Tensor, ...]:
        half, found = self.span // 2, []
        for kernel in self.stack.kernels[:-1]:  # the position itself always exists
            half -= kernel // 2
            offsets = torch.arange(-half, half + 1)
            places = [(at[:, None] + offsets) for at in (rows, columns)]
            inside = [place.ge(0) & place.lt(size) for place, size in zip(places, self.size, strict=True)]
            found.append(inside[0][:, :, None] & inside[1][:, None, :])
        return tuple(found)

    def squares(self, image: Tensor) -> Tensor:
        """κ(p, p) at all positions of one image (c, h, w), in float64."""
        return layer_norms(self.stack, image[None])[0].flatten()

    def products(self, x: Patches, y: Patches) -> Tensor:
        """κ of all pairs of patches, (n, m)."""
        if len(self.stack.kernels) == 1:
            flat = [p.values.flatten(1).contiguous() for p in (x, y)]
            return dense_kernel(self.stack.gains, self.stack.biases, self.stack.slopes, flat[0], flat[1])
        x_whole, y_whole = x.whole(), y.whole()
        found = torch.empty(len(x), len(y), dtype=torch.float64)
        for rows, columns, masked in (
            (x_whole, y_whole, False),
            (x_whole, ~y_whole, True),
            (~x_whole, torch.ones_like(y_whole), True),
        ):
            if not (bool(rows.any()) and bool(columns.any())):
                continue
            left, right = x[rows], y[columns]
            part = self._masked(left, right) if masked else self._valid(left.values, right.values)
            found[rows.nonzero(), columns.nonzero()[:, 0]] = part
        return found

    def _valid(self, x: Tensor, y: Tensor) -> Tensor:
        return same_position_kernel(replace(self.stack, padding="valid"), x.contiguous(), y.contiguous())

    def _masked(self, x: Patches, y: Patches) -> Tensor:
        rows = max(1, _BLOCK // (len(y) * x.values[0, 0].numel()))
        right = [(norm[None], inside) for norm, inside in self._layers(y)]
        parts = []
        for start in range(0, len(x), rows):
            part = x[start : start + rows]
            left = [(norm[:, None], None if inside is None else inside[:, None]) for norm, inside in self._layers(part)]
            state = torch.einsum("nchw,mchw->nmhw", part.values, y.values)
            parts.append(self._climb(state, left, right, x.values.shape[1]))
        return torch.cat(parts)

    def paired(self, x: Patches, y: Patches) -> Tensor:
        """κ of the patches of x with those of y, one by one: (n,)."""
        state = (x.values * y.values).sum(1)
        return self._climb(state, self._layers(x), self._layers(y), x.values.shape[1])

    def _climb(self, state: Tensor, x: list[_Layer], y: list[_Layer], channels: int) -> Tensor:
        """Products of inputs (..., side, side) through all layers to the one position: what is padded in x or y is zero."""
        laws = stack_laws(self.stack, channels, distance=False)
        for kernel, law, (a, inside_x), (b, inside_y) in zip(self.stack.kernels, laws, x, y, strict=True):
            state = activate(box_sum(state, kernel), a, b, law)
            for inside in (inside_x, inside_y):
                if inside is not None:
                    state = state.mul_(inside)
        return state[..., 0, 0]

    def _layers(self, patches: Patches) -> list[_Layer]:
        """|a| before each activation and what of it exists, (n, h, w) each; None: all."""
        stack, found = self.stack, []
        square = patches.values.square().mean(1)
        masks = (*patches.masks, None) if patches.masks else (None,) * len(stack.kernels)
        for kernel, gain, bias, s, mask in zip(
            stack.kernels, stack.gains, stack.biases, stack.slopes, masks, strict=True
        ):
            square = gain * F.avg_pool2d(square[:, None], kernel, stride=1)[:, 0] + bias
            square = square if mask is None else square * mask
            found.append((square.sqrt(), mask))
            square = (1 + s * s) / 2 * square  # E f² of leaky ReLU
        return found
