"""Plain stacks of every layer that the theory knows, for the coverage of its intervals."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from probe.models import he

Maker = Callable[[], nn.Module]
_SOURCE = torch.Generator().manual_seed(3)
VECTORS = torch.randn(8, 50, generator=_SOURCE)
IMAGES = torch.rand(8, 3, 12, 12, generator=_SOURCE)
SERIES = torch.rand(8, 3, 60, generator=_SOURCE)
VOLUMES = torch.rand(8, 1, 5, 6, 5, generator=_SOURCE)


def dense(activation: Maker, *, gain: float = 2.0, norm: Callable[[int], nn.Module] | None = None) -> nn.Module:
    layers: list[nn.Module] = []
    for i in range(4):
        layers.append(nn.Linear(50 if i == 0 else 256, 256))
        layers += [] if norm is None else [norm(256)]
        layers.append(activation())
    return he(nn.Sequential(*layers), gain)


def conv(
    activation: Maker = nn.ReLU, middle: nn.Module | None = None, *, gain: float = 2.0, **options: int
) -> nn.Module:
    layers: list[nn.Module] = []
    for i in range(3):
        layers.append(nn.Conv2d(3 if i == 0 else 128, 128, 3, padding=1, **(options if i else {})))
        layers.append(activation())
        if middle is not None and i == 0:
            layers.append(middle)
    return he(nn.Sequential(*layers), gain)


def along(axes: int, channels: int) -> nn.Module:
    """Convolutions along one or three axes, the second one with a stride."""
    kind = {1: nn.Conv1d, 3: nn.Conv3d}[axes]
    last = kind(128, 128, 3, stride=2, padding=1)
    return he(nn.Sequential(kind(channels, 128, 3, padding=1), nn.ReLU(), last, nn.Tanh(), nn.Flatten()))


def default() -> nn.Module:
    """As PyTorch makes it: uniform weights and biases."""
    return nn.Sequential(*(m for i in range(4) for m in (nn.Linear(50 if i == 0 else 256, 256), nn.ReLU())))


def zero_sum() -> nn.Module:
    model = conv()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                module.weight -= module.weight.mean((1, 2, 3), keepdim=True)
    return model


class Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(50, 256)
        self.layers = nn.ModuleList([nn.Linear(256, 256) for _ in range(6)])
        he(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for one, two in zip(self.layers[::2], self.layers[1::2], strict=True):
            x = x + two(torch.relu(one(x)))
        return x


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.last = nn.Linear(50, 128), nn.Linear(50, 128), nn.Linear(256, 256)
        he(self)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cat([torch.relu(self.one(x)), torch.tanh(self.two(x))], 1)
        return torch.relu(self.last(h))


STACKS: dict[str, tuple[Maker, Tensor]] = {
    "relu": (lambda: dense(nn.ReLU), VECTORS),
    "leaky relu": (lambda: dense(lambda: nn.LeakyReLU(0.2)), VECTORS),
    "gelu": (lambda: dense(nn.GELU), VECTORS),
    "relu6": (lambda: dense(nn.ReLU6), VECTORS),
    "hardtanh": (lambda: dense(nn.Hardtanh, gain=1.5), VECTORS),
    "layer norm": (lambda: dense(nn.ReLU, norm=nn.LayerNorm), VECTORS),
    "PyTorch default": (default, VECTORS),
    "residual": (Skips, VECTORS),
    "concat": (Branches, VECTORS),
    "conv": (conv, IMAGES),
    "series": (lambda: along(1, 3), SERIES),
    "volumes": (lambda: along(3, 1), VOLUMES),
    "stride": (lambda: conv(stride=2), IMAGES),
    "groups": (lambda: conv(groups=2), IMAGES),
    "dilation": (lambda: conv(dilation=2), IMAGES),
    "zero-sum": (zero_sum, IMAGES),
    "average pool": (lambda: conv(middle=nn.AvgPool2d(2)), IMAGES),
    "max pool": (lambda: conv(middle=nn.MaxPool2d(2)), IMAGES),
    "batch norm": (lambda: conv(middle=nn.BatchNorm2d(128)), IMAGES),
    "group norm": (lambda: conv(middle=nn.GroupNorm(2, 128)), IMAGES),
    "dropout": (lambda: conv(middle=nn.Dropout(0.5)), IMAGES),
}
