"""How alike the colour channels of images are: what decides whether the theory of grey images holds (JL 4.1)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.geometry.pairs import angle, warn_undefined


@dataclass(frozen=True)
class ChannelStatistics:
    """Channels compared within each image; JL 4.1 reports about 12.5 degrees and 9.2 % on ImageNet.

    `angle`, (n,): mean over the pairs of channels of their angle in degrees. JL does not define its relative difference
    of norms, so two readings stand side by side. `norm_difference`, (n,): mean over the pairs of channels of
    `||u| - |v|| / ((|u| + |v|)/2)`. `norm_deviation`, (n,): mean over the channels of `||u| - m| / m`, m the mean norm.
    `mean_*`: averages over the images where the quantity exists.
    """

    angle: Tensor
    norm_difference: Tensor
    norm_deviation: Tensor
    mean_angle: float
    mean_norm_difference: float
    mean_norm_deviation: float

    def to_dict(self) -> dict[str, float | list[float]]:
        """Plain numbers."""
        return {
            "angle": self.angle.tolist(),
            "norm_difference": self.norm_difference.tolist(),
            "norm_deviation": self.norm_deviation.tolist(),
            "mean_angle": self.mean_angle,
            "mean_norm_difference": self.mean_norm_difference,
            "mean_norm_deviation": self.mean_norm_deviation,
        }


def channel_statistics(images: Tensor) -> ChannelStatistics:
    """Angle and relative difference of norm between the channels of each image.

    `images`: (n, c, h, w), c >= 2. A channel that is zero has no angle: NaN there, one warning, and the image is left
    out of the mean angle; two zero channels have no relative difference either.

    >>> red_and_grey = torch.stack([torch.ones(3, 4, 4), torch.ones(3, 4, 4)])
    >>> red_and_grey[0, 1:] *= 0.5
    >>> channel_statistics(red_and_grey).norm_difference
    tensor([0.4444, 0.0000])
    """
    if images.dim() != 4 or images.shape[1] < 2 or images.numel() == 0:
        raise BadInput(
            "channel_statistics", f"got shape {tuple(images.shape)}", "use (n, c, h, w) with two channels or more"
        )
    if not images.is_floating_point() or not bool(images.isfinite().all()):
        raise BadInput("channel_statistics", "pixels are not finite floating-point numbers", "use pixels in [0, 1]")
    first, second = (list(side) for side in zip(*itertools.combinations(range(images.shape[1]), 2), strict=True))
    zero = (images == 0).all(3).all(2)
    warn_undefined("channel_statistics", zero[:, first].any(1), zero[:, second].any(1))
    # Pairs with a zero channel are already announced, so they get a stand-in here and NaN below.
    safe = torch.where(zero[:, :, None, None], torch.ones_like(images), images)
    angles = torch.stack([angle(safe[:, u], safe[:, v]) for u, v in zip(first, second, strict=True)], 1)
    angles = angles.masked_fill(zero[:, first] | zero[:, second], torch.nan).rad2deg().mean(1)
    difference, deviation = _norm_spread(images, first, second)
    means = (float(quantity.nanmean()) for quantity in (angles, difference, deviation))
    return ChannelStatistics(angles, difference, deviation, *means)


def _norm_spread(images: Tensor, first: list[int], second: list[int]) -> tuple[Tensor, Tensor]:
    """Relative difference of the norms within pairs of channels, and their relative deviation from the mean norm."""
    norms = images.to(torch.float64).square().sum((2, 3)).sqrt()
    u, v = norms[:, first], norms[:, second]
    difference = (2 * (u - v).abs() / (u + v)).mean(1)
    middle = norms.mean(1, keepdim=True)
    deviation = ((norms - middle).abs() / middle).mean(1)
    return difference.to(images.dtype), deviation.to(images.dtype)
