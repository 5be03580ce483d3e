"""Small operations on pixels that every source shares: scaling to [0, 1], channels, size, statistics."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from initscope.data.request import check_bytes
from initscope.errors import BadInput

# Luma weights of ITU-R BT.601, the ones Pillow uses for its mode "L".
_LUMA = (0.299, 0.587, 0.114)
_SCALED = {"uint8": 255.0, "uint16": 65535.0}
# Pixels of a scaled image that are made although the crop drops most of them; a strip of 500000 x 1 would have more.
_MOST_DROPPED = 2**24


def as_float(place: str, array: npt.NDArray[np.generic]) -> Tensor:
    """Numbers as float32: 8- and 16-bit unsigned pixels are divided by their largest value, all others kept.

    >>> as_float("here", np.array([0, 51, 255], dtype=np.uint8))
    tensor([0.0000, 0.2000, 1.0000])
    """
    if array.dtype.kind not in "buif":
        raise BadInput(place, f"holds {array.dtype} values, not numbers", "store the pixels as uint8 or float32")
    scale = _SCALED.get(array.dtype.name, 1.0)
    with np.errstate(over="ignore"):  # float64 beyond float32 becomes infinite and is refused below
        tensor = torch.from_numpy(np.array(array, dtype=np.float32, order="C"))  # always a copy: scaled in place
    tensor = tensor.div_(scale) if scale != 1.0 else tensor
    if not bool(tensor.isfinite().all()):
        bad = int((~tensor.isfinite()).sum())
        raise BadInput(place, f"{bad} of {tensor.numel()} pixels are NaN or infinite", "clean the data first")
    return tensor


def with_channels(place: str, images: Tensor, channels: int | None) -> Tensor:
    """(n, c, h, w) with the wanted number of channels: grey is repeated, colour becomes luma, alpha is ignored.

    >>> with_channels("here", torch.ones(2, 1, 4, 4), 3).shape
    torch.Size([2, 3, 4, 4])
    """
    have = images.shape[1]
    if channels is None or channels == have:
        return images
    if have == 1:
        return images.expand(-1, channels, -1, -1).contiguous()
    if have in (3, 4) and channels in (1, 3):
        colour = images[:, :3]
        weights = torch.tensor(_LUMA, dtype=images.dtype).view(1, 3, 1, 1)
        return colour.contiguous() if channels == 3 else (colour * weights).sum(1, keepdim=True)
    raise BadInput(place, f"cannot turn {have} channels into {channels}", "use channels=1 or 3, or leave channels= out")


def fit(images: Tensor, size: tuple[int, int] | None) -> Tensor:
    """(n, c, *size): scaled, with antialiasing, until the images cover `size`, then cropped at the centre.

    >>> fit(torch.rand(1, 3, 100, 60), (32, 32)).shape
    torch.Size([1, 3, 32, 32])
    """
    height, width = images.shape[-2:]
    if size is None or size == (height, width):
        return images
    scale = max(size[0] / height, size[1] / width)
    # Rounding must not leave a side one pixel short.
    scaled = (max(size[0], round(height * scale)), max(size[1], round(width * scale)))
    if scaled[0] * scaled[1] > max(_MOST_DROPPED, 4 * height * width, 4 * size[0] * size[1]):
        return resize(_middle(images, (size[0] / scale, size[1] / scale)), size)
    top, left = (scaled[0] - size[0]) // 2, (scaled[1] - size[1]) // 2
    return resize(images, scaled)[..., top : top + size[0], left : left + size[1]].contiguous()


def _middle(images: Tensor, size: tuple[float, float]) -> Tensor:
    """The centre of the images, in whole pixels that cover `size`."""
    height, width = images.shape[-2:]
    rows, columns = min(height, math.ceil(size[0])), min(width, math.ceil(size[1]))
    top, left = (height - rows) // 2, (width - columns) // 2
    return images[..., top : top + rows, left : left + columns]


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """(n, c, *size) by bilinear interpolation with antialiasing: a mean of pixels, so [0, 1] stays [0, 1]."""
    height, width = images.shape[-2:]
    if (height, width) == size:
        return images
    # Rows are scaled first, then columns; each step copies once more.
    taken = 2 * 4 * math.prod(images.shape[:-2]) * (height + size[0]) * max(width, size[1])
    check_bytes("size", f"{height} x {width} pixels scaled to {size[0]} x {size[1]}", taken, "ask for a smaller size")
    resized = torch.nn.functional.interpolate(images, size=size, mode="bilinear", antialias=True, align_corners=False)
    return resized.clamp(images.min().item(), images.max().item())


def normalise(images: Tensor, *, centre: bool, standardise: bool) -> Tensor:
    """Subtract the mean of every channel over the set, and divide by its standard deviation if asked.

    For (n, d) vectors every coordinate is its own channel. Sums run in float64: a float32 mean over many pixels drifts.

    >>> bool(normalise(torch.rand(4, 3, 5, 5), centre=True, standardise=False).mean((0, 2, 3)).abs().max() < 1e-6)
    True
    """
    if not (centre or standardise):
        return images
    check_bytes("centre", "means in float64", 20 * images.numel(), "ask for fewer or smaller images")
    axes = (0, 2, 3) if images.dim() == 4 else (0,)
    wide = images.to(torch.float64)
    wide = wide - wide.mean(axes, keepdim=True)
    if standardise:
        deviation = wide.square().mean(axes, keepdim=True).sqrt()
        if bool((deviation == 0).any()):
            constant = (deviation == 0).flatten().nonzero().flatten().tolist()
            raise BadInput(
                "standardise", f"channels {constant[:10]} are constant over the set", "use centre=True alone"
            )
        wide = wide / deviation
    return wide.to(torch.float32)
