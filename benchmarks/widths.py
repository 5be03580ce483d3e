"""How wide is wide enough: exact widths beside the published bounds, how often sampled networks fail, and how long it takes.

python benchmarks/widths.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import binom, kstest

from initscope.bounds import width_for, width_for_subspace
from initscope.finite import relu_gradient_law, relu_norm_law

TABLE = ((1, 0.1, 0.05), (1, 0.2, 0.05), (1, 0.5, 0.05), (10, 0.5, 0.05), (50, 0.5, 0.05))
COVERAGE = ((1, 0.12, 0.05), (1, 0.3, 0.05), (3, 0.3, 0.05), (10, 0.5, 0.05), (25, 0.9, 0.1), (50, 0.7, 0.2))
SUBSPACES = ((2, 1, 0.5, 0.05), (3, 10, 0.5, 0.05), (20, 10, 0.5, 0.05), (784, 10, 0.5, 0.05))


def widths() -> None:
    print("smallest width for |h|²/|x|² within 1 ± ε")
    print("depth  epsilon  delta     exact  log-normal  Theorem 1   gradients too  Theorem 3")
    for depth, epsilon, delta in TABLE:
        found = width_for(depth, epsilon, delta)
        assert found.theorem1 is not None
        assert found.theorem3 is not None
        row = (found.exact, found.asymptotic, found.theorem1, found.gradients, found.theorem3)
        numbers = "  ".join(f"{bound.value:>10}" for bound in row)
        print(f"{depth:>5}  {epsilon:>7}  {delta:>5}  {numbers}")


def failures(depth: int, width: int, epsilon: float, networks: int, seed: int) -> int:
    """Failing networks, unit by unit: given h, the units of W h are independent N(0, 2|h|²/m)."""
    source, failed, block = np.random.default_rng(seed), 0, max(1, 2_000_000 // width)
    for start in range(0, networks, block):
        ratio = np.ones(min(block, networks - start))
        for _ in range(depth):
            units = np.maximum(source.standard_normal((len(ratio), width), dtype=np.float32), 0)
            ratio *= 2 / width * np.einsum("ij,ij->i", units, units, dtype=np.float64)
        failed += int((np.abs(ratio - 1) > epsilon).sum())
    return failed


def coverage() -> None:
    print(
        "\nfailure rate of sampled networks at the exact width (99.9 % binomial interval), and the law at Theorem 1's width"
    )
    for seed, (depth, epsilon, delta) in enumerate(COVERAGE):
        found = width_for(depth, epsilon, delta)
        width, networks = found.exact.value, 5000
        rate = failures(depth, width, epsilon, networks, seed) / networks
        low, high = (edge / networks for edge in binom.interval(0.999, networks, found.failure))
        assert found.theorem1 is not None
        paper = relu_norm_law([found.theorem1.value] * depth).outside(1 - epsilon, 1 + epsilon)
        print(
            f"depth {depth:>2}, ε {epsilon}, δ {delta}: width {width:>4} fails {rate:.4f} ({low:.4f} .. {high:.4f}), "
            f"width {found.theorem1.value} fails {paper:.1e}"
        )


def subspaces() -> None:
    print("\nall inputs of a d-dimensional subspace, all layers: Theorem 2 as printed, repaired, chained")
    for dimension, depth, epsilon, delta in SUBSPACES:
        found = width_for_subspace(dimension, depth, epsilon, delta)
        row = "  ".join(f"{bound.value:>12}" for bound in (found.printed, found.repaired, found.chained))
        print(f"d {dimension:>3}, depth {depth:>2}, ε {epsilon}, δ {delta}: {row}")


def gradient_ratios(width: int, depth: int, networks: int, classes: int, seed: int) -> tuple[torch.Tensor, float]:
    """|∂W_1|²/(|δ|²|x|²) in fresh networks, and the mean squared cosine of ∂a_L and h_L; classes 0: δ is fixed."""
    source = torch.Generator().manual_seed(seed)
    h = torch.randn(networks, width, 1, generator=source)
    size, weights, hidden = h.square().sum((1, 2)), [], [h]
    for _ in range(depth):
        weights.append(torch.randn(networks, width, width, generator=source) * math.sqrt(2 / width))
        hidden.append(torch.relu(weights[-1] @ hidden[-1]))
    delta = torch.ones(networks, width, 1)
    if classes:
        readout = torch.randn(networks, classes, width, generator=source) * math.sqrt(1 / width)
        error = torch.softmax(readout @ hidden[-1], 1)
        labels = torch.randint(classes, (networks,), generator=source)
        error[torch.arange(networks), labels] -= 1
        delta = (readout.mT @ error) * (hidden[-1] > 0)
    norm = delta.square().sum((1, 2))
    cosine = (delta * hidden[-1]).sum((1, 2)).square() / (norm * hidden[-1].square().sum((1, 2)))
    for layer in range(depth - 1, 0, -1):
        delta = (weights[layer].mT @ delta) * (hidden[layer] > 0)
    return delta.square().sum((1, 2)) / norm * hidden[0].square().sum((1, 2)) / size, float(cosine.nanmean())


def gradients() -> None:
    print("\n|∂W_1|²/(|δ|²|x|²) in 10 layers: sampled networks against the law of 9 factors (ε = 0.5)")
    for width, networks in ((30, 2000), (100, 1000), (400, 200)):
        law = relu_gradient_law([width] * 10, 1)
        for classes in (0, 20):
            blocks = [gradient_ratios(width, 10, 100, classes, seed) for seed in range(networks // 100)]
            ratio = torch.cat([block[0] for block in blocks]).double().numpy()
            cosine = float(np.mean([block[1] for block in blocks]))
            test = kstest(ratio, lambda r, law=law: law.cdf(np.asarray(r)))
            error = ratio.std() / math.sqrt(len(ratio))
            what = f"cross-entropy, {classes} classes" if classes else "fixed error δ           "
            drift = (1 + cosine - 2 / width) ** 9 if classes else 1.0
            print(
                f"width {width:>3}, {what}: mean {ratio.mean():.3f} ± {error:.3f} (predicted {drift:.2f}), "
                f"fails {np.mean(np.abs(ratio - 1) > 0.5):.3f} (law {law.outside(0.5, 1.5):.3f}), "
                f"distance of the cdfs {test.statistic:.3f} (p {test.pvalue:.1g})"
            )


def best(function: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def timing() -> None:
    print("\nseconds, best of 5")
    for depth, epsilon, delta in (*TABLE, (200, 0.01, 1e-9)):
        seconds = best(lambda d=depth, e=epsilon, p=delta: width_for(d, e, p))  # type: ignore[misc]
        print(f"width_for({depth}, {epsilon}, {delta}): {seconds:.3f}")
    law, ratios = relu_norm_law([100] * 10), np.linspace(0.01, 4, 1000)
    print(f"cdf at 1000 points, 10 layers of 100: {best(lambda: law.cdf(ratios)):.3f}")
    print(f"width_for_subspace(3, 10, 0.5, 0.05): {best(lambda: width_for_subspace(3, 10, 0.5, 0.05)):.3f}")


if __name__ == "__main__":
    widths()
    coverage()
    subspaces()
    gradients()
    timing()
