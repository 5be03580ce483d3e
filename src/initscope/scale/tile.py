"""One task: one tile of a stored kernel, computed on one thread in any process that sees the folder."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.networks import Sequential, parse
from initscope.scale.entries import Entries
from initscope.scale.extras import Unfinished
from initscope.scale.job import environment
from initscope.scale.store import Store, open_store


@contextmanager
def one_thread() -> Iterator[None]:
    """Matrix products on several threads add in another order: a tile is computed on one, wherever it is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def compute_tile(path: str, digest: str, row: int, column: int) -> dict[str, Any]:
    """Compute one tile and store it, unless it is there already; returns its record."""
    store = _store_here(path, digest)
    if store.valid(row, column):
        return {**(store.record(row, column) or {}), "found": True}
    start, cpu = time.perf_counter(), time.thread_time()
    x = _inputs(store, row)
    y = None if row == column else _inputs(store, column)
    job = store.job
    what = Entries(job.quantity, job.parametrization)  # type: ignore[arg-type]
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zero inputs: counted below, and said once by the caller
        found = what.compute(_network(job.network), x, y)
    values = found.value.numpy()
    try:
        times = {"seconds": time.perf_counter() - start, "cpu_seconds": time.thread_time() - cpu}
        return store.write(row, column, values, {**_facts(values), **found.accuracy.to_dict(), **times})
    except OSError as error:
        problem = f"cannot write tile ({row}, {column}) ({error.strerror or error})"
        raise Unfinished(
            path, problem, "free some space, then go on with resume=True: complete tiles are kept"
        ) from error


def _facts(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Range and sum of the defined entries, and how many are not."""
    total = float(values.sum(dtype=np.float64))
    defined = values if math.isfinite(total) else values[np.isfinite(values)]
    if not defined.size:
        return {"sum": 0.0, "undefined": int(values.size), "min": None, "max": None}
    facts = {"sum": float(defined.sum(dtype=np.float64)), "undefined": int(values.size - defined.size)}
    return {**facts, "min": float(defined.min()), "max": float(defined.max())}


@lru_cache(maxsize=2)
def _inputs(store: Store, block: int) -> Tensor:
    """Tiles come row by row: their rows' inputs are those of the tile before."""
    return store.inputs(block)


@lru_cache(maxsize=4)
def _network(text: str) -> Sequential:
    return parse(text)


def _store_here(path: str, digest: str) -> Store:
    """The store as this process sees it; refuses another job and another installation."""
    store = open_store(Path(path), "worker")
    if store.job.digest != digest:
        raise BadInput("worker", f"{path} holds another job here", "give all workers the same folder")
    job = store.job
    if (job.version, job.torch, job.compiled) != (here := environment()):
        got = f"initscope {here[0]}, torch {here[1]}, compiled loops {here[2]}"
        expected = f"initscope {job.version}, torch {job.torch}, compiled loops {job.compiled}"
        raise BadInput("worker", f"has {got}, expected {expected}", "install the same on all workers")
    return store
