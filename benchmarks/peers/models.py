"""Networks that are checked and inspected, in plain torch: every environment can build them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def mlp() -> tuple[nn.Module, Tensor]:
    layers = [module for _ in range(50) for module in (nn.Linear(1000, 1000), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(64, 1000)


def cnn() -> tuple[nn.Module, Tensor]:
    layers: list[nn.Module] = []
    for i in range(50):
        layers += [nn.Conv2d(3 if i == 0 else 64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)), torch.randn(16, 3, 32, 32)


def build(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model, x = {"mlp": mlp, "cnn": cnn}[name]()
    return model.train(), x
