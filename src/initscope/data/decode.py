"""One image file into a tensor; whatever is wrong with the file becomes one message that names it."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageOps
from torch import Tensor

from initscope.data.pixels import as_float
from initscope.data.request import check_bytes
from initscope.errors import BadInput, first_line

# Pillow logs some of what it also raises; without a handler Python would print that beside our one message.
logging.getLogger("PIL").addHandler(logging.NullHandler())
# Bytes of a pixel while it is decoded: the file's own, upright, with a palette resolved, as three float32 numbers.
_PIXEL_BYTES = 4 + 4 + 4 + 12 + 4
# Modes that hold more than 8 bits a pixel; Pillow's own conversion to 8 bits would clip them.
_DEEP_MODES = {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}


def decode(path: Path) -> Tensor:
    """(1, c, h, w) in [0, 1], c = 1 for grey and 3 for everything else; the orientation tag is obeyed, alpha ignored.

    A picture with more pixels than `PIL.Image.MAX_IMAGE_PIXELS` is refused before it is decoded.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
            with PIL.Image.open(path) as picture:
                return from_pillow(str(path), picture)
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning) as error:
        limit = PIL.Image.MAX_IMAGE_PIXELS
        raise BadInput(str(path), f"more than the {limit} pixels that are decoded", "use a smaller picture") from error
    except BadInput:
        raise
    except Exception as error:  # a damaged file makes Pillow's many decoders raise almost anything
        problem = f"cannot be read as an image ({first_line(error)})"
        raise BadInput(str(path), problem, "repair or remove this file") from error


def from_pillow(place: str, picture: PIL.Image.Image) -> Tensor:
    """(1, c, h, w) in [0, 1] from any Pillow image: palettes resolved, 16 bits kept, alpha ignored.

    >>> from_pillow("here", PIL.Image.new("RGBA", (5, 4), (255, 0, 0, 10))).flatten(2).mean(2)
    tensor([[1., 0., 0.]])
    """
    width, height = picture.size  # known before anything is decoded
    check_bytes(place, f"{width} x {height} pixels", _PIXEL_BYTES * width * height, "use a smaller picture")
    upright = PIL.ImageOps.exif_transpose(picture)
    if upright.mode in _DEEP_MODES:
        pixels = np.asarray(upright)
        if upright.mode == "I":  # 16-bit files may be widened to 32 bits on opening
            pixels = _narrowed(place, pixels)
    elif upright.mode in ("1", "L", "LA", "La"):
        # Band 0 is the grey itself; a conversion would blend premultiplied alpha.
        pixels = np.asarray(upright.getchannel(0).convert("L"))
    else:
        # By way of RGBA, so that a palette with transparency keeps its colours.
        pixels = np.asarray(upright.convert("RGBA"))[..., :3]
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    return as_float(place, pixels.transpose(2, 0, 1)[None])


def _narrowed(
    place: str, pixels: np.ndarray[tuple[int, ...], np.dtype[np.generic]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    if pixels.size and (int(pixels.min()) < 0 or int(pixels.max()) > 65535):
        raise BadInput(place, "32-bit integer pixels have no known range", "save it with 8 or 16 bits")
    return pixels.astype(np.uint16)
