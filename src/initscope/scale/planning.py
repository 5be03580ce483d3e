"""Before the work: tiles that fit a worker, bytes on disk, and hours, from the speed measured on a few inputs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.layers import Layer
from initscope.networks import Sequential, as_network, kernel_estimate
from initscope.networks.own_share import Parametrization
from initscope.networks.planning import budget, size_text
from initscope.scale.entries import UNLIMITED, Entries, StoredQuantity
from initscope.scale.tile import one_thread

PROCESS_BYTES = (
    600 << 20
)  # of a worker before its first tile, measured: interpreter, torch, compiling the loops on first use
WORKER_MEMORY = 2 << 30  # of a worker, if nothing is said; workers of this machine also share half of what is free
TILE_UPDATES = 2e10  # work of a tile, about half a minute: what a kill may lose
TILES_PER_WORKER = 8  # at least, so that the workers finish together
MOST_INPUTS = 2048  # along one side of a tile
MOST_BLOCKS = 300  # tiles along one side of the matrix: beyond that tiles take longer, or there would be too many files
_TRIAL_SECONDS = 0.5


@dataclass(frozen=True)
class Plan:
    """How a kernel matrix is cut, and what it takes."""

    count: int  # inputs
    tile: int  # inputs along one side of a tile
    tiles: int  # of the upper triangle
    pairs: int  # each computed once
    workers: int
    worker_bytes: int  # the most a worker holds
    disk_bytes: int  # matrix and inputs
    pair_seconds: float | None  # of one pair on one core, measured; None: not measured

    @property
    def hours(self) -> float | None:
        """With these workers, each on a core of its own."""
        return self.hours_on(self.workers)

    def hours_on(self, cores: int) -> float | None:
        """With so many cores as fast as the measured one: the tiles are whole, so the last round may be half empty."""
        if self.pair_seconds is None:
            return None
        rounds = -(-self.tiles // max(cores, 1))
        return rounds * (self.pairs / self.tiles) * self.pair_seconds / 3600

    def cores_for(self, hours: float) -> int | None:
        """Cores that finish within so many hours, or None where one tile takes longer than that."""
        if self.pair_seconds is None:
            return None
        rounds = int(hours * 3600 / (self.pair_seconds * self.pairs / self.tiles))
        return None if rounds < 1 else -(-self.tiles // rounds)

    def to_dict(self) -> dict[str, Any]:
        names = ("count", "tile", "tiles", "pairs", "workers", "worker_bytes", "disk_bytes", "pair_seconds")
        return {**{name: getattr(self, name) for name in names}, "hours": self.hours}

    def __str__(self) -> str:
        where = f"{self.workers} worker{'s' * (self.workers != 1)}"
        return (
            f"{self.count} x {self.count} kernel: {self.tiles} tiles of at most {self.tile} x {self.tile}, {where}, "
            f"at most {size_text(self.worker_bytes)} of memory each, {size_text(self.disk_bytes)} on disk"
        )


def plan(
    net: Layer,
    x: Tensor,
    *,
    count: int | None = None,
    quantity: StoredQuantity = "product",
    parametrization: Parametrization | None = None,
    tile: int | None = None,
    workers: int = 1,
    memory: int | None = None,
    measure: bool = True,
) -> Plan:
    """Tiles, bytes and hours for the kernel of `count` inputs like those of x (n, ...), by default n.

    memory: bytes of one worker (default: 2 GiB). The tile is the largest that fits it, takes about half a minute and
    leaves every worker several, unless it is given; in a very large matrix tiles take longer, so that there are at most
    about 45,000. The speed is measured on a few of the inputs, on one core, for about a second; `measure=False` leaves
    it out.

    >>> from initscope.networks import parse
    >>> p = plan(parse("dense relu"), torch.ones(4, 10), count=60_000, tile=1000, memory=2**30, measure=False)
    >>> p.tiles, p.pairs
    (1830, 1800030000)
    """
    net = as_network("plan", net)
    what = Entries(quantity, parametrization)
    what.require(net, x)
    return plan_entries(net, x, what, count=count, tile=tile, workers=workers, memory=memory, measure=measure)


def plan_entries(
    net: Sequential,
    x: Tensor,
    what: Entries,
    *,
    count: int | None = None,
    tile: int | None = None,
    workers: int = 1,
    memory: int | None = None,
    measure: bool = True,
) -> Plan:
    """The same for entries that were checked."""
    count = len(x) if count is None else count
    if count < 1:
        raise BadInput("plan", f"count is {count}, expected at least one input", "give a positive number")
    workers = max(workers, 1)
    allowed = WORKER_MEMORY if memory is None else budget(memory, torch.device("cpu"))
    sized = partial(worker_bytes, net, x, what)
    if tile is None:
        tile = _largest_tile(_patient(net, x, count, workers), sized, allowed)
    else:
        tile = _given_tile(tile, count, sized, allowed)
    blocks = -(-count // tile)
    dtype = _dtype(x)
    tiles = blocks * (blocks + 1) // 2
    disk = tiles * tile * tile * dtype.itemsize + count * math.prod(x.shape[1:]) * dtype.itemsize
    speed = _pair_seconds(net, x.to(dtype), what) if measure else None
    return Plan(count, tile, tiles, count * (count + 1) // 2, workers, sized(tile), disk, speed)


def worker_bytes(net: Sequential, x: Tensor, what: Entries, tile: int) -> int:
    """The most that a process holds while it computes one tile."""
    dtype = _dtype(x)
    few = x[:1].to(dtype).expand(tile, *x.shape[1:])
    inputs = 2 * 2 * tile * math.prod(x.shape[1:]) * dtype.itemsize  # two blocks, each read and copied
    chunk = 3 * tile * tile * dtype.itemsize  # the tile, padded, as bytes
    return PROCESS_BYTES + inputs + max(what.peak_bytes(net, few), chunk)


def _patient(net: Sequential, x: Tensor, count: int, workers: int) -> int:
    """The most inputs along a side that take at most half a minute and leave each worker enough tiles."""
    blocks = math.ceil((math.sqrt(1 + 8 * TILES_PER_WORKER * workers) - 1) / 2)  # blocks (blocks + 1) / 2 tiles
    updates = kernel_estimate(net, *(x[:1].to(_dtype(x)),) * 2, memory=UNLIMITED).updates
    patient = max(math.isqrt(int(TILE_UPDATES / updates)), -(-count // MOST_BLOCKS))
    return max(1, min(-(-count // blocks), patient, MOST_INPUTS))


def _largest_tile(most: int, sized: Callable[[int], int], allowed: int) -> int:
    """The largest tile that fits the memory; more inputs never need less."""
    low, high = 1, most
    _require(sized(low), allowed, "use smaller inputs or raise memory=")
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sized(middle) <= allowed else (low, middle - 1)
    return low


def _given_tile(tile: int, count: int, sized: Callable[[int], int], allowed: int) -> int:
    if isinstance(tile, bool) or not isinstance(tile, int) or tile < 1:
        raise BadInput(
            "tile", f"got {tile!r}, expected a positive whole number", "give inputs along one side of a tile"
        )
    tile = min(tile, count)
    _require(sized(tile), allowed, "use a smaller tile= or raise memory=")
    return tile


def _require(needed: int, allowed: int, remedy: str) -> None:
    if needed > allowed:
        problem = f"a worker needs about {size_text(needed)}, {size_text(allowed)} are allowed"
        raise BadInput("memory", problem, remedy)


def _dtype(x: Tensor) -> torch.dtype:
    return x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32


def _pair_seconds(net: Sequential, x: Tensor, what: Entries) -> float:
    """Seconds of one pair on one core: blocks of inputs against others, larger until a run takes long enough."""
    side = 1
    with one_thread():
        left = x[torch.arange(side) % len(x)]
        what.compute(net, left, left)  # the first call loads the compiled loops
        while True:
            left = x[torch.arange(side) % len(x)]
            start = time.thread_time()  # of this thread on a core: other work on the machine does not count
            what.compute(net, left, left.clone())
            taken = time.thread_time() - start
            if taken > _TRIAL_SECONDS or side >= MOST_INPUTS:
                return taken / side**2
            side *= 2
