"""Stored kernels: time and memory with one worker and with two, and a plan for a matrix that nobody has on one machine.

    python benchmarks/scale.py --data FOLDER [--repeats N] [--conv]

FOLDER holds fashion_mnist.npz. First all its 8000 images through three dense ReLU layers, 8000 x 8000 entries, on one
worker and on two, each in a fresh folder and checked against the other digit by digit; --conv adds five convolutions
without pooling on 1200 of the images, where the work is long beside the start of the processes. `tiles s` is the time
from the first tile to the last, scaled to all of them: starting processes and importing torch is left out; `each s` is
what the workers spent inside of tiles, over their number, and `cpu s` the same in time on a core: where it is much less
than `each s`, other work had the cores. Memory is the
sum over the workers, and over them and the client, of what each process holds (shared pages counted in each), the
highest of looks ten times a second. Then the plan for 60,000 images 32 x 32 x 3 with convolutions and pooling, from the
speed of one core measured now.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch

import initscope as iscope
from initscope import scale
from initscope.networks.planning import size_text

DENSE, CONV = "3x(dense(1000) relu)", "5x(conv3 relu) flatten dense"
POOLED = "5x(conv3 relu) gap dense"
LIMIT = 4 << 30


class Memory(threading.Thread):
    """The most that this process and its workers hold."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.workers = self.all = 0
        self._stop_now = threading.Event()

    def run(self) -> None:
        me = psutil.Process()
        while not self._stop_now.wait(0.1):
            sizes = []
            for child in me.children(recursive=True):
                try:
                    sizes.append(child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
            self.workers = max(self.workers, sum(sizes))
            self.all = max(self.all, sum(sizes) + me.memory_info().rss)

    def stop(self) -> None:
        self._stop_now.set()
        self.join()


@dataclass(frozen=True)
class Run:
    """One matrix on so many workers."""

    workers: int
    seconds: float
    tile_seconds: float
    busy_seconds: float  # inside of tiles, over the workers
    cpu_seconds: float  # the same, on a core
    memory: Memory
    kernel: torch.Tensor
    plan: scale.Plan


def measure(net: str, x: torch.Tensor, tile: int, workers: int) -> Run:
    times: list[float] = []
    memory = Memory()
    with tempfile.TemporaryDirectory() as folder:
        memory.start()
        run = scale.kernel_to(
            iscope.parse(net),
            x,
            Path(folder) / "K.zarr",
            tile=tile,
            workers=workers,
            memory=LIMIT // 2 - (256 << 20),  # two workers and the client inside 4 GiB
            progress=lambda done, total: times.append(time.perf_counter()),
        )
        memory.stop()
        stored = run.open()
        kernel, records = stored.tensor(), stored.records()
        busy, cpu = (sum(record[name] for record in records) / workers for name in ("seconds", "cpu_seconds"))
    tiles = (times[-1] - times[1]) * run.plan.tiles / (run.plan.tiles - 1)  # times[0] is before the first
    return Run(workers, run.seconds, tiles, busy, cpu, memory, kernel, run.plan)


def scaling(net: str, x: torch.Tensor, tile: int, repeats: int) -> None:
    print(f"\n{net}: {len(x)} x {len(x)}, tiles of {tile}")
    print("workers  whole s  tiles s   each s    cpu s  workers' memory  with client  estimate each")
    best: dict[int, float] = {}
    kernels = []
    for workers in (1, 2) * repeats:
        run = measure(net, x, tile, workers)
        kernels.append(run.kernel)
        best[workers] = min(run.tile_seconds, best.get(workers, run.tile_seconds))
        sizes = (run.memory.workers, run.memory.all, run.plan.worker_bytes)
        held, all_held, estimate = (size_text(size) for size in sizes)
        times = f"{workers:7}{run.seconds:9.1f}{run.tile_seconds:9.1f}{run.busy_seconds:9.1f}{run.cpu_seconds:9.1f}"
        print(f"{times}{held:>17}{all_held:>13}{estimate:>15}", flush=True)
    same = all(torch.equal(kernels[0], other) for other in kernels[1:])
    print(f"tiles on two workers are {best[1] / best[2]:.2f} times as fast; all digits equal: {same}")


def paper_plan() -> None:
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    plan = scale.plan(iscope.parse(POOLED), x, count=60_000, workers=1024)
    assert plan.pair_seconds is not None
    print(f"\n{POOLED}: {plan}")
    print(f"{plan.pairs:,} pairs of {plan.pair_seconds:.3g} s on one core")
    for cores in (1, 64, 1024, 8192):
        hours = plan.hours_on(cores) or 0.0
        print(f"{cores:6} cores: {hours:12,.1f} h = {hours / 24:10,.1f} days")
    print(
        f"a tile takes {plan.pair_seconds * plan.pairs / plan.tiles / 60:.0f} min; a week needs {plan.cores_for(168)} cores"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--repeats", type=int, default=1)
    options.add_argument("--conv", action="store_true")
    chosen = options.parse_args()
    with np.load(chosen.data / "fashion_mnist.npz") as file:
        images = torch.from_numpy(np.concatenate([file["x_train"], file["x_test"]]))[:, None].float() / 255
    scaling(DENSE, images.flatten(1), 1000, chosen.repeats)
    if chosen.conv:
        scaling(CONV, images[:1200], 100, chosen.repeats)
    paper_plan()


if __name__ == "__main__":
    main()
