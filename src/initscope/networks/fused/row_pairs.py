"""One layer of 3 x 3 taps and the sum over all pairs of positions: a row of x with a row of y, all columns with all columns.

With `P(c, d) = Σ_channels x_c y_d` of a pair of rows (of distances `(x_c - y_d)²`), the sum over taps is the sum of three `P`,
one pair of rows below the other, and then of three places of that on a diagonal. Nothing is displaced or copied, hardly a place
is computed that is not needed, and what belongs to a column of y stays in registers while the columns of x pass by.

All is in units in which the layer's scale is 1: `v = ΣP` (the bias is in P, a ninth in each), norms accordingly. What is linear
in v is known without the pairs, `Σ_pq v = (Σ_p patch) (Σ_q patch) + bias`, so that only what bends is summed:

    kernel:  |a||b| rhat(rho),     tangent kernel:  |v| (1 - psi'(m)),    m the smaller of sin²(t/2) and cos²(t/2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from initscope.networks.fused.lanes import LANES, added, apart, load, spread, store, uncounted
from initscope.networks.fused.loops import (
    CIRCULAR,
    VALID,
    Array,
    by_quantity,
    compiled,
    in_order,
    kept,
    norm_places,
    rhat,
    three,
)
from initscope.networks.fused.one_layer import low_slope

MARGIN = int(LANES)  # columns before a row of P, for its border
AT_ONCE = 2  # columns of x, and lanes of y: `add_row` is written for two of both
WHOLE = 40  # columns of x up to which all are taken together
STRIP = 30  # if there are more: columns of x at a time, and one more on each side

_ONE = np.uint64(1)


class Frame(NamedTuple):
    """What all pairs of images share: x, y are flat (images, channels, rows, columns), a, b flat (images, 2, rows, columns).

    columns: of P; outputs: columns of a; tangent: tangent kernels, of distances; then how far rows and channels are apart.
    """

    channels: int
    columns: int
    outputs: int
    padding: int
    tangent: bool
    x_row: int
    x_size: int
    a_row: int
    a_size: int
    y_row: int
    y_size: int
    b_row: int
    b_size: int


class Numbers(NamedTuple):
    """In the type of the images, so that nothing is promoted."""

    bias: Any
    zero: Any
    one: Any


def stored(columns: int) -> int:
    """Columns of y as they are stored."""
    return -(-columns // (AT_ONCE * int(LANES))) * AT_ONCE * int(LANES)


def box_size(columns: int) -> int:
    """Numbers in three P and their sum."""
    rows = -(-(columns if columns <= WHOLE else STRIP + 2) // AT_ONCE) * AT_ONCE + 2
    return 4 * (rows * (stored(columns) + MARGIN) + 2 * int(LANES))


def make_box(columns: int, bias: Any) -> Array:
    """Three P and their sum, as they are beside an image of zeros."""
    box = np.full((4, box_size(columns) // 4), bias)
    box[3] += bias + bias
    return box.reshape(-1)


@by_quantity
def add_row(distance: bool) -> Any:
    """P of a pair of rows, and the sum of it and of the P of the two pairs before; count columns of x, width of y."""

    @in_order
    def joint(x: Array, p: Any, y: Any) -> Any:
        gap = x[p] - y
        return gap * gap if distance else x[p] * y

    @in_order
    def colours(x: Array, p: Any, by: Any, start: Any, y: tuple[Any, Any, Any]) -> Any:
        return ((start + joint(x, p, y[0])) + joint(x, p + by, y[1])) + joint(x, p + by + by, y[2])

    @in_order
    def keep(box: Array, places: tuple[Any, ...], at: Any, value: Any) -> None:
        store(box, places[2] + at, value)
        store(box, places[3] + at, load(box, places[0] + at) + load(box, places[1] + at) + value)

    @in_order
    def loop(
        x: Array, x_at: int, y: Array, y_at: int, frame: Frame, count: int, width: int, start: Any,
        box: Array, before: int, last: int, new: int, sums: int, stride: int,
    ) -> None:  # fmt: skip
        apart()
        p, q, at, row = np.uint64(x_at), np.uint64(y_at), np.uint64(0), np.uint64(stride)
        by_x, by_y = np.uint64(frame.x_size), np.uint64(frame.y_size)
        places = np.uint64(before), np.uint64(last), np.uint64(new), np.uint64(sums)
        begin = spread(start)
        for _ in range(0, count, AT_ONCE):
            for v in range(np.uint64(0), np.uint64(width), LANES + LANES):
                f, g, p1 = q + v, q + v + LANES, p + _ONE
                if frame.channels == 3:  # colour images
                    y0 = load(y, f), load(y, f + by_y), load(y, f + by_y + by_y)
                    y1 = load(y, g), load(y, g + by_y), load(y, g + by_y + by_y)
                    v00, v01 = colours(x, p, by_x, begin, y0), colours(x, p, by_x, begin, y1)
                    v10, v11 = colours(x, p1, by_x, begin, y0), colours(x, p1, by_x, begin, y1)
                else:
                    v00, v01, v10, v11 = begin, begin, begin, begin
                    e = np.uint64(0)
                    for _ in range(frame.channels):
                        here, there = load(y, f), load(y, g)
                        v00, v01 = v00 + joint(x, p + e, here), v01 + joint(x, p + e, there)
                        v10, v11 = v10 + joint(x, p1 + e, here), v11 + joint(x, p1 + e, there)
                        e, f, g = e + by_x, f + by_y, g + by_y
                to = at + v
                keep(box, places, to, v00)
                keep(box, places, to + LANES, v01)
                keep(box, places, to + row, v10)
                keep(box, places, to + row + LANES, v11)
            p, at = p + _ONE + _ONE, at + row + row

    return loop


@in_order
def wrap(box: Array, at: int, columns: int, stride: int, whole: bool, count: int) -> None:
    """The border of a periodic sum whose first computed row begins at a place: columns, and rows if all of them are there."""
    place, row, right = np.uint64(at), np.uint64(stride), np.uint64(columns)
    for _ in range(count):
        box[place - _ONE], box[place + right] = box[place + right - _ONE], box[place]
        place = place + row
    if whole:  # the last place of a row may be the first one of the next
        first, last = np.uint64(at - MARGIN), place - row - np.uint64(MARGIN)
        for c in range(np.uint64(0), row, LANES):
            store(box, first - row + c, load(box, last + c))
        box[first] = box[last + row]
        for c in range(np.uint64(0), row, LANES):
            store(box, last + row + c, load(box, first + c))
        box[last + row + row] = box[first + row]


@in_order
def kernel_sum(
    box: Array, at: int, stride: int, a: Array, a_at: int, b: Array, b_at: int, frame: Frame, numbers: Numbers, count: int
) -> float:  # fmt: skip
    """Sum over a pair of rows, count columns of x, of `|a||b| rhat(rho)`; the inverse norms lie behind the norms."""
    apart()
    start, row, diagonal = np.uint64(at), np.uint64(stride), np.uint64(stride + 1)
    left, left_inverse, right, right_inverse = norm_places(a_at, frame.a_size, b_at, frame.b_size)
    result = spread(numbers.zero)
    for v in range(np.uint64(0), np.uint64(frame.b_row), LANES):
        part, inverse, here = spread(numbers.zero), load(b, right_inverse + v), start + v
        for c in range(np.uint64(count)):
            rho = three(box, here, diagonal) * (a[left_inverse + c] * inverse)
            part = part + a[left + c] * rhat(rho, numbers.zero)
            here = here + row
        result = result + part * load(b, right + v)
    return np.float64(added(result))


@in_order
def tangent_sum(
    box: Array, at: int, stride: int, a: Array, a_at: int, b: Array, b_at: int, frame: Frame, numbers: Numbers, count: int
) -> float:  # fmt: skip
    """Sum over a pair of rows, count columns of x, of `|v| (1 - psi'(m))`, from distances and halved inverse norms."""
    apart()
    start, row, diagonal = np.uint64(at), np.uint64(stride), np.uint64(stride + 1)
    left, left_inverse, right, right_inverse = norm_places(a_at, frame.a_size, b_at, frame.b_size)
    zero, one = numbers.zero, numbers.one
    result = spread(zero)
    for v in range(np.uint64(0), np.uint64(frame.b_row), LANES):
        part, here = spread(zero), start + v
        norm, inverse = load(b, right + v), load(b, right_inverse + v)
        for c in range(np.uint64(count)):
            gap = a[left + c] - norm
            u = (three(box, here, diagonal) - gap * gap) * (a[left_inverse + c] * inverse)
            m = max(min(u, one - u), zero)
            size = one - (m + m)
            part = part + a[left + c] * (size * (one - low_slope(m)))
            here = here + row
        result = result + part * norm
    return np.float64(added(result))


@compiled
def strip_sum(
    x: Array, a: Array, y: Array, b: Array, i: int, j: int, walk: Array, start: int, frame: Frame, numbers: Numbers, box: Array
) -> float:  # fmt: skip
    """What `walk_sums` gives a pair of images, of the columns of x from `start` on: all of them, or a strip."""
    stride, whole, size = frame.y_row + MARGIN, frame.columns <= WHOLE, box.shape[0] // 4
    border = 0 if frame.padding == VALID else 1
    count = frame.outputs if whole else min(STRIP, frame.outputs - start)
    rows, skipped = (frame.columns, border) if whole else (count + 2, 0)  # all columns: the border is known, or copied
    top = skipped * stride + MARGIN
    before, last, new, sums = top, size + top, 2 * size + top, 3 * size + top
    corner = 3 * size + MARGIN - border
    x_at = i * frame.channels * frame.x_size + walk[0] * frame.x_row + start + skipped
    y_at = j * frame.channels * frame.y_size + walk[1] * frame.y_row
    a_at = 2 * i * frame.a_size + walk[0] * frame.a_row + start
    b_at = 2 * j * frame.b_size + walk[1] * frame.b_row
    result = 0.0
    for r in range(walk[2] + 2):
        add_row(
            frame.tangent, x, x_at, y, y_at, frame, rows, frame.y_row, numbers.bias, box, before, last, new, sums, stride
        )  # fmt: skip
        before, last, new = last, new, before
        x_at, y_at = x_at + frame.x_row, y_at + frame.y_row
        if r < 2:
            continue
        if frame.padding == CIRCULAR:
            wrap(box, sums, frame.columns, stride, whole, rows)
        if frame.tangent:
            result += tangent_sum(box, corner, stride, a, a_at, b, b_at, frame, numbers, count)
        else:
            result += kernel_sum(box, corner, stride, a, a_at, b, b_at, frame, numbers, count)
        a_at, b_at = a_at + frame.a_row, b_at + frame.b_row
    return result


@kept
def walk_sums(
    x: Array, a: Array, y: Array, b: Array, walk: Array, weights: Array, frame: Frame, numbers: Numbers, symmetric: bool,
    tile: int, box: Array, out: Array,
) -> None:  # fmt: skip
    """Sums over one displacement of rows for all images of x with all of y (symmetric: j >= i), into out (n, m) float64.

    walk: first row of x, first of y, how many of a; weights: for different images and for an image with itself.
    """
    x, a, y, b, walk, box = uncounted(x), uncounted(a), uncounted(y), uncounted(b), uncounted(walk), uncounted(box)
    step = frame.outputs if frame.columns <= WHOLE else STRIP
    for first in range(0, out.shape[1], tile):
        for i in range(out.shape[0]):
            begin = max(first, i) if symmetric else first
            for j in range(begin, min(first + tile, out.shape[1])):
                weight = weights[1] if symmetric and i == j else weights[0]
                if weight == 0.0:
                    continue
                for start in range(0, frame.outputs, step):
                    out[i, j] += weight * strip_sum(x, a, y, b, i, j, walk, start, frame, numbers, box)
