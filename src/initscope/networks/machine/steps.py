"""Compiled steps of the machine on one tile and one window; `frames` says how a tile lies in memory.

`Window` is the part of x's places that has a partner at the displacement in question: all of them where borders wrap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from initscope.networks.fused.lanes import LANES, apart, load, spread, store
from initscope.networks.fused.loops import Array, compiled, in_order
from initscope.networks.machine.frames import ROWS, TILE, WIDTH

_U = np.uint64
_TILE, _WIDTH, _ROWS = _U(TILE), _U(WIDTH), _U(ROWS)


class Window(NamedTuple):
    """Rows top..bottom and columns left..right of x; their partners in y lie down and right of them, or around the border."""

    top: int
    bottom: int
    left: int
    right: int
    down: int
    across: int


class Sides(NamedTuple):
    """Numbers of the inputs: x flat (place, field, ROWS), y flat (place, field, WIDTH), from the tile's place on.

    `x_at`, `y_at`: where those of this step and tile begin; `still`: 0 where y has the same numbers at every place.
    """

    x: Array
    y: Array
    x_at: int
    y_at: int
    fields: int
    still: int


@compiled
def partner(place: int, move: int, size: int) -> int:
    """Where a row or column has its partner."""
    moved = place + move
    return moved - size if moved >= size else moved


@compiled
def places(sides: Sides, row: int, column: int, window: Window, height: int, width: int) -> tuple[Any, Any]:
    """Where the numbers of x and of y begin that belong to one place."""
    q = partner(row, window.down, height) * width + partner(column, window.across, width)
    x_at = sides.x_at + (row * width + column) * sides.fields * ROWS
    return _U(x_at), _U(sides.y_at + q * sides.still * sides.fields * WIDTH)


@compiled
def load_inputs(out: Array, to: int, sides: Sides, window: Window, height: int, width: int) -> None:
    """Σ_channels x y."""
    apart()
    zero = spread(out.dtype.type(0))
    for row in range(window.top, window.bottom):
        for column in range(window.left, window.right):
            p, q = places(sides, row, column, window, height, width)
            at = _U(to) + _U((row * width + column) * TILE)
            s0, s1, s2, s3 = zero, zero, zero, zero
            for _ in range(sides.fields):
                y = load(sides.y, q)
                s0 = s0 + sides.x[p] * y
                s1 = s1 + sides.x[p + _U(1)] * y
                s2 = s2 + sides.x[p + _U(2)] * y
                s3 = s3 + sides.x[p + _U(3)] * y
                p += _ROWS
                q += _WIDTH
            store(out, at, s0)
            store(out, at + _WIDTH, s1)
            store(out, at + _WIDTH * _U(2), s2)
            store(out, at + _WIDTH * _U(3), s3)


class Taps(NamedTuple):
    """A filter's window: output places, input places, then along each axis taps, stride, dilation, padding before."""

    height: int
    width: int
    in_height: int
    in_width: int
    taps_y: int
    taps_x: int
    step_y: int
    step_x: int
    between_y: int
    between_x: int
    before_y: int
    before_x: int


@in_order
def _add_row(registers: Array, at: Any, row: Array, n: Any, fresh: bool) -> None:
    if fresh:
        for i in range(_U(0), n, LANES):
            store(row, i, load(registers, at + i))
    else:
        for i in range(_U(0), n, LANES):
            store(row, i, load(row, i) + load(registers, at + i))


@compiled
def tap_place(place: int, tap: int, step: int, between: int, before: int, size: int, wraps: bool) -> int:
    """The input place that a tap reads; where borders wrap it always lies inside."""
    at = place * step + tap * between - before
    if wraps:
        if at < 0:
            return at + size
        if at >= size:
            return at - size
    return at


@in_order
def convolve(
    registers: Array, source: int, to: int, row: Array, taps: Taps, inside: Window, window: Window, wraps: bool,
    scale: Any, shift: Any,
) -> None:  # fmt: skip
    """scale Σ_taps + shift; `inside`: the window at the input. Columns of the taps are summed first, one row at a time."""
    apart()
    count = _U((inside.right - inside.left) * TILE)
    zero = spread(registers.dtype.type(0))
    for y in range(window.top, window.bottom):
        fresh = True
        for tap in range(taps.taps_y):
            at = tap_place(y, tap, taps.step_y, taps.between_y, taps.before_y, taps.in_height, wraps)
            if inside.top <= at < inside.bottom:
                start = source + (at * taps.in_width + inside.left) * TILE
                _add_row(registers, _U(start), row, count, fresh)
                fresh = False
        if fresh:
            for i in range(_U(0), count, LANES):
                store(row, i, zero)
        for x in range(window.left, window.right):
            s0, s1, s2, s3 = zero, zero, zero, zero
            for tap in range(taps.taps_x):
                at = tap_place(x, tap, taps.step_x, taps.between_x, taps.before_x, taps.in_width, wraps)
                if inside.left <= at < inside.right:
                    p = _U((at - inside.left) * TILE)
                    s0 = s0 + load(row, p)
                    s1 = s1 + load(row, p + _WIDTH)
                    s2 = s2 + load(row, p + _WIDTH * _U(2))
                    s3 = s3 + load(row, p + _WIDTH * _U(3))
            here = _U(to + (y * taps.width + x) * TILE)
            store(registers, here, s0 * scale + shift)
            store(registers, here + _WIDTH, s1 * scale + shift)
            store(registers, here + _WIDTH * _U(2), s2 * scale + shift)
            store(registers, here + _WIDTH * _U(3), s3 * scale + shift)


@in_order
def mix(
    registers: Array, a: int, b: int, to: int, window: Window, width: int, alpha: Any, beta: Any, shift: Any
) -> None:
    """alpha a + beta b + shift."""
    apart()
    for y in range(window.top, window.bottom):
        start = (y * width + window.left) * TILE
        n = _U((window.right - window.left) * TILE)
        p, q, here = _U(a + start), _U(b + start), _U(to + start)
        for i in range(_U(0), n, LANES):
            store(registers, here + i, load(registers, p + i) * alpha + load(registers, q + i) * beta + shift)


@in_order
def times(registers: Array, a: int, b: int, to: int, window: Window, width: int) -> None:
    """a b."""
    apart()
    for y in range(window.top, window.bottom):
        start = (y * width + window.left) * TILE
        n = _U((window.right - window.left) * TILE)
        p, q, here = _U(a + start), _U(b + start), _U(to + start)
        for i in range(_U(0), n, LANES):
            store(registers, here + i, load(registers, p + i) * load(registers, q + i))


@in_order
def by_sides(
    registers: Array, a: int, to: int, sides: Sides, window: Window, height: int, width: int, alpha: Any, beta: Any
) -> None:
    """a s_x s_y + alpha t_x t_y + beta m_x m_y; fields: s, t, m."""
    apart()
    for row in range(window.top, window.bottom):
        for column in range(window.left, window.right):
            p, q = places(sides, row, column, window, height, width)
            at = _U((row * width + column) * TILE)
            s, t, m = load(sides.y, q), load(sides.y, q + _WIDTH) * alpha, load(sides.y, q + _WIDTH * _U(2)) * beta
            for i in range(ROWS):
                here, x = at + _U(i * WIDTH), p + _U(i)
                value = load(registers, _U(a) + here) * (sides.x[x] * s)
                value = value + sides.x[x + _ROWS] * t + sides.x[x + _ROWS * _U(2)] * m
                store(registers, _U(to) + here, value)
