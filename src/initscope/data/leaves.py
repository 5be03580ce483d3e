"""Dead leaves: discs that fall on each other, the classical model of occlusion in natural images.

Radii follow the density `r^-3` between one pixel and half the shorter side, which makes the image statistics nearly
scale invariant; centres are uniform; each disc has one colour, uniform in [0, 1] and independent in each channel.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from initscope.data.request import Request

_SMALLEST_RADIUS = 1.0
_CHUNK = 1024
# With no more open pixels than this, all discs of a chunk are tried on all of them at once; above, one disc at a time.
_FEW_OPEN = 256
Floats = npt.NDArray[np.float64]
Discs = tuple[Floats, Floats, Floats]


def make(request: Request) -> Tensor:
    """(n, c, h, w) in [0, 1].

    Discs are laid from the front to the back, each only where nothing lies yet, until every pixel is covered: that
    draws exactly from the stationary law, without a number of discs to choose.
    """
    channels, height, width = request.shape(3)
    random = request.random()
    images = np.empty((request.count, channels, height, width), dtype=np.float32)
    for image in images:
        _cover(random, image)
    return torch.from_numpy(images)


def radii(random: np.random.Generator, count: int, largest: float) -> Floats:
    """Radii with density proportional to `r^-3` on [1, largest]: `r = (1 - u (1 - largest^-2))^(-1/2)`."""
    share = random.random(count) * (1.0 - (_SMALLEST_RADIUS / largest) ** 2)
    return _SMALLEST_RADIUS / np.sqrt(1.0 - share)


def _cover(random: np.random.Generator, image: npt.NDArray[np.float32]) -> None:
    channels, height, width = image.shape
    is_open = np.ones((height, width), dtype=bool)
    while is_open.any():
        discs = _draw(random, height, width)
        colours = random.random((channels, _CHUNK), dtype=np.float32)
        if is_open.sum() > _FEW_OPEN:
            _lay_each(image, is_open, discs, colours)
        else:
            _lay_all(image, is_open, discs, colours)


def _draw(random: np.random.Generator, height: int, width: int) -> Discs:
    """Rows, columns and radii of the next discs; centres reach as far outside as the largest disc does."""
    largest = max(2.0 * _SMALLEST_RADIUS, min(height, width) / 2)
    rows = random.uniform(-largest, height + largest, _CHUNK)
    columns = random.uniform(-largest, width + largest, _CHUNK)
    return rows, columns, radii(random, _CHUNK, largest)


def _lay_each(
    image: npt.NDArray[np.float32], is_open: npt.NDArray[np.bool_], discs: Discs, colours: npt.NDArray[np.float32]
) -> None:
    height, width = is_open.shape
    rows, columns, radius = discs
    # Pixel i has its centre at i + 1/2.
    tops, bottoms = _span(rows, radius, height)
    lefts, rights = _span(columns, radius, width)
    for i in np.flatnonzero((tops < bottoms) & (lefts < rights)):
        window = (slice(tops[i], bottoms[i]), slice(lefts[i], rights[i]))
        down = np.arange(tops[i], bottoms[i])[:, None] + 0.5 - rows[i]
        across = np.arange(lefts[i], rights[i])[None] + 0.5 - columns[i]
        fresh = is_open[window] & (down * down + across * across <= radius[i] ** 2)
        image[(slice(None), *window)][:, fresh] = colours[:, i, None]
        is_open[window] &= ~fresh


def _span(centres: Floats, radius: Floats, length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    first = np.ceil(centres - radius - 0.5).clip(0, length).astype(np.int64)
    last = np.floor(centres + radius - 0.5).clip(-1, length - 1).astype(np.int64)
    return first, last + 1


def _lay_all(
    image: npt.NDArray[np.float32], is_open: npt.NDArray[np.bool_], discs: Discs, colours: npt.NDArray[np.float32]
) -> None:
    rows, columns, radius = discs
    where = np.argwhere(is_open)
    down = where[:, :1] + 0.5 - rows
    across = where[:, 1:] + 0.5 - columns
    hit = down * down + across * across <= radius**2
    covered = hit.any(1)
    row, column = where[covered].T
    # argmax finds the first disc that covers the pixel: the one in front.
    image[:, row, column] = colours[:, hit[covered].argmax(1)]
    is_open[row, column] = False
