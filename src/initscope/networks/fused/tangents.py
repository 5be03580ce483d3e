"""Tangent kernels of the stacks that the compiled loops know; without them the generic propagation gives the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from initscope.networks.fused.kernels import DENSE_BLOCK, compiled_path, dense_layer_norms, mean_norms
from initscope.networks.fused.stack import ConvStack, Own, make_laws
from initscope.networks.progress import Progress

LARGEST_RATIO = 1e3  # of norms, for which distances in float64 leave T with 7 digits


def stack_tangents(
    stack: ConvStack, own: Sequence[Own], x: Tensor, y: Tensor | None, pooled: bool, both: bool,
    progress: Progress | None,
) -> Tensor | None:  # fmt: skip
    """Means over positions (pooled: over all pairs of them) of E[h(x) h(y)] and of the tangent kernel, (2, n, m) float64.

    x (n, c, h, w), y (m, c, h, w) or None for x itself; None where the compiled loops cannot be used. Without `both` the first
    is not computed after the last layer, and means nothing.
    """
    path = compiled_path() if x.device.type == "cpu" else None
    if path is None or (pooled and not path.can_pool(stack, own, both)):
        return None
    balanced = _balanced(x, y, stack.gains, stack.biases, own)
    if balanced is None:
        return None
    x, other, left, right = balanced
    distance = path.has_distances(stack, pooled, own, both)
    if not distance:
        x, other = x.double(), other.double()  # products lose half of the digits of T
    height, width = stack.sizes(*x.shape[2:])[-1]
    run = path.pooled if pooled else partial(path.same_position, distance=True)
    means: Tensor = run(stack, x, other, symmetric=y is None, progress=progress, own=own, both=both)
    means /= float(height * width) ** (2 if pooled else 1)
    if y is None:
        _mirror(means)
    if distance and both:
        a = mean_norms(stack, x)
        means[0] = (a[:, None] + (a if y is None else mean_norms(stack, other)) - means[0]) / 2
    means *= left[:, None] * right
    return means


def dense_tangents(
    gains: tuple[float, ...], biases: tuple[float, ...], slopes: tuple[float, ...], own: Sequence[Own],
    x: Tensor, y: Tensor | None, progress: Progress | None,
) -> Tensor | None:  # fmt: skip
    """E[h(x) h(y)] and the tangent kernel of dense layers, (2, n, m) for x (n, d)."""
    path = compiled_path() if x.device.type == "cpu" else None
    if path is None:
        return None
    balanced = _balanced(x, y, gains, biases, own)
    if balanced is None:
        return None
    single = x.dtype == torch.float32
    x, other, left, right = balanced
    laws = make_laws(gains, biases, slopes, (x.shape[1], *(1 for _ in gains[1:])), True)
    a, x_norms = (t.to(x.dtype) for t in dense_layer_norms(gains, biases, slopes, x))
    b, y_norms = (a, x_norms) if y is None else (t.to(x.dtype) for t in dense_layer_norms(gains, biases, slopes, other))
    out = x.new_zeros(2, len(x), len(other))
    for start in range(0, len(x), DENSE_BLOCK):
        if progress is not None:
            progress(start, len(x))
        rows, columns = slice(start, start + DENSE_BLOCK), slice(start if y is None else 0, None)
        gaps = _squared_distances(x[rows], other[columns], single)
        block = path.dense_layers(gaps, laws, x_norms[:, rows], y_norms[:, columns], own)
        block[0] = (a[rows, None] + b[columns] - block[0]) / 2
        block *= (left[rows, None] * right[columns]).to(x.dtype)
        if y is None:
            _mirror(block[:, :, : block.shape[1]])
            out[:, columns, rows] = block.mT
        out[:, rows, columns] = block
    if progress is not None:
        progress(len(x), len(x))
    return out


def _balanced(
    x: Tensor, y: Tensor | None, gains: tuple[float, ...], biases: tuple[float, ...], own: Sequence[Own]
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:  # fmt: skip
    """x and y with norms near one, and the factors (n,), (m,) by which rows and columns of their kernels are multiplied.

    The distance of a bright and a dark input is that of their norms, and hides the angle: its error e is one of √e in T. Where
    biases neither vary nor are trained, kernels are homogeneous: a power of two for each input takes the difference out, without
    rounding. With biases the loops run in float64; None where the norms are too unequal even for that.
    """
    other = x if y is None else y
    if any(biases) or any(layer.offset for layer in own):
        square = torch.cat([gains[0] * t.flatten(1).double().square().mean(1) + biases[0] for t in (x, other)])
        if float(square.max()) > LARGEST_RATIO**2 * float(square.min()):
            return None
        wide = x.double()
        left, right = (torch.ones(len(t), dtype=torch.float64) for t in (x, other))
        return wide, wide if y is None else other.double(), left, right
    left, right = _powers(x), _powers(other)
    x_scaled = x / left.to(x.dtype).view(-1, *(1,) * (x.ndim - 1))
    y_scaled = x_scaled if y is None else other / right.to(x.dtype).view(-1, *(1,) * (x.ndim - 1))
    return x_scaled, y_scaled, left, right


def _powers(x: Tensor) -> Tensor:
    """(n,) float64: the power of two next to the largest number of each input, as far as the type has it and its inverse."""
    largest = x.flatten(1).abs().amax(1).double().numpy(force=True)
    limit = 100 if x.dtype == torch.float32 else 500
    return torch.from_numpy(np.ldexp(1.0, np.frexp(largest)[1].clip(-limit, limit))).to(x.device)


def _squared_distances(x: Tensor, y: Tensor, single: bool) -> Tensor:
    """Of single precision by a product in float64, whose rounding is below the digits that T keeps; of others by differences."""
    if not single:
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square_()
    dtype, x, y = x.dtype, x.double(), y.double()
    return torch.addmm(x.square().sum(1)[:, None] + y.square().sum(1), x, y.T, alpha=-2).clamp_min_(0).to(dtype)


def _mirror(square: Tensor) -> None:
    """Copy the upper triangles of (k, n, n) to the lower ones, in place."""
    for one in square:
        one.triu_()
        one += one.triu(1).T
