"""Pictures in and out: what is wrong with a file is said before any work, and no file is ever half written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import torch
from torch import Tensor

from initscope.data.decode import decode
from initscope.errors import BadInput
from initscope.files import check_writable, is_file, is_folder, write_atomically

# Suffix and Pillow's name of the formats that are written.
FORMATS = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".webp": "WEBP",
    ".bmp": "BMP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
}


def read_picture(image: str | Path | Tensor) -> Tensor:
    """(1, c, h, w) in [0, 1] with c = 1 or 3, from a file or a tensor (c, h, w) or (1, c, h, w); alpha is ignored.

    >>> read_picture(torch.zeros(4, 5, 6)).shape
    torch.Size([1, 3, 5, 6])
    """
    if isinstance(image, Tensor):
        return _check_tensor(image)
    path = Path(image).expanduser()
    if not is_file(path):
        state = "is a folder" if is_folder(path) else "does not exist"
        raise BadInput(str(path), state, "give the path of a picture")
    return decode(path)


def check_output(path: Path, name: str) -> None:
    """Refuse, before any work, a picture file that could not be written at the end."""
    if path.suffix.lower() not in FORMATS:
        got = f"'{path.suffix}'" if path.suffix else "no suffix"
        raise BadInput(
            name, f"{path} has {got}, expected one of {' '.join(FORMATS)}", f"name it {path.stem or 'out'}.png"
        )
    check_writable(path, name)


def check_sheet(path: Path, name: str) -> None:
    """Refuse, before any work, the file of a sheet that could not be written at the end."""
    if path.suffix.lower() not in (".png", ".svg"):
        got = f"'{path.suffix}'" if path.suffix else "no suffix"
        raise BadInput(name, f"{path} has {got}, a sheet is .png or .svg", f"name it {path.stem or 'sheet'}.png")
    check_writable(path, name)


def refuse_inputs(out: Path, *pictures: Path) -> None:
    """Refuse to write over a picture that is read."""
    for picture in pictures:
        if out.exists() and picture.exists() and out.samefile(picture):
            raise BadInput("--out", f"{out} is a picture that is read, and would be lost", "name another file")


def write_picture(picture: Tensor, path: str | Path, name: str = "picture") -> Path:
    """Write (c, h, w) in [0, 1], c = 1 or 3, with 8 bits a channel; the suffix says how."""
    target = Path(path).expanduser()
    check_output(target, name)
    content = to_pillow(picture)
    kind = FORMATS[target.suffix.lower()]
    options = {"quality": 95} if kind in ("JPEG", "WEBP") else {}
    write_atomically(target, lambda file: content.save(file, format=kind, **options), name)
    return target


def to_pillow(picture: Tensor) -> PIL.Image.Image:
    """(c, h, w) in [0, 1] as an 8-bit image."""
    levels = (picture.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8)
    pixels = np.ascontiguousarray(levels.permute(1, 2, 0).numpy())
    return PIL.Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def _check_tensor(image: Tensor) -> Tensor:
    shape = tuple(image.shape)
    batch = image[None] if image.ndim == 3 else image
    if batch.ndim != 4 or len(batch) != 1 or not 1 <= batch.shape[1] <= 4 or batch.numel() == 0:
        raise BadInput("image", f"has shape {shape}, expected (c, h, w) with 1 to 4 channels", "pass one picture")
    batch = batch[:, : 1 if batch.shape[1] <= 2 else 3].detach()
    batch = batch / 255 if batch.dtype == torch.uint8 else batch
    if not batch.is_floating_point():
        raise BadInput("image", f"holds {image.dtype}, expected uint8 or floating point", "convert it")
    batch = batch.to(torch.float32)
    low, high = (float(v) for v in batch.aminmax())
    if not (low >= 0 and high <= 1):
        raise BadInput("image", f"pixels run from {low:g} to {high:g}, expected 0 to 1", "scale the pixels")
    return batch
