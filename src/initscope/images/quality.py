"""How near a picture is to the original: SSIM in DC's convention, PSNR; and how outputs become pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import pytorch_msssim  # type: ignore[import-untyped]
import torch
from torch import Tensor

from initscope.data.pixels import with_channels
from initscope.errors import BadInput

Tone = Literal["range", "match", "clamp"]
WINDOW = 11  # of the structural similarity, with a Gaussian weight of deviation 1.5 (Wang et al. 2004)
_STRIP = 2**21  # pixels whose similarity is worked out at once


@dataclass(frozen=True)
class Quality:
    """How near pictures are to originals, each (n,): SSIM after inverting the luminosity where it was negative, and PSNR.

    `ssim` is NaN for images smaller than its window of 11x11; `psnr` (decibels) is infinite for equal images.
    """

    ssim: Tensor
    psnr: Tensor
    inverted: Tensor


def compare_pictures(pictures: Tensor, originals: Tensor) -> Quality:
    """Grey SSIM and PSNR in DC's convention (§4): a negative SSIM inverts the luminosity of the output.

    `pictures`, `originals`: (n, c, h, w) in [0, 1]; grey and colour may be mixed, both are compared as grey.

    >>> ramp = torch.linspace(0, 1, 256).view(1, 1, 16, 16)
    >>> found = compare_pictures(1 - ramp, ramp)
    >>> bool(found.inverted[0]), round(float(found.ssim[0]), 6)
    (True, 1.0)
    """
    if pictures.shape[-2:] != originals.shape[-2:] or len(pictures) != len(originals):
        problem = f"pictures {tuple(pictures.shape)} and originals {tuple(originals.shape)}"
        raise BadInput("compare_pictures", problem, "give as many of both, of one size")
    ours, theirs = (with_channels("compare_pictures", t, 1) for t in (pictures, originals))
    plain = structural_similarity(ours, theirs)
    inverted = plain < 0
    if bool(inverted.any()):
        ours = torch.where(inverted[:, None, None, None], 1 - ours, ours)
        plain = torch.where(inverted, structural_similarity(ours, theirs), plain)
    error = (ours - theirs).square().flatten(1).mean(1, dtype=torch.float64)
    return Quality(plain, -10 * error.log10(), inverted)


def structural_similarity(x: Tensor, y: Tensor) -> Tensor:
    """SSIM of zipped grey images (n, 1, h, w) in [0, 1], (n,) in float64; NaN where the window does not fit.

    Worked out in strips of rows that overlap by the window, so that memory does not grow with the height.
    """
    count, _, height, width = x.shape
    if min(height, width) < WINDOW:
        return torch.full((count,), math.nan, dtype=torch.float64, device=x.device)
    reach = WINDOW - 1
    rows = max(1, _STRIP // (count * width))
    total = torch.zeros(count, dtype=torch.float64, device=x.device)
    for top in range(0, height - reach, rows):
        part = slice(top, min(top + rows, height - reach) + reach)
        value = pytorch_msssim.ssim(x[:, :, part], y[:, :, part], data_range=1.0, size_average=False)
        total += value.double() * (part.stop - part.start - reach)
    return total / (height - reach)


def to_pictures(outputs: Tensor, tone: Tone, originals: Tensor | None = None) -> Tensor:
    """Outputs (n, c, h, w) of any range as pictures in [0, 1], each image by itself.

    "range" stretches the values between the smallest and the largest (a constant image becomes black), "match" gives grey
    levels the mean and deviation of the originals', "clamp" takes the values for pixels as they are.

    >>> to_pictures(torch.tensor([-2.0, 0.0, 2.0]).view(1, 1, 1, 3), "range").flatten()
    tensor([0.0000, 0.5000, 1.0000])
    """
    if tone not in get_args(Tone):
        raise BadInput("tone", f"got {tone!r}", f"choose from {', '.join(get_args(Tone))}")
    if tone == "clamp":
        return outputs.clamp(0, 1)
    if tone == "range":
        low, high = outputs.amin((1, 2, 3), keepdim=True), outputs.amax((1, 2, 3), keepdim=True)
        span = high - low
        return ((outputs - low) / torch.where(span > 0, span, 1.0)).clamp(0, 1)
    if originals is None:
        raise BadInput("tone", "'match' needs the originals", "pass them, or use 'range'")
    mean, spread = (t.mean((1, 2, 3), keepdim=True) for t in (outputs, originals))
    wanted, found = (
        (t - m).square().mean((1, 2, 3), keepdim=True).sqrt() for t, m in ((originals, spread), (outputs, mean))
    )
    return ((outputs - mean) * (wanted / torch.where(found > 0, found, 1.0)) + spread).clamp(0, 1)
