"""Sketches of deep networks that end in a global average: a stand-in that is summed exactly, and windows that correct it.

The kernel is the mean of κ(p, q) over positions p of x and q of y; κ sees the patches around them. Cheap features φ of a
patch (a dense network's kernel with some reference patches) and a matrix M, fitted on some patches to κ ≈ φ(p)·M φ(q), give

    K(x, y) = φ̄(x)·M φ̄(y) + E [κ(p, q) - φ(p)·M φ(q)],    φ̄ the mean over the positions of one image,

with p and q uniform. The first term is exact and linear in images and pixels; the second is small, and is estimated on
windows of a few positions whose places are drawn. The identity holds for any φ and M: how well they fit decides the error alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from initscope.finite.estimate import Estimate
from initscope.finite.running import Running
from initscope.geometry import generator
from initscope.networks.fused import ConvStack, dense_kernel, same_position_kernel
from initscope.networks.fused.plain import activate, box_sum
from initscope.networks.fused.stack import make_laws
from initscope.networks.progress import Progress

REFERENCES = 128  # patches that features compare with
FITTED = 512  # patches on which κ is computed to fit the stand-in
WIDEST = 9  # side of the patch that features look at; the network's own may be larger
FLOOR = 1e-7  # of the largest eigenvalue: directions of the features below it are rounding
WINDOW, MASKED_WINDOW = 16, 8  # positions along a side; the border of a window costs as much as its inside
_BLOCK, _STRIP = 1 << 22, 1 << 26  # numbers that exist at once: of one image, of all


@dataclass(frozen=True)
class _Place:
    """One window: where it begins in x and in y, in positions of the last layer, and its sides."""

    x: tuple[int, int]
    y: tuple[int, int]
    sides: tuple[int, int]


@dataclass(frozen=True)
class Field:
    """The stack on images of one size: patches, crops, and κ on windows."""

    stack: ConvStack
    size: tuple[int, int]  # of the images

    @property
    def span(self) -> int:
        """A position of the last layer sees span + 1 inputs along each side."""
        return sum(kernel - 1 for kernel in self.stack.kernels)

    @property
    def final(self) -> tuple[int, int]:
        return self.stack.sizes(*self.size)[-1]

    @property
    def window(self) -> tuple[int, int]:
        """Positions along each side of a window; at most half of an image that has ends, where windows are cut."""
        side = MASKED_WINDOW if self.stack.padding == "zero" else WINDOW
        share = 1 if self.stack.padding == "circular" else 2
        height, width = self.final
        return min(side, -(-height // share)), min(side, -(-width // share))

    def crop(self, images: Tensor, start: tuple[int, int], sides: tuple[int, int], span: int | None = None) -> Tensor:
        """What the positions from start on see of the images: (n, c, sides + span); `span`: less of it, the middle."""
        span = self.span if span is None else span
        inner = (self.span - span) // 2 - (0 if self.stack.padding == "valid" else self.span // 2)
        rows, columns = (torch.arange(s + inner, s + inner + side + span) for s, side in zip(start, sides, strict=True))
        if self.stack.padding == "circular":
            return images[:, :, (rows % self.size[0])[:, None], columns % self.size[1]]
        found = images[:, :, rows.clamp(0, self.size[0] - 1)[:, None], columns.clamp(0, self.size[1] - 1)]
        if self.stack.padding == "zero":
            inside = self._inside(start, sides, inner, span)
            found = found * inside.to(found)
        return found

    def _inside(self, start: tuple[int, int], sides: tuple[int, int], margin: int, span: int) -> Tensor:
        """Which places of a window that begins `margin` beside start lie inside of the image."""
        rows, columns = (
            (place := torch.arange(s + margin, s + margin + side + span)).ge(0) & place.lt(size)
            for s, side, size in zip(start, sides, self.size, strict=True)
        )
        return rows[:, None] & columns

    def window_sums(self, x: Tensor, y: Tensor, place: _Place) -> Tensor:
        """Sum of κ over the positions of a window, all pairs of images: (n, m) in float64."""
        left, right = self.crop(x, place.x, place.sides), self.crop(y, place.y, place.sides)
        if self.stack.padding == "zero" and not self._within(place):
            return self.masked_sums(left, right, self.masks(place.x, place.sides), self.masks(place.y, place.sides))
        mean = same_position_kernel(replace(self.stack, padding="valid"), left, right)
        return mean.double() * math.prod(place.sides)

    def _within(self, place: _Place) -> bool:
        half = self.span // 2
        starts = (
            (s, side, size)
            for at in (place.x, place.y)
            for s, side, size in zip(at, place.sides, self.size, strict=True)
        )
        return all(s >= half and s + side + half <= size for s, side, size in starts)

    def masks(self, start: tuple[int, int], sides: tuple[int, int]) -> list[Tensor]:
        """Behind each layer, which places of a window that ends up with these sides lie inside of the image."""
        half, span, found = self.span // 2, self.span, []
        for kernel in self.stack.kernels:
            half, span = half - kernel // 2, span - kernel + 1
            found.append(self._inside(start, sides, -half, span))
        return found

    def masked_sums(self, x: Tensor, y: Tensor, x_masks: list[Tensor], y_masks: list[Tensor]) -> Tensor:
        """The same for crops that reach over the border: after each layer, what is outside of x or of y is zero.

        masks: (h, w) or (n, h, w) behind each layer.
        """
        stack = self.stack
        fans = tuple(k * k * (x.shape[1] if layer == 0 else 1) for layer, k in enumerate(stack.kernels))
        laws = make_laws(stack.gains, stack.biases, stack.slopes, fans, distance=False)
        left, right = self._norms(x, x_masks), self._norms(y, y_masks)
        out = torch.empty(len(x), len(y), dtype=torch.float64)
        rows = max(1, _BLOCK // (len(y) * x.shape[2] * x.shape[3]))
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            state = torch.einsum("nchw,mchw->nmhw", x[part], y)
            for layer, (kernel, law) in enumerate(zip(stack.kernels, laws, strict=True)):
                (a, inside_x), (b, inside_y) = left[layer], right[layer]
                state = activate(box_sum(state, kernel), a[part, None], b, law)
                state = state.mul_(inside_x[part, None]).mul_(inside_y)
            out[part] = state.sum((-1, -2), dtype=torch.float64)
        return out

    def _norms(self, images: Tensor, masks: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """|a| before each activation, zero outside of the image, and the masks, for each image."""
        square, found, stack = images.double().square().mean(1), [], self.stack
        for kernel, gain, bias, s, mask in zip(
            stack.kernels, stack.gains, stack.biases, stack.slopes, masks, strict=True
        ):
            square = (gain * F.avg_pool2d(square[:, None], kernel, stride=1)[:, 0] + bias) * mask
            found.append((square.sqrt().to(images), mask.to(images).expand(square.shape)))
            square = (1 + s * s) / 2 * square  # E f² of leaky ReLU
        return found


@dataclass(frozen=True)
class StandIn:
    """φ(p)·M φ(q): the kernel of a dense network with some reference patches, made orthonormal, and M."""

    field: Field
    references: Tensor  # (R, d)
    weights: Tensor  # (d,) of the entries of a patch
    basis: Tensor  # (R, r)
    matrix: Tensor  # M, (r, r), symmetric, in float64

    def products(self, images: Tensor, start: tuple[int, int], sides: tuple[int, int]) -> Tensor:
        """The references' kernel with the patches of a window: (R, n, positions)."""
        side = math.isqrt(len(self.weights) // images.shape[1])
        crop = self.field.crop(images, start, sides, side - 1)
        patches = F.unfold(crop, side).mT.reshape(-1, len(self.weights)) * self.weights
        return _dense(self.field.stack, self.references, patches).reshape(len(self.references), len(images), -1)

    def means(self, images: Tensor) -> Tensor:
        """φ̄: (n, r) in float64."""
        height, width = self.field.final
        rows = max(1, _BLOCK // (len(self.weights) * width))
        found = []
        for image in torch.split(images, 1):
            total = torch.zeros(len(self.references), dtype=torch.float64)
            for start in range(0, height, rows):
                strip = self.products(image, (start, 0), (min(rows, height - start), width))
                total += strip.sum((1, 2), dtype=torch.float64)
            found.append(total / (height * width))
        return torch.stack(found) @ self.basis.double()

    def window_sums(self, x: Tensor, y: Tensor, place: _Place) -> Tensor:
        """Sum of φ(p)·M φ(q) over the positions of a window: (n, m) in float64."""
        rows, columns = place.sides
        step = max(1, _STRIP // ((len(x) + len(y)) * columns * len(self.references)))
        total = torch.zeros(len(x), len(y), dtype=torch.float64)
        for row in range(0, rows, step):
            sides = (min(step, rows - row), columns)
            left = self._features(x, (place.x[0] + row, place.x[1]), sides)
            right = self.matrix.to(x) @ self._features(y, (place.y[0] + row, place.y[1]), sides)
            total += left.flatten(1) @ right.flatten(1).mT
        return total

    def _features(self, images: Tensor, start: tuple[int, int], sides: tuple[int, int]) -> Tensor:
        """φ: (n, r, positions)."""
        return torch.einsum("rk,rnp->nkp", self.basis, self.products(images, start, sides))


def _dense(stack: ConvStack, x: Tensor, y: Tensor) -> Tensor:
    return dense_kernel(stack.gains, stack.biases, stack.slopes, x, y)


def fit(field: Field, images: Tensor, g: Generator) -> StandIn:
    """References and M from patches drawn over all images."""
    patches, masks = _draw(field, images, FITTED, g)
    span = min(field.span, (WIDEST - 1) // 2 * 2 + field.span % 2)
    margin = (field.span - span) // 2
    middle = patches[:, :, margin : margin + span + 1, margin : margin + span + 1]
    reach = torch.ones(1, dtype=torch.float64)  # how often each offset enters the last layer's sum
    for kernel in field.stack.kernels:
        reach = F.conv1d(reach[None, None], torch.ones(1, 1, kernel, dtype=torch.float64), padding=kernel - 1)[0, 0]
    reach = reach[margin : margin + span + 1]
    weights = torch.outer(reach, reach).sqrt()
    weights = (weights / weights.square().mean().sqrt()).repeat(images.shape[1], 1, 1).flatten().to(images)
    flat = middle.flatten(1) * weights
    references = flat[:REFERENCES].contiguous()
    found = _dense(field.stack, references, flat).double().mT
    values, vectors = torch.linalg.eigh(found.mT @ found / len(found))
    keep = values > FLOOR * values[-1].clamp_min(torch.finfo(values.dtype).tiny)
    basis = vectors[:, keep] / values[keep].sqrt()
    if field.stack.padding == "zero":
        exact = field.masked_sums(patches, patches, masks, masks)
    else:
        exact = same_position_kernel(replace(field.stack, padding="valid"), patches).double()
    orthonormal = found @ basis / len(found)
    return StandIn(field, references, weights, basis.to(images), orthonormal.mT @ exact @ orthonormal)


def _draw(field: Field, images: Tensor, count: int, g: Generator) -> tuple[Tensor, list[Tensor]]:
    """Patches drawn over all images, (count, c, span + 1, span + 1), and their masks for zero padding."""
    which = torch.randint(len(images), (count,), generator=g).tolist()
    places = list(zip(*(torch.randint(side, (count,), generator=g).tolist() for side in field.final), strict=True))
    patches = torch.cat([field.crop(images[i : i + 1], at, (1, 1)) for i, at in zip(which, places, strict=True)])
    if field.stack.padding != "zero":
        return patches, []
    masks = [field.masks(at, (1, 1)) for at in places]
    return patches, [torch.stack(layer) for layer in zip(*masks, strict=True)]


def by_windows(
    stack: ConvStack, x: Tensor, y: Tensor | None, groups: int, each: int, seed: int, progress: Progress | None
) -> Estimate:
    """`groups` independent estimates from `each` windows."""
    field = Field(stack, (x.shape[2], x.shape[3]))
    other = x if y is None else y
    stand_in = fit(field, x if y is None else torch.cat([x, y]), generator(seed, groups))
    left = stand_in.means(x)
    exact = left @ stand_in.matrix @ (left if y is None else stand_in.means(other)).mT
    rows, columns = field.window
    found = Running([(0, 0)])
    for group in range(groups):
        rest = torch.zeros(len(x), len(other), dtype=torch.float64)
        for number, point in enumerate(_spread(each, generator(seed, group))):
            if progress is not None:
                progress(group * each + number, groups * each)
            for place in _places(field, point, (rows, columns)):
                rest += field.window_sums(x, other, place) - stand_in.window_sums(x, other, place)
        value = exact + rest / (each * rows * columns)
        add_group(found, (value + value.mT) / 2 if y is None else value)
    if progress is not None:
        progress(groups * each, groups * each)
    return group_mean(found)


def add_group(found: Running, value: Tensor) -> None:
    """One independent estimate, (n, m)."""
    found.add(value[:, None])


def group_mean(found: Running) -> Estimate:
    """The mean of the estimates and its standard error."""
    return Estimate(found.mean[:, 0], (found.covariance(0, 0) / found.draws).sqrt(), found.draws)


def _spread(count: int, g: Generator) -> list[list[float]]:
    """Points in the unit cube of 4 sides, evenly spread (an additive recurrence) and shifted together at random."""
    ratio = 1.1673039782614187  # t⁵ = t + 1: the generalised golden ratio of 4 dimensions
    steps = torch.tensor([ratio**-power for power in (1, 2, 3, 4)], dtype=torch.float64)
    shift = torch.rand(4, generator=g, dtype=torch.float64)
    points: list[list[float]] = ((torch.arange(count, dtype=torch.float64)[:, None] * steps + shift) % 1.0).tolist()
    return points


def _places(field: Field, point: list[float], sides: tuple[int, int]) -> Iterator[_Place]:
    """The window at a point, cut where it goes round the end of the image: so every position is equally likely."""
    starts = [min(int(u * length), length - 1) for u, length in zip(point, field.final * 2, strict=True)]
    circular = field.stack.padding == "circular"
    for x_row, y_row, rows in _pieces(starts[0], starts[2], sides[0], field.final[0], circular):
        for x_column, y_column, columns in _pieces(starts[1], starts[3], sides[1], field.final[1], circular):
            yield _Place((x_row, x_column), (y_row, y_column), (rows, columns))


def _pieces(x: int, y: int, side: int, length: int, circular: bool) -> list[tuple[int, int, int]]:
    """Beginnings and side of the parts of two equal windows on a ring of that length, none of which crosses its end.

    >>> _pieces(8, 3, 4, 10, False), _pieces(8, 3, 4, 10, True)
    ([(8, 3, 2), (0, 5, 2)], [(8, 3, 4)])
    """
    if circular:
        return [(x, y, side)]
    cuts = sorted({0, side, *(cut for cut in (length - x, length - y) if cut < side)})
    return [((x + a) % length, (y + a) % length, b - a) for a, b in pairwise(cuts)]
