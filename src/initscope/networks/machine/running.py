"""Runs segments on tiles of inputs, on as many threads as torch uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.networks.fused.threads import finish, run
from initscope.networks.machine.announcing import announce
from initscope.networks.machine.frames import ROWS, TILE, WIDTH, Step
from initscope.networks.machine.segments import NUMPY, Packed, Room, Segment, Task
from initscope.networks.machine.tape import Unknown
from initscope.networks.planning import size_text
from initscope.networks.progress import Progress

Array = np.ndarray[Any, Any]
PACK_BYTES = 64 << 20  # numbers of the inputs that are held at once
KEPT_BYTES = 64 << 20  # stores of inputs beside themselves, while a network is written
_DOWN, _ACROSS = 128, 64  # inputs of x and of y of a block: more would take memory for little
_STRIP = 256  # columns of a product of inputs
_UPPER = np.triu(np.ones((WIDTH, WIDTH), dtype=bool))
PARTS = 4  # of the displacements of a tile, so that few tiles keep all threads busy


@dataclass(frozen=True)
class Block:
    """Tiles of some inputs of x and of y, and their numbers for every segment."""

    x: slice
    y: slice
    left: tuple[Packed, ...]
    right: tuple[Packed, ...]


@dataclass(frozen=True, eq=False)
class Machine:
    """All segments of a network, in order, on images x[:n] and y: the same ones, or those that follow."""

    segments: tuple[Segment, ...]
    dtype: torch.dtype
    slopes: bool
    kept: dict[tuple[int, int, int], Array] = field(default_factory=dict)  # stores of inputs beside themselves

    @property
    def outputs(self) -> int:
        return 2 if self.slopes else 1

    def image_bytes(self) -> int:
        """Of the numbers of one input."""
        return sum(s.packed_bytes(self.dtype.itemsize) for s in self.segments)

    def work_bytes(self) -> int:
        """Of the registers and stores of one thread."""
        item = self.dtype.itemsize * TILE
        registers = max(s.registers * s.places + s.row for s in self.segments)
        return item * (registers + self.outputs * 2 * max(s.windows for s in self.segments))

    def bytes(self, n: int, m: int) -> int:
        """Peak, the answer included, beside norms of the inputs."""
        left, right = self.sides(max(n, m))
        held = (left + right) * self.image_bytes() + left * max(s.laid_bytes() for s in self.segments)
        return self.outputs * n * m * 24 + held + torch.get_num_threads() * self.work_bytes()

    def require(self, count: int, allowed: float) -> None:
        """Refuse work that does not fit, of at most so many inputs on each side."""
        needed = self.bytes(count, count)
        if needed > allowed:
            raise Unknown(f"the compiled steps need {size_text(needed)}")

    def sides(self, count: int) -> tuple[int, int]:
        """Inputs of x and of y of a block, whole tiles of y.

        Those of x are laid out once, those of y again for every block of x, so that x gets most of the room.
        """
        each, whole = max(self.image_bytes(), 1), -(-count // WIDTH) * WIDTH
        fit = PACK_BYTES // each // WIDTH * WIDTH
        right = max(WIDTH, min(fit // 6 // WIDTH * WIDTH, _ACROSS))
        return min(whole, max(min(fit - right, _DOWN), WIDTH, right)), min(whole, right)

    def sums(self, n: int, m: int | None, progress: Progress | None) -> Array:
        """(outputs, n, m) float64 sums of the last segment; m None: x beside itself, each pair once."""
        symmetric = m is None
        count = n if m is None else m
        first = 0 if m is None else n  # the images of y follow those of x
        out = np.zeros((self.outputs, n, count))
        tall, wide = self.sides(max(n, count))
        blocks = [slice(i, min(i + tall, n)) for i in range(0, n, tall)]
        columns = [slice(j, min(j + wide, count)) for j in range(0, count, wide)]
        squares = [(rows, c) for rows in blocks for c in columns if not symmetric or c.stop > rows.start]
        left: tuple[Packed, ...] = ()
        room, other = Room(), Room()
        for done, (rows, across) in enumerate(squares):
            if progress is not None:
                progress(done, len(squares))
            if done == 0 or rows != squares[done - 1][0]:
                left = self._packed(rows, ROWS, room)
            if symmetric and rows.start <= across.start and across.stop <= rows.stop:
                wider = (
                    s.wider(p, across.start - rows.start, across.stop - across.start, other.of(k))
                    for k, (s, p) in enumerate(zip(self.segments, left, strict=True))
                )
                right = _done(wider)
            else:
                right = self._packed(slice(across.start + first, across.stop + first), WIDTH, other)
            self._square(Block(rows, across, left, right), symmetric, out)
        if progress is not None:
            progress(len(squares), len(squares))
        if symmetric:
            upper = np.triu(np.ones((n, n)))
            for k in range(self.outputs):
                out[k] = np.where(upper, out[k], out[k].T)
        return out

    def _packed(self, images: slice, width: int, room: Room | None = None) -> tuple[Packed, ...]:
        room = room or Room()
        return _done(s.pack(images, width, self.dtype, room.of(k)) for k, s in enumerate(self.segments))

    def _square(self, block: Block, symmetric: bool, out: Array) -> None:
        """The tiles of a block; of x beside itself those that reach the diagonal or lie above it."""
        whole = len(self.segments) > 1 or len(self.segments[0].moves) == 1
        rows, columns = block.x, block.y
        tiles, calls = [], []
        for j in range(-(-(columns.stop - columns.start) // WIDTH)):
            column = columns.start + j * WIDTH
            for i in range(-(-(rows.stop - rows.start) // ROWS)):
                row = rows.start + i * ROWS
                if symmetric and row >= column + WIDTH:
                    continue
                inside = symmetric and not whole and row >= column  # the block of y holds that of x
                moves = self.segments[0].half if inside else self.segments[0].moves
                for part in np.array_split(moves, PARTS if whole is False else 1):
                    if len(part):
                        tiles.append((i, j))
                        calls.append(partial(self.tile, block, i, j, part))
        kept: dict[tuple[int, int], Array] = {}
        for (i, j), sums in zip(tiles, finish(calls), strict=True):
            kept[i, j] = kept.get((i, j), 0) + sums
        height, width = rows.stop - rows.start, columns.stop - columns.start
        for (i, j), sums in kept.items():
            value = sums
            diagonal = (columns.start - rows.start) // ROWS + j * (
                WIDTH // ROWS
            )  # the first tile of x in the block of y
            if symmetric and not whole and i >= diagonal:
                value = sums + _mirrored(kept, i, j, diagonal, sums)
            r, c = slice(i * ROWS, min((i + 1) * ROWS, height)), slice(j * WIDTH, min((j + 1) * WIDTH, width))
            target = out[
                :, rows.start + r.start : rows.start + r.stop, columns.start + c.start : columns.start + c.stop
            ]
            target[...] = value[:, : r.stop - r.start, : c.stop - c.start]

    def tile(self, block: Block, i: int, j: int, moves: Array) -> Array:
        """(outputs, ROWS, WIDTH) sums of one tile."""
        sums = self._through(block, i, j, moves, None, 0, len(self.segments))[1]
        return sums.reshape(self.outputs, ROWS, WIDTH) / 2  # moves have twice their weight

    def _through(
        self, block: Block, i: int, j: int, moves: Array, source: Array | None, first: int, behind: int
    ) -> tuple[Array, Array]:
        """The store and the sums behind segments first..behind of one tile."""
        run_tile, Stores = _compiled(self.slopes, self.dtype)
        kind = NUMPY[self.dtype]
        sums = np.zeros(self.outputs * TILE)
        source = np.zeros(1, kind) if source is None else source
        for k in range(first, behind):
            segment, left, right = self.segments[k], block.left[k], block.right[k]
            windows, size = segment.windows * TILE, segment.places * TILE
            pairs = np.zeros(max(self.outputs * windows, 1), kind)
            registers, row = np.empty(segment.registers * size, kind), np.empty(segment.row * TILE, kind)
            at = left.at + i * left.sizes, right.at + j * right.sizes
            stores = Stores(size, row, source, len(source) // self.outputs, pairs, windows, sums)
            run_tile(
                segment.steps, segment.constants, left.values, right.values, *at, 1, moves if k == 0 else segment.moves,
                segment.wraps, registers, stores,
            )  # fmt: skip
            source = pairs
        return source, sums

    def own_sums(self, n: int) -> Array:
        """(n,) sums of the last segment for every input beside itself."""
        found = np.empty(n)
        for block, start, stop in self._diagonal(n):
            calls = [partial(self.tile, block, i, 0, self.segments[0].moves) for i in range(WIDTH // ROWS)]
            for i, sums in enumerate(finish(calls)):
                for r in range(min(ROWS, stop - start - i * ROWS)):
                    found[start + i * ROWS + r] = sums[0, r, i * ROWS + r]
        return found

    def own_windows(self, n: int) -> Tensor:
        """(n, windows) products of every window with itself behind the segments, in float64."""
        count = round(self.segments[-1].windows ** 0.5)
        out = torch.empty(n, count, dtype=torch.float64)
        same = np.arange(count)
        for block, start, stop in self._diagonal(n):
            calls = [partial(self._stores, block, i, start) for i in range(WIDTH // ROWS)]
            for i, store in enumerate(run(calls)):
                first = store[: count * count * TILE].reshape(count, count, ROWS, WIDTH)
                for r in range(min(ROWS, stop - start - i * ROWS)):
                    own = first[same, same, r, i * ROWS + r]
                    out[start + i * ROWS + r] = torch.from_numpy(own).double()
        return out

    def _stores(self, block: Block, i: int, start: int) -> Array:
        """The store behind the last segment, from the one before it where that is kept."""
        last = len(self.segments) - 1
        known = self.kept.pop((last - 1, start, i), None)
        store = self._through(block, i, 0, self.segments[0].moves, known, last if known is not None else 0, last + 1)[0]
        if sum(s.nbytes for s in self.kept.values()) + store.nbytes <= KEPT_BYTES:
            self.kept[last, start, i] = store
        return store

    def _diagonal(self, n: int) -> Iterator[tuple[Block, int, int]]:
        """Blocks of images beside themselves."""
        for start in range(0, n, WIDTH):
            images = slice(start, min(start + WIDTH, n))
            block = Block(images, images, self._packed(images, ROWS), self._packed(images, WIDTH))
            yield block, images.start, images.stop


def _compiled(slopes: bool, dtype: torch.dtype) -> tuple[Callable[..., None], Callable[..., Any]]:
    """The compiled loop and what it takes; numba is imported where it is used."""
    from initscope.networks.machine.interpreter import Stores, run_products, run_tangents

    loop = run_tangents if slopes else run_products
    announce(loop, dtype)
    return loop, Stores


def _done(packing: Iterable[tuple[Packed, list[Task]]]) -> tuple[Packed, ...]:
    """What is packed, once all tasks are done."""
    packed, tasks = zip(*packing, strict=True)
    finish([task for some in tasks for task in some])
    return packed


def _mirrored(kept: dict[tuple[int, int], Array], i: int, j: int, diagonal: int, sums: Array) -> Array:
    """R(j, i) beside R(i, j), of a block of y with the blocks of x inside it, `diagonal` the first of these."""
    whole = np.zeros((sums.shape[0], WIDTH, WIDTH))
    for k in range(WIDTH // ROWS):
        part = kept.get((diagonal + k, j))
        if part is not None:
            whole[:, k * ROWS : (k + 1) * ROWS] = part
    at = (i - diagonal) * ROWS
    return whole.transpose(0, 2, 1)[:, at : at + ROWS]


@dataclass(frozen=True, eq=False)
class Vectors:
    """Steps on vectors: the places of a window are blocks of x, and y has the same numbers at all of them."""

    segment: Segment
    dtype: torch.dtype
    results: tuple[int, ...]  # registers that hold the answers

    def side(self) -> int:
        """Inputs of one side of a block."""
        return WIDTH * 128

    def work_bytes(self) -> int:
        """Of one thread, and of a block's products."""
        item, blocks = self.dtype.itemsize, self.side() // ROWS
        return item * (blocks * TILE * (self.segment.registers + len(self.results)) + self.side() ** 2)

    def image_bytes(self) -> int:
        return self.segment.packed_bytes(self.dtype.itemsize)

    def bytes(self, n: int, m: int) -> int:
        """Peak, the answer included."""
        held = (
            len(self.results) * n * m * 3 * self.dtype.itemsize + 3 * min(self.side(), max(n, m)) * self.image_bytes()
        )
        return held + torch.get_num_threads() * self.work_bytes()

    def require(self, n: int, m: int, allowed: float) -> None:
        """Refuse work that does not fit."""
        needed = self.bytes(n, m)
        if needed > allowed:
            raise Unknown(f"the compiled steps need {size_text(needed)}")

    def matrix(self, x: Tensor, y: Tensor | None, progress: Progress | None) -> Tensor:
        """(results, n, m) in the machine's type, of x (n, d) and y (m, d); y None: x beside itself, each pair once."""
        other, first = (x, 0) if y is None else (y, len(x))
        matrix = torch.empty(len(self.results), len(x), len(other), dtype=self.dtype)
        out = matrix.numpy()
        side = self.side()
        squares = [
            (slice(i, min(i + side, len(x))), slice(j, min(j + side, len(other))))
            for i in range(0, len(x), side)
            for j in range(0, len(other), side)
            if y is not None or j >= i
        ]
        for done, (rows, columns) in enumerate(squares):
            if progress is not None:
                progress(done, len(squares))
            same = y is None and rows == columns
            gram = self._gram(x[rows], other[columns], same)
            left, tasks = self.segment.pack(rows, ROWS, self.dtype)
            right, more = self.segment.pack(slice(columns.start + first, columns.stop + first), WIDTH, self.dtype)
            finish([*tasks, *more])
            calls = [partial(self._column, gram, left, right, j, same) for j in range(-(-gram.shape[1] // WIDTH))]
            for j, block in enumerate(run(calls)):
                start, stop = columns.start + j * WIDTH, min(columns.start + (j + 1) * WIDTH, columns.stop)
                height = min(block.shape[1], rows.stop - rows.start)
                found = block[:, :height, : stop - start]
                if same:  # each pair is taken once: what lies below the diagonal is what lies beside it
                    last = found[:, start - rows.start :]
                    last[...] = np.where(_UPPER[: stop - start, : stop - start], last, last.swapaxes(1, 2))
                out[:, rows.start : rows.start + height, start:stop] = found
                if y is None:
                    out[:, start:stop, rows.start : rows.start + height] = found.swapaxes(1, 2)
        if progress is not None:
            progress(len(squares), len(squares))
        return matrix

    def _gram(self, x: Tensor, y: Tensor, same: bool) -> Array:
        """Mean products of all pairs; of x beside itself those on the diagonal and above it, and few others."""
        if not same:
            return (x @ y.T).div_(x.shape[1]).to(self.dtype).numpy()
        found = torch.empty(len(x), len(x), dtype=self.dtype)
        for start in range(0, len(x), _STRIP):
            strip = slice(start, min(start + _STRIP, len(x)))
            found[: strip.stop, strip] = (x[: strip.stop] @ x[strip].T).div_(x.shape[1])
        return found.numpy()

    def _column(self, gram: Array, left: Packed, right: Packed, j: int, same: bool) -> Array:
        """The answers for one block of y and all of x, or those up to it."""
        run_tile, Stores = _compiled(len(self.results) > 1, self.dtype)
        kind, segment = NUMPY[self.dtype], self.segment
        rows = min(len(gram), (j + 1) * WIDTH) if same else len(gram)
        blocks = -(-rows // ROWS)
        size = blocks * TILE
        registers = np.zeros(segment.registers * size, kind)
        begin = registers[:size].reshape(blocks * ROWS, WIDTH)
        part = gram[:rows, j * WIDTH : (j + 1) * WIDTH]
        begin[:rows, : part.shape[1]] = part
        steps = segment.steps.copy()
        steps[:, Step._fields.index("width")] = blocks
        nothing = np.zeros(1, kind)
        stores = Stores(size, nothing, nothing, 0, nothing, 0, np.zeros(1))
        run_tile(
            steps, segment.constants, left.values, right.values, left.at, right.at + j * right.sizes, 0, segment.moves, False,
            registers, stores,
        )  # fmt: skip
        shape = (blocks * ROWS, WIDTH)
        return np.stack([registers[r * size : (r + 1) * size].reshape(shape) for r in self.results])
