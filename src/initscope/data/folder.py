"""`folder:PATH`: every image file below a folder, in the order of their paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

from initscope.data.decode import decode
from initscope.data.store import Store
from initscope.errors import BadInput
from initscope.files import is_file, is_folder

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm", ".pnm"}
)


def open_folder(rest: str) -> Store:
    """The image files below a folder, found by suffix (upper or lower case), read only when asked for."""
    root = Path(rest).expanduser()
    if not is_folder(root):
        state = "is a file" if is_file(root) else "does not exist"
        raise BadInput(f"folder:{rest}", f"{state}", "give the path of a folder with images")
    try:
        paths = sorted(p for p in root.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    except OSError as error:
        raise BadInput(f"folder:{rest}", f"cannot be listed ({error.strerror})", "check the permissions") from error
    if not paths:
        raise BadInput(f"folder:{rest}", "no image files in it", f"known suffixes are {' '.join(sorted(SUFFIXES))}")

    def read(indices: Sequence[int]) -> Iterator[Tensor]:
        return (decode(paths[i]) for i in indices)

    return Store(f"folder:{rest}", f"{len(paths)} image files in {root.name}", len(paths), read)
