"""Sketched kernels beside exact ones: time, error, and what the sketch says of its error.

    python benchmarks/sketch.py --data FOLDER [--only small|large] [--results FILE]

FOLDER holds imagenet224.npz (images: 400 x 224 x 224 x 3). `small`: 32 images averaged to 32 x 32, where the exact sum
over all pairs of positions runs as well, in float32; errors are against the exact kernel in float64. `large`: 200
images 224 x 224; there the exact sum is computed on the 6 pairs of three of the images only, and its time for all 20,100
pairs is extrapolated from them (timed in float32; the truth is computed once more in float64). Every line is kept in FILE as soon
as it is known: a run that was stopped goes on where it was. Times are on as many threads as torch uses. How often the stated
errors hold: benchmarks/interval_coverage.py.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import initscope as iscope
from initscope.finite import sketch_kernel

NETWORKS = ("conv3 relu gap", "3x(conv3 relu) gap", "3x(conv3(padding=zero) relu) gap")
SMALL_WORK = (64, 512), (64, 256), (64, 256)
LARGE_WORK = (512, 64, 64)
FEW = 3  # images whose pairs are computed exactly at full size
COUNT = 200


def load(folder: Path, count: int, shrink: int) -> Tensor:
    with np.load(folder / "imagenet224.npz") as file:
        images = torch.from_numpy(file["images"][:count]).permute(0, 3, 1, 2).float() / 255
    return torch.nn.functional.avg_pool2d(images, shrink) if shrink > 1 else images.contiguous()


def timed(work: Callable[[], Any], repeats: int = 1) -> tuple[Any, float]:
    """The result and the least time."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return result, min(times)


def relative(found: iscope.Estimate, exact: Tensor) -> dict[str, float]:
    """Errors over the entries: true ones, and half the 95 % interval."""
    error, reach = ((found.value - exact) / exact).abs(), found.reach() / exact
    return {
        "largest": float(error.max()),
        "rms": float(error.square().mean().sqrt()),
        "reach": float(reach.median()),
        "largest_reach": float(reach.max()),
    }


def small(text: str, folder: Path, work: int) -> dict[str, Any]:
    net, images = iscope.parse(text), load(folder, 32, 7)
    sketch_kernel(net, images[:2], work=16)  # compiles
    iscope.kernel(net, images[:2])
    _, seconds = timed(lambda: iscope.kernel(net, images), 3)
    exact = iscope.kernel(net, images.double())
    found, sketch_seconds = timed(lambda: sketch_kernel(net, images, work=work), 3)
    return {"exact_seconds": seconds, "seconds": sketch_seconds, "error": relative(found, exact)}


def large_exact(text: str, folder: Path) -> dict[str, Any]:
    """The pairs of three images at full size."""
    net, images = iscope.parse(text), load(folder, FEW, 1)
    iscope.kernel(net, images[:, :, :16, :16])
    _, seconds = timed(lambda: iscope.kernel(net, images))
    pairs, all_pairs = FEW * (FEW + 1) // 2, COUNT * (COUNT + 1) // 2
    matrix = iscope.kernel(net, images.double())
    return {"kernel": matrix.tolist(), "seconds": seconds, "hours_for_all": seconds / pairs * all_pairs / 3600}


def large_sketch(text: str, folder: Path, work: int) -> dict[str, Any]:
    net, images = iscope.parse(text), load(folder, COUNT, 1)
    sketch_kernel(net, images[:2, :, :32, :32], work=16)
    found, seconds = timed(lambda: sketch_kernel(net, images, work=work))
    whole = relative(found, found.value)
    return {
        "seconds": seconds,
        "reach": whole["reach"],
        "largest_reach": whole["largest_reach"],
        "value": found.value[:FEW, :FEW].tolist(),
    }


class Results:
    """What is known, in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

    def get(self, name: str, work: Callable[[], Any]) -> Any:
        if name not in self.known:
            self.known[name] = work()
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(self.known, indent=1))
            print(f"{name}: done", flush=True)
        return self.known[name]


def length(seconds: float) -> str:
    """Seconds as people read them."""
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def show_small(rows: dict[tuple[str, int], Any]) -> None:
    print("\n| 32 images, 32 x 32 | exact | sketch, work | time | true error, rms (most) | 95 % error, median (most) |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (text, work), row in rows.items():
        error = row["error"]
        print(
            f"| `{text}` | {length(row['exact_seconds'])} | {work} | {length(row['seconds'])} "
            f"| {error['rms']:.1e} ({error['largest']:.1e}) | {error['reach']:.1e} ({error['largest_reach']:.1e}) |"
        )


def show_large(rows: dict[tuple[str, int], Any]) -> None:
    print("\n| 200 images, 224 x 224 | exact, extrapolated | sketch, work | time | true error on 6 pairs, rms (most) "
          "| 95 % error, median (most) |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- |")
    for (text, work), (exact, sketch) in rows.items():
        truth = torch.tensor(exact["kernel"], dtype=torch.float64)
        error = ((torch.tensor(sketch["value"], dtype=torch.float64) - truth) / truth).abs()
        print(
            f"| `{text}` | {length(3600 * exact['hours_for_all'])} | {work} | {length(sketch['seconds'])} "
            f"| {float(error.square().mean().sqrt()):.1e} ({float(error.max()):.1e}) "
            f"| {sketch['reach']:.1e} ({sketch['largest_reach']:.1e}) |"
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--only", choices=["small", "large"])
    options.add_argument("--results", type=Path, default=Path("build/sketch.json"))
    chosen = options.parse_args()
    results, folder = Results(chosen.results), chosen.data
    if chosen.only != "large":
        cases = [(text, work) for text, works in zip(NETWORKS, SMALL_WORK, strict=True) for work in works]
        show_small({c: results.get(f"small {c[0]} {c[1]}", lambda c=c: small(c[0], folder, c[1])) for c in cases})
    if chosen.only != "small":
        larges: dict[tuple[str, int], Any] = {}
        for text, work in zip(NETWORKS, LARGE_WORK, strict=True):
            exact = results.get(f"large exact {text}", lambda text=text: large_exact(text, folder))
            name = f"large sketch {text} {work}"
            found = results.get(name, lambda text=text, work=work: large_sketch(text, folder, work))
            larges[text, work] = exact, found
        show_large(larges)
    print(f"\ntorch {torch.__version__}, {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
