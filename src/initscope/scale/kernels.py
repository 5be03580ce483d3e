"""`kernel_to`: a kernel matrix into a folder, tile by tile, on as many processes as wanted, resumable after any stop."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from initscope.errors import BadInput, UndefinedSimilarity
from initscope.files import locked
from initscope.geometry import check_inputs
from initscope.layers import Layer
from initscope.networks import Sequential, as_network
from initscope.networks.accuracy import warn_inexact
from initscope.networks.own_share import Parametrization
from initscope.networks.planning import free_memory, size_text
from initscope.networks.progress import Progress
from initscope.scale.entries import Entries, StoredQuantity
from initscope.scale.extras import Unfinished
from initscope.scale.job import make_job, require_same
from initscope.scale.planning import WORKER_MEMORY, Plan, plan_entries
from initscope.scale.reading import StoredKernel, open_kernel
from initscope.scale.store import Store, clean, create_store, open_store
from initscope.scale.tasks import Cluster, completed
from initscope.scale.tile import compute_tile


@dataclass(frozen=True)
class KernelRun:
    """What one call of `kernel_to` did."""

    path: Path
    plan: Plan
    computed: int  # tiles computed by this call
    found: int  # tiles that were complete before
    seconds: float

    def open(self) -> StoredKernel:
        return open_kernel(self.path)


def kernel_to(
    net: Layer,
    x: Tensor,
    out: str | Path,
    *,
    quantity: StoredQuantity = "product",
    parametrization: Parametrization | None = None,
    tile: int | None = None,
    workers: int = 0,
    scheduler: str | None = None,
    memory: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> KernelRun:
    """The kernel matrix of x (n, ...) as a Zarr folder `out`: each tile of the upper triangle once, one chunk each.

    quantity: one of `kernel`, or "tangent" for `tangent_kernel`, whose parametrization may then be given.
    tile: inputs along one side of a tile; the digits of the matrix depend on nothing else, not on how many processes
    compute it. workers: processes here (0: this one), or scheduler: the address of a Dask scheduler whose workers see
    the folder under the same path. memory: bytes of one worker (2 GiB). resume: go on with what an earlier call left, in the
    same folder for the same network, inputs, type, quantity and tile; without a folder it starts. progress is called
    with (complete, all) tiles; say with a line about what the work will take, before it. In a script, workers need
    `if __name__ == "__main__":`.
    """
    out = Path(out).absolute()
    net = as_network("kernel_to", net)
    what = Entries(quantity, parametrization)
    x = _checked(net, x)
    what.require(net, x)
    cluster = _with_memory(Cluster(workers, scheduler, memory))
    _require_parent(out)
    with locked(lock_path(out), "out", f"writing to {out}"):
        return _fill(net, x, out, what, tile, cluster, resume, progress, say)


def lock_path(out: Path) -> Path:
    """Beside the store, so that it is held while the store is being made."""
    return out.with_name(f".{out.name}.lock")


def _fill(
    net: Sequential, x: Tensor, out: Path, what: Entries, tile: int | None, cluster: Cluster, resume: bool,
    progress: Progress | None, say: Callable[[str], None] | None,
) -> KernelRun:  # fmt: skip
    """Make the store or find it, and compute what is missing; the caller holds the lock."""
    start = time.perf_counter()
    earlier = _earlier(out, resume)
    tile = tile if tile is not None or earlier is None else earlier.job.tile
    layout = plan_entries(net, x, what, tile=tile, workers=cluster.workers, memory=cluster.memory, measure=False)
    if say is not None:
        say(str(layout))
    job = make_job(net, x, what, layout.tile)
    if earlier is None:
        _require_space(out, layout)
        earlier = create_store(out, job, x)
    require_same(earlier.job, job, str(out))
    clean(earlier)
    pending = _run(earlier, cluster, progress)
    warn_inexact("kernel_to", StoredKernel(earlier).accuracy)
    return KernelRun(out, layout, pending, layout.tiles - pending, time.perf_counter() - start)


def _run(store: Store, cluster: Cluster, progress: Progress | None) -> int:
    """Compute what is missing; returns how many tiles that was."""
    job = store.job
    pending = [tile for tile in job.tiles() if not store.valid(*tile)]
    total = len(job.tiles())
    done = total - len(pending)
    undefined = 0
    if progress is not None:
        progress(done, total)
    work = partial(_tile, str(store.path), job.digest)
    with closing(completed(work, pending, cluster)) as results:
        for _, record in results:
            done += 1
            undefined += int(record["undefined"])
            if progress is not None:
                progress(done, total)
    missing = [tile for tile in job.tiles() if store.record(*tile) is None]
    if missing:
        raise Unfinished(str(store.path), f"tile {missing[0]} was reported but is not there", "go on with resume=True")
    if undefined:
        _warn_undefined(store, undefined)
    return len(pending)


def _tile(path: str, digest: str, tile: tuple[int, int]) -> dict[str, Any]:
    return compute_tile(path, digest, *tile)


def _checked(net: Sequential, x: Tensor) -> Tensor:
    """The inputs as they are stored: on the CPU, float32 or float64."""
    check_inputs(x, None, zipped=False)
    if len(x) == 0:
        raise BadInput("kernel_to", "got no inputs", "give at least one")
    net.output_shape(tuple(x.shape[1:]))
    dtype = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    return x.detach().to("cpu", dtype).contiguous()


def _require_parent(out: Path) -> None:
    if not out.parent.is_dir():
        raise BadInput("out", f"the folder {out.parent} does not exist", f"create it first: mkdir -p {out.parent}")


def _earlier(out: Path, resume: bool) -> Store | None:
    """The store to go on with; a place that is taken by anything else is refused."""
    if not out.exists():
        return None
    if not resume:
        raise BadInput("out", f"{out} exists", "add resume=True to go on with it, or choose another place")
    return open_store(out, "resume")


def _with_memory(cluster: Cluster) -> Cluster:
    """Workers of this machine get a limit, which is also what ends one that takes more."""
    if cluster.memory is not None or cluster.scheduler is not None:
        return cluster
    share = free_memory(torch.device("cpu")) // 2 // max(cluster.workers, 1)
    return replace(cluster, memory=min(WORKER_MEMORY, share))


def _require_space(out: Path, layout: Plan) -> None:
    free = shutil.disk_usage(out.parent).free
    if layout.disk_bytes > free:
        problem = f"needs {size_text(layout.disk_bytes)} on disk, {size_text(free)} are free"
        raise BadInput("out", problem, "free some space or choose another place")


def _warn_undefined(store: Store, entries: int) -> None:
    warnings.warn(
        f"kernel_to: {entries} entries computed for {store.path.name} are NaN: an input that is zero has no angle",
        UndefinedSimilarity,
        stacklevel=4,
    )
