"""What counts as the style of a feature map, and how far another map is from it.

A map is (1, channels, h, w). Every distance is divided by that of the content picture: 1 is where the content stands,
0 is the style itself, whatever the network, the layer and the kind of statistics.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from initscope.errors import BadInput

Loss = Literal["whitened", "gram", "moments"]
_KEPT = 64  # directions of a layer that whitening compares
_FLOOR = 1e-2  # of the largest variance: directions much weaker than that are noise and stay weak
_NOTHING = 1e-8  # a content picture that is already in the style is not divided by
_ROWS = 8192  # positions that are centred at once, in cache


class Statistics(Protocol):
    """A style at one layer: the squared distance of a map to it."""

    def distance(self, features: Tensor) -> Tensor:
        """A number, differentiable."""


class Gram:
    """|G(A) - G(S)|² / |G(S)|² with G(A) = A A' / positions (DC equation 4)."""

    def __init__(self, style: Tensor) -> None:
        self.target = second_moments(style)[0]
        self.scale = self.target.square().sum().clamp_min(_NOTHING)

    def distance(self, features: Tensor) -> Tensor:
        return (second_moments(features)[0] - self.target).square().sum() / self.scale


class Moments:
    """The same for the mean and the deviation of every channel (DC A.4)."""

    def __init__(self, style: Tensor) -> None:
        self.target = _moments(_flat(style))
        self.scale = self.target.square().sum().clamp_min(_NOTHING)

    def distance(self, features: Tensor) -> Tensor:
        return (_moments(_flat(features)) - self.target).square().sum() / self.scale


class Whitened:
    """Covariance and mean in the directions of the style's own features, each divided by its deviation.

    The features of a random ReLU network nearly all point the same way, so that one direction makes up almost all of
    a Gram matrix, and matching it says little about texture. Here z = Λ^(-½) U' (a - mean), with U and Λ the leading
    eigenvectors and eigenvalues of the style's covariance, and the distance is |cov(z) - cov(z_S)|² + |mean(z)|²,
    over |cov(z_S)|².
    """

    def __init__(self, style: Tensor) -> None:
        self.mean = _flat(style).mean(0)
        covariance, _ = second_moments(style, self.mean)
        values, vectors = torch.linalg.eigh(covariance.double().cpu())
        kept = min(_KEPT, len(values))
        values, vectors = values.flip(0)[:kept].clamp_min(0), vectors.flip(1)[:, :kept]
        weak = max(float(values[0]) * _FLOOR, _NOTHING)
        self.turn = (vectors / (values + weak).sqrt()).T.to(style).contiguous()
        self.target = self.turn @ covariance @ self.turn.T
        self.scale = self.target.square().sum().clamp_min(_NOTHING)

    def distance(self, features: Tensor) -> Tensor:
        # Turning the covariance is turning the features, and has no positions: one product of their number each way.
        covariance, middle = second_moments(features, self.mean)
        turned, middle = self.turn @ covariance @ self.turn.T, self.turn @ middle
        found: Tensor = ((turned - self.target).square().sum() + middle.square().sum()) / self.scale
        return found


_KINDS: dict[str, type[Gram | Moments | Whitened]] = {"whitened": Whitened, "gram": Gram, "moments": Moments}


def style_statistics(kind: Loss, style: Tensor) -> Statistics:
    """The statistics of a style's features at one layer.

    >>> from initscope.images.style.statistics import style_statistics
    >>> map = torch.rand(1, 5, 8, 8)
    >>> all(float(style_statistics(kind, map).distance(map)) < 1e-9 for kind in ("whitened", "gram", "moments"))
    True
    """
    if kind not in get_args(Loss):
        raise BadInput("loss", f"got {kind!r}", f"choose from {', '.join(get_args(Loss))}")
    return _KINDS[kind](style)


class StyleTerm:
    """A style at one layer, in units of what the content's map is away from it."""

    def __init__(self, kind: Loss, style: Tensor, content: Tensor, weight: float) -> None:
        self.statistics, self.weight = style_statistics(kind, style), weight
        self.start = max(float(self.statistics.distance(content)), _NOTHING)

    def __call__(self, features: Tensor) -> Tensor:
        return self.statistics.distance(features) * (self.weight / self.start)


class ContentTerm:
    """|A - C|² over the variance of the content's map C (DC equation 3, in units of the map): 1 is the loss of a flat
    map."""

    def __init__(self, content: Tensor) -> None:
        self.target = content
        spread = (content - content.mean((2, 3), keepdim=True)).square().sum()
        self.scale = max(float(spread), _NOTHING)

    def __call__(self, features: Tensor) -> Tensor:
        return (features - self.target).square().sum() / self.scale


def _flat(features: Tensor) -> Tensor:
    """(positions, channels): no copy where the channels are last in memory, as the encoders here have them."""
    return features.permute(0, 2, 3, 1).reshape(-1, features.shape[1])


def second_moments(features: Tensor, origin: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Σ (a - o)(a - o)' / positions, (channels, channels), and Σ (a - o) / positions, over the positions of a map.

    >>> map = torch.rand(1, 3, 4, 5)
    >>> gram, middle = second_moments(map)
    >>> torch.allclose(gram, torch.einsum("nihw,njhw->ij", map, map) / 20), torch.allclose(middle, map.mean((0, 2, 3)))
    (True, True)
    """
    found: tuple[Tensor, Tensor] = _SecondMoments.apply(features, origin)  # type: ignore[no-untyped-call]
    return found


class _SecondMoments(torch.autograd.Function):
    """With its gradient by hand: autograd does not know that the product is symmetric, and would form it twice and hold
    the centred map."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, origin: Tensor | None) -> tuple[Tensor, Tensor]:
        flat = _flat(features)
        ctx.save_for_backward(flat, origin)
        ctx.shape = features.shape
        square = flat.new_zeros(flat.shape[1], flat.shape[1])
        for start in range(0, len(flat), _ROWS):
            part = flat[start : start + _ROWS]
            part = part if origin is None else part - origin
            square.addmm_(part.T, part)
        middle = flat.mean(0)
        return square / len(flat), middle if origin is None else middle - origin

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, square: Tensor, middle: Tensor) -> tuple[Tensor, None]:
        flat, origin = ctx.saved_tensors
        both, one = (square + square.T) / len(flat), middle / len(flat)
        one = one if origin is None else one - origin @ both
        found = torch.empty_like(flat)
        for start in range(0, len(flat), _ROWS):
            torch.addmm(one, flat[start : start + _ROWS], both, out=found[start : start + _ROWS])
        batch, channels, height, width = ctx.shape
        return found.view(batch, height, width, channels).permute(0, 3, 1, 2), None


def _moments(flat: Tensor) -> Tensor:
    """Mean and deviation of every channel, (2, channels); the root has a finite slope where a channel is constant."""
    variance, middle = torch.var_mean(flat, 0, correction=0)
    return torch.stack([middle, (variance + 1e-12).sqrt()])
