"""What JL proves about the mean similarity after one random ReLU convolution: Theorems 3 and 5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from initscope.bounds.result import Bound, Interval
from initscope.errors import BadInput
from initscope.geometry.boundaries import shared_boundary_size
from initscope.geometry.pairs import warn_undefined

_LAYER = (
    "one convolution with cyclic padding and stride 1, then ReLU",
    "filter entries independent, Gaussian, mean 0",
    "mean similarity: the ratio of expectations over the filter (JL eq. 1)",
)


@dataclass(frozen=True)
class SharedBoundaryBounds:
    """The three statements of JL Theorem 5 and the size of the shared boundary they rest on, each (...,)."""

    boundary: Tensor
    inner_product: Bound[Interval]
    squared_distance: Bound[Interval]
    similarity: Bound[Interval]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        return {
            "boundary": self.boundary.tolist(),
            "inner_product": self.inner_product.to_dict(),
            "squared_distance": self.squared_distance.to_dict(),
            "similarity": self.similarity.to_dict(),
        }


def relu_conv_similarity_bounds(rho: Tensor | float) -> Bound[Interval]:
    """The mean similarity after one ReLU convolution, `max(rho, 0) <= rho_out <= (1 + rho)/2` (JL Theorem 3, eq. 3).

    `rho`: input similarity, any shape, in [-1, 1]; NaN stays NaN. Both ends are attained (JL Remark 2).

    >>> relu_conv_similarity_bounds(-0.5).value
    Interval(low=tensor(0., dtype=torch.float64), high=tensor(0.2500, dtype=torch.float64))
    """
    given = rho if isinstance(rho, Tensor) and rho.is_floating_point() else torch.as_tensor(rho, dtype=torch.float64)
    if bool((given.abs() > 1).any()):
        raise BadInput("relu_conv_similarity_bounds", f"rho reaches {float(given.abs().max()):g}", "use [-1, 1]")
    return Bound(
        Interval(given.clamp(min=0), (1 + given) / 2),  # JL eq. 3
        assumes=(*_LAYER, "any inputs, channels and filter size; the filter variance cancels"),
        source="Nachum et al. 2022, Theorem 3, eq. 3 and 13",
        note="The theorem's 'variance nu = 2/r^2' reads nu^2 = 2/r^2: that value preserves norms (their eq. 9).",
    )


def shared_boundary_bounds(a: Tensor, b: Tensor, r: int) -> SharedBoundaryBounds:
    """How far a ReLU convolution of side 2r+1 can move two images with a small shared boundary (JL Theorem 5).

    With `d = |d_r(A, B)|`: `<A,B> -+ d` for the mean inner product (16), `|A-B|² -+ 2d` for the mean squared distance
    (17), `rho -+ d/(|A||B|)` for the mean similarity.

    `a`, `b`: (..., h, w), one channel, non-negative. Grey images use the weight of `boundary_weight`, which for zeros
    and ones is JL's count. The similarity of an empty image is NaN, with a warning.

    >>> body = torch.zeros(20, 20)
    >>> body[2:14, 3:15] = 1.0
    >>> shared_boundary_bounds(body, body.roll(2, 0), 1).inner_product.value
    Interval(low=tensor(32., dtype=torch.float64), high=tensor(208., dtype=torch.float64))
    """
    size = shared_boundary_size(a, b, r)
    if 2 * r + 1 > min(a.shape[-2:]):
        problem = f"a filter of side {2 * r + 1} on images of {a.shape[-2]} x {a.shape[-1]}"
        raise BadInput("shared_boundary_bounds", problem, f"use r <= {(min(a.shape[-2:]) - 1) // 2}")
    first, second = a.to(torch.float64), b.to(torch.float64)
    inner = (first * second).sum((-2, -1))
    distance = (first - second).square().sum((-2, -1))
    norms = (first.square().sum((-2, -1)) * second.square().sum((-2, -1))).sqrt()
    empty_a, empty_b = (~image.to(torch.bool).flatten(-2).any(-1) for image in (a, b))
    warn_undefined("shared_boundary_bounds", empty_a.flatten(), empty_b.flatten())
    similarity, slack = inner / norms, size / norms
    return SharedBoundaryBounds(
        size,
        _theorem_5(inner, size, "eq. 16"),
        _theorem_5(distance, 2 * size, "eq. 17"),
        _theorem_5(similarity, slack, "after eq. 17, with epsilon = 0"),
    )


def _theorem_5(middle: Tensor, slack: Tensor, equation: str) -> Bound[Interval]:
    return Bound(
        Interval(middle - slack, middle + slack),
        assumes=(*_LAYER, "filter of side 2r+1, variance 2/(2r+1)^2", "one channel, non-negative pixels"),
        source=f"Nachum et al. 2022, Theorem 5, {equation}",
        note="Stated for binary images; for grey ones the boundary is weighted by max a max b - min a min b.",
    )
