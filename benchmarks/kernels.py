"""How long the all-pairs kernels take, how exact they are in float32, how far they are from what the machine can do.

    python benchmarks/kernels.py [--json FILE] [--page FILE] [--repeats N] [--no-plain]

Works: W1 one convolution, 500 images; W2 ten deep, 200; W3 one + global average, 16 and 32; W4 five deep + global
average, 8; W5 dense, ten deep, 2000 vectors. Images are 32x32x3 Gaussian noise with a common mean. Each work runs in
its own process, so that first call and peak memory are its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from initscope import kernel, parse

SIDE, CHANNELS = 32, 3
# One update of a position pair: sum over taps (4 additions, separable), scale, ratio, clamp, square root, polynomial of
# degree 5 (10), and the blend. Counted on the formulas, multiplication and addition one each. The tangent kernel has its own sum
# over taps (4), a second polynomial of degree 6 (12), what the weights add (4) and the product of the two (4).
FLOPS_PER_UPDATE, FLOPS_PER_TANGENT = 32, 24
FLOPS_PER_INPUT = 2 * CHANNELS


@dataclass(frozen=True)
class Work:
    """One line of the table."""

    name: str
    kind: str  # "same", "pooled", "dense"
    inputs: int
    depth: int
    subset: int  # inputs of the comparison with float64
    tangent: bool = False

    @property
    def pairs(self) -> int:
        return self.inputs * (self.inputs + 1) // 2

    @property
    def ideal_flops(self) -> float:
        """Operations of an implementation that does each pair once and nothing else."""
        each = FLOPS_PER_UPDATE + FLOPS_PER_TANGENT * self.tangent
        if self.kind == "dense":
            return self.pairs * (2 * 3072 + self.depth * (each - 4))
        places = SIDE * SIDE
        # pooled: all position pairs; an image with itself has every unordered pair once
        updates = self.pairs * places if self.kind == "same" else self.inputs**2 / 2 * places**2
        return updates * (FLOPS_PER_INPUT + self.depth * each)

    @property
    def ideal_bytes(self) -> float:
        """Inputs read once, answer written once."""
        width = 3072  # also 3 * 32 * 32
        return 4.0 * (self.inputs * width + self.inputs**2)


WORKS = (
    Work("W1", "same", 500, 1, 40),
    Work("W2", "same", 200, 10, 24),
    Work("W3 16", "pooled", 16, 1, 3),
    Work("W3 32", "pooled", 32, 1, 3),
    Work("W4", "pooled", 8, 5, 2),
    Work("W5", "dense", 2000, 10, 200),
)


def peak_kib() -> int:
    """The peak of this process alone; getrusage remembers that of the process which started it."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def make_inputs(work: Work, seed: int = 0) -> Tensor:
    """Float32 noise with a mean, so that similarities differ from zero."""
    generator = torch.Generator().manual_seed(seed)
    shape = (work.inputs, 3072) if work.kind == "dense" else (work.inputs, CHANNELS, SIDE, SIDE)
    return torch.randn(shape, generator=generator) + 0.5


def compute(work: Work, x: Tensor) -> Tensor:
    """The kernel matrix of a work; the one place that says through which function it goes."""
    layer = "dense(1) relu" if work.kind == "dense" else "conv3 relu"
    return kernel(parse(f"{work.depth}x({layer}){' gap' if work.kind == 'pooled' else ''}"), x)


def seconds_of(call: Callable[[], object], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def machine(repeats: int = 7) -> dict[str, float]:
    """Best matmul rates (GFLOP/s) and copy rate (GB/s, read plus write) of this process, now."""
    result = {}
    for name, dtype in (("f32_gflops", torch.float32), ("f64_gflops", torch.float64)):
        a, b = torch.randn(1536, 1536, dtype=dtype), torch.randn(1536, 1536, dtype=dtype)
        result[name] = 2 * 1536**3 / min(seconds_of(lambda a=a, b=b: a @ b, repeats)) / 1e9
    source = torch.ones(1 << 25)
    target = torch.empty_like(source)
    result["copy_gbs"] = 2 * source.nbytes / min(seconds_of(lambda: target.copy_(source), repeats)) / 1e9
    return result


def relative_error(work: Work, x: Tensor) -> float:
    """Largest relative error of a float32 entry on a subset, against plain torch in float64."""
    part = x[: work.subset]
    single = compute(work, part).double()
    before = os.environ.get("INITSCOPE_NO_NUMBA")
    os.environ["INITSCOPE_NO_NUMBA"] = "1"
    exact = compute(work, part.double())
    if before is None:
        del os.environ["INITSCOPE_NO_NUMBA"]
    return float(((single - exact) / exact).abs().max())


def measure(work: Work, repeats: int) -> dict[str, float]:
    """One work in this process: first call, then repeats, memory, error, and the peaks of the machine around it."""
    x = make_inputs(work)
    before = peak_kib()
    first = seconds_of(lambda: compute(work, x), 1)[0]
    memory = peak_kib()
    cpu = time.process_time()
    times = seconds_of(lambda: compute(work, x), repeats)
    cpu = (time.process_time() - cpu) / repeats
    peaks = machine()
    median = statistics.median(times)
    return {
        "median_seconds": median,
        "least_seconds": min(times),
        "most_seconds": max(times),
        "cpu_seconds": cpu,
        "first_call_seconds": first,
        "peak_mb": memory / 1024,
        "peak_mb_above_inputs": (memory - before) / 1024,
        "max_relative_error": relative_error(work, x),
        "share_of_f32_peak": work.ideal_flops / median / peaks["f32_gflops"] / 1e9,
        "share_of_copy_peak": work.ideal_bytes / median / peaks["copy_gbs"] / 1e9,
        **peaks,
    }


def in_own_process(work: Work, repeats: int, plain: bool) -> dict[str, float]:
    environment = {**os.environ, "INITSCOPE_NO_NUMBA": "1" if plain else "0"}
    command = [sys.executable, __file__, "--work", work.name, "--repeats", str(repeats)]
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(answer))


EXPLANATION = """
median of {repeats} (plain: fewer) after a first call, on {threads} threads; min - max shows the noise
first: the first call of the process, compiled loops loaded from the cache if it has them
error: largest relative error of an entry, float32 against plain torch in float64, on a subset of the inputs
MB: peak memory of the process above what it held with its inputs loaded
flops: operations of an ideal implementation ({per_update} per position pair and layer, each pair once) / time,
       as a share of the float32 matmul rate measured in the same process
copy:  inputs and answer moved once / time, as a share of the copy rate measured in the same process
"""


def table(rows: list[dict[str, object]]) -> str:
    head = f"{'work':7}{'path':10}{'median s':>10}{'min - max s':>18}{'first s':>9}{'error':>10}{'MB':>7}"
    lines = [head + f"{'flops':>8}{'copy':>8}"]
    for row in rows:
        spread = f"{row['least_seconds']:.3f} - {row['most_seconds']:.3f}"
        lines.append(
            f"{row['work']:7}{row['path']:10}{row['median_seconds']:10.3f}{spread:>18}{row['first_call_seconds']:9.2f}"
            f"{row['max_relative_error']:10.1e}{row['peak_mb_above_inputs']:7.0f}{row['share_of_f32_peak']:8.1%}"
            f"{row['share_of_copy_peak']:8.2%}"
        )
    return "\n".join(lines)


def put(page: Path, name: str, text: str) -> None:
    """Replace what a page has between the marks of a name."""
    begin, end, old = f"<!-- output of {name} -->\n", f"<!-- end of {name} -->", page.read_text()
    page.write_text(old[: old.index(begin) + len(begin)] + text + old[old.index(end) :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write every number to FILE")
    parser.add_argument("--page", type=Path, metavar="FILE", help="also put the table into FILE, between its marks")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-plain", action="store_true", help="leave out the plain torch path")
    parser.add_argument("--work", help=argparse.SUPPRESS)  # one work, in this process, as JSON
    arguments = parser.parse_args()
    if arguments.work:
        work = next(work for work in WORKS if work.name == arguments.work)
        print(json.dumps(measure(work, arguments.repeats)))
        return
    rows: list[dict[str, object]] = []
    for work in WORKS:
        for path in ("compiled",) if arguments.no_plain else ("compiled", "plain"):
            repeats = (
                arguments.repeats
                if path == "compiled"
                else 1
                if work.kind == "pooled"
                else max(1, arguments.repeats // 3)
            )
            numbers = in_own_process(work, repeats, path == "plain")
            rows.append({"work": work.name, "path": path, **numbers})
            print(f"{work.name} {path} done", file=sys.stderr)
    threads = torch.get_num_threads()
    best = {name: max(float(str(row[name])) for row in rows) for name in ("f32_gflops", "f64_gflops", "copy_gbs")}
    explained = EXPLANATION.format(repeats=arguments.repeats, threads=threads, per_update=FLOPS_PER_UPDATE)
    peaks = "peaks seen: " + ", ".join(f"{name} {value:.0f}" for name, value in best.items())
    text = f"{table(rows)}\n{explained}\n{peaks}\n"
    print(text, end="")
    if arguments.page:
        put(arguments.page, "benchmarks/kernels.py", f"```\n{text}```\n")
    if arguments.json:
        about = {"processor": platform.processor(), "threads": threads, "torch": torch.__version__, "peaks": best}
        with open(arguments.json, "w") as file:
            json.dump({"machine": about, "works": [asdict(work) for work in WORKS], "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
