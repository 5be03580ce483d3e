"""`idx:PATH`: the file format of MNIST, plain or gzipped.

Four bytes of magic (two zeros, the type, the number of axes), each axis as a big-endian 32-bit length, the numbers.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from initscope.data.arrays import Array, store_of
from initscope.data.request import MOST_NUMBERS, check_bytes
from initscope.data.store import Store
from initscope.errors import BadInput, first_line
from initscope.files import is_file

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_AXES = 4  # images, rows, columns, channels


def open_idx(rest: str) -> Store:
    """The images of one idx file."""
    path, place = Path(rest).expanduser(), f"idx:{rest}"
    if not is_file(path):
        raise BadInput(place, "no such file", "give the path of an idx file such as t10k-images-idx3-ubyte.gz")
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as stream:
            array = _read(place, stream)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(place, f"cannot be read ({first_line(error)})", "fetch the file again") from error
    return store_of(place, f"array {array.shape} of {path.name}", array)


def _read(place: str, stream: IO[bytes] | gzip.GzipFile) -> Array:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES:
        raise BadInput(
            place, f"magic number {magic.hex() or '(empty)'} is not idx", "idx files start with 0000, type, axes"
        )
    axes = magic[3]
    if axes < 2:
        raise BadInput(place, f"{axes} axes, so labels rather than images", "give the file of the images")
    if axes > _MOST_AXES:
        raise BadInput(place, f"{axes} axes, expected 2 to {_MOST_AXES}", "give the file of the images")
    lengths = stream.read(4 * axes)
    if len(lengths) < 4 * axes:
        raise BadInput(place, "the file ends inside its header", "fetch the file again")
    shape: tuple[int, ...] = struct.unpack(f">{axes}I", lengths)
    dtype = np.dtype(_TYPES[magic[2]])
    # Checked before reading: a gzipped file can promise, and deliver, far more than memory holds.
    if math.prod(shape) > MOST_NUMBERS:
        raise BadInput(place, f"the header promises {math.prod(shape)} numbers", f"at most {MOST_NUMBERS} are read")
    wanted = math.prod(shape) * dtype.itemsize
    check_bytes(place, "its numbers", 2 * wanted, "use a file with fewer images, or a single .npy file")
    content = stream.read(wanted + 1)
    if len(content) != wanted:
        got = f"only {len(content)}" if len(content) < wanted else "more"
        raise BadInput(place, f"the header promises {wanted} bytes, the file has {got}", "fetch the file again")
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))
