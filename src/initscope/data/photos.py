"""Random crops of real photographs: the ones that lie inside the scikit-image package, so nothing is downloaded."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from initscope.data.decode import decode
from initscope.data.pixels import resize, with_channels
from initscope.data.request import Request
from initscope.errors import BadInput, MissingExtra

# Real photographs only, each scene once: no drawings, no text, no synthetic phantoms, no stereo twins.
# An even number in both lists, so that zipped neighbours never show the same picture (see `make`).
COLOUR = (
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "hubble_deep_field.jpg",
    "motorcycle_left.png",
    "rocket.jpg",
)
GREY = ("brick.png", "camera.png", "coins.png", "grass.png", "gravel.png", "moon.png")
# A crop spans between a quarter and all of what fits into the picture.
_SMALLEST_CROP = 0.25
_REDRAWS = 100


def make(request: Request) -> Tensor:
    """(n, c, h, w) crops in [0, 1]: at random places and scales, resized with antialiasing.

    The pictures take turns in a shuffled order, so that many of them appear even in a small set. Colour images come
    from the colour photographs only; with one channel the grey photographs join in.
    """
    channels, height, width = request.shape(3)
    if channels not in (1, 3):
        raise BadInput("photos", f"channels={channels}", "use channels=1 (grey) or 3 (RGB)")
    random = request.random()
    names = COLOUR if channels == 3 else COLOUR + GREY
    turns = [order for _ in range(-(-request.count // len(names))) for order in random.permutation(len(names))]
    crops = [_crop(random, names[turn], channels, (height, width)) for turn in turns[: request.count]]
    return torch.cat(crops)


def _crop(random: np.random.Generator, name: str, channels: int, size: tuple[int, int]) -> Tensor:
    picture = with_channels(name, picture_named(name), channels)
    for _ in range(_REDRAWS):
        top, left, height, width = _window(random, (picture.shape[-2], picture.shape[-1]), size)
        crop = picture[..., top : top + height, left : left + width]
        # A patch of pure sky or shadow has no angle to anything once centred: draw again.
        if bool(crop.amax() > crop.amin()):
            return resize(crop, size)
    raise BadInput("photos", f"{name} gave only constant crops at size {size}", "ask for larger images")


def _window(random: np.random.Generator, picture: tuple[int, int], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Top, left, height and width of a random window with the aspect of `size`, not smaller than it where possible."""
    largest = min(picture[0] / size[0], picture[1] / size[1])
    smallest = min(1.0, max(_SMALLEST_CROP, 1.0 / largest))
    scale = largest * smallest ** random.random()  # log-uniform between smallest and 1
    height, width = (max(1, min(p, round(s * scale))) for p, s in zip(picture, size, strict=True))
    top = int(random.integers(picture[0] - height + 1))
    left = int(random.integers(picture[1] - width + 1))
    return top, left, height, width


@functools.cache
def picture_named(name: str) -> Tensor:
    """One whole photograph, (1, c, h, w) in [0, 1].

    >>> picture_named("astronaut.png").shape
    torch.Size([1, 3, 512, 512])
    """
    path = _folder() / name
    if not path.is_file():
        raise BadInput("photos", f"this scikit-image lacks {name}", "pip install 'scikit-image>=0.22'")
    return decode(path)


def _folder() -> Path:
    # find_spec does not import the package: its own loaders could try to download.
    found = find_spec("skimage")
    if found is None or found.origin is None:
        raise MissingExtra(
            "photos", "scikit-image, which holds the pictures, is not installed", "pip install scikit-image"
        )
    return Path(found.origin).parent / "data"
