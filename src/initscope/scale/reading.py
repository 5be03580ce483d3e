"""Reading a stored kernel: the symmetric matrix, a part at a time or as one tensor."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.networks import Accuracy
from initscope.scale.job import Job
from initscope.scale.store import Store, open_store

Index = int | slice
_ACCURACY = tuple(field.name for field in fields(Accuracy))  # in the record of every tile


@dataclass(frozen=True)
class StoredKernel:
    """A kernel matrix on disk; `k[10:20, :5]` reads only the tiles it needs, each checked against its checksum."""

    store: Store

    @property
    def job(self) -> Job:
        return self.store.job

    @property
    def shape(self) -> tuple[int, int]:
        return self.job.count, self.job.count

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.job.dtype == "float32" else torch.float64

    def __len__(self) -> int:
        return self.job.count

    def missing(self) -> list[tuple[int, int]]:
        """Tiles (row, column) of the upper triangle that have no valid record and chunk."""
        return [tile for tile in self.job.tiles() if not self.store.valid(*tile)]

    def records(self) -> list[dict[str, Any]]:
        """The records of the complete tiles: checksum, seconds, process, how often computed, range and sum."""
        found = (self.store.record(*tile) for tile in self.job.tiles())
        return [record for record in found if record is not None]

    @property
    def accuracy(self) -> Accuracy:
        """The least certain way a tile was found, and the largest error of one."""
        return Accuracy.least([Accuracy(**{name: r[name] for name in _ACCURACY if name in r}) for r in self.records()])

    def tensor(self) -> Tensor:
        """The whole matrix, (n, n)."""
        return self[:, :]

    def __getitem__(self, index: Index | tuple[Index, Index]) -> Tensor:
        """Rows, or rows and columns, as whole numbers or slices; what lies below the diagonal is mirrored."""
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        row_range, column_range = self._range(rows), self._range(columns)
        out = np.empty((len(row_range), len(column_range)), self.store.dtype.newbyteorder("="))
        for row, row_from, row_to in self._blocks(row_range):
            for column, column_from, column_to in self._blocks(column_range):
                tile = self.store.read(row, column) if row <= column else self.store.read(column, row).T
                out[row_to, column_to] = tile[row_from, column_from]
        part = torch.from_numpy(out)
        part = part[:, 0] if isinstance(columns, int) else part
        return part[0] if isinstance(rows, int) else part

    def _range(self, index: Index) -> range:
        whole = range(self.job.count)
        if isinstance(index, slice):
            part = whole[index]
            if part.step != 1:
                raise BadInput("StoredKernel", f"step {part.step}", "read a part with step 1 and take every k-th of it")
            return part
        try:
            place = whole[index]
        except IndexError:
            problem = f"index {index} is outside of {self.job.count} inputs"
            raise BadInput("StoredKernel", problem, "count from 0, or from the end with negative numbers") from None
        return range(place, place + 1)

    def _blocks(self, part: range) -> list[tuple[int, slice, slice]]:
        """Blocks that a range of inputs touches: block, its places within the block, its places within the range."""
        if not part:
            return []
        blocks = []
        for block in range(part.start // self.job.tile, (part.stop - 1) // self.job.tile + 1):
            span = self.job.span(block)
            first, last = max(part.start, span.start), min(part.stop, span.stop)
            inside = slice(first - span.start, last - span.start)
            blocks.append((block, inside, slice(first - part.start, last - part.start)))
        return blocks


def open_kernel(path: str | Path, *, partial: bool = False) -> StoredKernel:
    """The matrix that `kernel_to` or `initscope kernel --out K.zarr` wrote, read lazily.

    An unfinished one is refused unless `partial`; its missing tiles are then refused when they are read.
    """
    store = open_store(Path(path))
    job = store.job
    if not partial:
        tiles = job.tiles()
        missing = [tile for tile in tiles if not store.record_path(*tile).exists()]
        if missing:
            problem = f"{path} is unfinished: {len(missing)} of {len(tiles)} tiles are missing"
            raise BadInput("open_kernel", problem, "finish it by the same call with resume=True, or pass partial=True")
    return StoredKernel(store)
