"""Transformers, recurrent networks, sets and graphs, written as people write them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probe.trainable import CLASSES, SAMPLES, Trainable, gaussian, images, labels, random, tokens

WORDS, LENGTH, WIDTH, HEADS = 100, 16, 48, 4


class Attention(nn.Module):
    """Heads written out. mask: "fill", "triu" and "additive" are causal, in three ways to say so; "none" sees everything."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.mask = mask
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, width = x.shape
        q, k, v = (t.view(samples, length, HEADS, -1).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // HEADS)
        allowed = torch.tril(torch.ones(length, length))
        if self.mask == "fill":
            scores = scores.masked_fill(allowed == 0, float("-inf"))
        elif self.mask == "triu":
            scores = scores + torch.triu(torch.full((length, length), float("-inf")), diagonal=1)
        elif self.mask == "additive":
            scores = scores + (1 - allowed) * torch.finfo(scores.dtype).min
        out: Tensor = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(samples, length, width))
        return out


class Layer(nn.Module):
    """Norms in front of attention and of the two linear layers."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(mask)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    """nanoGPT's scheme: weights of standard deviation 0.02, smaller where a branch ends, embedding and head tied."""

    def __init__(self, mask: str, layers: int = 3) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList([Layer(mask) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        for name, p in self.named_parameters():
            if p.ndim > 1:
                last = name.endswith(("out.weight", "mlp.2.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if last else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.head(self.norm(x))
        return out


class SmallViT(nn.Module):
    """PyTorch's default weights, a class token, a head that starts at zero."""

    def __init__(self, zero_head: bool = True) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.token, self.places = (nn.Parameter(0.02 * torch.randn(1, n, WIDTH)) for n in (1, 17))
        self.layers = nn.Sequential(*[Layer("none") for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
        if zero_head:
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        out: Tensor = self.head(self.norm(self.layers(x))[:, 0])
        return out


class Modulated(nn.Module):
    """A layer whose norms and branches are scaled by the condition, at first by zero (Peebles & Xie 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, elementwise_affine=False) for _ in range(2))
        self.attention = Attention("none")
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH))
        nn.init.zeros_(self.condition[1].weight)
        nn.init.zeros_(self.condition[1].bias)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.condition(c)[:, None].chunk(6, -1)
        x = x + gate1 * self.attention(self.norm1(x) * (1 + scale1) + shift1)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    """Noise in images of 16 x 16 pixels; the last layer starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.places = nn.Parameter(0.02 * torch.randn(1, 16, WIDTH))
        self.time = nn.Sequential(nn.Linear(32, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.layers = nn.ModuleList([Modulated() for _ in range(3)])
        self.norm, self.last = nn.LayerNorm(WIDTH, elementwise_affine=False), nn.Linear(WIDTH, 48)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        waves = time[:, None] * torch.exp(torch.linspace(0, -6, 16))
        c = self.time(torch.cat([waves.sin(), waves.cos()], 1))
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x, c)
        return F.pixel_shuffle(self.last(self.norm(x)).transpose(1, 2).reshape(len(x), 48, 4, 4), 4)


def _noisy() -> dict[str, Tensor]:
    time = torch.linspace(50, 950, SAMPLES)
    kept = torch.cos(time / 1000 * torch.pi / 2)[:, None, None, None]
    return {"x": kept * images(16) + (1 - kept.square()).sqrt() * _noise(), "time": time}


def _noise() -> Tensor:
    return gaussian(SAMPLES, 3, 16, 16, seed=1)


class Mixer(nn.Module):
    """MLP-Mixer: linear layers across places, then across channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(9)])
        self.across = nn.ModuleList([nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(4)])
        self.within = nn.ModuleList([nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)) for _ in range(4)])
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for i, (across, within) in enumerate(zip(self.across, self.within, strict=True)):
            x = x + across(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + within(self.norms[2 * i + 1](x))
        out: Tensor = self.head(self.norms[-1](x).mean(1))
        return out


class Encoder(nn.Module):
    """PyTorch's own encoder over embedded tokens, then their mean."""

    def __init__(self, layers: int, norm_first: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 96, 0.1, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(self.words(ids) + self.places).mean(1))
        return out


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU], layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.cell = cell(32, 64, layers, batch_first=True)
        self.head = nn.Linear(64, 4)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.cell(self.words(ids))[0][:, -1])
        return out


class DeepSets(nn.Module):
    """A function of a set of points; with a mask, of those that are there."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.all = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, points: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.each(points)
        if mask is not None:
            x = x.masked_fill(~mask[..., None], float("-inf"))
        out: Tensor = self.all(x.amax(1))
        return out


def _points() -> Tensor:
    """Clouds of 20 points, each stretched and moved in its own way."""
    return gaussian(SAMPLES, 20, 3) * (gaussian(SAMPLES, 1, 3, seed=1) / 2).exp() + gaussian(SAMPLES, 1, 3, seed=2)


def _masked_points() -> dict[str, Tensor]:
    count = torch.randint(5, 20, (SAMPLES, 1), generator=random())
    return {"points": _points(), "mask": torch.arange(20) < count}


class GraphNetwork(nn.Module):
    """Nodes add up what their neighbors send, divide by the degree, and are classified."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(16, 32)
        self.send, self.keep = (nn.ModuleList([nn.Linear(32, 32) for _ in range(3)]) for _ in range(2))
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, goal = edges
        x = F.relu(self.enter(x))
        degree = torch.zeros(len(x), 1).scatter_add(0, goal[:, None], torch.ones(len(goal), 1)).clamp(min=1)
        for send, keep in zip(self.send, self.keep, strict=True):
            messages = send(x)[source]
            heard = torch.zeros_like(x).scatter_add(0, goal[:, None].expand_as(messages), messages)
            x = F.relu(keep(x) + heard / degree)
        out: Tensor = self.head(x)
        return out


def _graph() -> dict[str, Tensor]:
    return {"x": gaussian(24, 16), "edges": torch.randint(24, (2, 96), generator=random())}


class Towers(nn.Module):
    """Similarities between all images and all sentences, times a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.images = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2048, 32),
        )
        self.words = nn.EmbeddingBag(WORDS, 64)
        self.sentences = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
        self.temperature = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, pictures: Tensor, ids: Tensor) -> Tensor:
        a = F.normalize(self.images(pictures), dim=-1)
        b = F.normalize(self.sentences(self.words(ids)), dim=-1)
        return self.temperature.exp() * a @ b.T


def _matches() -> Tensor:
    return torch.arange(SAMPLES)


class Experts(nn.Module):
    """Two of four experts for each sample; the others get minus infinity before the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.gate = nn.Linear(32, 48), nn.Linear(48, 4)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 48)) for _ in range(4)])
        self.head = nn.Linear(48, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.enter(x))
        scores = self.gate(x)
        least = scores.topk(2, dim=-1).values[:, -1:]
        weights = torch.where(scores >= least, scores, float("-inf")).softmax(-1)
        mixed = torch.stack([expert(x) for expert in self.experts], 1)
        out: Tensor = self.head(x + (weights[..., None] * mixed).sum(1))
        return out


def _texts() -> Tensor:
    return tokens(WORDS, LENGTH)


def _next() -> Tensor:
    return _texts().roll(-1, 1)


def _both() -> dict[str, Any]:
    return {"pictures": images(), "ids": _texts()}


FOUR = {"target": labels(4)}
TEN = {"target": labels()}
SLOW = 3e-4

ATTENTION: dict[str, Trainable] = {
    "nanoGPT, masked_fill": Trainable(lambda: LanguageModel("fill"), _texts, {"target": _next()}),
    "GPT, triu of -inf": Trainable(lambda: LanguageModel("triu"), _texts, goal=_next),
    "GPT, additive mask": Trainable(lambda: LanguageModel("additive"), _texts, {"target": _next()}),
    "ViT, zero head": Trainable(SmallViT, images, TEN, rate=SLOW),
    "ViT, zero head, no target": Trainable(SmallViT, images, goal=labels, rate=SLOW),
    "DiT, own": Trainable(DiT, _noisy, {"target": _noise(), "loss": F.mse_loss}),
    "MLP-Mixer": Trainable(Mixer, images, goal=labels, rate=SLOW),
    "pre-norm transformer": Trainable(lambda: Encoder(6, True), _texts, FOUR, rate=SLOW),
    "post-norm transformer": Trainable(lambda: Encoder(6, False), _texts, FOUR, rate=SLOW),
    "GRU": Trainable(lambda: Recurrent(nn.GRU, 1), _texts, FOUR),
    "LSTM, two layers": Trainable(lambda: Recurrent(nn.LSTM, 2), _texts, goal=lambda: labels(4)),
    "DeepSets, max": Trainable(DeepSets, _points, TEN),
    "masked max pooling": Trainable(DeepSets, _masked_points, goal=labels),
    "graph network": Trainable(GraphNetwork, _graph, {"target": labels(4, 24)}),
    "two towers": Trainable(Towers, _both, {"target": _matches(), "loss": F.cross_entropy}),
    "mixture of experts": Trainable(Experts, lambda: gaussian(SAMPLES, 32), TEN),
}
