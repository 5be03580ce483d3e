"""Mistakes by which weights get no gradient, layers are not run, or samples are lost on the way."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probe.planting.bases import WIDTH, Vit, conv, dense
from probe.planting.row import BAD, FAIL, MILD, WARN, Planted, zero
from probe.planting.settings import CONV, GRAPHS, RESIDUAL, SHALLOW, VIT
from probe.planting.values import inserted


def _of_argmax(output: Tensor, target: Tensor) -> Tensor:
    return (output.argmax(1).float() - target).square().mean().requires_grad_()


def _of_item(output: Tensor, target: Tensor) -> Tensor:
    return torch.tensor(F.cross_entropy(output, target).item(), requires_grad=True)


class Spare(nn.Module):
    """A layer that is built and never run."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.spare = dense(4), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out


class NoGrad(nn.Module):
    """A body that runs without gradients, as in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        layers = dense(4)
        self.body, self.head = layers[:8], layers[8]

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            h = self.body(x)
        out: Tensor = self.head(h)
        return out


class FirstToken(Vit):
    """The class token is read before the blocks have mixed anything into it."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        self.blocks(x)
        out: Tensor = self.head(self.norm(x[:, 0]))
        return out


class Alone(nn.Module):
    """Attention in which every token sees only itself."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.value(x))
        return out


def _norm_of_one(h: Tensor) -> Tensor:
    """A layer norm over an axis of length 1 gives zero."""
    return nn.functional.layer_norm(h[..., None], (1,)).squeeze(-1)


class Zeros(nn.Module):
    """A mask that keeps nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.zeros(x.shape[1], 1, 1)


def _freeze(model: nn.Module) -> None:
    model.requires_grad_(False)


ROWS: dict[str, Planted] = {
    "loss of an argmax": SHALLOW.mistake(
        "no-gradient", steps=("loss",), loss=_of_argmax, advice="use cross-entropy of the scores"
    ),
    "loss of a number": SHALLOW.mistake(
        "no-gradient", steps=("loss",), loss=_of_item, advice="leave out item(), and give the tensor to backward()"
    ),
    "nll_loss of raw scores": SHALLOW.mistake(
        "output-activation", steps=("8",), loss=F.nll_loss, advice="use cross_entropy, or end in log_softmax"
    ),
    "detach in the middle": SHALLOW.mistake(
        "no-gradient",
        make=partial(inserted, torch.detach),
        steps=("2", "3", "4"),
        verdicts=BAD,
        advice="remove the detach, or freeze the layers in front of it on purpose",
    ),
    "body under no_grad": SHALLOW.mistake(
        "no-gradient",
        make=NoGrad,
        steps=("body", "body.6", "body.7"),
        verdicts=BAD,
        advice="run the body with gradients",
    ),
    "rounding in the middle": SHALLOW.mistake(
        "zero-gradient",
        make=partial(inserted, torch.round, 3),
        steps=("3",),
        verdicts=BAD,
        advice="pass the gradient straight through: h + (round(h) - h).detach()",
    ),
    "layer that is never run": SHALLOW.mistake(
        "unused", make=Spare, steps=("spare",), verdicts=MILD, advice="run the layer or remove it"
    ),
    "everything frozen": SHALLOW.mistake("frozen", _freeze, advice="call requires_grad_(True)"),
    "class token that nothing reaches": VIT.mistake(
        "collapse",
        make=partial(Vit, attention=Alone),
        steps=("getitem", "head"),
        advice="let the class token attend to the patches, or read the mean of all tokens",
    ),
    "class token read before the blocks": VIT.mistake(
        "collapse",
        make=FirstToken,
        steps=("getitem", "norm"),
        advice="read the class token behind the blocks",
    ),
    "layer norm over an axis of length 1": SHALLOW.mistake(
        "collapse",
        make=partial(inserted, _norm_of_one, 3),
        steps=("3",),
        advice="normalize over the features",
    ),
    "softmax over an axis of length 1": SHALLOW.mistake(
        "collapse",
        make=partial(inserted, lambda h: h * 0 + h[..., None].softmax(-1).squeeze(-1), 3),
        steps=("3",),
        advice="use a sigmoid, or the softmax over the classes",
    ),
    "input multiplied by a mask of zeros": CONV.mistake(
        "collapse",
        make=lambda: nn.Sequential(*(layers := list(conv()))[:4], Zeros(), *layers[4:]),
        steps=("4",),
        advice="build the mask the other way round",
    ),
    "scatter_add pooling with a zeroed head": GRAPHS.mistake(
        "not-followed",
        zero("head"),
        steps=("scatter_add",),
        verdicts=WARN,
        advice="check the part behind the pooling by itself; a zero head is fine",
    ),
    "stem frozen and zero": RESIDUAL.mistake(
        "zero-weights",
        zero("stem"),
        lambda m: m.stem.requires_grad_(False),
        steps=("stem",),
        verdicts=FAIL,
        advice="load the stem's weights before freezing it",
    ),
}
