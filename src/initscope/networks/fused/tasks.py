"""Feeds the compiled loops: lays images out flat, cuts the work into tasks, runs them on as many threads as torch uses.

A pair of images is always computed by one task in one fixed order, so the number of threads does not change a digit.
Threads are plain Python ones over code that releases the interpreter lock: calls from several threads at once are fine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.networks.fused import loops, tangent_loops
from initscope.networks.fused.stack import (
    PADDINGS,
    ConvStack,
    Law,
    Own,
    displacements,
    inverse,
    layer_norms,
    pad,
    stack_laws,
)
from initscope.networks.progress import Progress
from initscope.networks.tiles import tiles

Array = np.ndarray[Any, Any]

PACK_BYTES = 64 << 20  # flat images of one side held at once
TILE_BYTES = 256 << 10  # flat images that should stay in the second cache
ROWS_PER_TASK = 8
DENSE_ROWS = 512


@dataclass(frozen=True)
class Side:
    """One set of images before packing: values (n, c, h, w) and (n, layers, 2, h, w) with |a| and 1/|a|."""

    values: Array
    norms: Array


@dataclass(frozen=True)
class Packed:
    """Flat images with a common stride: (n, c, size) and (n, layers, 2, size)."""

    values: Array
    norms: Array


def run(tasks: Sequence[Callable[[], Any]]) -> Iterator[Any]:
    """Results of the tasks in their order, computed on `torch.get_num_threads()` threads."""
    threads = min(torch.get_num_threads(), len(tasks))
    if threads <= 1:
        for task in tasks:
            yield task()
        return
    pool = ThreadPoolExecutor(threads)
    try:
        yield from pool.map(lambda task: task(), tasks)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def law_table(laws: Sequence[Law], dtype: Any, own: Sequence[Own] | None = None) -> Array:
    """(layers, 9): the fields of Law, then 0 and 1 in the same type so that nothing is promoted.

    With `own` three more: how v, |a|² + |b|² and 1 enter what the layer adds to the tangent kernel; k = (|a|² + |b|² - v)/2 if v
    is a distance.
    """
    rows = [(*astuple(law), 0.0, 1.0) for law in laws]
    if own is not None:
        parts = [
            (-o.factor / 2, o.factor / 2) if law.chord else (o.factor, 0.0) for law, o in zip(laws, own, strict=True)
        ]
        rows = [(*row, *part, o.offset) for row, part, o in zip(rows, parts, own, strict=True)]
    return np.array(rows, dtype=dtype)


def image_bytes(stack: ConvStack, channels: int, height: int, width: int, itemsize: int) -> int:
    """Bytes of one packed image."""
    flat = (height + 2 * stack.border) * (width + 2 * stack.border) + 8 * loops.CHUNK
    return (channels + 2 * len(stack.kernels)) * flat * itemsize


def _side(stack: ConvStack, x: Tensor) -> Side:
    """Norms of every layer beside the values; smaller (valid) layers lie in the top left corner."""
    norms = torch.zeros(len(x), len(stack.kernels), 2, *x.shape[2:], dtype=x.dtype)
    for layer, norm in enumerate(layer_norms(stack, x)[1]):
        a = norm.to(x.dtype)
        norms[:, layer, 0, : a.shape[1], : a.shape[2]] = a
        norms[:, layer, 1, : a.shape[1], : a.shape[2]] = inverse(a)
    return Side(x.contiguous().numpy(), norms.numpy())


def _flat(source: Array, margin: int, stride: int) -> Array:
    """source (..., h, w) with `margin` zero rows and columns around it, rows `stride` apart, flat, with slack."""
    lead, (height, width) = source.shape[:-2], source.shape[-2:]
    rows = height + 2 * margin
    flat = np.zeros((*lead, rows * stride + 2 * loops.CHUNK), source.dtype)
    window = flat[..., : rows * stride].reshape(*lead, rows, stride)
    window[..., margin : margin + height, margin : margin + width] = source
    return flat


def _pack(side: Side, stack: ConvStack) -> Packed:
    """Whole images for the same-position kernel."""
    border = stack.border
    stride = side.values.shape[-1] + 2 * border
    values = pad(torch.from_numpy(side.values), border, stack.padding).numpy()
    return Packed(_flat(values, 0, stride), _flat(side.norms, 0, stride))


def _extend(side: Side, stack: ConvStack) -> Side:
    """Circular images twice over in both directions, so that a shifted image is a window."""
    border = stack.border
    twice = torch.from_numpy(side.values).repeat(1, 1, 2, 2)
    wide = torch.from_numpy(side.norms).repeat(1, 1, 1, 2, 2)
    return Side(pad(twice, border, stack.padding).numpy(), wide.numpy())


def _pack_columns(side: Side, stack: ConvStack, start: int, width: int) -> Packed:
    """Columns start to start + width of images (circular: of extended ones) for one displacement of columns."""
    border, circular = stack.border, stack.padding == "circular"
    stride = width + 2 * border
    values = side.values[..., start : start + (stride if circular else width)]
    norms = side.norms[..., start : start + width]
    return Packed(_flat(values, 0 if circular else border, stride), _flat(norms, 0, stride))


@dataclass(frozen=True)
class Job:
    """What all tasks of one call share."""

    stack: ConvStack
    laws: Array
    distance: bool
    tile: int
    tangent: bool = False

    def frame(self, width: int) -> Array:
        """Width, stride, border, padding and quantity as the loops want them."""
        border = self.stack.border
        return np.array([width, width + 2 * border, border, PADDINGS.index(self.stack.padding), int(self.distance)])

    def sums(self, x: Packed, y: Packed, rows: range, symmetric: bool, moves: tuple[Array, Array], width: int) -> Array:
        """(rows, m) float64: weighted window sums of some images of x with all of y; with the tangent kernel (2, rows, m)."""
        out = np.zeros((2,) * self.tangent + (len(rows), len(y.values)))
        span = np.array(
            [rows.start, rows.stop, rows.start if symmetric else 0, len(y.values), int(symmetric), self.tile]
        )
        taps = np.array(self.stack.kernels)
        pair_sums = tangent_loops.pair_sums if self.tangent else loops.pair_sums
        pair_sums(
            x.values, x.norms, y.values, y.norms, span, *moves, self.frame(width), taps, self.laws, out
        )  # fmt: skip
        return out


def _job(stack: ConvStack, x: Tensor, distance: bool, own: Sequence[Own] | None = None) -> tuple[Job, int]:
    """The shared part of a call, and how many images fit in a block."""
    each = image_bytes(stack, x.shape[1], x.shape[2], x.shape[3], x.element_size())
    dtype = np.float32 if x.dtype == torch.float32 else np.float64
    table = law_table(stack_laws(stack, x.shape[1], distance), dtype, own)
    tile = min(16, max(2, TILE_BYTES // each))
    return Job(stack, table, distance, tile, own is not None), max(1, PACK_BYTES // each)


def has_distances(stack: ConvStack, pooled: bool) -> bool:
    """Whether the loops can carry distances; between displaced images they do not know what lies outside of only one."""
    return not (pooled and stack.padding == "zero")


def same_position(
    stack: ConvStack,
    x: Tensor,
    y: Tensor,
    symmetric: bool,
    distance: bool,
    progress: Progress | None,
    own: Sequence[Own] | None = None,
) -> Tensor:
    """(n, m) float64 sums over positions; symmetric: the upper triangle only; with `own` (2, n, m), the tangent kernel last."""
    job, block = _job(stack, x, distance, own)
    moves = np.array([[0, 0, x.shape[2]]]), np.ones((2, 1))
    out = torch.zeros((2,) * job.tangent + (len(x), len(y)), dtype=torch.float64)
    done, blocks = 0, tiles(len(x), len(y), block, symmetric)
    total = sum(-(-(i.stop - i.start) // ROWS_PER_TASK) for i, _ in blocks)
    for i, j in blocks:
        same = symmetric and i == j
        left = _pack(_side(stack, x[i]), stack)
        right = left if same else _pack(_side(stack, y[j]), stack)
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
    rows: Sequence[tuple[int, int, int]], columns: Sequence[tuple[int, int, int]], column: int, circular: bool
) -> tuple[Array, Array]:
    """Windows for one displacement of columns and all of rows, (s, 3), and their weights, (2, s).

    An image with itself has the same sum at q - p and p - q: one of the two is computed and counts twice.
    """

    def mirror(place: int, count: int) -> int:
        return (count - place) % count if circular else count - 1 - place

    opposite = mirror(column, len(columns))
    weights = np.ones((2, len(rows)))
    for row in range(len(rows)):
        here, there = (column, row), (opposite, mirror(row, len(rows)))
        weights[1, row] = 1.0 if here == there else 2.0 * (here < there)
    return np.array(rows), weights


def _only(rows: Sequence[tuple[int, int, int]], chosen: Sequence[tuple[int, int]], column: int) -> tuple[Array, Array]:
    """The chosen windows of one displacement of columns, each as often as it was chosen."""
    wanted = [rows[row] for row, at in chosen if at == column]
    return np.array(wanted), np.ones((2, len(wanted)))


def pooled(
    stack: ConvStack,
    x: Tensor,
    y: Tensor,
    symmetric: bool,
    progress: Progress | None,
    own: Sequence[Own] | None = None,
    chosen: Sequence[tuple[int, int]] | None = None,
) -> Tensor:
    """(n, m) float64 sums over all position pairs (any padding but reflect); symmetric: the upper triangle only.

    With `own` (2, n, m), the tangent kernel last, and distances before it where `has_distances`. `chosen`: only these
    displacements, numbers in the lists of rows and of columns.
    """
    job, block = _job(stack, x, own is not None and has_distances(stack, pooled=True), own)
    height, width = x.shape[2:]
    final_height, final_width = stack.sizes(height, width)[-1]
    circular = stack.padding == "circular"
    rows = displacements(height, final_height, stack.padding)
    columns = displacements(width, final_width, stack.padding)
    used = range(len(columns)) if chosen is None else sorted({column for _, column in chosen})
    out = torch.zeros((2,) * job.tangent + (len(x), len(y)), dtype=torch.float64)
    blocks = tiles(len(x), len(y), max(1, block // 8), symmetric)  # each task packs its own displaced copies
    done = 0
    for i, j in blocks:
        same = symmetric and i == j
        left = _side(stack, x[i])
        right = left if same else _side(stack, y[j])
        whole = _pack(left, stack) if circular else None  # the same for every displacement
        if circular:
            right = _extend(right, stack)

        def task(
            column: int, left: Side = left, whole: Packed | None = whole, right: Side = right, same: bool = same
        ) -> Array:
            x_start, y_start, cols = columns[column]
            x_flat = whole or _pack_columns(left, stack, x_start, cols)
            y_flat = _pack_columns(right, stack, y_start, cols)
            moves = _moves(rows, columns, column, circular) if chosen is None else _only(rows, chosen, column)
            return job.sums(x_flat, y_flat, range(len(left.values)), same, moves, cols)

        for part in run([partial(task, column) for column in used]):
            out[..., i, j] += torch.from_numpy(part)
            done += 1
            if progress is not None:
                progress(done, len(blocks) * len(used))
    return out


def dense_layers(
    gram: Tensor, laws: Sequence[Law], x_norms: Tensor, y_norms: Tensor, own: Sequence[Own] | None = None
) -> Tensor:
    """All dense layers on a block of products or distances (n, m); norms (layers, n) and (layers, m).

    With `own` (2, n, m), the tangent kernel last.
    """
    source = gram.numpy()
    out = np.empty((2,) * (own is not None) + source.shape, source.dtype)
    left = torch.stack([x_norms, inverse(x_norms)], 1).numpy()
    right = torch.nn.functional.pad(torch.stack([y_norms, inverse(y_norms)], 1), (0, loops.CHUNK)).numpy()
    table = law_table(laws, source.dtype, own)
    dense_rows = loops.dense_rows if own is None else tangent_loops.dense_rows

    def task(start: int) -> None:
        rows = slice(start, start + DENSE_ROWS // 8)
        dense_rows(source[rows], np.ascontiguousarray(left[:, :, rows]), right, table, out[..., rows, :])

    for _ in run([partial(task, start) for start in range(0, len(source), DENSE_ROWS // 8)]):
        pass
    return torch.from_numpy(out)
