"""Small networks drawn at random from one design space: number i is always the same network with the same weights."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

NETWORKS = 128
SIDE = 14  # pixels of an image
CLASSES = 10
DEPTHS = (2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48, 60)
# Gain g of Var(w) = g²/fan-in near which signals neither die nor explode.
GAINS = {"relu": math.sqrt(2), "leaky": math.sqrt(2 / 1.04), "tanh": 1.0, "gelu": 1.5, "elu": 1.2, "sigmoid": 1.0}


@dataclass(frozen=True)
class Design:
    """What is varied. `gain` is a factor on `GAINS`; None leaves PyTorch's own initialization."""

    number: int
    kind: str  # "mlp" or "cnn"
    depth: int  # weight layers before the readout
    width: int
    activation: str
    gain: float | None
    norm: str  # "none", "batch", "layer"
    residual: str  # "none", "plain", "scaled" by 1/√depth
    down: str  # how a CNN halves its 14x14 images: "stride", "average", "max"
    head: str  # what stands before a CNN's readout: "flatten", "average", "max"
    data: str  # "centred" to mean 0 and spread 1, or "raw" in [0, 1]


def design(number: int) -> Design:
    """The draw with this number; every property is independent of the others.

    >>> design(3) == design(3), len({design(n) for n in range(100)})
    (True, 100)
    """
    dice = random.Random(f"trainability {number}")
    kind = dice.choice(("mlp", "cnn"))
    law = dice.choices(("he", "detuned", "default"), (2, 3, 1))[0]
    return Design(
        number=number,
        kind=kind,
        depth=dice.choice(DEPTHS),
        width=dice.choice((16, 32, 64, 128) if kind == "mlp" else (8, 12, 16)),
        activation=dice.choices(tuple(GAINS), (3, 1, 2, 1, 1, 1))[0],
        gain={"he": 1.0, "detuned": 2 ** dice.uniform(-1, 1), "default": None}[law],
        norm=dice.choices(("none", "batch", "layer"), (5, 2, 2))[0],
        residual=dice.choices(("none", "plain", "scaled"), (4, 1, 1))[0],
        down=dice.choice(("stride", "average", "max")),
        head=dice.choice(("flatten", "average", "max")),
        data=dice.choice(("centred", "raw")),
    )


def halves(networks: int = NETWORKS) -> tuple[list[int], list[int]]:
    """Numbers of the networks on which everything is set, and of those on which it is reported."""
    order = np.random.default_rng(20240).permutation(NETWORKS).tolist()
    half = NETWORKS // 2
    return [n for n in order[:half] if n < networks], [n for n in order[half:] if n < networks]


class Residual(nn.Module):
    """x + scale · inside(x)."""

    def __init__(self, inside: nn.Module, scale: float) -> None:
        super().__init__()
        self.inside, self.scale = inside, scale

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.inside(x)


def build(d: Design) -> nn.Sequential:
    """The network with weights from its own number. Takes (n, 1, 14, 14), gives (n, 10)."""
    with torch.random.fork_rng():
        torch.manual_seed(1000 + d.number)
        net = nn.Sequential(*_stem(d), *(_step(d) for _ in range(d.depth - 1)), *_head(d))
        if d.gain is not None:
            gain = d.gain * GAINS[d.activation]
            for module in net.modules():
                if isinstance(module, nn.Linear | nn.Conv2d):
                    nn.init.normal_(module.weight, std=gain / math.sqrt(module.weight[0].numel()))
                    nn.init.zeros_(module.bias)
    return net


def _stem(d: Design) -> list[nn.Module]:
    if d.kind == "mlp":
        return [nn.Flatten(), nn.Linear(SIDE * SIDE, d.width), *_after(d)]
    conv = nn.Conv2d(1, d.width, 3, padding=1, stride=2 if d.down == "stride" else 1)
    pool = {"stride": [], "average": [nn.AvgPool2d(2)], "max": [nn.MaxPool2d(2)]}[d.down]
    return [conv, *_after(d), *pool]


def _step(d: Design) -> nn.Module:
    weights = nn.Linear(d.width, d.width) if d.kind == "mlp" else nn.Conv2d(d.width, d.width, 3, padding=1)
    inside = nn.Sequential(weights, *_after(d))
    if d.residual == "none":
        return inside
    return Residual(inside, 1.0 if d.residual == "plain" else 1 / math.sqrt(d.depth))


def _after(d: Design) -> list[nn.Module]:
    """Normalization, if any, and the activation."""
    image = d.kind == "cnn"
    norms = {
        "none": list,
        "batch": lambda: [nn.BatchNorm2d(d.width) if image else nn.BatchNorm1d(d.width)],
        "layer": lambda: [nn.GroupNorm(1, d.width) if image else nn.LayerNorm(d.width)],
    }
    activations = {
        "relu": nn.ReLU,
        "leaky": lambda: nn.LeakyReLU(0.2),
        "tanh": nn.Tanh,
        "gelu": nn.GELU,
        "elu": nn.ELU,
        "sigmoid": nn.Sigmoid,
    }
    return [*norms[d.norm](), activations[d.activation]()]


def _head(d: Design) -> list[nn.Module]:
    if d.kind == "mlp":
        return [nn.Linear(d.width, CLASSES)]
    if d.head == "flatten":
        return [nn.Flatten(), nn.Linear(d.width * (SIDE // 2) ** 2, CLASSES)]
    pool = nn.AdaptiveAvgPool2d(1) if d.head == "average" else nn.AdaptiveMaxPool2d(1)
    return [pool, nn.Flatten(), nn.Linear(d.width, CLASSES)]
