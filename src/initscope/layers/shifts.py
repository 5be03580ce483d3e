"""Padding and windows on position axes, for one set of positions (..., h, w) or for pairs of them (..., h, w, h, w)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Padding = Literal["circular", "zero", "valid", "reflect"]


@dataclass(frozen=True)
class Window:
    """A sliding window: which input position each tap of each output position reads."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = "valid"
    margin: tuple[int, int] | None = None  # explicit padding on every side; None: as much as keeps the size at stride 1

    def margins(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Positions added (before, after) along height and width."""
        if self.padding == "valid":
            return (0, 0), (0, 0)
        if self.margin is not None:
            return (self.margin[0],) * 2, (self.margin[1],) * 2
        spans = [d * (k - 1) for k, d in zip(self.kernel, self.dilation, strict=True)]
        return (spans[0] // 2, spans[0] - spans[0] // 2), (spans[1] // 2, spans[1] - spans[1] // 2)

    def output_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Output height and width; not positive where the window does not fit."""
        out = []
        for n, k, s, d, m in zip(size, self.kernel, self.stride, self.dilation, self.margins(), strict=True):
            out.append((n + sum(m) - d * (k - 1) - 1) // s + 1)
        return out[0], out[1]

    def pad(self, t: Tensor) -> Tensor:
        """One set of positions, padded; zeros where the padding is zero."""
        return self._pad_axes(t, t.ndim - 2)

    def pad_pairs(self, t: Tensor) -> Tensor:
        """Pairs of positions, padded; zeros where the padding is zero."""
        return self._pad_axes(self._pad_axes(t, t.ndim - 4), t.ndim - 2)

    def _pad_axes(self, t: Tensor, first: int) -> Tensor:
        (top, bottom), (left, right) = self.margins()
        for axis, before, after in ((first, top, bottom), (first + 1, left, right)):
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
                t = F.pad(t, (0, 0) * tail + (before, after))
        return t

    def tap(self, t: Tensor, tap: int, size: tuple[int, int], first: int) -> Tensor:
        """What tap number `tap` reads at every output position, on the two axes starting at `first` of a padded tensor."""
        for axis, (k, n, s, d) in enumerate(
            zip(divmod(tap, self.kernel[1]), size, self.stride, self.dilation, strict=True)
        ):
            t = _strided(t, first + axis, k * d, n, s)
        return t

    def mean(self, padded: Tensor, size: tuple[int, int], pairs: bool) -> Tensor:
        """Mean over the taps; with `pairs`, the same tap at both positions."""
        firsts = (padded.ndim - 4, padded.ndim - 2) if pairs else (padded.ndim - 2,)
        t = padded
        for axis in (0, 1):
            k, n, s, d = self.kernel[axis], size[axis], self.stride[axis], self.dilation[axis]

            def read(i: int, t: Tensor = t, axis: int = axis, n: int = n, s: int = s, d: int = d) -> Tensor:
                for first in firsts:
                    t = _strided(t, first + axis, i * d, n, s)
                return t

            t = _sum(read, k) / k
        return t

    def weighted(self, padded: Tensor, size: tuple[int, int], pairs: bool, weights: Tensor) -> Tensor:
        """Σ_k w_k t[p+k], or t[p+k, q+k] for pairs; taps of weight zero are skipped."""
        used = [(k, weight) for k, weight in enumerate(weights.tolist()) if weight != 0] or [(0, 0.0)]

        def read(k: int) -> Tensor:
            term = self.tap(padded, k, size, padded.ndim - 2)
            return self.tap(term, k, size, padded.ndim - 4) if pairs else term

        return _sum(lambda i: used[i][1] * read(used[i][0]), len(used))

    def bilinear(self, padded: Tensor, size: tuple[int, int], matrix: Tensor) -> Tensor:
        """Σ_kl S_kl t[p+k, q+l] on pairs of positions."""

        def row(k: int) -> Tensor:
            return self.weighted(self.tap(padded, k, size, padded.ndim - 4), size, False, matrix[k])

        return _sum(row, len(matrix))


def _strided(t: Tensor, axis: int, start: int, count: int, step: int) -> Tensor:
    return t[(slice(None),) * axis + (slice(start, start + (count - 1) * step + 1, step),)]


def _sum(read: Callable[[int], Tensor], count: int) -> Tensor:
    total = read(0)
    if count > 1:
        total = total + read(1)
        for i in range(2, count):
            total += read(i)
    return total
