"""What `check` costs off the fast path: 24 activations in five kinds of networks, convolutional and dense, 16 layers each.

    python benchmarks/check_budget.py [--activations selu,silu] [--kinds residual] [--page docs/benchmarks.md]

For each network the seconds of a plain forward and backward pass (the best of three), those of `check` with one seed, and the
share of the steps that have a prediction. The aim is at most 1.5 times the pass plus one second. About five minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from kernels import put
from torch import Tensor, nn

from initscope.probe import check

DEPTH, CHANNELS, WIDTH, SAMPLES, SIDE = 16, 16, 64, 48, 14
REPEATS = 3
TIMES, PLUS = 1.5, 1.0  # the aim


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Skip(nn.Module):
    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.branch(x)
        return out


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": partial(nn.LeakyReLU, 0.1),
    "prelu": nn.PReLU,
    "relu6": nn.ReLU6,
    "hardtanh": nn.Hardtanh,
    "hardsigmoid": nn.Hardsigmoid,
    "hardswish": nn.Hardswish,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "celu": partial(nn.CELU, 2.0),
    "gelu": nn.GELU,
    "gelu (tanh)": partial(nn.GELU, "tanh"),
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "logsigmoid": nn.LogSigmoid,
    "softsign": nn.Softsign,
    "tanhshrink": nn.Tanhshrink,
    "sin": partial(Apply, torch.sin),
    "cos": partial(Apply, torch.cos),
    "erf": partial(Apply, torch.erf),
    "abs": partial(Apply, torch.abs),
}
KINDS = ("plain", "residual", "batch norm", "layer norm", "pooled")


def images(kind: str, activation: Callable[[], nn.Module]) -> tuple[nn.Module, Tensor]:
    layers: list[nn.Module] = []
    for i in range(DEPTH):
        part: list[nn.Module] = [nn.Conv2d(3 if i == 0 else CHANNELS, CHANNELS, 3, padding=1)]
        part += [nn.BatchNorm2d(CHANNELS)] if kind == "batch norm" else []
        part += [nn.GroupNorm(1, CHANNELS)] if kind == "layer norm" else []
        part += [activation()]
        part += [nn.AvgPool2d(2)] if kind == "pooled" and i in (5, 10) else []
        layers += [Skip(nn.Sequential(*part))] if kind == "residual" and i > 0 else part
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 10))
    return nn.Sequential(*layers, *head), torch.randn(SAMPLES, 3, SIDE, SIDE)


def vectors(kind: str, activation: Callable[[], nn.Module]) -> tuple[nn.Module, Tensor]:
    layers: list[nn.Module] = []
    width = WIDTH
    for i in range(DEPTH):
        part: list[nn.Module] = [nn.Linear(width, WIDTH)]
        part += [nn.BatchNorm1d(WIDTH)] if kind == "batch norm" else []
        part += [nn.LayerNorm(WIDTH)] if kind == "layer norm" else []
        part += [activation()]
        pooled = kind == "pooled" and i in (5, 10)
        part += [nn.Unflatten(1, (1, WIDTH)), nn.AvgPool1d(2), nn.Flatten()] if pooled else []
        width = WIDTH // 2 if pooled else WIDTH
        layers += [Skip(nn.Sequential(*part))] if kind == "residual" and i > 0 else part
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10)), torch.randn(SAMPLES, WIDTH)


NETWORKS = {"CNN": images, "MLP": vectors}


@dataclass(frozen=True)
class Cell:
    """One network: seconds of `check`, seconds of the pass, share of steps with a prediction."""

    check: float
    plain: float
    predicted: float

    @property
    def within(self) -> bool:
        return self.check <= TIMES * self.plain + PLUS

    def __str__(self) -> str:
        mark = "" if self.within else " !"
        return f"{self.check:.2f} / {self.plain:.3f} s, {self.predicted:.0%}{mark}"


def passed(model: nn.Module, x: Tensor) -> float:
    started = time.perf_counter()
    torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
    return time.perf_counter() - started


def measured(network: str, kind: str, activation: str) -> Cell:
    torch.manual_seed(0)
    model, x = NETWORKS[network](kind, ACTIVATIONS[activation])
    passed(model, x)
    plain = min(passed(model, x) for _ in range(REPEATS))
    started = time.perf_counter()
    report = check(model, x, seeds=1)
    seconds = time.perf_counter() - started
    known = sum(layer.predicted is not None for layer in report.layers)
    return Cell(seconds, plain, known / len(report.layers))


def table(activations: Iterable[str], kinds: Iterable[str]) -> str:
    kinds = list(kinds)
    columns = [(network, kind) for network in NETWORKS for kind in kinds]
    lines = [
        "| activation | " + " | ".join(f"{network}, {kind}" for network, kind in columns) + " |",
        "| --- " * (1 + len(columns)) + "|",
    ]
    cells: list[Cell] = []
    for activation in activations:
        row = [measured(network, kind, activation) for network, kind in columns]
        cells += row
        lines.append(f"| {activation} | " + " | ".join(map(str, row)) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    worst = max(cells, key=lambda cell: cell.check - TIMES * cell.plain)
    slack = worst.check - TIMES * worst.plain
    said = (
        f"torch {torch.__version__}, {torch.get_num_threads()} threads. Each cell: seconds of check / of forward + backward,"
        f" share of the steps with a prediction; ! where check takes more than {TIMES} times the pass plus {PLUS:.0f} s."
        f" Within that: {sum(cell.within for cell in cells)} of {len(cells)}; the worst takes {TIMES} times the pass plus"
        f" {slack:.2f} s. Predicted: {sum(cell.predicted for cell in cells) / len(cells):.0%} of the steps."
    )
    return "\n".join([said, "", *lines, ""])


def chosen(given: str | None, known: Iterable[str]) -> list[str]:
    return list(known) if given is None else [name for name in known if name in given.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--activations", help="some of them, with commas between")
    parser.add_argument("--kinds", help="some of the kinds of networks, with commas between")
    parser.add_argument("--page", type=Path, metavar="FILE", help="also put the table into FILE, between its marks")
    options = parser.parse_args()
    check(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), torch.randn(4, 4))  # load what is loaded once
    text = table(chosen(options.activations, ACTIVATIONS), chosen(options.kinds, KINDS))
    print(text)
    if options.page is not None:
        put(options.page, "benchmarks/check_budget.py", text)


if __name__ == "__main__":
    main()
