"""What needs no peer: other activations beside our ReLU, the plain path beside the compiled one, and the first call."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from differ_judge import answer
from judge_duals import LONG
from measure import Run, relative_error
from nodes import nodes
from sides import Side, in_turns
from works import WORKS, Work, stack

import initscope as iscope

Record = dict[str, Any]
ACTIVATIONS = ("tanh", "silu", "selu", "elu", "mish", "sigmoid", "sin", "hardswish")
SHAPES = {"W7": ("pooled", 16, 3), "W8": ("same", 200, 10), "W9": ("dense", 2000, 10)}
JUDGED = {"pooled": (2, 5), "same": (3, 8), "dense": (8, None)}  # inputs, and side of the images' corner that is taken
FEW = {"pooled": 4, "same": 4, "dense": 64}  # inputs of a first call, which should be all compiling
SLOWDOWN, PLAIN, COLD, WARM = 4, 20, 15, 1  # aims: two ratios, and seconds of two first calls
PLAIN_PATH, COMPILED = {"INITSCOPE_NO_NUMBA": "1"}, {"INITSCOPE_NO_NUMBA": "0"}


def _activation_works() -> Iterator[Work]:
    for shape, (kind, inputs, depth) in SHAPES.items():
        for act in ACTIVATIONS:
            yield Work(f"W10 {shape} {act}", kind, inputs, depth, f"{shape} with {act}", SLOWDOWN, rounds=3,
                       text=stack(shape, act))  # fmt: skip


@dataclass(frozen=True)
class Own:
    """One row of ours: `kind` is "activation", "plain" or "first"."""

    name: str
    kind: str
    work: Work


def _rows() -> Iterator[Own]:
    activations = list(_activation_works())
    since = [work for work in WORKS if work.text]
    yield from (Own(work.name, "activation", work) for work in activations)
    yield from (Own(f"plain {work.name}", "plain", work) for work in (*since, *activations))
    first = [work for work in WORKS if work.name in ("W2", "W4", "W5", "W6 of W2")] + since
    first += [work for work in activations if work.name.endswith("tanh")]
    yield from (Own(f"first {work.name}", "first", work) for work in first)


OWN = tuple(_rows())


def measure(own: Own, run: Run) -> Record:
    """One record; what takes longer than the limit is recorded as that."""
    work = run.size(own.work)
    take = {"activation": beside_relu, "plain": beside_compiled, "first": first_call}[own.kind]
    return {"kind": own.kind, "work": own.work.name, "what": work.what, **take(work, run), "load": os.getloadavg()[1]}


def question(work: Work, run: Run) -> Record:
    return {**run.given(work), "net": work.net, "dtype": "f32"}


def turns(name: str, mine: Record, other: Record, rounds: int, run: Run, environment: dict[str, str]) -> Record:
    """Our seconds, and those of the other question or path under its name."""
    try:
        with (
            Side("initscope", mine, limit=run.limit, environment=COMPILED) as us,
            Side("initscope", other, limit=run.limit, environment=environment) as them,
        ):
            ours, theirs = in_turns((us, them), rounds)
            versions = us.versions
    except TimeoutError:
        return {"stopped_after_seconds": run.limit}
    return {"ours_seconds": ours, f"{name}_seconds": theirs, "versions": versions}


def beside_relu(work: Work, run: Run) -> Record:
    mine = question(work, run)
    relu = {**mine, "net": stack(work.name.split()[1], "relu")}
    record = turns("relu", mine, relu, work.rounds, run, COMPILED)
    if "ours_seconds" in record:
        record["ratio"] = statistics.median(record["ours_seconds"]) / statistics.median(record["relu_seconds"])
        record["relative_error"] = judged(work, run)
    return {"target": SLOWDOWN, **record}


def judged(work: Work, run: Run) -> float:
    """Our float32 on a few inputs, against float64 quadrature that shares no code with it."""
    count, side = JUDGED[work.kind]
    x = run.inputs(work)[:count]
    x = x if side is None else x[..., :side, :side]
    with tempfile.TemporaryDirectory() as name:
        path, found = Path(name) / "x.npy", Path(name) / "ours.npy"
        np.save(path, x)
        mine = {"inputs": str(path), "net": work.net, "dtype": "f32", "get": work.get}
        with Side("initscope", mine, environment=COMPILED) as us:
            us.run(found)
        ours = np.load(found)
    network = {"inputs": x, "layers": nodes(iscope.parse(work.net)), "parametrization": "ntk"}
    return relative_error(ours, np.array(answer(network, LONG)["product"]))


def beside_compiled(work: Work, run: Run) -> Record:
    mine = question(work, run)
    plain = {**mine, "cold": True}  # nothing to compile, and it may take long
    record = turns("plain", mine, plain, min(work.rounds, 2), run, PLAIN_PATH)
    if "ours_seconds" in record:
        record["ratio"] = statistics.median(record["plain_seconds"]) / statistics.median(record["ours_seconds"])
    return {"target": PLAIN, **record}


def first_call(work: Work, run: Run) -> Record:
    """Fresh processes with libraries and inputs loaded: on an empty cache, on the one that this left, and called again."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.npy"
        np.save(path, run.inputs(work)[: FEW[work.kind]])
        mine = {"inputs": str(path), "net": work.net, "dtype": "f32", "get": work.get, "cold": True}
        environment = {**COMPILED, "NUMBA_CACHE_DIR": str(Path(name) / "cache")}
        record: Record = {}
        for which in ("cold", "warm"):
            with Side("initscope", mine, limit=run.limit, environment=environment) as us:
                record[f"{which}_seconds"] = us.run()["seconds"]
                record["again_seconds"] = us.run()["seconds"]
                record["versions"] = us.versions
    return {"target_cold": COLD, "target_warm": WARM, **record}
