"""Feeds `row_pairs`: sums over all pairs of positions behind one layer of 3 x 3 taps.

One task is one displacement of rows, for all pairs of images of a block: the number of threads does not change a digit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

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
    lead,
    pad,
    pad_axis,
    stack_laws,
)
from initscope.networks.fused.threads import run
from initscope.networks.progress import Progress
from initscope.networks.tiles import tiles

NEAR = 8  # images of y, that should stay in the second cache
BLOCK = 256  # images of one side that are held at once, at most
BLOCK_BYTES = 16 << 20
LARGEST_BIAS = 1e12  # in units of the weights
SMALLEST_GAIN = 1e-250


def fits(stack: ConvStack, own: Sequence[Own] | None = None, both: bool = False) -> bool:
    """Whether the stack is one such layer, its weights count, and of the tangent kernel's parts only those are wanted."""
    counts = stack.gains[0] > SMALLEST_GAIN and stack.biases[0] < LARGEST_BIAS * stack.gains[0]
    return stack.kernels == (3,) and counts and (own is None or not (both or own[0].offset))


def image_bytes(channels: int, height: int, width: int, itemsize: int) -> int:
    """Bytes of one image as x and as y (periodic ones twice over) with norms, again while these are made, and in float64."""
    places = (height + 2) * (row_pairs.stored(width + 2) + row_pairs.MARGIN)
    return places * (2 * (3 * channels + 6) * itemsize + 8 * channels)


def _block(channels: int, height: int, width: int, itemsize: int) -> int:
    """Images of one side that are held at once."""
    return max(1, min(BLOCK, BLOCK_BYTES // image_bytes(channels, height, width, itemsize)))


def held_bytes(n: int, m: int, channels: int, height: int, width: int, itemsize: int) -> int:
    """What `pooled_layer` holds beside the answer: images of both sides, on each thread a box and a part of the sums."""
    block, threads = _block(channels, height, width, itemsize), torch.get_num_threads()
    left, right = min(n, block), min(m, block)
    box = row_pairs.box_size(width + 2) * itemsize
    sums = (threads + 6) * 8 * left * right
    return (left + right) * image_bytes(channels, height, width, itemsize) + threads * box + sums


@dataclass(frozen=True)
class _Side:
    """Images as x and as y with borders, their norms and 1/|a| beside both; of periodic ones the rows of y come twice."""

    x: Tensor
    y: Tensor
    a: Tensor
    b: Tensor
    patches: Tensor  # (n, 9 channels) sums over positions, float64

    @property
    def channels(self) -> int:
        return self.x.shape[1]


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
        with_zeros(below, (0, -width % row_pairs.MARGIN)).contiguous(),
        windows.sum((-1, -2)).flatten(1),
    )


@dataclass(frozen=True)
class _Job:
    """What all blocks share."""

    stack: ConvStack
    padding: str  # "valid" also where the border is made beforehand
    tangent: bool
    walks: list[tuple[int, int, int]]
    weights: Array
    size: tuple[int, int]
    numbers: row_pairs.Numbers

    def side(self, x: Tensor) -> _Side:
        return _side(self.stack, x, self.padding, self.tangent)

    def sums(self, left: _Side, right: _Side, same: bool, told: Callable[[], None]) -> Array:
        """(n, m) sums of what bends; same: the upper triangle only."""
        sides, width = (left.x, left.a, right.y, right.b), self.size[1]
        columns = width + 2 * (self.padding == "valid")
        frame = row_pairs.Frame(
            left.channels, columns, width, PADDINGS.index(self.padding), self.tangent,
            *(size for t in sides for size in (t.shape[3], t.shape[2] * t.shape[3])),
        )  # fmt: skip
        x, a, y, b = (t.view(-1).numpy() for t in sides)

        def task(place: int) -> Array:
            part, box = np.zeros((len(left.x), len(right.y))), row_pairs.make_box(columns, self.numbers.bias)
            walk, weights = np.array(self.walks[place]), self.weights[:, place]
            row_pairs.walk_sums(x, a, y, b, walk, weights, frame, self.numbers, same, NEAR, box, part)
            return part

        result = np.zeros((len(left.x), len(right.y)))
        for part in run([partial(task, place) for place in range(len(self.walks))]):
            result += part
            told()
        return result


def pooled_layer(
    stack: ConvStack, x: Tensor, y: Tensor, symmetric: bool, progress: Progress | None, own: Sequence[Own] | None = None
) -> Tensor:  # fmt: skip
    """(n, m) float64 sums over all pairs of positions of the kernel, or with `own` of the tangent kernel; any padding.

    Symmetric: the upper triangle only. With s the slope of the negative side, c the linear sum and S what `row_pairs` sums, the
    kernel is `s c + (1-s)²/2 S`, the tangent kernel, whose derivative is `(1+s)²/4 + (1-s)²/4 (1 - psi'(m)) sign v`,
    `factor ((1+s)²/4 c + (1-s)²/4 S)`. It is of distances, which keep the angles of nearly equal patches.
    """
    tangent, law = own is not None, stack_laws(stack, x.shape[1], distance=False)[0]
    slope, kind, padding = stack.slopes[0], x.numpy().dtype.type, stack.padding
    if padding == "reflect" or (padding == "zero" and tangent):  # a border of zeros is at no distance from zero only
        padding = "valid"
    bias = 0.0 if tangent else law.shift / law.scale / 9
    numbers = row_pairs.Numbers(kind(bias), kind(0), kind(1))
    height, width = stack.sizes(*x.shape[2:])[-1]
    walks = displacements(height, height, padding)
    weights = np.stack([np.ones(len(walks)), 1.0 + lead(np.arange(len(walks)), len(walks), padding)])
    job = _Job(stack, padding, tangent, walks, weights, (height, width), numbers)
    out = torch.zeros(len(x), len(y), dtype=torch.float64)
    blocks = tiles(len(x), len(y), _block(x.shape[1], x.shape[2], x.shape[3], x.element_size()), symmetric)
    done = itertools.count(1)

    def told() -> None:
        if progress is not None:
            progress(next(done), len(blocks) * len(walks))

    def block(i: slice, j: slice) -> Array:
        left = job.side(x[i])
        right = left if symmetric and i == j else job.side(y[j])
        line = np.einsum("ik,jk->ij", left.patches.numpy(), right.patches.numpy()) * law.scale
        line += law.shift * float(height * width) ** 2
        bent = law.scale * job.sums(left, right, left is right, told)
        if own is None:
            total: Array = slope * line + (1 - slope) ** 2 / 2 * bent
        else:
            total = own[0].factor / 4 * ((1 + slope) ** 2 * line + (1 - slope) ** 2 * bent)
        return total

    for i, j in blocks:
        out[i, j] = torch.from_numpy(block(i, j))
    return out
