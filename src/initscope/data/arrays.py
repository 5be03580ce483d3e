"""`npz:PATH[:KEY]`: an array of images in NumPy's own format, never unpickled.

Which axis is which:

| shape | read as |
| --- | --- |
| (n, d) | vectors |
| (n, h, w) | grey images, also when the last axis has length 3 |
| (n, h, w, c) | channels last, if the last axis has length 1, 3 or 4 |
| (n, c, h, w) | channels first, if the second axis has length 1, 3 or 4 and the last has not |

When both axes could be channels the last one is taken. uint8 and uint16 are divided by 255 and 65535; other numbers
are kept as they are.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
from torch import Tensor

from initscope.data.pixels import as_float
from initscope.data.request import MOST_NUMBERS, check_bytes
from initscope.data.store import Store
from initscope.errors import BadInput, first_line
from initscope.files import is_file

_CHANNEL_COUNTS = (1, 3, 4)
_HEADER_BYTES = 10_000  # numpy's own limit, which it looks at only after reading as much as the file promises
Array = npt.NDArray[np.generic]
Header = tuple[tuple[int, ...], np.dtype[np.generic]]


def open_npz(rest: str) -> Store:
    """The images of one array; without a key the only array that can hold images is taken."""
    path, key = path_and_key(rest)
    place = f"npz:{rest}"
    if not is_file(path):
        raise BadInput(place, f"no file {str(path)!r}", "give the path of an .npz file, then :key if needed")
    try:
        array = _array(place, path, key)
    except BadInput:
        raise
    except Exception as error:  # a damaged header is read as Python: numpy and zipfile raise almost anything
        problem = f"cannot be read ({first_line(error)})"
        raise BadInput(place, problem, "save plain numeric arrays with numpy.savez") from error
    return store_of(place, f"array {tuple(array.shape)} of {path.name}", array)


def store_of(place: str, words: str, array: Array) -> Store:
    """A store over an array in any of the layouts above."""
    laid_out = _channels_first(place, array)
    if len(laid_out) == 0 or laid_out[0].size == 0:
        raise BadInput(place, f"the array of shape {array.shape} is empty", "give at least one image")
    if array.dtype.kind not in "buif":
        as_float(place, laid_out[:1])

    def read(indices: Sequence[int]) -> Iterator[Tensor]:
        return (as_float(f"{place} image {i}", laid_out[i : i + 1]) for i in indices)

    return Store(place, words, len(laid_out), read, laid_out[0].size)


def path_and_key(rest: str) -> tuple[Path, str | None]:
    whole = Path(rest).expanduser()
    front, colon, key = rest.rpartition(":")
    # A path may itself contain a colon, so a file of the full name wins.
    if is_file(whole) or not colon or not front:
        return whole, None
    return Path(front).expanduser(), key


def _array(place: str, path: Path, key: str | None) -> Array:
    with path.open("rb") as stream:
        if stream.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            return _member(place, path, key)
        if key is not None:
            raise BadInput(place, "a single .npy array has no keys", f"write npz:{path}")
        stream.seek(0)
        _header(stream)
    # Mapped, so that of a large file only the chosen images are read.
    single: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return single


def _member(place: str, path: Path, key: str | None) -> Array:
    headers = _headers(path)
    chosen = _only_candidate(place, path, headers) if key is None else key
    if chosen not in headers:
        raise BadInput(place, f"no array {chosen!r}", f"the keys are {', '.join(headers)}")
    shape, dtype = headers[chosen]
    numbers = math.prod(shape)
    if numbers > MOST_NUMBERS:
        raise BadInput(place, f"{chosen!r} promises {numbers} numbers", f"at most {MOST_NUMBERS} are read")
    remedy = "save fewer images, or as a single .npy file, of which only the chosen ones are read"
    check_bytes(place, f"the numbers of {chosen!r}", numbers * dtype.itemsize, remedy)
    with zipfile.ZipFile(path) as archive, archive.open(f"{chosen}.npy") as member:
        array: Array = np.lib.format.read_array(member, allow_pickle=False)
        return array


def _headers(path: Path) -> dict[str, Header]:
    """Shape and type of every array, read without its data."""
    headers: dict[str, Header] = {}
    with zipfile.ZipFile(path) as archive:
        for name in (entry for entry in archive.namelist() if entry.endswith(".npy")):
            with archive.open(name) as member:
                headers[name.removesuffix(".npy")] = _header(member)
    return headers


def _header(stream: IO[bytes]) -> Header:
    """Shape and type of an array in NumPy's own format; the length of its header is looked at before it is read."""
    magic = stream.read(8)
    short = magic[6:7] == b"\x01"
    length = stream.read(2 if short else 4)
    promised = int.from_bytes(length, "little")
    if promised > _HEADER_BYTES:
        raise ValueError(f"its header promises {promised} bytes, at most {_HEADER_BYTES} are read")
    start = io.BytesIO(magic + length + stream.read(promised))
    np.lib.format.read_magic(start)
    read = np.lib.format.read_array_header_1_0 if short else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(start)
    if min(shape, default=0) < 0:
        raise ValueError(f"its header promises the shape {shape}")
    return shape, dtype


def _only_candidate(place: str, path: Path, headers: dict[str, Header]) -> str:
    """The one array with at least two axes of numbers."""
    fitting = [name for name, (shape, dtype) in headers.items() if len(shape) >= 2 and dtype.kind in "buif"]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise BadInput(place, f"several arrays: {', '.join(fitting)}", f"add one, e.g. npz:{path}:{fitting[0]}")
    names = ", ".join(headers) or "(none)"
    raise BadInput(place, f"none of the arrays {names} can hold images", "save an (n, h, w, c) array")


def _channels_first(place: str, array: Array) -> Array:
    if array.ndim == 2:
        return array
    if array.ndim == 3:
        return array[:, None]
    if array.ndim == 4 and array.shape[3] in _CHANNEL_COUNTS:
        return array.transpose(0, 3, 1, 2)
    if array.ndim == 4 and array.shape[1] in _CHANNEL_COUNTS:
        return array
    remedy = "use (n, d), (n, h, w), (n, h, w, c) or (n, c, h, w) with c = 1, 3 or 4"
    raise BadInput(place, f"shape {array.shape} is not a set of images", remedy)
