"""Which positions count behind each layer, where only some count before it."""

from __future__ import annotations

from functools import reduce, singledispatch

import torch
from torch import Tensor

from initscope.layers import (
    Activate,
    AveragePool,
    Conv,
    Dropout,
    GlobalAveragePool,
    GlobalMaxPool,
    L2Pool,
    Layer,
    LayerNorm,
    MaxPool,
    Scale,
    Upsample,
)
from initscope.layers.pooling import WindowPool, window_means
from initscope.layers.shifts import Window

Mask = Tensor | None  # (n, *positions), true where a position counts; None for vectors


def counted(x: Tensor, value: float) -> Tensor:
    """The positions of inputs (n, c, *positions) that count, (n, *positions)."""
    return (x != value).any(1)


@singledispatch
def after(layer: Layer, mask: Tensor) -> tuple[Mask, Mask]:
    """The mask behind a layer, and α, by which its outputs are multiplied; None: by nothing.

    Layers that have no rule of their own end in vectors.
    """
    return None, None


@after.register(Activate)
@after.register(Scale)
@after.register(Dropout)
@after.register(LayerNorm)
def _(layer: Layer, mask: Tensor) -> tuple[Mask, Mask]:
    return mask, mask


@after.register
def _(layer: Conv, mask: Tensor) -> tuple[Mask, Mask]:
    behind = _cores(layer.on(mask.ndim - 1).window, mask, whole=True)
    return behind, behind


def _cores(window: Window, mask: Tensor, whole: bool) -> Tensor:
    """Which outputs count: those of which the window's core counts, all of it (`whole`) or any position.

    The core is the window without as many positions as are padded: a sequence that ends within the input has the outputs
    that it would have by itself.
    """
    size = tuple(mask.shape[1:])
    for axis, (n, margins) in enumerate(zip(size, window.margins(size), strict=True)):
        spare = window.reach[axis] - 1 - sum(margins)
        spare = 0 if whole and window.padding == "same" else spare
        first = torch.arange(window.output_size(size)[axis], device=mask.device) * window.stride[axis]
        reads = [_at(mask, axis + 1, first + step, n) for step in range(min(spare, 0), max(spare, 0) + 1)]
        mask = reduce(torch.logical_and if whole and spare >= 0 else torch.logical_or, reads)
    return mask


def _at(mask: Tensor, axis: int, index: Tensor, size: int) -> Tensor:
    """The mask at these places along an axis, false outside."""
    inside = (index >= 0) & (index < size)
    return mask.index_select(axis, index.clamp(0, size - 1)) & inside.reshape(-1, *(1,) * (mask.ndim - 1 - axis))


@after.register
def _(layer: AveragePool, mask: Tensor) -> tuple[Mask, Mask]:
    frame, counts = layer.frame(mask.ndim - 1), mask[:, None].double()
    behind = _cores(frame, mask, whole=False)
    some, all_of_them = (window_means(frame, t)[:, 0] for t in (counts, torch.ones_like(counts)))
    return behind, torch.where(behind, all_of_them / some.clamp_min(1e-300), 0)


@after.register(MaxPool)
@after.register(L2Pool)
def _(layer: WindowPool, mask: Tensor) -> tuple[Mask, Mask]:
    behind = _cores(layer.frame(mask.ndim - 1), mask, whole=False)
    return behind, behind


@after.register
def _(layer: GlobalAveragePool, mask: Tensor) -> tuple[Mask, Mask]:
    share = mask.flatten(1).double().mean(1)
    return None, torch.where(share > 0, 1 / share.clamp_min(1e-300), 0)


@after.register
def _(layer: GlobalMaxPool, mask: Tensor) -> tuple[Mask, Mask]:
    return None, mask.flatten(1).any(1)


@after.register
def _(layer: Upsample, mask: Tensor) -> tuple[Mask, Mask]:
    for axis in range(1, mask.ndim):
        mask = mask.repeat_interleave(layer.factor, dim=axis)
    return mask, mask
