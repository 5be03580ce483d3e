"""Models that train, in which mistakes are planted, and batches that they can learn."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES, INPUTS, WIDTH, VOCABULARY, LENGTH = 10, 32, 64, 64, 12


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def labels(samples: int, seed: int) -> Tensor:
    return torch.randint(CLASSES, (samples,), generator=generator(seed))


def vectors(seed: int = 1, samples: int = 64) -> tuple[Tensor, Tensor]:
    """Ten clusters of features with mean 0 and variance 2 / 2 = 1, and which one it is."""
    y = labels(samples, seed)
    centers = torch.randn(CLASSES, INPUTS, generator=generator(900))
    x = centers[y] + torch.randn(samples, INPUTS, generator=generator(seed + 100))
    return x / 2**0.5, y


def graphs(seed: int = 1) -> tuple[Tensor, Tensor]:
    """Eight nodes to a graph, all of one cluster."""
    x, y = vectors(seed, 16)
    nodes = x.repeat_interleave(8, 0) + torch.randn(128, INPUTS, generator=generator(seed + 200))
    return nodes / 2**0.5, y


def images(seed: int = 1, samples: int = 32) -> tuple[Tensor, Tensor]:
    """Ten smooth color patterns of 16 x 16, each with smooth and with fine noise, and which one it is."""
    y = labels(samples, seed)
    coarse = torch.randn(CLASSES, 3, 4, 4, generator=generator(901))[y]
    coarse = coarse + torch.randn(samples, 3, 4, 4, generator=generator(seed + 100))
    return F.interpolate(coarse, size=16, mode="bilinear") + _grain(seed, samples), y


def noisy(seed: int = 1) -> tuple[Tensor, Tensor]:
    """Images, and the fine noise in them."""
    return images(seed)[0], _grain(seed, 32)


def _grain(seed: int, samples: int) -> Tensor:
    return 0.3 * torch.randn(samples, 3, 16, 16, generator=generator(seed + 300))


def tokens(seed: int = 1, samples: int = 16) -> tuple[Tensor, Tensor]:
    """Random tokens, and for each of them another one: a fixed permutation."""
    ids = torch.randint(VOCABULARY, (samples, LENGTH), generator=generator(seed))
    return ids, torch.randperm(VOCABULARY, generator=generator(902))[ids]


def words(seed: int = 1, samples: int = 32) -> tuple[Tensor, Tensor]:
    """Random tokens, about a third of which belong to a topic, and which topic."""
    y = labels(samples, seed)
    ids = torch.randint(VOCABULARY, (samples, LENGTH), generator=generator(seed + 100))
    topical = 6 * y[:, None] + ids % 6
    return torch.where(torch.rand(samples, LENGTH, generator=generator(seed + 200)) < 1 / 3, topical, ids), y


def he(module: nn.Module, gain: float = 2.0) -> None:
    """Gaussian weights of variance gain / fan-in and zero biases in every dense and convolution layer."""
    for one in module.modules():
        if isinstance(one, nn.Linear | nn.Conv2d):
            nn.init.normal_(one.weight, std=(gain / one.weight[0].numel()) ** 0.5)
            if one.bias is not None:
                nn.init.zeros_(one.bias)


def dense(
    depth: int = 8,
    *,
    activation: Callable[[], nn.Module] = nn.ReLU,
    norm: Callable[[int], nn.Module] | None = None,
    gain: float | None = 2.0,
    outputs: int = CLASSES,
) -> nn.Sequential:
    """Dense layers with one activation each and a linear head; gain None keeps PyTorch's initialization."""
    layers: list[nn.Module] = []
    for i in range(depth):
        layers.append(nn.Linear(WIDTH if i else INPUTS, WIDTH))
        layers += [] if norm is None else [norm(WIDTH)]
        layers.append(activation())
    model = nn.Sequential(*layers, nn.Linear(WIDTH, outputs))
    if gain is not None:
        he(model, gain)
        he(model[-1], 1 / 3)
    return model


def conv(depth: int = 6, *, norm: bool = False, channels: int = 32, gain: float | None = 2.0) -> nn.Sequential:
    """Convolutions with ReLU, average pooling and a linear head."""
    layers: list[nn.Module] = []
    for i in range(depth):
        layers.append(nn.Conv2d(channels if i else 3, channels, 3, padding=1, stride=2 if i == 2 else 1))
        layers += [nn.BatchNorm2d(channels)] if norm else []
        layers.append(nn.ReLU())
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, CLASSES))
    if gain is not None:
        he(model, gain)
        he(model[-1], 1 / 3)
    return model


class Branch(nn.Module):
    """A residual block: x + scale · fc2(relu(fc1(norm(x))))."""

    def __init__(self, norm: bool = True, scale: float | None = None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH) if norm else nn.Identity()
        self.fc1, self.fc2 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        he(self)
        he(self.fc2, 1.0)
        self.scale = None if scale is None else nn.Parameter(torch.full((WIDTH,), scale))

    def forward(self, x: Tensor) -> Tensor:
        out = self.fc2(torch.relu(self.fc1(self.norm(x))))
        return x + (out if self.scale is None else out * self.scale)


class Residual(nn.Module):
    """A stem, residual blocks and a head."""

    def __init__(self, blocks: int = 6, *, norm: bool = True, scale: float | None = None) -> None:
        super().__init__()
        self.stem = nn.Linear(INPUTS, WIDTH)
        self.blocks = nn.Sequential(*(Branch(norm, scale) for _ in range(blocks)))
        self.last = nn.LayerNorm(WIDTH) if norm else nn.Identity()
        self.head = nn.Linear(WIDTH, CLASSES)
        he(self.stem, 1.0)
        he(self.head, 1 / 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.last(self.blocks(self.stem(x))))
        return out


def fill_mask(scores: Tensor, allowed: Tensor) -> Tensor:
    """Softmax in which masked places have the score -inf."""
    return scores.masked_fill(~allowed, -math.inf).softmax(-1)


class Attention(nn.Module):
    """Causal self-attention by hand, with fused projections; `mix` turns scores and mask into weights."""

    def __init__(
        self, width: int = 32, mix: Callable[[Tensor, Tensor], Tensor] = fill_mask, causal: bool = True
    ) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mix, self.causal, self.heads = mix, causal, 4

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = (p.view(n, t, self.heads, -1).transpose(1, 2) for p in self.qkv(x).split(c, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(c / self.heads)
        allowed = torch.ones(t, t, dtype=torch.bool)
        attention = self.mix(scores, allowed.tril() if self.causal else allowed)
        out: Tensor = self.out((attention @ v).transpose(1, 2).reshape(n, t, c))
        return out


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, attention: nn.Module) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(width), attention, nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


def small(model: nn.Module, std: float = 0.02) -> None:
    """Weights of transformers: N(0, std²), biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding | nn.Conv2d):
            nn.init.normal_(module.weight, std=std)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)


class Gpt(nn.Module):
    """A small language model with learned positions."""

    def __init__(
        self, blocks: int = 3, width: int = 32, mix: Callable[[Tensor, Tensor], Tensor] = fill_mask, tied: bool = False
    ) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, Attention(width, mix)) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        small(self, 0.1)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.position(torch.arange(ids.shape[1]))
        out: Tensor = self.head(self.norm(self.blocks(x)))
        return out


class Vit(nn.Module):
    """A small vision transformer that is read at its class token."""

    def __init__(self, blocks: int = 4, width: int = 32, attention: Callable[[int], nn.Module] | None = None) -> None:
        super().__init__()
        make = attention or (lambda width: Attention(width, causal=False))
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token, self.position = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.zeros(1, 17, width))
        self.blocks = nn.Sequential(*(Block(width, make(width)) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)
        small(self, 0.1)
        nn.init.normal_(self.token, std=0.1)
        nn.init.normal_(self.position, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        out: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return out


class Unrolled(nn.Module):
    """The same, as a loop over time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell = nn.Embedding(VOCABULARY, 32), nn.LSTMCell(32, 64)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        state = None
        for x in self.embed(ids).unbind(1):
            state = self.cell(x, state)
        out: Tensor = self.head(state[0])
        return out


class Recurrent(nn.Module):
    """An LSTM over embedded tokens, read at its last step."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(VOCABULARY, 32), nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(self.embed(ids))[0][:, -1])
        return out
