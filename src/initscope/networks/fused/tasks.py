"""Feeds the compiled loops: lays images out flat, cuts the work into tasks, runs them on as many threads as torch uses.

A pair of images (pooled: for one displacement) is computed by one task in one fixed order, and parts are added in theirs, so the
number of threads does not change a digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.networks.fused import loops, pooled_layer, tangent_loops, windows
from initscope.networks.fused.norms import norms
from initscope.networks.fused.stack import (
    PADDINGS,
    ConvStack,
    Law,
    Own,
    displacements,
    inverse,
    lead,
    pad,
    positions,
    stack_laws,
)
from initscope.networks.fused.threads import run
from initscope.networks.progress import Progress
from initscope.networks.tiles import tiles

Array = np.ndarray[Any, Any]

PACK_BYTES = 64 << 20  # flat images of one side held at once
TILE_BYTES = 256 << 10  # flat images that should stay in the second cache
ROWS_PER_TASK = 16
DENSE_ROWS = 512


@dataclass(frozen=True)
class Side:
    """One set of images before packing: values (n, c, h, w), |a| before each activation and then 1/|a|, (n, 2 layers, h, w)."""

    values: Array
    norms: Array


@dataclass(frozen=True)
class Packed:
    """Flat images with a common stride: (n, c, size) and (n, 2 layers, size)."""

    values: Array
    norms: Array


def law_table(laws: Sequence[Law], dtype: Any, own: Sequence[Own] | None = None) -> Array:
    """(layers, 9): the fields of Law, then 0 and 1, in one type so that nothing is promoted.

    With `own` two more: how |a||b| cos t and 1 enter what the layer adds to the tangent kernel.
    """
    rows = [(*astuple(law), 0.0, 1.0) for law in laws]
    if own is not None:
        rows = [(*row, o.factor, o.offset) for row, o in zip(rows, own, strict=True)]
    return np.array(rows, dtype=dtype)


def image_bytes(stack: ConvStack, channels: int, height: int, width: int, itemsize: int) -> int:
    """Bytes of one packed image."""
    flat = (height + 2 * stack.border) * (width + 2 * stack.border) + 8 * loops.CHUNK
    return (channels + 2 * len(stack.kernels)) * flat * itemsize


def _side(stack: ConvStack, x: Tensor, distance: bool) -> Side:
    """Images that are displaced later."""
    every = norms(stack, x, distance, x.shape[3], 0).view(len(x), -1, *x.shape[2:])
    return Side(x.contiguous().numpy(), every.numpy())


def _flat(source: Array, margin: int, stride: int) -> Array:
    """source (..., h, w) with `margin` zero rows and columns around it, rows `stride` apart, flat, with slack."""
    lead, (height, width) = source.shape[:-2], source.shape[-2:]
    rows = height + 2 * margin
    flat = np.zeros((*lead, rows * stride + 2 * loops.CHUNK), source.dtype)
    window = flat[..., : rows * stride].reshape(*lead, rows, stride)
    window[..., margin : margin + height, margin : margin + width] = source
    return flat


def _pack_values(values: Array, stack: ConvStack) -> Array:
    """Whole images with their borders."""
    border = stack.border
    height, width = values.shape[-2:]
    stride = width + 2 * border
    flat = _flat(values, border, stride)
    if stack.padding in ("circular", "reflect"):
        around = flat[..., : (height + 2 * border) * stride].reshape(*values.shape[:2], height + 2 * border, stride)
        rows, columns = (positions(size, border, stack.padding).numpy() + border for size in (height, width))
        for edge in (*range(border), *range(-border, 0)):
            around[:, :, edge] = around[:, :, rows[edge]]
        for edge in (*range(border), *range(-border, 0)):
            around[:, :, :, edge] = around[:, :, :, columns[edge]]
    return flat


def _pack(stack: ConvStack, x: Tensor, distance: bool) -> Packed:
    """Whole images for the same-position kernel."""
    every = norms(stack, x, distance, x.shape[3] + 2 * stack.border, 2 * loops.CHUNK)
    return Packed(_pack_values(x.contiguous().numpy(), stack), every.numpy())


def _extend(side: Side, stack: ConvStack) -> Side:
    """Circular images twice over in both directions, so that a shifted image is a window."""
    border = stack.border
    twice = torch.from_numpy(side.values).repeat(1, 1, 2, 2)
    wide = torch.from_numpy(side.norms).repeat(1, 1, 2, 2)
    return Side(pad(twice, border, stack.padding).numpy(), wide.numpy())


def _pack_columns(side: Side, stack: ConvStack, start: int, width: int) -> Packed:
    """Columns start to start + width of images (circular: of extended ones) for one displacement of columns."""
    border, circular = stack.border, stack.padding == "circular"
    stride = width + 2 * border
    values = side.values[..., start : start + (stride if circular else width)]
    every = side.norms[..., start : start + width]
    return Packed(_flat(values, 0 if circular else border, stride), _flat(every, 0, stride))


@dataclass(frozen=True)
class Job:
    """What all tasks of one call share."""

    stack: ConvStack
    laws: Array
    distance: bool
    tile: int
    tangent: bool = False
    both: bool = True  # the tangent kernel and what it is beside

    def frame(self, width: int) -> Array:
        """Width, stride, border, padding, quantity and whether X is wanted beside T, as the loops want them."""
        border = self.stack.border
        padding = PADDINGS.index(self.stack.padding)
        return np.array([width, width + 2 * border, border, padding, int(self.distance), int(self.both)])

    def sums(self, x: Packed, y: Packed, rows: range, symmetric: bool, moves: tuple[Array, Array], width: int) -> Array:
        """(rows, m) float64: weighted window sums of some images of x with all of y; with the tangent kernel (2, rows, m)."""
        out = np.zeros((2,) * self.tangent + (len(rows), len(y.values)))
        span = np.array(
            [rows.start, rows.stop, rows.start if symmetric else 0, len(y.values), int(symmetric), self.tile]
        )
        taps = np.array(self.stack.kernels)
        pair_sums = tangent_loops.pair_sums if self.tangent else windows.pair_sums
        sizes = (side.shape[2] for side in (x.values, y.values, x.norms, y.norms))
        shape = np.array([x.values.shape[1], *sizes])
        size = shape[1] + 2 * (width + 2 * self.stack.border) + 8 * loops.CHUNK
        each = (1, 1, 1, 1, 3, 3) if self.tangent else (1, 1, 3)
        scratch: Any = tuple(np.zeros(count * size, x.values.dtype) for count in each)
        pair_sums(
            x.values.reshape(-1), x.norms.reshape(-1), y.values.reshape(-1), y.norms.reshape(-1), span, *moves, shape,
            self.frame(width), taps, self.laws, scratch, out,
        )  # fmt: skip
        return out


def _job(
    stack: ConvStack, x: Tensor, distance: bool, own: Sequence[Own] | None = None, both: bool = True
) -> tuple[Job, int]:
    """The shared part of a call, and how many images fit in a block."""
    each = image_bytes(stack, x.shape[1], x.shape[2], x.shape[3], x.element_size())
    dtype = np.float32 if x.dtype == torch.float32 else np.float64
    table = law_table(stack_laws(stack, x.shape[1], distance), dtype, own)
    tile = min(16, max(2, TILE_BYTES // each))
    return Job(stack, table, distance, tile, own is not None, both), max(1, PACK_BYTES // each)


def can_pool(stack: ConvStack, own: Sequence[Own] | None = None, both: bool = True) -> bool:
    """Whether `pooled` knows the stack: displaced images have no reflected borders."""
    return stack.padding != "reflect" or pooled_layer.fits(stack, own, both)


def pooled_bytes(
    stack: ConvStack, n: int, m: int, channels: int, height: int, width: int, itemsize: int,
    own: Sequence[Own] | None, both: bool,
) -> int:  # fmt: skip
    """What `pooled` holds beside the answer."""
    if pooled_layer.fits(stack, own, both):
        return pooled_layer.held_bytes(n, m, channels, height, width, itemsize)
    each = image_bytes(stack, channels, height, width, itemsize)
    block = max(1, PACK_BYTES // each // 8)
    held = (min(n, block) + min(m, block)) * (4 + 2 * torch.get_num_threads())
    return held * (3 * each + 8 * height * width * len(stack.kernels))


def has_distances(stack: ConvStack, pooled: bool, own: Sequence[Own], both: bool) -> bool:
    """Whether the loops can carry distances; between displaced images they do not know what lies outside of only one."""
    return not (pooled and stack.padding == "zero") or pooled_layer.fits(stack, own, both)


def same_position(
    stack: ConvStack,
    x: Tensor,
    y: Tensor,
    symmetric: bool,
    distance: bool,
    progress: Progress | None,
    own: Sequence[Own] | None = None,
    both: bool = True,
) -> Tensor:
    """(n, m) float64 sums over positions; symmetric: the upper triangle only; with `own` (2, n, m), the tangent kernel last.

    Without `both` what is beside the tangent kernel stays zero.
    """
    job, block = _job(stack, x, distance, own, both)
    moves = np.array([[0, 0, x.shape[2]]]), np.ones((2, 1))
    out = torch.zeros((2,) * job.tangent + (len(x), len(y)), dtype=torch.float64)
    done, blocks = 0, tiles(len(x), len(y), block, symmetric)
    total = sum(-(-(i.stop - i.start) // ROWS_PER_TASK) for i, _ in blocks)
    for i, j in blocks:
        same = symmetric and i == j
        left = _pack(stack, x[i], job.distance)
        right = left if same else _pack(stack, y[j], job.distance)
        last = i.stop - i.start
        ranges = [range(first, min(first + ROWS_PER_TASK, last)) for first in range(0, last, ROWS_PER_TASK)]
        calls = [partial(job.sums, left, right, rows, same, moves, x.shape[3]) for rows in ranges]
        for rows, part in zip(ranges, run(calls), strict=True):
            out[..., i.start + rows.start : i.start + rows.stop, j] = torch.from_numpy(part)
            done += 1
            if progress is not None:
                progress(done, total)
    return out


def _moves(
    rows: Sequence[tuple[int, int, int]], columns: Sequence[tuple[int, int, int]], column: int, padding: str
) -> tuple[Array, Array]:
    """Windows for one displacement of columns and all of rows, (s, 3), and their weights, (2, s)."""
    order = lead(np.array(column), len(columns), padding) or lead(np.arange(len(rows)), len(rows), padding)
    weights = np.ones((2, len(rows)))
    weights[1] += order
    return np.array(rows), weights


def pooled(
    stack: ConvStack,
    x: Tensor,
    y: Tensor,
    symmetric: bool,
    progress: Progress | None,
    own: Sequence[Own] | None = None,
    both: bool = True,
) -> Tensor:
    """(n, m) float64 sums over all position pairs of what `can_pool`; symmetric: the upper triangle only.

    With `own` (2, n, m), the tangent kernel last, and distances before it where `has_distances`, zeros without `both`.
    """
    if pooled_layer.fits(stack, own, both):
        sums = pooled_layer.pooled_layer(stack, x, y, symmetric, progress, own)
        return sums if own is None else torch.stack([torch.zeros_like(sums), sums])
    job, block = _job(stack, x, own is not None and has_distances(stack, True, own, both), own, both)
    height, width = x.shape[2:]
    final_height, final_width = stack.sizes(height, width)[-1]
    circular = stack.padding == "circular"
    rows = displacements(height, final_height, stack.padding)
    columns = displacements(width, final_width, stack.padding)
    out = torch.zeros((2,) * job.tangent + (len(x), len(y)), dtype=torch.float64)
    blocks = tiles(len(x), len(y), max(1, block // 8), symmetric)  # each task packs its own displaced copies
    done = 0
    for i, j in blocks:
        same = symmetric and i == j
        left = _side(stack, x[i], job.distance)
        right = left if same else _side(stack, y[j], job.distance)
        whole = None
        if circular:  # the same for every displacement
            whole = Packed(_pack_values(left.values, stack), _flat(left.norms, 0, width + 2 * stack.border))
            right = _extend(right, stack)

        def task(
            column: int, left: Side = left, whole: Packed | None = whole, right: Side = right, same: bool = same
        ) -> Array:
            x_start, y_start, cols = columns[column]
            x_flat = whole or _pack_columns(left, stack, x_start, cols)
            y_flat = _pack_columns(right, stack, y_start, cols)
            moves = _moves(rows, columns, column, stack.padding)
            return job.sums(x_flat, y_flat, range(len(left.values)), same, moves, cols)

        for part in run([partial(task, column) for column in range(len(columns))]):
            out[..., i, j] += torch.from_numpy(part)
            done += 1
            if progress is not None:
                progress(done, len(blocks) * len(columns))
    return out


def dense_layers(
    gram: Tensor, laws: Sequence[Law], x_norms: Tensor, y_norms: Tensor, own: Sequence[Own] | None = None
) -> Tensor:
    """All dense layers on a block of products or distances (n, m); norms (layers, n) and (layers, m).

    With `own` (2, n, m), the tangent kernel last.
    """
    source = gram.numpy()
    out = np.empty((2,) * (own is not None) + source.shape, source.dtype)
    distance = laws[0].chord != 0
    half = 0.5 if distance else 1.0
    x_all, y_all = (torch.cat([a, half * inverse(a)]) for a in (x_norms, y_norms))
    left, right = x_all.numpy(), torch.nn.functional.pad(y_all, (0, loops.CHUNK)).numpy()
    table = law_table(laws, source.dtype, own)
    dense_rows = windows.dense_rows if own is None else tangent_loops.dense_rows

    def task(start: int) -> None:
        rows = slice(start, start + DENSE_ROWS // 8)
        scratch = tuple(np.zeros(3 * loops.BLOCK, source.dtype) for _ in range(3 if own is None else 5))
        dense_rows(
            source[rows], np.ascontiguousarray(left[:, rows]), right, table, distance, scratch, out[..., rows, :]
        )

    for _ in run([partial(task, start) for start in range(0, len(source), DENSE_ROWS // 8)]):
        pass
    return torch.from_numpy(out)
