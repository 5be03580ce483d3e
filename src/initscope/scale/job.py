"""What a stored kernel is of: a job is resumed only by the same job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from initscope import __version__
from initscope.errors import BadInput
from initscope.files import checksum
from initscope.layers import Layer
from initscope.networks import unparse
from initscope.networks.fused import compiled_path
from initscope.scale.entries import Entries


@dataclass(frozen=True)
class Job:
    """Everything that the digits of the matrix depend on."""

    network: str  # in the architecture language
    data: str  # SHA-256 of the inputs
    shape: tuple[int, ...]  # of all inputs, (n, ...)
    dtype: str
    quantity: str
    tile: int  # inputs along one side of a tile
    version: str
    torch: str
    compiled: bool  # whether the compiled loops of the `fast` extra are used
    parametrization: str | None = None  # of a tangent kernel

    @property
    def count(self) -> int:
        return self.shape[0]

    @property
    def blocks(self) -> int:
        """Tiles along one side of the matrix."""
        return -(-self.count // self.tile)

    @property
    def digest(self) -> str:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return checksum(json.dumps(given, sort_keys=True).encode())

    def tiles(self) -> list[tuple[int, int]]:
        """Row and column of every tile of the upper triangle, diagonal included."""
        return [(row, column) for row in range(self.blocks) for column in range(row, self.blocks)]

    def span(self, block: int) -> slice:
        """The inputs of one block; the last block may be smaller."""
        return slice(block * self.tile, min((block + 1) * self.tile, self.count))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "shape": list(self.shape)}


def make_job(net: Layer, x: Tensor, what: Entries, tile: int) -> Job:
    """The job of computing this kernel here and now."""
    here = environment()
    shape = tuple(x.shape)
    dtype = str(x.dtype).removeprefix("torch.")
    return Job(network_text(net), data_digest(x), shape, dtype, what.quantity, tile, *here, what.parametrization)


def environment() -> tuple[str, str, bool]:
    """Version of initscope, of torch, and whether the loops are compiled: workers must agree on them."""
    return __version__, torch.__version__, compiled_path() is not None


def network_text(net: Layer) -> str:
    """The network in the architecture language, by which workers and later runs know it."""
    try:
        return unparse(net)
    except BadInput as error:
        remedy = "workers read the network as text: use the words of the language, or iscope.kernel in one process"
        raise BadInput("kernel_to", error.problem, remedy) from error


def data_digest(x: Tensor) -> str:
    """SHA-256 of shape, type and numbers."""
    values = x.detach().cpu().contiguous().numpy()
    return checksum(f"{values.shape} {values.dtype.str}".encode(), values.data.cast("B"))


def read_job(found: Mapping[str, Any]) -> Job:
    """A job from its dictionary; raises KeyError or TypeError where something is missing."""
    values = {field.name: found[field.name] for field in fields(Job) if field.name != "parametrization"}
    values["parametrization"] = found.get("parametrization")  # stores of NNGP kernels may not have it
    return Job(**{**values, "shape": tuple(values["shape"])})


def require_same(stored: Job, wanted: Job, place: str) -> None:
    """Refuse to mix two jobs, naming everything that differs."""
    differences = []
    for field in fields(Job):
        old, new = getattr(stored, field.name), getattr(wanted, field.name)
        if old != new:
            short = field.name == "data"  # two checksums tell a reader nothing
            differences.append("other inputs" if short else f"{field.name} {new}, there {old}")
    if differences:
        problem = f"it holds another job ({'; '.join(differences)})"
        raise BadInput(place, problem, "give the same options and inputs, or write to another place")
