"""Mistakes that give NaN or infinity, in the forward pass or only in the backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from probe.planting.bases import Gpt, dense
from probe.planting.row import Planted
from probe.planting.settings import GPT, SHALLOW

Function = Callable[[Tensor], Tensor]


class Apply(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def inserted(function: Function, at: int = 4) -> nn.Sequential:
    """Four dense layers with a function before the third: behind a ReLU, or behind a dense layer at an odd place."""
    layers = list(dense(4))
    return nn.Sequential(*layers[:at], Apply(function), *layers[at:])


def _standardized(h: Tensor) -> Tensor:
    """Every feature over the batch; one of them is constant."""
    h = torch.cat([h[:, :-1], torch.ones_like(h[:, :1])], 1)
    return (h - h.mean(0)) / h.std(0)


def _unit(h: Tensor) -> Tensor:
    """Rows of length 1; the first row is padding."""
    h = torch.cat([torch.zeros_like(h[:1]), h[1:]])
    return h / h.square().sum(1, keepdim=True).sqrt()


def _distances(h: Tensor) -> Tensor:
    """Distances to all samples, each to itself included."""
    return (h[:, None] - h[None]).square().sum(-1).sqrt()


def _angles(h: Tensor) -> Tensor:
    """Angles between samples: that of a sample to itself is 0."""
    h = nn.functional.normalize(h, dim=1)
    return torch.acos((h @ h.T).clamp(-1, 1))


def _padded(h: Tensor) -> Tensor:
    """The last features are padding."""
    return h * (torch.arange(h.shape[1]) < 60)


def _softmax(h: Tensor) -> Tensor:
    """Without subtracting the largest."""
    e = torch.exp(100 * h)
    return e / e.sum(1, keepdim=True)


def _half(h: Tensor) -> Tensor:
    """Squares in half precision."""
    return (1000 * h).half().square().float()


def _first_row_masked(scores: Tensor, allowed: Tensor) -> Tensor:
    """A mask without its diagonal: the first position may look at nothing."""
    return scores.masked_fill(~allowed.tril(-1), -math.inf).softmax(-1)


def _multiplied(scores: Tensor, allowed: Tensor) -> Tensor:
    """0 times infinity."""
    return (scores * allowed + -math.inf * (~allowed).float()).softmax(-1)


def _log_of_softmax(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.nll_loss(torch.log(torch.softmax(1000 * output, 1)), target)


def _row(function: Function, at: int, *, advice: str) -> Planted:
    return SHALLOW.mistake("non-finite", make=partial(inserted, function, at), steps=(str(at),), advice=advice)


def _attention(mix: Callable[[Tensor, Tensor], Tensor], *steps: str, advice: str) -> Planted:
    places = tuple(f"blocks.0.attn:{name}" for name in steps)
    return GPT.mistake("non-finite", make=partial(Gpt, mix=mix), steps=places, advice=advice)


ROWS: dict[str, Planted] = {
    "square root of negative values": _row(torch.sqrt, 3, advice="clamp before the square root"),
    "logarithm of zero": _row(torch.log, 4, advice="add a small number or use log1p"),
    "square root of padding, backward only": _row(
        lambda h: torch.sqrt(_padded(h.abs())), 3, advice="add a small number under the square root"
    ),
    "square root masked by where, backward only": _row(
        lambda h: torch.where(h > 0, torch.sqrt(h), 0.0),
        3,
        advice="clamp before the square root: where() does not stop its gradient",
    ),
    "logarithm of padding masked by where, backward only": _row(
        lambda h: torch.where((p := _padded(h.square())) > 0, torch.log(p), 0.0),
        3,
        advice="clamp before the logarithm: where() does not stop its gradient",
    ),
    "distance of a sample to itself, backward only": _row(
        _distances, 3, advice="add a small number under the square root"
    ),
    "power 0.5 of padding, backward only": _row(
        lambda h: _padded(h.abs()) ** 0.5, 3, advice="add a small number to the base"
    ),
    "arc cosine at 1, backward only": _row(_angles, 3, advice="clamp inside (-1, 1)"),
    "constant feature divided by its deviation": _row(_standardized, 3, advice="add a small number to the deviation"),
    "zero row divided by its norm": _row(_unit, 3, advice="use F.normalize, which has an epsilon"),
    "softmax without subtracting the largest": _row(_softmax, 3, advice="use torch.softmax"),
    "half precision overflows": _row(_half, 3, advice="use bfloat16, or scale first"),
    "reciprocal of a ReLU": _row(lambda h: 1 / h, 4, advice="add a small number"),
    "softmax over a fully masked row": _attention(
        _first_row_masked, "softmax", "masked_fill", advice="leave at least one position in every row of the mask"
    ),
    "mask multiplied by infinity": _attention(_multiplied, "add", advice="use masked_fill"),
    "logarithm of a softmax in the loss": SHALLOW.mistake(
        "non-finite", steps=("8", "loss"), loss=_log_of_softmax, advice="use log_softmax or cross_entropy"
    ),
}
