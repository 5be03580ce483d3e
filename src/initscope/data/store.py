"""A source with a fixed number of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Store:
    """`total` images; `read(indices)` yields them one at a time as (1, c, h, w) or (1, d), scaled by `as_float`.

    `place` names the source in messages, `words` describe it. `numbers` is how many one image has, where all are alike.
    """

    place: str
    words: str
    total: int
    read: Callable[[Sequence[int]], Iterator[Tensor]]
    numbers: int = 0
