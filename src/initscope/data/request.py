"""What is asked of a source: how many images, how large, which seed; checked once, here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from initscope.errors import BadInput
from initscope.networks.planning import free_memory, size_text

# 2³¹ float32 numbers are 8 GiB: beyond that a request is far more often a slip than a wish.
MOST_NUMBERS = 2**31
DEFAULT_SIDE = 32
_NEGLIGIBLE = 2**24  # bytes that nobody looks for
_COPIES = 3  # of all images at once: as they were made, put together, and normalized


@dataclass(frozen=True)
class Request:
    """How many images, of which height and width and channels (None: what the source has), drawn from which seed."""

    count: int
    size: tuple[int, int] | None
    channels: int | None
    seed: int

    def random(self) -> np.random.Generator:
        """A fresh generator: the same request always draws the same numbers."""
        return np.random.default_rng(self.seed)

    def shape(self, default_channels: int) -> tuple[int, int, int]:
        """Channels, height and width for a source that can make any."""
        height, width = self.size or (DEFAULT_SIDE, DEFAULT_SIDE)
        channels = self.channels or default_channels
        check_memory(self.count, channels, height, width)
        return channels, height, width


def make_request(
    count: int, size: int | tuple[int, int] | None = None, channels: int | None = None, seed: int = 0
) -> Request:
    """Check the arguments of `load` and put them together.

    >>> make_request(count=2, size=8)
    Request(count=2, size=(8, 8), channels=None, seed=0)
    """
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise BadInput("seed", f"got {seed!r}", "use a whole number, 0 or more")
    return Request(
        positive("count", count),
        None if size is None else _two_sides(size),
        None if channels is None else positive("channels", channels),
        int(seed),
    )


def positive(place: str, value: object) -> int:
    """The value as an int, or refusal of what is not a whole number of at least one."""
    number = int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else 0
    if number < 1:
        raise BadInput(place, f"got {value!r}", "use a whole number, 1 or more")
    return number


def check_memory(count: int, channels: int, height: int, width: int) -> None:
    """Refuse a request that would not fit into memory before anything is allocated."""
    check_numbers(f"{count} x {channels} x {height} x {width} images", count * channels * height * width)


def check_numbers(what: str, numbers: int) -> None:
    """Refuse images of so many numbers in all, `what` in words, if they would not fit into memory."""
    remedy = "ask for fewer or smaller images"
    if numbers > MOST_NUMBERS:
        raise BadInput("size", f"{what} need {numbers * 4 / 2**30:.0f} GiB", remedy)
    check_bytes("size", what, 4 * _COPIES * numbers, remedy)


def check_bytes(place: str, what: str, needed: int, remedy: str) -> None:
    """Refuse what needs more bytes than are free."""
    if needed < _NEGLIGIBLE:
        return
    free = free_memory(torch.device("cpu"))
    if needed > free:
        problem = f"{what} need about {size_text(needed)} of memory, {size_text(free)} are free"
        raise BadInput(place, problem, remedy)


def _two_sides(size: object) -> tuple[int, int]:
    height, width = size if isinstance(size, tuple | list) and len(size) == 2 else (size, size)
    if isinstance(height, tuple | list):
        raise BadInput("size", f"got {size!r}", "use one side, or (height, width)")
    return positive("size", height), positive("size", width)
