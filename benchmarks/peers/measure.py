"""One record of numbers for each workload."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sides import Side, in_turns, peak_mb
from works import Pair, Work

sys.path.insert(0, str(Path(__file__).parents[1]))
import kernels

Record = dict[str, Any]
put = kernels.put


def inputs(work: Work, folder: Path) -> tuple[str, kernels.Work]:
    """The file of the inputs, and the same workload as benchmarks/kernels.py counts it."""
    counted = kernels.Work(work.name, work.kind, work.inputs, work.depth, 0, work.get == "ntk")
    path = folder / "x.npy"
    np.save(path, kernels.make_inputs(counted).numpy())
    return str(path), counted


def ratios(ours: list[float], theirs: list[float]) -> Record:
    """Of the medians; the spread is that of the rounds, each side's time by the other's of the same round."""
    each = sorted(b / a for a, b in zip(ours, theirs, strict=True))
    return {
        "ours_seconds": ours,
        "peer_seconds": theirs,
        "ratio": statistics.median(theirs) / statistics.median(ours),
        "ratio_low": each[0],
        "ratio_high": each[-1],
    }


def tried(work: Work, given: Record, folder: Path) -> tuple[list[Record], Record, dict[str, str]]:
    """The peer in all settings, once each: all modes with one block size, then the other sizes of the fastest."""
    found: list[Record] = []
    versions: dict[str, str] = {}

    def one(setting: Record) -> None:
        nonlocal versions
        with Side(work.peer, {**given, **setting}) as side:
            answer = side.run(folder / f"{setting['dtype']}.npy")
            versions = side.versions
        found.append({**setting, "seconds": answer["seconds"]})
        print(f"  {work.peer} {setting}: {answer['seconds']:.3f} s", file=sys.stderr, flush=True)

    for setting in work.settings:
        one(setting)
    best = min(found, key=lambda s: s["seconds"])
    for block in work.blocks:
        if block != best["block"]:
            one({"dtype": best["dtype"], "mode": best["mode"], "block": block})
    return found, min(found, key=lambda s: s["seconds"]), versions


def compare(work: Work) -> Record:
    """Everything about one workload, in one run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, counted = inputs(work, folder)
        given = {"inputs": path, "kind": work.kind, "depth": work.depth, "get": work.get}
        mine = {**given, "net": work.net, "dtype": "f32"}
        settings, best, versions = tried(work, given, folder)
        best = {key: best[key] for key in ("dtype", "mode", "block")}
        with Side("initscope", mine) as us, Side(work.peer, {**given, **best}) as them:
            us.run(folder / "ours.npy")
            times = in_turns((us, them), work.rounds)
            versions |= us.versions
        ours, exact = np.load(folder / "ours.npy"), np.load(folder / "f64.npy")
        record: Record = {"peer": work.peer, "what": work.what, "target": work.target, **ratios(*times)}
        record |= {"best_setting": best, "settings": settings, "stops": work.stops}
        record["relative_error"] = float(np.abs(ours / exact - 1).max())
        record["ours_mb"] = peak_mb("initscope", mine)
        record["peer_mb"] = peak_mb(work.peer, {**given, **best})
        if work.kind == "pooled" and work.depth == 1 and work.get == "nngp" and work.inputs <= 16:
            with Side(work.peer, {**given, "dtype": "f32", "mode": "patches", "block": 2}) as side:
                record["on_patches_seconds"] = min(side.run()["seconds"] for _ in range(3))
        peaks = kernels.machine()
    median = statistics.median(record["ours_seconds"])
    record["share_of_matmul"] = counted.ideal_flops / median / peaks["f32_gflops"] / 1e9
    record["share_of_copy"] = counted.ideal_bytes / median / peaks["copy_gbs"] / 1e9
    return {**record, "machine": {**peaks, "load": os.getloadavg()[1]}, "versions": versions}


def compare_pair(pair: Pair) -> Record:
    ours = Side("plain torch", pair.ours)
    with ours as us, Side(pair.peer, pair.theirs, pair.script) as them:
        times = in_turns((us, them), pair.rounds)
        versions = us.versions | them.versions
    memory = {"ours_mb": peak_mb("plain torch", pair.ours), "peer_mb": peak_mb(pair.peer, pair.theirs, pair.script)}
    return {"peer": pair.peer, "what": pair.what, "target": None, **ratios(*times), **memory, "versions": versions}


def load(path: Path) -> dict[str, Record]:
    return json.loads(path.read_text()) if path.exists() else {}


def store(path: Path, records: dict[str, Record]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(records, indent=1) + "\n")
    part.replace(path)
