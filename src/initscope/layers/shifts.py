"""Padding and windows on position axes, for one set of positions (..., *p) or for pairs of them (..., *p, *p)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from initscope.errors import BadInput
from initscope.geometry.inputs import MOST_AXES

Padding = Literal["circular", "zero", "valid", "reflect", "same"]
Size = int | tuple[int, ...]  # one number for every position axis, or one for each
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """A sliding window: which input position each tap of each output position reads.

    Every tuple has one number for each position axis. "same" adds zeros as TensorFlow does: as many as ceil(n / stride)
    outputs need, the odd one behind.
    """

    kernel: Sizes
    stride: Sizes
    dilation: Sizes
    padding: Padding = "valid"
    margin: Sizes | None = None  # explicit padding on every side; None: as much as keeps the size at stride 1

    @property
    def axes(self) -> int:
        return len(self.kernel)

    @property
    def reach(self) -> Sizes:
        """Positions from the first tap to the last."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def margins(self, size: Sizes) -> tuple[tuple[int, int], ...]:
        """Positions added (before, after) along each axis of an input of this size."""
        if self.padding == "valid":
            return ((0, 0),) * self.axes
        if self.margin is not None:
            return tuple((m, m) for m in self.margin)
        spans = [r - 1 for r in self.reach]
        if self.padding == "same":
            steps = zip(size, self.stride, spans, strict=True)
            spans = [max((math.ceil(n / s) - 1) * s + span + 1 - n, 0) for n, s, span in steps]
        return tuple((span // 2, span - span // 2) for span in spans)

    def output_size(self, size: Sizes) -> Sizes:
        """Output positions along each axis; not positive where the window does not fit."""
        steps = zip(size, self.reach, self.stride, self.margins(size), strict=True)
        return tuple((n + sum(m) - r) // s + 1 for n, r, s, m in steps)

    def pad(self, t: Tensor, value: float = 0.0) -> Tensor:
        """One set of positions, padded; `value` where the padding is zero."""
        return self._pad_axes(t, t.ndim - self.axes, value)

    def pad_pairs(self, t: Tensor) -> Tensor:
        """Pairs of positions, padded; zeros where the padding is zero."""
        return self._pad_axes(self._pad_axes(t, t.ndim - 2 * self.axes), t.ndim - self.axes)

    def _pad_axes(self, t: Tensor, first: int, value: float = 0.0) -> Tensor:
        margins = self.margins(tuple(t.shape[first : first + self.axes]))
        for axis, (before, after) in enumerate(margins, start=first):
            if before == after == 0:
                continue
            size = t.shape[axis]
            index = torch.arange(-before, size + after, device=t.device)
            if self.padding == "circular":
                t = t.index_select(axis, index % size)
            elif self.padding == "reflect":
                index = index.abs()
                t = t.index_select(axis, torch.where(index >= size, 2 * (size - 1) - index, index))
            else:
                tail = t.ndim - 1 - axis
                t = F.pad(t, (0, 0) * tail + (before, after), value=value)
        return t

    def patches(self, t: Tensor) -> Tensor:
        """What the taps read of every channel at every output position, (n, c · taps, positions), for t (n, c, *p)."""
        size, padded = self.output_size(tuple(t.shape[2:])), self.pad(t)
        taps = [self.tap(padded, k, size, 2).flatten(2) for k in range(math.prod(self.kernel))]
        return torch.stack(taps, 2).flatten(1, 2)

    def tap(self, t: Tensor, tap: int, size: Sizes, first: int) -> Tensor:
        """What tap number `tap` reads at every output position, on the position axes from `first` on of a padded tensor."""
        for axis in reversed(range(self.axes)):
            tap, place = divmod(tap, self.kernel[axis])
            t = _strided(t, first + axis, place * self.dilation[axis], size[axis], self.stride[axis])
        return t

    def mean(self, padded: Tensor, size: Sizes, pairs: bool) -> Tensor:
        """Mean over the taps; with `pairs`, the same tap at both positions."""
        axes = self.axes
        firsts = (padded.ndim - 2 * axes, padded.ndim - axes) if pairs else (padded.ndim - axes,)
        t = padded
        for axis in range(axes):
            k, n, s, d = self.kernel[axis], size[axis], self.stride[axis], self.dilation[axis]

            def read(i: int, t: Tensor = t, axis: int = axis, n: int = n, s: int = s, d: int = d) -> Tensor:
                for first in firsts:
                    t = _strided(t, first + axis, i * d, n, s)
                return t

            t = _sum(read, k) / k
        return t

    def weighted(self, padded: Tensor, size: Sizes, pairs: bool, weights: Tensor) -> Tensor:
        """Σ_k w_k t[p+k], or t[p+k, q+k] for pairs; taps of weight zero are skipped."""
        used = [(k, weight) for k, weight in enumerate(weights.tolist()) if weight != 0] or [(0, 0.0)]

        def read(k: int) -> Tensor:
            term = self.tap(padded, k, size, padded.ndim - self.axes)
            return self.tap(term, k, size, padded.ndim - 2 * self.axes) if pairs else term

        return _sum(lambda i: used[i][1] * read(used[i][0]), len(used))

    def bilinear(self, padded: Tensor, size: Sizes, matrix: Tensor) -> Tensor:
        """Σ_kl S_kl t[p+k, q+l] on pairs of positions."""

        def row(k: int) -> Tensor:
            return self.weighted(self.tap(padded, k, size, padded.ndim - 2 * self.axes), size, False, matrix[k])

        return _sum(row, len(matrix))


def spread(size: Size, axes: int) -> Sizes:
    """The size along each of `axes` position axes.

    >>> spread(3, 2), spread((1, 3), 2)
    ((3, 3), (1, 3))
    """
    return size if isinstance(size, tuple) else (size,) * axes


def check_size(place: str, name: str, size: object) -> Sizes:
    """The numbers of a size, or a clear error; which numbers are allowed is for the caller to say."""
    sizes = size if isinstance(size, tuple) else (size,)
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in sizes)
    if not whole or not 1 <= len(sizes) <= MOST_AXES:
        problem = f"{name} is {size!r}, expected a whole number, or one for each of at most {MOST_AXES} axes"
        raise BadInput(place, problem, f"pass {name}=3 or {name}=(3, 5)")
    return sizes


def axes_of(place: str, **sizes: Size | None) -> int | None:
    """How many position axes the sizes are written for; None where all are single numbers."""
    found = {name: len(size) for name, size in sizes.items() if isinstance(size, tuple)}
    if len(set(found.values())) > 1:
        told = ", ".join(f"{name} has {count}" for name, count in found.items())
        raise BadInput(place, f"{told} numbers", "give one number for each position axis, or a single one")
    return next(iter(found.values()), None)


def short_size(size: Size) -> str:
    """The size in words, one number where it is the same along every axis.

    >>> short_size((3, 3)), short_size((3, 1))
    ('3', '3x1')
    """
    return size_text(size[0] if isinstance(size, tuple) and len(set(size)) == 1 else size)


def size_text(size: Size) -> str:
    """The size in words.

    >>> size_text((3, 1, 5)), size_text(3)
    ('3x1x5', '3')
    """
    return "x".join(map(str, size)) if isinstance(size, tuple) else str(size)


def _strided(t: Tensor, axis: int, start: int, count: int, step: int) -> Tensor:
    return t[(slice(None),) * axis + (slice(start, start + (count - 1) * step + 1, step),)]


def _sum(read: Callable[[int], Tensor], count: int) -> Tensor:
    total = read(0)
    if count > 1:
        total = total + read(1)
        for i in range(2, count):
            total += read(i)
    return total
