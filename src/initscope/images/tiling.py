"""Tiles with their halo, as large as a budget of memory allows: what comes out is what the whole image would give."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.images.architectures import ConvPlan, Layout, PoolPlan, Size
from initscope.networks.planning import size_text

LIVE = 2.0  # what is alive at once, in inputs and outputs of a layer: kernels also hold them in an order of their own
SLACK = 2**25  # bytes that allocators keep, and small things
_FLOAT = 4


@dataclass(frozen=True)
class Move:
    """One step as a tile sees it: which positions it reads, and how large its output is.

    `before` zeros are added in front, then `window` positions are read every `stride`. "spread" is upsampling, "transpose"
    the adjoint of a convolution.
    """

    kind: Literal["gather", "spread", "transpose"]
    channels: int  # of the output
    window: int = 1
    stride: int = 1
    before: int = 0

    def left(self, bad: int) -> int:
        """Positions at the beginning that differ from those of the whole image, after the step."""
        if self.kind == "spread":
            return bad * self.stride
        if self.kind == "transpose":
            return max(0, (bad - 1) * self.stride - self.before + self.window)
        return -(-(bad + self.before) // self.stride)

    def right(self, good: int) -> int:
        """Where the positions begin that differ, after the step."""
        if self.kind == "spread":
            return good * self.stride
        if self.kind == "transpose":
            return good * self.stride - self.before
        return -(-(good - self.window + 1 + self.before) // self.stride)

    def scale(self, positions: float) -> float:
        return positions / self.stride**2 if self.kind == "gather" else positions * self.stride**2


def encoder_moves(plan: Layout) -> list[Move]:
    """What the encoder does, as tiles see it."""
    found, channels = [], plan.inputs
    for step in plan.steps:
        if isinstance(step, PoolPlan):
            found.append(Move("gather", channels, step.window, step.stride))
        else:
            channels = step.outputs
            found.append(Move("gather", channels, step.kernel, step.stride, step.before))
    return found


def decoder_moves(plan: Layout, *, transposed: bool = False) -> list[Move]:
    """What a decoder does: convolutions after upsampling, or the adjoints of the encoder's."""
    found, channels = [], plan.outputs
    for step in reversed(plan.steps):
        if isinstance(step, ConvPlan) and transposed:
            channels = step.inputs
            found.append(Move("transpose", channels, step.kernel, step.stride, step.before))
            continue
        if step.stride > 1:
            found.append(Move("spread", channels, stride=step.stride))
        if isinstance(step, ConvPlan):
            back, channels = step.mirrored(step.inputs), step.inputs
            found.append(Move("gather", channels, back.kernel, 1, back.before))
    return found


@dataclass(frozen=True)
class Tile:
    """A rectangle of the result, and the larger rectangle of the image that it is worked out from; all ends exclusive."""

    rows: slice
    columns: slice
    source_rows: slice
    source_columns: slice

    @property
    def inside(self) -> tuple[slice, slice]:
        """Where the result lies in what the source gives."""
        found = [
            slice(core.start - source.start, core.stop - source.start)
            for core, source in ((self.rows, self.source_rows), (self.columns, self.source_columns))
        ]
        return found[0], found[1]


@dataclass(frozen=True)
class TilePlan:
    """How an image is cut, and how much memory the largest tile takes."""

    tiles: tuple[Tile, ...]
    bytes: int  # of feature maps

    def __len__(self) -> int:
        return len(self.tiles)


@dataclass(frozen=True)
class Halo:
    """Pixels that a result depends on before and after itself, on a grid of `grid` pixels that tiles must start on."""

    before: int
    after: int
    grid: int


def halo(moves: Sequence[Move]) -> Halo:
    """The halo of a chain that ends at the size of the image.

    >>> from initscope.images.architectures import layout
    >>> plan = layout("vgg16", 1)
    >>> halo(encoder_moves(plan) + decoder_moves(plan))
    Halo(before=4, after=4, grid=1)
    """
    grid = math.prod(move.stride for move in moves if move.kind == "gather")
    far = grid * 2**20
    bad, good = 0, far
    for move in moves:
        bad, good = move.left(bad), move.right(good)
    return Halo(bad, far - good, grid)


def map_bytes(moves: Sequence[Move], inputs: int, size: Size, live: float = LIVE) -> int:
    """Peak bytes of the feature maps of an image of that size: the input and the output of the widest step."""
    positions, channels, most = float(math.prod(size)), inputs, 0.0
    for move in moves:
        after = move.scale(positions)
        most = max(most, channels * positions + move.channels * after)
        positions, channels = after, move.channels
    return int(most * live * _FLOAT) + SLACK


def plan_tiles(moves: Sequence[Move], inputs: int, size: Size, allowed: int, live: float = LIVE) -> TilePlan | None:
    """As few tiles as fit into `allowed` bytes each; None where not even the smallest does."""
    reach = halo(moves)
    smallest = max(reach.grid, 16)
    height, width = size
    while True:
        tiles = tuple(_tiles(size, (height, width), reach))
        most = max(map_bytes(moves, inputs, _source_size(tile), live) for tile in tiles)
        if most <= allowed:
            return TilePlan(tiles, most)
        if max(height, width) <= smallest:
            return None
        if height >= width:
            height = _halved(height, reach.grid)
        else:
            width = _halved(width, reach.grid)


def run_tiles(
    function: Callable[[Tensor, Size], Tensor],
    image: Tensor,
    plan: TilePlan,
    result: Tensor,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Fill `result` (n, c, h, w) with `function(part of the image, its size)`, tile by tile."""
    for number, tile in enumerate(plan.tiles):
        if progress is not None:
            progress(number, len(plan))
        part = image[..., tile.source_rows, tile.source_columns]
        found = function(part, (part.shape[-2], part.shape[-1]))
        rows, columns = tile.inside
        result[..., tile.rows, tile.columns] = found[..., rows, columns]
    if progress is not None:
        progress(len(plan), len(plan))


def refuse(place: str, needed: int, allowed: int, remedy: str) -> BadInput:
    """The error for work that does not fit."""
    return BadInput(place, f"needs about {size_text(needed)} of memory, {size_text(allowed)} are allowed", remedy)


@contextmanager
def clear_memory_errors(remedy: str) -> Iterator[None]:
    """What the allocators say, as one message."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise BadInput("memory", "the device ran out of it", remedy) from error
    except MemoryError as error:
        raise BadInput("memory", "there is not enough of it", remedy) from error
    except RuntimeError as error:
        if "alloc" not in str(error):
            raise
        raise BadInput("memory", "there is not enough of it", remedy) from error


def _halved(side: int, grid: int) -> int:
    return max(grid, -(-(side // 2) // grid) * grid)


def _tiles(size: Size, core: Size, reach: Halo) -> Iterator[Tile]:
    for rows, source_rows in _spans(size[0], core[0], reach):
        for columns, source_columns in _spans(size[1], core[1], reach):
            yield Tile(rows, columns, source_rows, source_columns)


def _spans(length: int, core: int, reach: Halo) -> Iterator[tuple[slice, slice]]:
    """Pieces of one axis with what they depend on; both start on the grid, and end there or at the edge."""
    core = max(reach.grid, core // reach.grid * reach.grid) if core < length else length
    for start in range(0, length, core):
        stop = min(start + core, length)
        first = max(0, start - reach.before) // reach.grid * reach.grid
        last = min(length, -(-(stop + reach.after) // reach.grid) * reach.grid)
        yield slice(start, stop), slice(first, last)


def _source_size(tile: Tile) -> Size:
    rows, columns = tile.source_rows, tile.source_columns
    return rows.stop - rows.start, columns.stop - columns.start
