"""What the data room hands out: a set of images, or zipped pairs of them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Images:
    """A set of inputs: `images` is float32, (n, c, h, w) for pictures (in [0, 1] unless centred) or (n, d) for vectors.

    `source` is the name that `load` was given, `description` says in words what the images are.
    """

    images: Tensor
    source: str
    description: str

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Pairs:
    """Zipped pairs: `x[i]` goes with `y[i]`; both are float32, (n, c, h, w) or (n, d).

    `correlation`, (n,), is the correlation that generated each pair, where the source has one (`gaussian`).
    """

    x: Tensor
    y: Tensor
    source: str
    description: str
    correlation: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)
