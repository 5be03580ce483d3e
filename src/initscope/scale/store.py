"""The folder of a stored kernel: a Zarr group with one chunk per tile, and a record for each chunk that is complete.

    K.zarr/zarr.json               the group; its attributes hold the job, with its checksum
    K.zarr/inputs/                 the inputs, one chunk per block of `tile` inputs: workers read two blocks for a tile
    K.zarr/kernel/c/ROW/COLUMN     a tile of the upper triangle, uncompressed
    K.zarr/kernel/records/*.json   one record per complete tile, written after its chunk, with checksums of both

A chunk without a record, or whose checksum is another, does not exist. Any Zarr 3 reader opens `kernel`: tiles below the
diagonal, and those not computed yet, read as NaN there.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.errors import BadInput, first_line
from initscope.files import PART, checksum, is_whole, remove_parts, sealed, write_file
from initscope.scale.extras import extra
from initscope.scale.job import Job, data_digest, read_job

Array = np.ndarray[Any, Any]
ATTRIBUTE = "initscope"


@dataclass(frozen=True)
class Store:
    """One stored kernel on disk, complete or not."""

    path: Path
    job: Job
    digests: tuple[str, ...]  # of each block of inputs

    def chunk_path(self, row: int, column: int) -> Path:
        return self.path / "kernel" / "c" / str(row) / str(column)

    def record_path(self, row: int, column: int) -> Path:
        return self.path / "kernel" / "records" / f"{row}.{column}.json"

    def record(self, row: int, column: int) -> dict[str, Any] | None:
        """The record of a tile, if it is whole and was written by this job."""
        try:
            found = json.loads(self.record_path(row, column).read_bytes())
            return dict(found) if is_whole(found) and found["job"] == self.job.digest else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def valid(self, row: int, column: int) -> bool:
        """Whether the tile is complete and its chunk still what was written."""
        return self._content(row, column) is not None

    def read(self, row: int, column: int) -> Array:
        """The tile's numbers, checked against the record."""
        content = self._content(row, column)
        if content is None:
            problem = f"tile ({row}, {column}) is missing or damaged"
            raise BadInput(str(self.path), problem, "compute it by the same call with resume=True")
        tile = np.frombuffer(content, self.dtype).reshape(self.job.tile, self.job.tile)
        rows, columns = self.job.span(row), self.job.span(column)
        return tile[: rows.stop - rows.start, : columns.stop - columns.start]

    def write(self, row: int, column: int, tile: Array, facts: dict[str, Any]) -> dict[str, Any]:
        """The chunk, then its record; `computed` counts how often the tile has been completed."""
        side = self.job.tile
        if tile.shape != (side, side):  # Zarr's chunks all have the same size
            full = np.full((side, side), np.nan, self.dtype)
            full[: tile.shape[0], : tile.shape[1]] = tile
            tile = full
        content = tile.astype(self.dtype, copy=False).tobytes()
        write_file(self.chunk_path(row, column), content)
        before = self.record(row, column)
        record = sealed({
            "row": row,
            "column": column,
            "job": self.job.digest,
            "sha256": checksum(content),
            "bytes": len(content),
            "computed": 1 + (before["computed"] if before else 0),
            "process": f"{socket.gethostname()}:{os.getpid()}",
            **facts,
        })  # fmt: skip
        write_file(self.record_path(row, column), json.dumps(record).encode())
        return record

    def inputs(self, block: int) -> Tensor:
        """The inputs of one block, checked, in memory of torch's own alignment: products may depend on it."""
        zarr = extra("zarr")
        remedy = f"remove {self.path} and start again without resume=True"
        try:
            values = np.asarray(zarr.open_array(str(self.path / "inputs"), mode="r")[self.job.span(block)])
            x = torch.from_numpy(values).clone()
        except Exception as error:  # damaged metadata make zarr raise almost anything
            problem = f"its inputs cannot be read ({first_line(error)})"
            raise BadInput(str(self.path), problem, remedy) from error
        if data_digest(x) != self.digests[block]:
            raise BadInput(str(self.path), f"block {block} of its inputs is damaged", remedy)
        return x

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<f4" if self.job.dtype == "float32" else "<f8")

    def _content(self, row: int, column: int) -> bytes | None:
        record = self.record(row, column)
        if record is None:
            return None
        try:
            content = self.chunk_path(row, column).read_bytes()
        except OSError:
            return None
        whole = len(content) == self.job.tile**2 * self.dtype.itemsize
        return content if whole and checksum(content) == record.get("sha256") else None


def create_store(path: Path, job: Job, x: Tensor) -> Store:
    """A store without tiles, made beside its place and moved there whole."""
    zarr = extra("zarr")
    digests = tuple(data_digest(x[job.span(block)]) for block in range(job.blocks))
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{PART}")
    try:
        group = zarr.create_group(
            str(temporary), attributes={ATTRIBUTE: sealed({"job": job.to_dict(), "inputs": digests})}
        )
        side = (job.tile, job.tile)
        dtype = "float32" if job.dtype == "float32" else "float64"
        group.create_array(
            "kernel", shape=(job.count, job.count), chunks=side, dtype=dtype, compressors=None, fill_value=float("nan")
        )
        chunks = (min(job.tile, job.count), *job.shape[1:])
        inputs = group.create_array("inputs", shape=job.shape, chunks=chunks, dtype=dtype, compressors=None)
        for block in range(job.blocks):
            inputs[job.span(block)] = x[job.span(block)].cpu().numpy()
        (temporary / "kernel" / "records").mkdir()
        temporary.rename(path)
    except OSError as error:
        problem = f"cannot write {path} ({error.strerror or error})"
        raise BadInput("out", problem, "free some space or choose another place") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Store(path, job, digests)


def open_store(path: Path, place: str = "open_kernel") -> Store:
    """A store that exists; raises BadInput where there is none."""
    try:
        found = json.loads((path / "zarr.json").read_bytes())["attributes"][ATTRIBUTE]
        if not is_whole(found):
            problem = f"{path / 'zarr.json'} is damaged: its checksum does not match its content"
            raise BadInput(place, problem, f"remove {path} and start again")
        return Store(path, read_job(found["job"]), tuple(found["inputs"]))
    except BadInput:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = "is no stored kernel" if path.exists() else "does not exist"
        raise BadInput(place, f"{path} {what}", "give a folder that initscope kernel --out K.zarr wrote") from error


def clean(store: Store) -> None:
    """Take away files and stores that killed runs left unfinished; the caller holds the lock."""
    remove_parts(store.path / "kernel")
    for left in store.path.parent.glob(f".{store.path.name}.*{PART}"):
        shutil.rmtree(left, ignore_errors=True)
