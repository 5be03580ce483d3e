"""Feeds `row_pairs`: sums over all pairs of positions behind one layer of 3 x 3 taps.

One task is one displacement of rows, for all pairs of images of a block: the number of threads does not change a digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad as with_zeros

from initscope.networks.fused import row_pairs
from initscope.networks.fused.loops import Array
from initscope.networks.fused.norms import norms
from initscope.networks.fused.stack import (
    PADDINGS,
    ConvStack,
    Own,
    displacements,
    pad,
    pad_axis,
    stack_laws,
)
from initscope.networks.fused.threads import run
from initscope.networks.progress import Progress
from initscope.networks.tiles import tiles

IMAGES = 8  # of y, that should stay in the second cache
BLOCK_BYTES = 16 << 20  # of the images of one side that are held at once
LARGEST_BIAS = 1e12  # in units of the weights


def fits(stack: ConvStack, own: Sequence[Own] | None = None, both: bool = False) -> bool:
    """Whether the stack is one such layer, its weights count, and of the tangent kernel's parts only those are wanted."""
    plain = stack.kernels == (3,) and stack.biases[0] < LARGEST_BIAS * stack.gains[0]
    return plain and (own is None or not (both or own[0].offset))


def image_bytes(channels: int, height: int, width: int, itemsize: int) -> int:
    """Bytes of one image as x and as y (periodic ones twice over), with norms and their inverse, and once in float64."""
    places = (height + 2) * (width + 2 + row_pairs.MARGIN)
    return places * ((3 * channels + 6) * itemsize + 8 * channels)


def _block(channels: int, height: int, width: int, itemsize: int) -> int:
    """Images of one side that are held at once."""
    return max(1, BLOCK_BYTES // image_bytes(channels, height, width, itemsize))


def held_bytes(n: int, m: int, channels: int, height: int, width: int, itemsize: int) -> int:
    """What `pooled_layer` holds beside the answer: images of both sides, and on each thread three P and their sum."""
    block = _block(channels, height, width, itemsize)
    boxes = 4 * (row_pairs.WHOLE + 2) * (row_pairs.stored(width + 2) + row_pairs.MARGIN) * itemsize
    held = min(n, block) + min(m, block)
    return held * image_bytes(channels, height, width, itemsize) + torch.get_num_threads() * (boxes + 8 * block * block)


@dataclass(frozen=True)
class _Side:
    """Images as x, as y, and their norms beside 1/|a|: padded, and behind each other in both directions as far as they must."""

    x: Tensor
    y: Tensor
    a: Tensor
    b: Tensor
    patches: Tensor  # (n, 9 channels) sums over positions, float64


def _side(stack: ConvStack, x: Tensor, padding: str, distance: bool) -> _Side:
    law, (height, width) = stack_laws(stack, x.shape[1], distance=False)[0], stack.sizes(*x.shape[2:])[0]
    unit = replace(stack, gains=(stack.gains[0] / law.scale,), biases=(stack.biases[0] / law.scale,))
    a = norms(unit, x, distance, x.shape[3], 0).view(len(x), 2, *x.shape[2:])[:, :, :height, :width]
    if padding != stack.padding:  # borders like everything else
        x = pad(x, 1, stack.padding)
    border, circular = int(padding != "valid"), padding == "circular"
    padded = pad(x, border, padding)
    windows = padded.double().unfold(2, height, 1).unfold(3, width, 1)
    right, below = (torch.cat([t, t], 2) if circular else t for t in (x, a))  # a displaced row may begin anywhere
    right = pad_axis(right, 2, border, padding)
    return _Side(
        with_zeros(padded, (0, row_pairs.AT_ONCE)).contiguous(),
        with_zeros(right, (0, row_pairs.stored(x.shape[3]) - x.shape[3])).contiguous(),
        a.contiguous(),
        with_zeros(below, (0, row_pairs.stored(a.shape[3]) - a.shape[3])).contiguous(),
        windows.sum((-1, -2)).flatten(1),
    )


def _weights(places: int, circular: bool) -> Array:
    """(displacements, 2): 1 for different images; of an image with itself one of q - p and p - q counts twice, one not at all."""
    place = np.arange(places)
    opposite = (places - place) % places if circular else places - 1 - place
    return np.stack([np.ones(places), np.where(place == opposite, 1.0, 2.0 * (place < opposite))], 1)


def pooled_layer(
    stack: ConvStack, x: Tensor, y: Tensor, symmetric: bool, progress: Progress | None, own: Sequence[Own] | None = None
) -> Tensor:  # fmt: skip
    """(n, m) float64 sums over all pairs of positions of the kernel, or with `own` of the tangent kernel; any padding.

    Symmetric: the upper triangle only. With s the slope of the negative side, c the linear sum and S what `row_pairs` sums, the
    kernel is `s c + (1-s)²/2 S`, the tangent kernel, whose derivative is `(1+s)²/4 + (1-s)²/4 (1 - psi'(m)) sign v`,
    `factor ((1+s)²/4 c + (1-s)²/4 S)`. It is of distances, which keep the angles of nearly equal patches.
    """
    tangent, law = own is not None, stack_laws(stack, x.shape[1], distance=False)[0]
    slope, kind = stack.slopes[0], x.numpy().dtype.type
    padding = stack.padding
    if padding == "reflect" or (padding == "zero" and tangent):  # a border of zeros is at no distance from zero only
        padding = "valid"
    bias = 0.0 if tangent else law.shift / law.scale / 9
    numbers = row_pairs.Numbers(*(kind(number) for number in (bias, 0.0, 0.5, 1.0)))
    height, width = stack.sizes(*x.shape[2:])[-1]
    columns = width + 2 * (padding == "valid")
    walks = displacements(height, height, padding)
    weights = _weights(len(walks), padding == "circular")
    out = torch.zeros(len(x), len(y), dtype=torch.float64)
    block = _block(x.shape[1], x.shape[2], x.shape[3], x.element_size())
    blocks, done = tiles(len(x), len(y), block, symmetric), 0
    for i, j in blocks:
        same = symmetric and i == j
        left = _side(stack, x[i], padding, tangent)
        right = left if same else _side(stack, y[j], padding, tangent)
        sides = left.x, left.a, right.y, right.b
        frame = row_pairs.Frame(
            x.shape[1], columns, width, PADDINGS.index(padding), tangent, tangent,
            *(size for t in sides for size in (t.shape[3], t.shape[2] * t.shape[3])),
        )  # fmt: skip
        flat = [t.view(-1).numpy() for t in sides]
        shape = i.stop - i.start, j.stop - j.start

        def task(
            place: int, frame: Any = frame, flat: Any = flat, same: bool = same, shape: tuple[int, int] = shape
        ) -> Array:
            part, box = np.zeros(shape), row_pairs.make_box(columns, numbers.bias)
            walk = np.array(walks[place])
            x_flat, a_flat, y_flat, b_flat = flat
            row_pairs.walk_sums(
                x_flat, a_flat, y_flat, b_flat, walk, weights[place], frame, numbers, same, IMAGES, box, part
            )
            return part

        sums = np.zeros(shape)
        for part in run([partial(task, place) for place in range(len(walks))]):
            sums += part
            done += 1
            if progress is not None:
                progress(done, len(blocks) * len(walks))
        line = np.einsum("ik,jk->ij", left.patches.numpy(), right.patches.numpy()) * law.scale
        line += law.shift * float(height * width) ** 2
        bent = law.scale * sums
        if own is None:
            total = slope * line + (1 - slope) ** 2 / 2 * bent
        else:
            total = own[0].factor * ((1 + slope) ** 2 / 4 * line + (1 - slope) ** 2 / 4 * bent)
        out[i, j] = torch.from_numpy(total)
    return out
