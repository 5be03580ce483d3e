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

from initscope.errors import BadInput
from initscope.networks import Sequential, kernel, parse
from initscope.networks.kernels import Quantity
from initscope.scale.extras import Unfinished
from initscope.scale.job import environment
from initscope.scale.store import Store, open_store

# The digits of a tile must not depend on the free memory of the machine that computes it: tiles are chosen to fit.
UNLIMITED = 1 << 62


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
    start = time.perf_counter()
    x = store.inputs(row)
    y = None if row == column else store.inputs(column)
    job = store.job
    quantity: Quantity = job.quantity  # type: ignore[assignment]
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zero inputs: counted below, and said once by the caller
        values = kernel(_network(job.network), x, y, quantity=quantity, memory=UNLIMITED).numpy()
    try:
        return store.write(row, column, values, {**_facts(values), "seconds": time.perf_counter() - start})
    except OSError as error:
        problem = f"cannot write tile ({row}, {column}) ({error.strerror or error})"
        raise Unfinished(path, problem, "free some space, then go on with resume: complete tiles are kept") from error


def _facts(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Range and sum of the defined entries, and how many are not."""
    defined = values[np.isfinite(values)].astype(np.float64)
    low, high = (float(defined.min()), float(defined.max())) if defined.size else (math.inf, -math.inf)
    facts = {"sum": float(defined.sum()), "undefined": int(values.size - defined.size)}
    return {**facts, "min": low, "max": high} if defined.size else {**facts, "min": None, "max": None}


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
