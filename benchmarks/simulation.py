"""How long `simulate` takes beside the matrix products alone, and how often its intervals hold the exact prediction.

    python benchmarks/simulation.py [--repeats N] [--coverage] [--gradients]

Speed: 100 draws of ten dense ReLU layers of width 1000, beside ten products (inputs x 1000) (1000 x 1000), 100 times, in the same
process on the same threads, alternating; the best of N repeats of each. Two ratios: outputs drawn (the default), and
`materialise=True`, which draws every weight.

Coverage: one simulation of its own for each case; see tests/finite/coverage.py.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

import initscope as iscope
from initscope.finite import simulate_gradients
from initscope.layers import Dense, Layer, ReLU
from initscope.weights import Gaussian

DRAWS, DEPTH, WIDTH = 100, 10, 1000


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def speed(repeats: int) -> None:
    print(f"{DRAWS} draws, {DEPTH} dense ReLU layers of width {WIDTH}, float32, best of {repeats}")
    print("threads  inputs  products s  outputs drawn s  ratio  weights drawn s  ratio")
    net = iscope.parse(f"{DEPTH}x(dense({WIDTH}) relu)")
    threads = torch.get_num_threads()
    for pairs, count in ((100, threads), (200, threads), (100, 1)):
        torch.set_num_threads(count)
        g = torch.Generator().manual_seed(0)
        x = torch.randn(pairs, WIDTH, generator=g)
        y = 0.6 * x + 0.8 * torch.randn(pairs, WIDTH, generator=g)
        both, weights = torch.cat([x, y]), torch.randn(WIDTH, WIDTH, generator=g)

        def products(both: torch.Tensor = both, weights: torch.Tensor = weights) -> None:
            for _ in range(DRAWS * DEPTH):
                both @ weights.T

        def simulated(materialise: bool, x: torch.Tensor = x, y: torch.Tensor = y) -> None:
            iscope.simulate(net, x, y, draws=DRAWS, materialise=materialise)

        runs = [products, lambda: simulated(False), lambda: simulated(True)]
        times = [[seconds(run) for run in runs] for _ in range(repeats)]
        bare, drawn, full = (min(column) for column in zip(*times, strict=True))
        print(
            f"{count:7}  {2 * pairs:6}  {bare:10.2f}  {drawn:15.2f}  {drawn / bare:5.2f}  {full:15.2f}  {full / bare:5.2f}",
            flush=True,
        )
    torch.set_num_threads(threads)


def report(label: str, hits: Iterable[bool]) -> None:
    found = list(hits)
    print(f"{label:75} {len(found):5} cases  {100 * sum(found) / len(found):.1f} %", flush=True)


def coverage() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from finite.coverage import DEEP, deep_hits, table_hits

    print("95 % intervals that hold the exact prediction:")
    for draws in (30, 100):
        report(f"every layer of the table of laws, {draws} draws", table_hits(draws, range(8)))
    report("the same, until=0.05", table_hits(2000, range(8), until=0.05))
    for average in ("moments", "networks"):
        hits = (hit for _, hit in deep_hits(40, range(600), average=average))
        report(f"{DEEP}, 40 draws, average={average}", hits)


def gradients() -> None:
    """OP figure 1: ten layers of width 500, 20 classes, He fan-out and Glorot."""
    x = torch.randn(50, 500, generator=torch.Generator().manual_seed(0))
    print("weight-gradient ratio |dL/dW| / (|delta||x|) by layer, mean over 50 inputs, 40 networks, width 500:")
    for name, law in (("He fan-out", Gaussian(2.0, "out")), ("Glorot", Gaussian(1.0, "mean"))):
        layers: list[Layer] = []
        for _ in range(10):
            layers += [Dense(500, weights=law), ReLU()]
        found = simulate_gradients(iscope.Sequential(*layers), x, head=20, draws=40)
        print(f"  {name:11}", " ".join(f"{layer.weight.value.mean():.3f}" for layer in found.layers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--coverage", action="store_true", help="only the coverage")
    parser.add_argument("--gradients", action="store_true", help="only the gradients")
    arguments = parser.parse_args()
    if arguments.coverage:
        coverage()
    if arguments.gradients:
        gradients()
    if not (arguments.coverage or arguments.gradients):
        speed(arguments.repeats)
