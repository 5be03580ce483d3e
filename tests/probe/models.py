"""Small models of many kinds, for tests of the probe."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def he(model: nn.Module, gain: float = 2.0) -> nn.Module:
    """Gaussian weights of variance gain / fan-in, biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.normal_(module.weight, std=(gain / module.weight[0].numel()) ** 0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model


def mlp(depth: int, width: int = 64, inputs: int = 32, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(inputs if i == 0 else width, width), activation()]
    return nn.Sequential(*layers)


def cnn(depth: int, channels: int = 32, norm: bool = False, head: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(depth):
        layers.append(nn.Conv2d(3 if i == 0 else channels, channels, 3, padding=1))
        layers += [nn.BatchNorm2d(channels)] if norm else []
        layers.append(nn.ReLU())
    if head:
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return nn.Sequential(*layers)


class Functional(nn.Module):
    """Everything by functions and operators, one module used twice, a branch that depends on the data, a dict at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = F.relu(self.first(x))
        h = self.shared(h) + x
        if h.sum() > -1e9:
            h = torch.tanh(self.shared(h)) * 0.5
        h += x
        return {"logits": torch.cat([h, h.square()], 1)}


class Stops(nn.Module):
    """Fails in its second layer."""

    def __init__(self) -> None:
        super().__init__()
        self.good, self.bad = nn.Linear(8, 8), nn.Linear(9, 9)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bad(self.good(x))
        return out


class WrittenOut(nn.Module):
    """An activation in several pointwise pieces."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.04 * x.pow(3))))


class Residual(nn.Module):
    def __init__(self, width: int = 32, blocks: int = 3) -> None:
        super().__init__()
        self.enter = nn.Linear(width, width)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(blocks)]
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for block in self.blocks:
            x = x + block(x)
        return x


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
