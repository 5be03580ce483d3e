"""Mistakes in all layers at once: signals or gradients that drift with depth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from probe.planting import bases
from probe.planting.bases import Gpt, Residual, Vit, conv, dense, he
from probe.planting.row import BAD, EMBEDDING, REDRAW, RESIDUAL, SIREN, WARN, Planted, Setting, every
from probe.planting.settings import CONV, DENSE, GPT, VIT, Siren
from probe.planting.settings import RESIDUAL as BRANCHES
from probe.planting.settings import SIREN as PLACES

DEEP = Setting(partial(dense, 40), bases.vectors)
DEEP_TANH = Setting(partial(dense, 12, activation=nn.Tanh, gain=1.0), bases.vectors)


class Encoder(nn.Module):
    """Transformer layers as PyTorch has them: normalized behind the sum, or in front of the branch."""

    def __init__(self, layers: int, first: bool) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(bases.VOCABULARY, 32), nn.Embedding(bases.LENGTH, 32)
        options = {"dim_feedforward": 64, "dropout": 0.0, "batch_first": True, "norm_first": first}
        self.layers = nn.Sequential(*(nn.TransformerEncoderLayer(32, 4, **options) for _ in range(layers)))
        self.norm = nn.LayerNorm(32) if first else nn.Identity()
        self.head = nn.Linear(32, bases.VOCABULARY)
        nn.init.normal_(self.position.weight, std=0.1)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.position.weight
        out: Tensor = self.head(self.norm(self.layers(x)))
        return out


def _all_normal(model: nn.Module) -> None:
    """Every matrix N(0, 1), the fused projections of attention too."""
    for parameter in model.layers.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter)


class Written(nn.Module):
    """Eight layers of bare parameters, multiplied as `how` writes it, with weights N(0, 0.01)."""

    def __init__(self, how: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        size = bases.INPUTS
        self.how, self.head = how, nn.Linear(size, bases.CLASSES)
        self.weights = nn.ParameterList([nn.Parameter(0.01 * torch.randn(size, size)) for _ in range(8)])

    def forward(self, x: Tensor) -> Tensor:
        for w in self.weights:
            x = torch.relu(self.how(x, w))
        out: Tensor = self.head(x)
        return out


def normed(gain: float) -> nn.Sequential:
    """Dense layers with weight norm, of this length for each unit."""
    model = dense(8)
    for layer in model[:-1:2]:
        weight_norm(layer).parametrizations.weight.original0.data.fill_(gain)
    return model


ENCODER = Setting(partial(Encoder, 60, True), bases.tokens)


def _normal(std: float) -> object:
    return every((nn.Linear, nn.Conv2d), lambda m: (nn.init.normal_(m.weight, std=std), nn.init.zeros_(m.bias)))


ROWS: dict[str, Planted] = {
    "PyTorch's initialization in 40 layers": DEEP.mistake(
        "collapse", make=partial(dense, 40, gain=None), remedy=REDRAW
    ),
    "gain 3 in 40 layers": DEEP.mistake("activation-scale", make=partial(dense, 40, gain=6.0), remedy=REDRAW),
    "half the gain in 40 layers": DEEP.mistake("activation-scale", make=partial(dense, 40, gain=0.5), remedy=REDRAW),
    "Glorot's law in 20 sigmoid layers": DENSE.mistake(
        "collapse", make=partial(dense, 20, activation=nn.Sigmoid, gain=1.0), remedy=REDRAW
    ),
    "Xavier with gain 5": DEEP_TANH.mistake(
        "saturated", every(nn.Linear, lambda m: nn.init.xavier_normal_(m.weight, gain=5.0)), verdicts=BAD, remedy=REDRAW
    ),
    "weights N(0, 1) in 8 layers": DENSE.mistake("activation-scale", _normal(1.0), remedy=REDRAW),
    "weights N(0, 0.01) in 8 layers": DENSE.mistake("activation-scale", _normal(0.01), remedy=REDRAW),
    "weights N(0, 0.01) in 12 convolutions": CONV.mistake(
        "activation-scale", _normal(0.01), make=partial(conv, 12), remedy=REDRAW
    ),
    "weights N(0, 0.01) in products x @ w.T": DENSE.mistake(
        "activation-scale", make=partial(Written, lambda x, w: x @ w.T), remedy=REDRAW
    ),
    "weights N(0, 0.01) in einsum": DENSE.mistake(
        "activation-scale", make=partial(Written, lambda x, w: torch.einsum("bi,oi->bo", x, w)), remedy=REDRAW
    ),
    "weight norm of 0.1 in 8 layers": DENSE.mistake("activation-scale", make=partial(normed, 0.1), remedy=REDRAW),
    "PyTorch's initialization in 30 convolutions": CONV.mistake(
        "collapse", make=partial(conv, 30, gain=None), remedy=REDRAW
    ),
    "30 residual branches without scaling": BRANCHES.mistake(
        "activation-scale",
        lambda m: [he(b.fc2, 4.0) for b in m.blocks],
        make=partial(Residual, 30, norm=False),
        remedy=RESIDUAL | REDRAW,
    ),
    "ViT with weights N(0, 1)": VIT.mistake(
        "gradient-scale", _normal(1.0), make=partial(Vit, 6, 64), verdicts=BAD, remedy=REDRAW
    ),
    "MultiheadAttention with weights N(0, 1)": Setting(partial(Encoder, 6, True), bases.tokens).mistake(
        "saturated", _all_normal, verdicts=BAD, remedy=REDRAW
    ),
    "post-norm transformer of 60 layers": ENCODER.mistake(
        "deep-post-norm", make=partial(Encoder, 60, False), remedy=RESIDUAL
    ),
    "tied embedding of std 1": GPT.mistake(
        "initial-loss",
        lambda m: nn.init.normal_(m.embed.weight),
        make=partial(Gpt, tied=True),
        steps=("embed", "head"),
        verdicts=WARN,
        remedy=EMBEDDING,
    ),
    "SIREN with PyTorch's initialization": PLACES.mistake(
        "gradient-scale", make=partial(Siren, False), verdicts=BAD, remedy=SIREN
    ),
}
