"""The plain torch path of the all-pairs kernels: the formulas of the compiled loops, tile by tile, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from initscope.networks.fused.psi import COEFFICIENTS_32, COEFFICIENTS_64
from initscope.networks.fused.stack import (
    ConvStack,
    Law,
    displacements,
    inverse,
    layer_norms,
    pad,
    pad_axis,
    stack_laws,
)
from initscope.networks.progress import Progress
from initscope.networks.tiles import tiles

TILE_ELEMENTS = 1 << 20  # position pairs per tile: large enough to hide the calls, small enough for the last cache


def psi(u: Tensor) -> Tensor:
    """`psi(u) = [sin t - t cos t] / pi`, `u = sin²(t/2)` in [0, 1], any shape.

    >>> psi(torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64))
    tensor([0.0000, 0.3183, 1.0000], dtype=torch.float64)
    """
    v = 1 - u
    m = torch.minimum(u, v)
    coefficients = COEFFICIENTS_32 if u.dtype == torch.float32 else COEFFICIENTS_64
    h = torch.full_like(m, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        h = h.mul_(m).add_(coefficient)
    return h.mul_(m).mul_(m.sqrt()).add_((u - v).clamp_(min=0))


def activate(sums: Tensor, a: Tensor, b: Tensor, law: Law) -> Tensor:
    """One layer after its sum over taps; a, b: norms that broadcast against sums."""
    value = sums * law.scale + law.shift
    inner = value - (a - b).square() if law.chord else value
    u = (inner * inverse(a) * inverse(b)).mul_(law.slope).add_(law.centre).clamp_(0, 1)
    return value.mul_(law.alpha).add_(psi(u).mul_(a).mul_(b), alpha=law.gamma)


def box_sum(x: Tensor, kernel: int) -> Tensor:
    """Sum over kernel x kernel taps, first along columns, then along rows; x (..., h, w)."""
    height, width = x.shape[-2] - kernel + 1, x.shape[-1] - kernel + 1
    columns = sum_slices([x[..., t : t + height, :] for t in range(kernel)])
    return sum_slices([columns[..., t : t + width] for t in range(kernel)])


def sum_slices(parts: Sequence[Tensor]) -> Tensor:
    """Elementwise sum in order."""
    result = parts[0].clone()
    for part in parts[1:]:
        result += part
    return result


def window_sums(
    stack: ConvStack, laws: Sequence[Law], x: Tensor, y: Tensor, x_norms: Sequence[Tensor], y_norms: Sequence[Tensor]
) -> Tensor:
    """Sum over positions of X after the last layer, (n, m) float64; x (n, c, h, w), norms (n, h', w')."""
    distance = laws[0].chord != 0
    state = torch.zeros(len(x), len(y), *x.shape[2:], dtype=x.dtype, device=x.device)
    for channel in range(x.shape[1]):
        left, right = x[:, None, channel], y[None, :, channel]
        state += (left - right).square() if distance else left * right
    for kernel, law, a, b in zip(stack.kernels, laws, x_norms, y_norms, strict=True):
        state = activate(box_sum(pad(state, kernel // 2, stack.padding), kernel), a[:, None], b[None], law)
    return state.sum((-1, -2), dtype=torch.float64)


def _side(per_pair: int) -> int:
    """Of a tile with about TILE_ELEMENTS numbers."""
    return max(1, int((TILE_ELEMENTS / per_pair) ** 0.5))


def same_position(
    stack: ConvStack, x: Tensor, y: Tensor, symmetric: bool, distance: bool, progress: Progress | None
) -> Tensor:
    """(n, m) float64 sums over positions; symmetric: the upper triangle only."""
    laws = stack_laws(stack, x.shape[1], distance)
    x_norms = [norm.to(x.dtype) for norm in layer_norms(stack, x)[1]]
    y_norms = x_norms if symmetric else [norm.to(x.dtype) for norm in layer_norms(stack, y)[1]]
    out = torch.zeros(len(x), len(y), dtype=torch.float64, device=x.device)
    work = tiles(len(x), len(y), _side(x.shape[2] * x.shape[3]), symmetric)
    for done, (i, j) in enumerate(work):
        out[i, j] = window_sums(stack, laws, x[i], y[j], [a[i] for a in x_norms], [b[j] for b in y_norms])
        if progress is not None:
            progress(done + 1, len(work))
    return out


def pooled(stack: ConvStack, x: Tensor, y: Tensor, symmetric: bool, progress: Progress | None) -> Tensor:
    """(n, m) float64 sums over all position pairs; symmetric: the upper triangle only."""
    laws = stack_laws(stack, x.shape[1], distance=False)
    x_norms = [norm.to(x.dtype) for norm in layer_norms(stack, x)[1]]
    y_norms = x_norms if symmetric else [norm.to(x.dtype) for norm in layer_norms(stack, y)[1]]
    out = torch.zeros(len(x), len(y), dtype=torch.float64, device=x.device)
    places = x.shape[2] * x.shape[3]
    # Reflected borders mix displacements; otherwise the array over (p, q) is a matter of speed.
    every = stack.padding == "reflect" or places * places <= TILE_ELEMENTS
    work = tiles(len(x), len(y), _side(places * places if every else places), symmetric)
    for done, (i, j) in enumerate(work):
        sides = x[i], y[j], [a[i] for a in x_norms], [b[j] for b in y_norms]
        out[i, j] = all_pairs_sums(stack, laws, *sides) if every else displaced_sums(stack, laws, *sides)
        if progress is not None:
            progress(done + 1, len(work))
    return out


def displaced_sums(
    stack: ConvStack, laws: Sequence[Law], x: Tensor, y: Tensor, x_norms: Sequence[Tensor], y_norms: Sequence[Tensor]
) -> Tensor:
    """Sum over position pairs (p, q), one displacement q - p after the other: each is a same-position problem."""
    height, width = x.shape[2:]
    final_height, final_width = stack.sizes(height, width)[-1]
    circular = stack.padding == "circular"
    total = torch.zeros(len(x), len(y), dtype=torch.float64, device=x.device)

    def window(image: Tensor, row: int, col: int, cut: tuple[int, int]) -> Tensor:
        if circular:
            return image.roll((-row, -col), (-2, -1))
        return image[..., row : image.shape[-2] - cut[0] + row, col : image.shape[-1] - cut[1] + col]

    for x_row, y_row, rows in displacements(height, final_height, stack.padding):
        for x_col, y_col, cols in displacements(width, final_width, stack.padding):
            cut = (height - rows, width - cols)
            total += window_sums(
                stack,
                laws,
                window(x, x_row, x_col, cut),
                window(y, y_row, y_col, cut),
                [window(a, x_row, x_col, cut) for a in x_norms],
                [window(b, y_row, y_col, cut) for b in y_norms],
            )
    return total


def all_pairs_sums(
    stack: ConvStack, laws: Sequence[Law], x: Tensor, y: Tensor, x_norms: Sequence[Tensor], y_norms: Sequence[Tensor]
) -> Tensor:
    """Sum over position pairs with the whole (p, q) array of every pair of the tile in memory."""
    state = torch.einsum("ichw,jcuv->ijhwuv", x, y)
    for kernel, law, a, b in zip(stack.kernels, laws, x_norms, y_norms, strict=True):
        for axis in (2, 3):  # rows of both images, then columns of both
            wide = pad_axis(state, axis, kernel // 2, stack.padding)
            wide = pad_axis(wide, axis + 2, kernel // 2, stack.padding)
            size = wide.shape[axis] - kernel + 1
            state = sum_slices([wide.narrow(axis, t, size).narrow(axis + 2, t, size) for t in range(kernel)])
        state = activate(state, a[:, None, :, :, None, None], b[:, None, None], law)
    return state.sum((2, 3, 4, 5), dtype=torch.float64)


def dense_layers(gram: Tensor, laws: Sequence[Law], x_norms: Tensor, y_norms: Tensor) -> Tensor:
    """All dense layers on a block of products or distances (n, m); norms (layers, n) and (layers, m)."""
    for law, a, b in zip(laws, x_norms, y_norms, strict=True):
        gram = activate(gram, a[:, None], b, law)
    return gram
