"""One record of numbers for each workload that has a peer."""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from nodes import nodes
from settings import Peer, bare, cost
from sides import BUILD, Side, in_turns, peak_mb
from works import TINY, Pair, Work

import initscope as iscope

sys.path.insert(0, str(Path(__file__).parents[1]))
import kernels

Record = dict[str, Any]
put = kernels.put


@dataclass(frozen=True)
class Run:
    """What holds for a whole run: the file of settings, seconds that one call may take, and whether it is only a trial."""

    settings: Path
    limit: float = 600.0
    tiny: bool = False

    def size(self, work: Work) -> Work:
        """The workload; of a trial with few inputs and blocks of two of them."""
        return replace(work, inputs=TINY["images"], blocks=(1, 2), rounds=1) if self.tiny else work

    def folder(self) -> Path:
        path = BUILD / "peers" / ("tiny" if self.tiny else "inputs")
        path.mkdir(parents=True, exist_ok=True)
        return path

    def inputs(self, work: Work) -> np.ndarray:
        """The first images or vectors of one seeded draw; of a trial their corners."""
        x = kernels.make_inputs(counted(work)).numpy()
        if self.tiny:
            x = x[..., : TINY["width"]] if x.ndim == 2 else x[..., : TINY["side"], : TINY["side"]]
        return x

    def given(self, work: Work) -> Record:
        """The question, the same for both sides."""
        path = self.folder() / f"{work.name}.npy"
        np.save(path, self.inputs(work))
        layers = nodes(iscope.parse(work.net))
        return {"inputs": str(path), "kind": work.kind, "depth": work.depth, "layers": layers, "get": work.get}

    def peer(self, work: Work) -> Peer:
        return Peer(work, self.given(work), self.settings, self.limit)


def counted(work: Work) -> kernels.Work:
    """The workload as benchmarks/kernels.py counts operations."""
    return kernels.Work(work.name, work.kind, work.inputs, work.depth, 0, work.get == "ntk")


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


def shares(work: Work, seconds: float, peaks: dict[str, float]) -> Record:
    """Of the machine's rates, for the stacks of ReLU layers whose operations are counted."""
    if work.text:
        return {}
    ideal = counted(work)
    return {
        "share_of_matmul": ideal.ideal_flops / seconds / peaks["f32_gflops"] / 1e9,
        "share_of_copy": ideal.ideal_bytes / seconds / peaks["copy_gbs"] / 1e9,
    }


def relative_error(ours: Any, exact: Any) -> float:
    return float(np.abs(ours / exact - 1).max())


def compare(work: Work, run: Run) -> Record:
    """Everything about one workload, in one run; settings of the peer may have been tried before."""
    work = run.size(work)
    peer = run.peer(work)
    given, found = peer.given, peer.tried()
    best = peer.best(found)
    mine = {**given, "net": work.net, "dtype": "f32"}
    with Side("initscope", mine) as us, Side(work.peer, {**given, **best}) as them:
        us.run(run.folder() / "ours.npy")
        times = in_turns((us, them), work.rounds)
        versions = us.versions | them.versions
    record: Record = {"peer": work.peer, "what": work.what, "target": work.target, **ratios(*times)}
    record |= {"best_setting": best, "settings": found, "stops": work.stops}
    record["relative_error"] = relative_error(np.load(run.folder() / "ours.npy"), peer.exact(found))
    record["ours_mb"] = peak_mb("initscope", mine)
    record["peer_mb"] = peak_mb(work.peer, {**given, **best})
    if work.name == "W3 16":
        with Side(work.peer, {**given, "dtype": "f32", "mode": "patches", "block": 2}) as side:
            record["on_patches_seconds"] = min(side.run()["seconds"] for _ in range(3))
    peaks = kernels.machine()
    record |= shares(work, statistics.median(record["ours_seconds"]), peaks)
    return {**record, "machine": {**peaks, "load": os.getloadavg()[1]}, "versions": versions}


def alone(work: Work, run: Run) -> Record:
    """The peer by itself in its best setting, kept with the settings that were tried."""
    work = run.size(work)
    peer = run.peer(work)
    found = peer.tried()
    best = bare(min(found, key=cost))
    with Side(work.peer, {**peer.given, **best}) as them:
        times = in_turns((them,), work.rounds)[0]
        versions = them.versions
    memory = peak_mb(work.peer, {**peer.given, **best})
    record = {"seconds": times, "mb": memory, "load": os.getloadavg()[1], "versions": versions}
    peer.exact(found)
    peer.keep(best_setting=best, alone=record)
    return {"best_setting": best, **record}


def agreement(work: Work, run: Run) -> float:
    """Largest relative difference of the two sides, both in float64."""
    work = run.size(work)
    given = run.given(work)
    found = []
    sides = {"initscope": {"net": work.net}, work.peer: {"mode": "once", "block": work.blocks[-1]}}
    for who, setting in sides.items():
        with Side(who, {**given, **setting, "dtype": "f64"}) as side:
            side.run(run.folder() / "f64.npy")
        found.append(np.load(run.folder() / "f64.npy"))
    return relative_error(*found)


def compare_pair(pair: Pair) -> Record:
    ours = Side("plain torch", pair.ours)
    with ours as us, Side(pair.peer, pair.theirs, pair.script) as them:
        times = in_turns((us, them), pair.rounds)
        versions = us.versions | them.versions
    memory = {"ours_mb": peak_mb("plain torch", pair.ours), "peer_mb": peak_mb(pair.peer, pair.theirs, pair.script)}
    return {"peer": pair.peer, "what": pair.what, "target": None, **ratios(*times), **memory, "versions": versions}
