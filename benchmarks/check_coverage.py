"""How often the intervals of `check` hold: fresh networks of several kinds, the last step of each, and every step.

    python benchmarks/check_coverage.py [--draws 200] [--page docs/check.md]

An interval states that 95 % of networks of this width, drawn again, have their mean cosine inside. For each kind of network
the share that has, with its exact binomial interval (Clopper and Pearson, 95 %). Takes about ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from scipy.stats import beta
from torch import Tensor, nn

from initscope.probe.batches import as_batch
from initscope.probe.inspection import inspect_model

START, END = "<!-- coverage -->", "<!-- /coverage -->"
_SOURCE = torch.Generator().manual_seed(11)
VECTORS = torch.randn(8, 20, generator=_SOURCE)
ALIKE = torch.randn(20, generator=_SOURCE) + 0.5 * torch.randn(8, 20, generator=_SOURCE)
IMAGES = torch.rand(8, 3, 10, 10, generator=_SOURCE)


def he(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.normal_(module.weight, std=(2 / module.weight[0].numel()) ** 0.5)
            nn.init.zeros_(module.bias)
    return model


def dense(depth: int, width: int, out: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(20 if i == 0 else width, width), activation()]
    return nn.Sequential(*layers, nn.Linear(width, out))


def convolutions(channels: int, head: int | None) -> nn.Module:
    layers: list[nn.Module] = []
    for i in range(3):
        layers += [nn.Conv2d(3 if i == 0 else channels, channels, 3, padding=1), nn.ReLU()]
    layers += [] if head is None else [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, head)]
    return nn.Sequential(*layers)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "dense, width 64, 10 outputs": (lambda: he(dense(3, 64, 10)), VECTORS),
    "the same, 5 outputs": (lambda: he(dense(3, 64, 5)), VECTORS),
    "the same, 64 outputs": (lambda: he(dense(3, 64, 64)), VECTORS),
    "the same, inputs alike": (lambda: he(dense(3, 64, 10)), ALIKE),
    "the same, three inputs": (lambda: he(dense(3, 64, 10)), VECTORS[:3]),
    "width 256, 10 outputs": (lambda: he(dense(3, 256, 10)), VECTORS),
    "width 64, PyTorch's weights": (lambda: dense(3, 64, 10), VECTORS),
    "width 64, leaky ReLU": (lambda: he(dense(4, 64, 10, lambda: nn.LeakyReLU(0.2))), VECTORS),
    "width 64, ten layers": (lambda: he(dense(10, 64, 10)), VECTORS),
    "conv, 64 channels": (lambda: he(convolutions(64, None)), IMAGES),
    "conv, 64 channels, pooled, 10 outputs": (lambda: he(convolutions(64, 10)), IMAGES),
    "conv, 16 channels, pooled, 10 outputs": (lambda: he(convolutions(16, 10)), IMAGES),
}


def covered(name: str, draws: int) -> tuple[int, int, int]:
    """Of so many networks: last steps inside their interval, steps inside, and steps."""
    make, data = NETWORKS[name]
    batch = as_batch(data, nn.Identity())
    last = inside = steps = 0
    for draw in range(draws):
        torch.manual_seed(10_000 * list(NETWORKS).index(name) + draw)
        found = [s.observed.predicted for s in inspect_model(make(), batch, backward=False).steps]
        known = [p.explained for p in found if p is not None]
        last, inside, steps = last + known[-1], inside + sum(known), steps + len(known)
    return last, inside, steps


def share(hits: int, of: int) -> str:
    low = beta.ppf(0.025, hits, of - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, hits + 1, of - hits) if hits < of else 1.0
    return f"{hits / of:.1%} [{low:.1%}, {high:.1%}]"


def table(draws: int) -> str:
    lines = ["| network | draws | last step inside | all steps inside |", "| --- | --- | --- | --- |"]
    totals = [0, 0, 0]
    for name in NETWORKS:
        found = covered(name, draws)
        totals = [a + b for a, b in zip(totals, found, strict=True)]
        # Steps of one network are not independent, so their share has no binomial interval.
        lines.append(f"| {name} | {draws} | {share(found[0], draws)} | {found[1] / found[2]:.1%} |")
        print(lines[-1], file=sys.stderr, flush=True)
    every = draws * len(NETWORKS)
    lines.append(f"| all | {every} | {share(totals[0], every)} | {totals[1] / totals[2]:.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    made = table(options.draws)
    print(made)
    if options.page is not None:
        before, rest = options.page.read_text().split(START)
        options.page.write_text(f"{before}{START}\n{made}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
