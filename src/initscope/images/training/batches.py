"""Which images a step sees: a function of the seed and the number of the step alone, so that any step can be done again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from initscope.geometry import generator
from initscope.images.architectures import Size
from initscope.images.networks import Encoder
from initscope.images.tiling import encoder_moves, map_bytes
from initscope.images.training.recipe import Recipe
from initscope.networks.planning import size_text

_ORDER, _CROPS = 10, 11  # parts of the seed
_CHUNK = 16  # images encoded at once


@dataclass
class Order:
    """An endless list of shuffles of `count` images; a step takes the next `batch` of it."""

    count: int
    batch: int
    seed: int
    _shuffles: dict[int, Tensor] = field(default_factory=dict)

    def rows(self, step: int) -> Tensor:
        """The images of a step, (batch,)."""
        first = step * self.batch
        shuffles = range(first // self.count, (first + self.batch - 1) // self.count + 1)
        known = self._shuffles
        self._shuffles = {number: known[number] if number in known else self._shuffle(number) for number in shuffles}
        line = torch.cat([self._shuffles[number] for number in shuffles])
        start = first - shuffles.start * self.count
        return line[start : start + self.batch]

    def _shuffle(self, number: int) -> Tensor:
        return torch.randperm(self.count, generator=generator(self.seed, _ORDER, number))


def crop_windows(images: Tensor, rows: Tensor, side: int, seed: int, step: int) -> Tensor:
    """A window of each of the images, (batch, c, side, side), where the seed and the step put it."""
    height, width = images.shape[-2:]
    random = generator(seed, _CROPS, step)
    tops = torch.randint(0, height - side + 1, (len(rows),), generator=random).tolist()
    lefts = torch.randint(0, width - side + 1, (len(rows),), generator=random).tolist()
    places = zip(rows.tolist(), tops, lefts, strict=True)
    return torch.stack([images[row, :, top : top + side, left : left + side] for row, top, left in places])


def middle(images: Tensor, side: int) -> Tensor:
    """The windows in the middle, (n, c, side, side)."""
    top, left = ((n - side) // 2 for n in images.shape[-2:])
    return images[..., top : top + side, left : left + side]


@torch.no_grad()
def encode_all(encoder: Encoder, images: Tensor, layout: torch.memory_format) -> Tensor:
    """Features of all images, some at a time; memory is taken once."""
    found: Tensor | None = None
    for start in range(0, len(images), _CHUNK):
        part = encoder(images[start : start + _CHUNK])
        if found is None:
            found = torch.empty((len(images), *part.shape[1:]), dtype=part.dtype, device=part.device).to(
                memory_format=layout
            )
        found[start : start + _CHUNK] = part
    assert found is not None
    return found


def feature_bytes(encoder: Encoder, count: int, size: Size) -> int:
    """Bytes of the features of `count` images of that size."""
    height, width = encoder.layout.sizes(size)[-1]
    return 4 * count * encoder.layout.outputs * height * width


def encoding_bytes(encoder: Encoder, size: Size) -> int:
    """Peak bytes while some images are encoded."""
    return map_bytes(encoder_moves(encoder.layout), encoder.layout.inputs, (_CHUNK * size[0], size[1]))


def caching(recipe: Recipe, encoder: Encoder, count: int, size: Size, allowed: int) -> tuple[bool, str]:
    """Whether the features of the training images are worked out once and kept, and why (not).

    A rule and not a clock decides, so that a run that goes on later does the same arithmetic.
    """
    if recipe.crop is not None:
        return False, "random crops give new features in every step"
    if recipe.steps * recipe.batch <= count:
        return False, "no image is seen twice"
    needed = feature_bytes(encoder, count, size)
    if needed > allowed:
        return False, f"the features need {size_text(needed)}, {size_text(max(allowed, 0))} are left for them"
    return True, f"each image is seen {recipe.steps * recipe.batch / count:.1f} times"


def parts(count: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover `count`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
