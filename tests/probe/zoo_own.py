"""Networks for images, tables and signals, written as people write them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope.data import load
from probe.trainable import CLASSES, SAMPLES, Trainable, gaussian, images, labels, random
from probe.zoo_signals import sound


def _drawings() -> Tensor:
    """Grey images of shapes between 0 and 1, not standardized."""
    return load("shapes", count=SAMPLES, size=28).images


def lenet(activation: type[nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), activation(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), activation(), nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120), activation(), nn.Linear(120, 84), activation(), nn.Linear(84, CLASSES),
    )  # fmt: skip


def _table() -> Tensor:
    """Positive features of one scale: counts, ages, amounts."""
    return torch.rand(2 * SAMPLES, 12, generator=random())


def _amounts() -> Tensor:
    return _table()[:, :3].prod(1, keepdim=True) * 10 + gaussian(2 * SAMPLES, 1)


def tabular(outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, outputs)
    )


def small_vgg() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width in (32, 64, 128):
        layers += [
            nn.Conv2d(channels, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
        ]
        layers.append(nn.MaxPool2d(2))
        channels = width
    head = [nn.Flatten(), nn.Linear(128 * 16, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, CLASSES)]
    return nn.Sequential(*layers, *head)


class Block(nn.Module):
    """Two convolutions beside a shortcut; the last gamma may start at zero."""

    def __init__(self, inputs: int, outputs: int, stride: int, zero: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.short: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        if zero:
            nn.init.zeros_(self.bn2.weight)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.short(x))


def resnet(zero: bool) -> nn.Module:
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    blocks = [Block(16, 16, 1, zero), Block(16, 32, 2, zero), Block(32, 32, 1, zero), Block(32, 64, 2, zero)]
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


class ReZeroBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.alpha = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.alpha * self.body(x)


def rezero() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), *[ReZeroBlock(64) for _ in range(16)], nn.Linear(64, CLASSES))


class FixupBlock(nn.Module):
    """No normalization: the first convolution shrinks with depth, the second starts at zero, scalars around them."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.shift = nn.Parameter(torch.zeros(4))
        self.scale = nn.Parameter(torch.ones(1))
        nn.init.normal_(self.conv1.weight, std=math.sqrt(2 / (width * 9)) * depth**-0.5)
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.conv1(x + self.shift[0]) + self.shift[1])
        return F.relu(self.conv2(out + self.shift[2]) * self.scale + self.shift[3] + x)


def fixup() -> nn.Module:
    head = nn.Linear(24, CLASSES)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    blocks = [FixupBlock(24, 8) for _ in range(8)]
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head
    )


def _twice(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Segmentation: two steps down, two up, features of the same size put beside each other."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = _twice(3, 16), _twice(16, 32), _twice(32, 64)
        self.up2, self.up1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.merge2, self.merge1 = _twice(64, 32), _twice(32, 16)
        self.head = nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        deep = self.up2(self.middle(F.max_pool2d(two, 2)))
        deep = self.up1(self.merge2(torch.cat([deep, two], 1)))
        out: Tensor = self.head(self.merge1(torch.cat([deep, one], 1)))
        return out


def _segments() -> Tensor:
    """Dark, medium and bright pixels."""
    return torch.bucketize(images().mean(1), torch.tensor([-0.4, 0.4]))


def autoencoder() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 64, 64), nn.ReLU(), nn.Linear(64, 32 * 64), nn.ReLU(), nn.Unflatten(1, (32, 8, 8)),
        nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1),
    )  # fmt: skip


class VAE(nn.Module):
    """Images of values between 0 and 1, and the parameters of the code."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(128, 16), nn.Linear(128, 16)
        self.decoder = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 784))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return torch.sigmoid(self.decoder(code)), mean, log_variance


def evidence(output: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
    """Minus the lower bound of the log-likelihood, per sample."""
    image, mean, log_variance = output
    missing = F.binary_cross_entropy(image, target.flatten(1).clamp(0, 1), reduction="sum")
    distance = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return (missing + distance) / len(target)


def audio() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(1, 16, 16, 4), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(4),
        nn.Conv1d(16, 32, 3), nn.BatchNorm1d(32), nn.ReLU(), nn.MaxPool1d(4),
        nn.Conv1d(32, 64, 3), nn.BatchNorm1d(64), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
        nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(30 * x)


def siren() -> nn.Module:
    """Sitzmann et al. 2020: uniform weights to 1 / n in the first layer, sqrt(6 / n) / 30 in the others."""
    layers: list[nn.Module] = []
    for i in range(4):
        linear = nn.Linear(2 if i == 0 else 64, 64)
        limit = 1 / 2 if i == 0 else math.sqrt(6 / 64) / 30
        nn.init.uniform_(linear.weight, -limit, limit)
        layers += [linear, Sine()]
    last = nn.Linear(64, 3)
    nn.init.uniform_(last.weight, -math.sqrt(6 / 64) / 30, math.sqrt(6 / 64) / 30)
    return nn.Sequential(*layers, last)


def _places() -> Tensor:
    """Where 64 pixels are, between -1 and 1."""
    line = torch.linspace(-1, 1, 8)
    return torch.cartesian_prod(line, line)


def _colors() -> Tensor:
    return images(8)[0].flatten(1).T.contiguous()


class Coupling(nn.Module):
    """One half scales and shifts the other; starts as the identity."""

    def __init__(self, width: int, swap: bool) -> None:
        super().__init__()
        self.swap = swap
        self.net = nn.Sequential(
            nn.Linear(width // 2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, width)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.chunk(2, 1)
        if self.swap:
            a, b = b, a
        log_scale, shift = self.net(a).chunk(2, 1)
        log_scale = torch.tanh(log_scale)
        b = b * log_scale.exp() + shift
        return torch.cat([b, a] if self.swap else [a, b], 1), log_scale.sum(1)


class Flow(nn.Module):
    """Where the samples go, and the log-determinant."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Coupling(8, bool(i % 2)) for i in range(6)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.zeros(len(x))
        for layer in self.layers:
            x, log_determinant = layer(x)
            total = total + log_determinant
        return x, total


def likelihood(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Minus the log-likelihood under a standard normal, without its constant."""
    place, log_determinant = output
    return (0.5 * place.square().sum(1) - log_determinant).mean()


def _clusters() -> Tensor:
    """Points near a curve, far from normal."""
    t = torch.linspace(-2, 2, 32)[:, None]
    return torch.cat([t, t.square() - 1, torch.sin(3 * t), t + 2], 1).repeat(1, 2) + 0.1 * gaussian(32, 8)


def loud_conv() -> nn.Module:
    """A first convolution 1000 times too large, in front of batch norm, which does not mind."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip
    with torch.no_grad():
        model[0].weight.mul_(1000)
    return model


def orthogonal_tanh() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(20):
        linear = nn.Linear(64, 64)
        nn.init.orthogonal_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(64, CLASSES))


OWN: dict[str, Trainable] = {
    "LeNet-5, ReLU": Trainable(lambda: lenet(nn.ReLU), _drawings, {"target": labels()}),
    "LeNet-5, tanh": Trainable(lambda: lenet(nn.Tanh), _drawings, goal=labels),
    "tabular MLP": Trainable(lambda: tabular(3), _table, {"target": labels(3, 16)}),
    "regression, one output": Trainable(lambda: tabular(1), _table, {"target": _amounts(), "loss": F.mse_loss}),
    "regression, no target": Trainable(lambda: tabular(1), _table, goal=_amounts),
    "VGG, default weights": Trainable(small_vgg, images, {"target": labels()}),
    "ResNet, zero gamma": Trainable(lambda: resnet(True), images, {"target": labels()}),
    "ResNet, own": Trainable(lambda: resnet(False), images, goal=labels),
    "ReZero": Trainable(rezero, lambda: gaussian(SAMPLES, 32), {"target": labels()}),
    "Fixup": Trainable(fixup, images, {"target": labels()}, rate=3e-4),
    "U-Net": Trainable(UNet, images, {"target": _segments()}),
    "autoencoder": Trainable(autoencoder, images, {"target": images(), "loss": F.mse_loss}),
    "VAE": Trainable(VAE, _drawings, {"target": _drawings(), "loss": evidence}),
    "audio, 1-D convolutions": Trainable(audio, lambda: sound()[:, None], goal=labels),
    "SIREN": Trainable(siren, _places, {"target": _colors(), "loss": F.mse_loss}, rate=3e-4),
    "normalizing flow": Trainable(Flow, _clusters, {"loss": likelihood}),
    "loud convolution before batch norm": Trainable(loud_conv, images, {"target": labels()}),
    "orthogonal tanh, 20 layers": Trainable(orthogonal_tanh, lambda: gaussian(SAMPLES, 64), {"target": labels()}),
}
