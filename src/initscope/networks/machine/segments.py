"""A network cut into segments that end where positions meet: at an average over windows, at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.layers import AveragePool
from initscope.networks.machine.cells import Laid
from initscope.networks.machine.frames import ROWS, WIDTH, Code, Step
from initscope.networks.machine.tape import Fields, Kind, OfNorms, Unknown, Value
from initscope.networks.machine.writer import Writer

Array = np.ndarray[Any, Any]
Task = Callable[[], None]
NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


@dataclass(frozen=True, eq=False)
class Packed:
    """The numbers of some inputs for all steps of a segment: where those of each step begin, and the size of its blocks."""

    values: Array
    at: Array
    sizes: Array
    blocks: int


Memory = Callable[[int, Any], Array]  # so many numbers of a type


@dataclass(frozen=True, eq=False)
class Room:
    """Memory that the blocks of one side use in turn: to get new pages takes nearly as long as to fill them."""

    arrays: dict[int, Array] = field(default_factory=dict)

    def of(self, segment: int) -> Memory:
        return partial(self._take, segment)

    def _take(self, segment: int, size: int, kind: Any) -> Array:
        if len(self.arrays.get(segment, ())) < size:
            self.arrays.pop(segment, None)  # before the larger one is made
            self.arrays[segment] = np.empty(size, kind)
        return self.arrays[segment][:size]


@dataclass(frozen=True, eq=False)
class Segment:
    """Steps and what they need; `moves` (n, 3): displacements and twice their weight, `half` those of a block beside itself."""

    steps: Array
    constants: Array
    fields: tuple[Fields | None, ...]
    registers: int
    places: int  # of the largest window
    wraps: bool
    moves: Array
    half: Array
    fetched: int  # registers that begin with what an average over windows left: 0 for raw inputs
    windows: int  # pairs of windows that it ends with, 0: with sums
    row: int  # places of the longest row

    def pack(
        self, images: slice, width: int, dtype: torch.dtype, memory: Memory = np.empty
    ) -> tuple[Packed, list[Task]]:  # fmt: skip
        """The numbers of these inputs in blocks of `width`, the last one filled up with zeros, once the tasks are done."""
        packed, at = self._room(-(-(images.stop - images.start) // width), width, NUMPY[dtype], memory)
        tasks: list[Task] = []
        for fields, start, stop, size in zip(self.fields, at[:-1], at[1:], packed.sizes, strict=True):
            if fields is not None:
                packed.values[stop - size : stop] = 0  # the last block may not be full
                tasks += _laying(fields, images, width, packed.values[start:stop])
        return packed, tasks

    def wider(
        self, packed: Packed, first: int, count: int, memory: Memory = np.empty
    ) -> tuple[Packed, list[Task]]:  # fmt: skip
        """The numbers of `count` inputs from `first` on, packed in blocks of `ROWS`, in blocks of `WIDTH`."""
        from initscope.networks.machine.filling import interleave

        made, at = self._room(-(-count // WIDTH), WIDTH, packed.values.dtype, memory)
        tasks: list[Task] = []
        for begin, size, start, stop in zip(packed.at, packed.sizes, at[:-1], at[1:], strict=True):
            if not size:
                continue
            x = packed.values[begin : begin + size * packed.blocks].reshape(packed.blocks, -1, ROWS)
            y = made.values[start:stop].reshape(made.blocks, -1, WIDTH)
            tasks += [partial(interleave, x, y[i : i + 1], first // ROWS + i * (WIDTH // ROWS)) for i in range(len(y))]
        return made, tasks

    def _room(self, blocks: int, width: int, kind: Any, memory: Memory) -> tuple[Packed, Array]:
        """Memory for so many blocks, on large pages, which zeros are not; and where steps begin and end in it."""
        sizes = np.array([width * _numbers(step) for step in self.steps])
        at = blocks * np.concatenate([[0], np.cumsum(sizes)])
        return Packed(memory(max(int(at[-1]), 1), kind), at[:-1], sizes, blocks), at

    def packed_bytes(self, itemsize: int) -> int:
        """Of one input."""
        return itemsize * sum(_numbers(step) for step in self.steps)

    def laid_bytes(self) -> int:
        """Of one input, what the step with the most numbers takes while they are laid out."""
        return (
            3
            * 8
            * max((_numbers(s) for s, f in zip(self.steps, self.fields, strict=True) if not _direct(f)), default=0)
        )


def _count(fields: Fields) -> int:
    """Numbers of one variance."""
    if isinstance(fields, OfNorms) and isinstance(fields.how, Laid):
        return fields.how.fields
    return int(fields(slice(0, 1)).shape[-1])


def _direct(fields: Fields | None) -> bool:
    """Whether compiled loops write the numbers to their place."""
    return isinstance(fields, OfNorms) and isinstance(fields.how, Laid)


def _laying(fields: Fields, images: slice, width: int, out: Array) -> list[Task]:
    """Tasks that lay numbers of inputs (image, place, field) as (block, place, field, width)."""
    if isinstance(fields, OfNorms) and isinstance(fields.how, Laid):
        return fields.how.filling(fields.norm[images], out, width)
    return [partial(_lay, fields, images, width, out)]


def _lay(fields: Fields, images: slice, width: int, out: Array) -> None:
    values = fields(images)
    blocks = -(-len(values) // width)
    laid = out.reshape(blocks, *values.shape[1:], width)
    whole = len(values) // width
    if whole:
        laid[:whole] = values[: whole * width].reshape(whole, width, *values.shape[1:]).permute(0, 2, 3, 1).numpy()
    if whole < blocks:
        laid[whole, ..., : len(values) - whole * width] = values[whole * width :].permute(1, 2, 0).numpy()


def _numbers(step: Array) -> int:
    """Of one input."""
    return int(step[Step._fields.index("fields")]) * _places(step)


def _places(step: Array) -> int:
    names = Step._fields
    return int(step[names.index("height")] * step[names.index("width")])


def start(
    writer: Writer, norm: Tensor, mean: Tensor, channels: int, inputs: Tensor | None, gaussian: bool, error: float = 0.0,
    rounding: float = 1.0,
) -> Value:  # fmt: skip
    """The first value of a segment: raw inputs (images, places, channels), or what an average over windows left."""
    slopes = -1
    product = writer.tape.take()
    first = Value((Kind(product, slopes, norm, mean, gaussian, error, rounding),), (1.0,), channels)
    if inputs is not None:
        share = partial(_shares, inputs.detach().numpy())
        writer.tape.emit(Code.LOAD, (), share, out=product, **writer.tape.place(first))
        return first
    writer.tape.emit(Code.FETCH, (), None, out=product, a=0, **writer.tape.place(first))
    if writer.standard is not None:
        slopes = writer.tape.take()
        writer.tape.emit(Code.FETCH, (), None, out=slopes, a=1, **writer.tape.place(first))
    return Value((Kind(product, slopes, norm, mean, gaussian, error, rounding),), (1.0,), channels)


def _shares(inputs: Array, images: slice) -> Tensor:
    """Inputs (images, places, channels) whose products sum to a mean over channels."""
    return torch.from_numpy(np.divide(inputs[images], math.sqrt(inputs.shape[-1]), dtype=np.float64))


def end_with_sums(writer: Writer, value: Value, everywhere: bool, raw: bool) -> tuple[Segment, Value]:
    """Sums over positions: all pairs of them, or (flattened) equal ones."""
    value = writer.tape.merged(value)
    kind = value.kinds[0]
    for out, register in enumerate((kind.register, kind.slopes)):
        if register >= 0:
            writer.tape.emit(Code.TOTAL, (), None, out=out, a=register, **writer.tape.place(value))
    return _segment(writer, value, everywhere, raw, 0), value


def end_with_windows(
    writer: Writer, value: Value, layer: AveragePool, size: tuple[int, int], raw: bool
) -> tuple[Segment, Value]:
    """Averages over windows of positions."""
    value = writer.tape.merged(value)
    frame = layer.frame(2)
    if layer.edges != "count" and layer.padding != "valid":
        raise Unknown(f"{layer.word} leaves out its border")
    kind, (height, width) = value.kinds[0], value.size
    before = [m[0] for m in frame.margins((height, width))]
    weight = 1 / math.prod(frame.kernel) ** 2
    for out, register in enumerate((kind.register, kind.slopes)):
        if register >= 0:
            writer.tape.emit(
                Code.POOL, (weight,), None, out=out, a=register, in_height=size[0], in_width=size[1],
                taps_y=frame.kernel[0], taps_x=frame.kernel[1], step_y=frame.stride[0], step_x=frame.stride[1],
                before_y=before[0], before_x=before[1], **writer.tape.place(value),
            )  # fmt: skip
    return _segment(writer, value, True, raw, math.prod(size) ** 2), value


def plain_segment(writer: Writer, value: Value) -> Segment:
    """Steps on vectors, which begin and end in registers."""
    return _segment(writer, value, False, True, 0)


def _segment(writer: Writer, value: Value, everywhere: bool, raw: bool, windows: int) -> Segment:
    wraps = writer.padding == "wraps"
    steps = np.array(writer.tape.steps, dtype=np.int64)
    longest = max(len(numbers) for numbers in writer.tape.constants)
    constants = np.zeros((len(steps), max(longest, 1)), NUMPY[writer.dtype])
    for i, numbers in enumerate(writer.tape.constants):
        constants[i, : len(numbers)] = numbers
    names = Step._fields
    for i, fields in enumerate(writer.tape.fields):
        if fields is not None:
            steps[i, names.index("fields")] = _count(fields)
    moves, half = displacements(value.size, value.stride, wraps) if everywhere else (np.array([[0, 0, 2]]),) * 2
    widths = [int(s[names.index("width")]) for s in steps] + [int(s[names.index("in_width")]) for s in steps]
    return Segment(
        steps, constants, tuple(writer.tape.fields), writer.tape.registers, max(_places(s) for s in steps), wraps, moves, half,
        0 if raw else 1 + (writer.standard is not None), windows, max(widths),
    )  # fmt: skip


def displacements(size: tuple[int, int], stride: tuple[int, int], wraps: bool) -> tuple[Array, Array]:
    """All of them; and half of them, by which a block and itself are known: (i, j) at d is (j, i) at -d."""
    (height, width), (down, across) = size, stride
    rows = range(height) if wraps else range(1 - height, height)
    columns = range(width) if wraps else range(1 - width, width)
    whole, half = [], []
    for y in rows:
        for x in columns:
            whole.append((y * down, x * across, 2))
            back = ((-y) % height, (-x) % width) if wraps else (-y, -x)
            if (y, x) == back:
                half.append((y * down, x * across, 1))
            elif (y, x) < back:
                half.append((y * down, x * across, 2))
    return np.array(whole), np.array(half)
