"""The models that train, each with its batch."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from probe.planting import bases
from probe.planting.bases import Gpt, Recurrent, Residual, Vit, conv, dense
from probe.planting.row import Setting


class Siren(nn.Module):
    """Sines of 30 times a dense layer, from places to gray values; `own`: with the weights of its paper."""

    def __init__(self, own: bool = True, depth: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64 if i else 2, 64) for i in range(depth)])
        self.head = nn.Linear(64, 1)
        if own:
            for i, layer in enumerate((*self.layers, self.head)):
                limit = (6 / 64) ** 0.5 / 30 if i else 1 / 2
                nn.init.uniform_(layer.weight, -limit, limit)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.sin(30 * layer(x))
        out: Tensor = self.head(x)
        return out


def gray(seed: int) -> tuple[Tensor, Tensor]:
    """Places of a picture and their gray values: always the same picture."""
    side = torch.linspace(-1, 1, 16)
    places = torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    return places, bases.images(1)[0][0, 0].reshape(-1, 1)


class Denoiser(nn.Module):
    """A small convolutional network that predicts the noise in an image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.norm1, self.conv1 = nn.GroupNorm(4, 32), nn.Conv2d(32, 32, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, 32), nn.Conv2d(32, 32, 3, padding=1)
        self.norm, self.out = nn.GroupNorm(4, 32), nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.conv1(torch.relu(self.norm1(x)))
        x = x + self.conv2(torch.relu(self.norm2(x)))
        out: Tensor = self.out(torch.relu(self.norm(x)))
        return out


class Pooled(nn.Module):
    """Nodes of graphs, added up by `scatter_add`: eight nodes to a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(bases.INPUTS, 64), nn.Linear(64, 64)
        self.third, self.head = nn.Linear(64, 64), nn.Linear(64, bases.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.second(torch.relu(self.first(x))))
        graph = torch.arange(len(x)).div(8, rounding_mode="floor")[:, None].expand_as(h)
        sums = torch.zeros(len(x) // 8, h.shape[1]).scatter_add(0, graph, h)
        out: Tensor = self.head(torch.relu(self.third(sums / 8)))
        return out


class BagOfWords(nn.Module):
    """The mean of embedded tokens into a small network."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fc = nn.Embedding(bases.VOCABULARY, 32), nn.Linear(32, 64)
        self.head = nn.Linear(64, bases.CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.fc(self.embed(ids).mean(1))))
        return out


DENSE = Setting(dense, bases.vectors)
SHALLOW = Setting(partial(dense, 4), bases.vectors)
DENSE_LN = Setting(partial(dense, 4, norm=nn.LayerNorm), bases.vectors)
DENSE_BN = Setting(partial(dense, 4, norm=nn.BatchNorm1d), bases.vectors)
TANH = Setting(partial(dense, 5, activation=nn.Tanh, gain=1.0), bases.vectors)
CONV = Setting(conv, bases.images)
CONV_BN = Setting(partial(conv, norm=True), bases.images)
RESIDUAL = Setting(Residual, bases.vectors)
GPT = Setting(Gpt, bases.tokens)
VIT = Setting(Vit, bases.images)
LSTM = Setting(Recurrent, bases.words)
WORDS = Setting(BagOfWords, bases.words)
SIREN = Setting(Siren, gray)
NOISE = Setting(Denoiser, bases.noisy)
GRAPHS = Setting(Pooled, bases.graphs)
