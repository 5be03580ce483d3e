"""How many random filters keep the similarity of real images within ε of its mean, and how often each answer keeps its promise.

    python benchmarks/filters.py

Takes crops of photographs, and, with INITSCOPE_DATA set to a folder of image samples (fashion_mnist.npz, cifar10.npz,
imagenet224.npz), those as well. For each pair fresh filters are drawn by PyTorch's own convolution and split into disjoint
sets of the promised size; a set fails if its similarity is off its mean by ε or more. Pairs whose first-order count is below
50 are left out, and the worst pair is the worst of those with at least 1000 sets.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from initscope.bounds import FilterCount, filters_for
from initscope.data import Pairs, load_pairs
from initscope.finite.similarity_variance import second_order_shift

DELTA = 0.05
NAMES = ("similarity", "refined", "bernstein_with_variance", "bernstein")


@dataclass(frozen=True)
class Task:
    label: str
    source: str
    size: int | None
    pairs: int
    filters: int
    epsilons: tuple[float, ...]


def tasks() -> list[Task]:
    found = [Task("photos 32", "photos", 32, 12, 400_000, (0.04, 0.02))]
    if "INITSCOPE_DATA" in os.environ:
        folder = Path(os.environ["INITSCOPE_DATA"])
        found += [
            Task("Fashion-MNIST", f"npz:{folder}/fashion_mnist.npz:x_test", None, 12, 400_000, (0.02, 0.01)),
            Task("CIFAR-10", f"npz:{folder}/cifar10.npz:x_test", None, 12, 400_000, (0.02, 0.01)),
            Task("ImageNet 64", f"npz:{folder}/imagenet224.npz:images", 64, 12, 200_000, (0.02, 0.01)),
            Task("ImageNet 224", f"npz:{folder}/imagenet224.npz:images", None, 3, 60_000, (0.01,)),
        ]
    return found


def sample(x: Tensor, y: Tensor, count: int, seed: int) -> Tensor:
    """P, Q, S of `count` fresh 3x3 filters with ReLU and cyclic padding, (3, count)."""
    generator = torch.Generator().manual_seed(seed)
    both = F.pad(torch.stack([x, y]).float(), (1, 1, 1, 1), mode="circular")
    tile = max(1, (1 << 20) // (x.shape[1] * x.shape[2]))
    rows = []
    for start in range(0, count, tile):
        weights = torch.randn(min(tile, count - start), len(x), 3, 3, generator=generator)
        a, b = torch.relu_(F.conv2d(both, weights)).flatten(2).unbind(0)
        rows.append(torch.stack([torch.linalg.vecdot(*pair) for pair in ((a, b), (a, a), (b, b))]).double())
    return torch.cat(rows, 1)


def failures(triples: Tensor, filters: int, mean: float, epsilon: float) -> tuple[int, int]:
    sets = triples.shape[1] // filters
    P, Q, S = triples[:, : sets * filters].view(3, sets, filters).sum(2)
    return int((~((P / (Q * S).sqrt() - mean).abs() < epsilon)).sum()), sets


def spread(values: Tensor) -> str:
    low, middle, high = (float(values.quantile(q)) for q in (0, 0.5, 1))
    return f"{middle:.3g} ({low:.3g} - {high:.3g})"


def report(task: Task, epsilon: float, counts: FilterCount, triples: list[Tensor], used: list[int]) -> None:
    print(f"{task.label}, epsilon {epsilon:g}: {len(used)} pairs")
    for name in NAMES:
        needed, tally = getattr(counts, name).value[used], [0, 0]
        worst = 1.0
        for i, each in zip(used, needed.tolist(), strict=True):
            failed, sets = failures(triples[i], int(each), float(counts.mean_similarity.value[i]), epsilon)
            tally = [tally[0] + failed, tally[1] + sets]
            worst = min(worst, 1 - failed / sets) if sets >= 1000 else worst
        rate = 1 - tally[0] / tally[1] if tally[1] else math.nan
        error = math.sqrt(DELTA * (1 - DELTA) / tally[1]) if tally[1] else math.nan
        kept = f"covers {100 * rate:.1f} ± {100 * error:.1f} %" if tally[0] else "covers always"
        worst_pair = f", worst pair {100 * worst:.1f} %" if worst < 1 else ""
        print(f"  {name:24} N {spread(needed):28} {kept} ({tally[0]} of {tally[1]} sets fail{worst_pair})")
    assert counts.corollary_1 is not None
    print(f"  {'corollary_1':24} N {spread(counts.corollary_1.value[used])}")


def run(task: Task) -> None:
    pairs: Pairs = load_pairs(task.source, pairs=task.pairs, size=task.size, seed=1)
    triples = [sample(pairs.x[i], pairs.y[i], task.filters, 100 + i) for i in range(task.pairs)]
    for epsilon in task.epsilons:
        start = time.perf_counter()
        counts = filters_for(pairs.x, pairs.y, epsilon, DELTA)
        seconds = (time.perf_counter() - start) / task.pairs
        used = [i for i in range(task.pairs) if counts.similarity.value[i] >= 50]
        report(task, epsilon, counts, triples, used)
        V, m = counts.variance.value, counts.variance.moments
        print(f"  shift {spread(second_order_shift(counts.variance, DELTA))} filters")
        print(f"  T of one filter: skewness {spread(m.ttt / V**1.5)}, kurtosis {spread(m.tttt / V**2)}")
        print(f"  V to {100 * float((counts.variance.stderr / V).max()):.1f} % or better, {seconds:.2f} s a pair")


if __name__ == "__main__":
    for each in tasks():
        run(each)
