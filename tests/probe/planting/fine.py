"""What looks like a mistake and is none: these models train and must be healthy."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from probe.planting import bases, settings
from probe.planting.bases import CLASSES, INPUTS, WIDTH, Gpt, Residual, Vit, dense
from probe.planting.data import REGRESSION, STATISTIC, Features, dropped, wrong_statistics
from probe.planting.drift import DEEP_TANH, ENCODER
from probe.planting.row import MILD, Planted, Setting, every, scale, zero
from probe.planting.settings import CONV, CONV_BN, DENSE, GPT, GRAPHS, LSTM, NOISE, RESIDUAL, SHALLOW, SIREN, VIT, WORDS
from probe.planting.values import inserted


def _added(scores: Tensor, allowed: Tensor) -> Tensor:
    return (scores + torch.full(allowed.shape, -math.inf).triu(1)).softmax(-1)


def _largest(scores: Tensor, allowed: Tensor) -> Tensor:
    """Only the three largest scores of each row take part."""
    scores = scores.masked_fill(~allowed, -math.inf)
    least = scores.topk(3, dim=-1).values[..., -1:]
    return torch.where(scores < least, -math.inf, scores).softmax(-1)


def _with_logsumexp(scores: Tensor, allowed: Tensor) -> Tensor:
    scores = scores.masked_fill(~allowed, -math.inf)
    return torch.exp(scores - scores.logsumexp(-1, keepdim=True))


def _with_amax(scores: Tensor, allowed: Tensor) -> Tensor:
    scores = scores.masked_fill(~allowed, -math.inf)
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def _with_exp(scores: Tensor, allowed: Tensor) -> Tensor:
    e = torch.exp(scores.masked_fill(~allowed, -math.inf))
    return e / e.sum(-1, keepdim=True)


class MaskedMax(nn.Module):
    """The maximum over the words that are not padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fc, self.head = nn.Embedding(bases.VOCABULARY, 32), nn.Linear(32, 64), nn.Linear(64, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        h = torch.relu(self.fc(self.embed(ids)))
        out: Tensor = self.head(h.masked_fill((ids % 7 == 0)[..., None], -math.inf).max(1).values)
        return out


class LeNet(nn.Sequential):
    """As PyTorch makes it."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
            nn.Linear(84, CLASSES),
        )  # fmt: skip


class Towers(nn.Module):
    """Two towers that are compared by a product of their normalized ends."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 16))
        self.right = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 16))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        left, right = (nn.functional.normalize(h, dim=1) for h in (self.left(a), self.right(b)))
        return left @ right.T / 0.5


def _identity(model: nn.Module) -> None:
    for layer in model[:-1]:
        if isinstance(layer, nn.Linear) and layer.in_features == layer.out_features:
            nn.init.eye_(layer.weight)


def _pairs(seed: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Two views of sixteen things, and which belong together."""
    x = bases.vectors(seed, 16)[0]
    other = x.flip(1) + 0.1 * torch.randn(16, INPUTS, generator=bases.generator(seed + 400))
    return (x, other), torch.arange(16)


def _positive(seed: int) -> tuple[Tensor, Tensor]:
    x, y = bases.vectors(seed)
    return x.abs(), y


MASKS: dict[str, Planted] = {
    f"{name} before a softmax": GPT.healthy(make=partial(Gpt, mix=mix))
    for name, mix in {
        "masked_fill with -inf": bases.fill_mask,
        "sum with a triangle of -inf": _added,
        "where with -inf outside the top 3": _largest,
    }.items()
} | {
    "-inf into logsumexp and exp": GPT.healthy(make=partial(Gpt, mix=_with_logsumexp)),
    "-inf into exp": GPT.healthy(make=partial(Gpt, mix=_with_exp)),
    "-inf into amax and exp": GPT.healthy(make=partial(Gpt, mix=_with_amax)),
    "maximum over words without padding": WORDS.healthy(make=MaskedMax),
}

ON_PURPOSE: dict[str, Planted] = {
    "zero head of a ViT": VIT.healthy(zero("head")),
    "zero output of a denoiser": NOISE.healthy(zero("out")),
    "conv x 1000 in front of batch norm": CONV_BN.healthy(scale("6", 1000)),
    "ReZero": RESIDUAL.healthy(make=partial(Residual, 12, norm=False, scale=0.0)),
    "layer scale 1e-6": RESIDUAL.healthy(make=partial(Residual, 12, scale=1e-6)),
    "last layer of each residual branch zero": RESIDUAL.healthy(lambda m: [b.fc2.weight.zero_() for b in m.blocks]),
    "60 identity layers": SHALLOW.healthy(_identity, make=partial(dense, 60)),
    "one output": REGRESSION.row(),
    "one output without a target": REGRESSION.row(target=None),
    "frozen body, trainable head": SHALLOW.healthy(lambda m: m[:8].requires_grad_(False)),
    "running statistics that do not matter in training": STATISTIC.healthy(wrong_statistics, make=Features),
    "running statistics that fit": STATISTIC.row(train=False),
    "small head": SHALLOW.healthy(scale("8", 0.01)),
    "square root of a ReLU plus a small number": SHALLOW.healthy(
        make=partial(inserted, lambda h: torch.sqrt(h + 1e-2), 4)
    ),
    "square root behind a ReLU": SHALLOW.healthy(make=partial(inserted, torch.sqrt, 4)),
    "dropout 0.5": SHALLOW.healthy(make=partial(dropped, 0.5)),
    "softmax in front of cross-entropy": SHALLOW.healthy(
        make=lambda: nn.Sequential(*dense(4), nn.Softmax(1)), verdicts=MILD
    ),
    "scatter_add pooling": GRAPHS.row(MILD),
}

PLAIN: dict[str, Planted] = {
    "8 dense layers": DENSE.row(),
    "4 dense layers as PyTorch makes them": SHALLOW.healthy(make=partial(dense, 4, gain=None)),
    "4 dense layers with batch norm": settings.DENSE_BN.row(),
    "4 dense layers with layer norm": settings.DENSE_LN.row(),
    "12 tanh layers": DEEP_TANH.row(),
    "6 convolutions": CONV.row(),
    "6 convolutions with batch norm": CONV_BN.row(),
    "LeNet": CONV.healthy(make=LeNet),
    "positive features": Setting(partial(dense, 3, gain=None), _positive).row(),
    "two towers": Setting(Towers, _pairs).row(),
    "pre-norm residual network": RESIDUAL.row(),
    "ViT": VIT.row(),
    "ViT as PyTorch makes its layers": VIT.healthy(every(nn.Linear, lambda m: m.reset_parameters()), make=Vit),
    "pre-norm transformer of 60 layers": ENCODER.row(),
    "LSTM": LSTM.row(),
    "LSTM cell in a loop over time": LSTM.healthy(make=bases.Unrolled),
    "bag of words": WORDS.row(),
    "SIREN": SIREN.row(),
    "denoiser": NOISE.row(),
}

ROWS = MASKS | ON_PURPOSE | PLAIN
