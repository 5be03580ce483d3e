"""The compiled loop over displacements and steps: one call for each tile."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from initscope.networks.fused.lanes import LANES, apart, load, spread, store, uncounted
from initscope.networks.fused.loops import Array, compiled, in_order, kept
from initscope.networks.machine import bends, kinked, mode_bends, series_bends
from initscope.networks.machine.frames import TILE, WIDTH, Code, Step
from initscope.networks.machine.steps import Sides, Taps, Window, by_sides, convolve, load_inputs, mix, partner, times

_U = np.uint64
(
    _LOAD, _FETCH, _CONV, _MIX, _SIDES, _TIMES, _TOTAL, _POOL, _BEND, _ARC, _GELU, _SERIES, _BENT, _MODES, _HINGES
) = (int(c) for c in Code)  # fmt: skip
(
    _CODE, _OUT, _A, _B, _SLOPE_A, _SLOPE_OUT, _HEIGHT, _WIDE, _STRIDE_Y, _STRIDE_X, _FIELDS, _EVEN, _ODD, _IN_HEIGHT,
    _IN_WIDTH, _TAPS_Y, _TAPS_X, _STEP_Y, _STEP_X, _BETWEEN_Y, _BETWEEN_X, _BEFORE_Y, _BEFORE_X,
) = range(len(Step._fields))  # fmt: skip


class Stores(NamedTuple):
    """Where steps read and write beside the registers, which hold `size` numbers each.

    `row`: one row of a window; `source`: pairs of places that an average over windows left; `pairs`: those that this segment
    leaves; `sums`: (2, TILE) totals.
    """

    size: int
    row: Array
    source: Array
    source_size: int
    pairs: Array
    pairs_size: int
    sums: Array


@compiled
def window_of(height: int, width: int, down: int, across: int, wraps: bool) -> Window:
    """The places of x that have a partner."""
    if wraps:
        return Window(0, height, 0, width, down, across)
    return Window(max(0, -down), min(height, height - down), max(0, -across), min(width, width - across), down, across)


@in_order
def add_total(registers: Array, a: int, window: Window, width: int, weight: float, sums: Array, at: int) -> None:
    """Sums over the window, rows in the type of the registers, the rest in float64."""
    zero = spread(registers.dtype.type(0))
    row_sum = np.empty(TILE, registers.dtype)
    for y in range(window.top, window.bottom):
        for i in range(0, TILE, WIDTH):
            part = zero
            for x in range(window.left, window.right):
                part = part + load(registers, _U(a + (y * width + x) * TILE + i))
            store(row_sum, _U(i), part)
        for i in range(TILE):
            sums[at + i] += weight * row_sum[i]


@in_order
def pool(
    registers: Array, a: int, window: Window, height: int, width: int, taps: Taps, weight: Any, pairs: Array, to: int
) -> None:
    """Adds what lies in a window of x and in a window of y to the store (windows of x, windows of y)."""
    apart()
    for row in range(window.top, window.bottom):
        q_row = partner(row, window.down, height)
        p_first, p_last = covering(row + taps.before_y, taps.taps_y, taps.step_y, taps.height)
        q_first, q_last = covering(q_row + taps.before_y, taps.taps_y, taps.step_y, taps.height)
        for p_y in range(p_first, p_last):
            for q_y in range(q_first, q_last):
                pool_row(registers, a, row, p_y, q_y, window, width, taps, weight, pairs, to)


@in_order
def pool_row(
    registers: Array, a: int, row: int, p_y: int, q_y: int, window: Window, width: int, taps: Taps, weight: Any,
    pairs: Array, to: int,
) -> None:  # fmt: skip
    """One row of x, to one row of windows of x and one of y."""
    count = taps.height * taps.width
    for column in range(window.left, window.right):
        q_column = partner(column, window.across, width)
        p_first, p_last = covering(column + taps.before_x, taps.taps_x, taps.step_x, taps.width)
        q_first, q_last = covering(q_column + taps.before_x, taps.taps_x, taps.step_x, taps.width)
        here = _U(a + (row * width + column) * TILE)
        for p_x in range(p_first, p_last):
            for q_x in range(q_first, q_last):
                there = _U(to + ((p_y * taps.width + p_x) * count + q_y * taps.width + q_x) * TILE)
                for i in range(_U(0), _U(TILE), LANES):
                    store(pairs, there + i, load(pairs, there + i) + weight * load(registers, here + i))


@compiled
def covering(place: int, taps: int, step: int, count: int) -> tuple[int, int]:
    """The windows that a padded place lies in, the first and the one behind the last."""
    last = place // step
    first = (place - taps) // step + 1
    return max(first, 0), min(last + 1, count)


@in_order
def fetch(pairs: Array, at: int, registers: Array, to: int, window: Window, height: int, width: int) -> None:
    """One displacement of the store (places of x, places of y)."""
    count = height * width
    for row in range(window.top, window.bottom):
        q_row = partner(row, window.down, height)
        for column in range(window.left, window.right):
            q = q_row * width + partner(column, window.across, width)
            p = row * width + column
            for i in range(0, TILE, WIDTH):
                value = load(pairs, _U(at + (p * count + q) * TILE + i))
                store(registers, _U(to + p * TILE + i), value)


@compiled
def taps_of(s: Array, height: int, width: int, in_height: int, in_width: int) -> Taps:
    return Taps(
        height, width, in_height, in_width, s[_TAPS_Y], s[_TAPS_X], s[_STEP_Y], s[_STEP_X], s[_BETWEEN_Y], s[_BETWEEN_X],
        s[_BEFORE_Y], s[_BEFORE_X],
    )  # fmt: skip


@compiled
def combine(s: Array, n: Array, registers: Array, sides: Sides, window: Window, size: int) -> None:
    """A step that makes one register of others, place by place."""
    code, height, width = s[_CODE], s[_HEIGHT], s[_WIDE]
    out, a, b = s[_OUT] * size, s[_A] * size, s[_B] * size
    if code == _MIX:
        mix(registers, a, b, out, window, width, n[0], n[1], n[2])
    elif code == _SIDES:
        by_sides(registers, a, out, sides, window, height, width, n[0], n[1])
    elif code == _TIMES:
        times(registers, a, b, out, window, width)
    else:
        load_inputs(registers, out, sides, window, height, width)


@compiled
def carry(s: Array, n: Array, registers: Array, window: Window, stores: Stores, weight: float, wraps: bool) -> None:
    """A step between places, or between registers and what lies beside them."""
    code, height, width = s[_CODE], s[_HEIGHT], s[_WIDE]
    out, a = s[_OUT] * stores.size, s[_A] * stores.size
    if code == _CONV:
        taps = taps_of(s, height, width, s[_IN_HEIGHT], s[_IN_WIDTH])
        inside = window_of(taps.in_height, taps.in_width, window.down * taps.step_y, window.across * taps.step_x, wraps)
        convolve(registers, a, out, stores.row, taps, inside, window, wraps, n[0], n[1])
    elif code == _FETCH:
        fetch(stores.source, s[_A] * stores.source_size, registers, out, window, height, width)
    elif code == _TOTAL:
        add_total(registers, a, window, width, weight, stores.sums, s[_OUT] * TILE)
    else:
        taps = taps_of(s, s[_IN_HEIGHT], s[_IN_WIDTH], height, width)
        pool(registers, a, window, height, width, taps, n[0], stores.pairs, s[_OUT] * stores.pairs_size)


def _activations(slopes: bool) -> Any:
    """The step of any activation, for products alone or for tangent kernels too."""
    bend, arc, gelu = bends.bend[slopes], bends.arc[slopes], bends.gelu[slopes]
    series, bent_series = series_bends.series[slopes], series_bends.bent_series[slopes]
    modes = mode_bends.modes[slopes]
    hinges = kinked.hinges[slopes]

    @compiled
    def activate(s: Array, n: Array, registers: Array, sides: Sides, window: Window, size: int) -> None:
        code, height, width, even, odd = s[_CODE], s[_HEIGHT], s[_WIDE], s[_EVEN], s[_ODD]
        out, a, b, to = s[_OUT] * size, s[_A] * size, s[_SLOPE_A] * size, s[_SLOPE_OUT] * size
        if code == _BEND:
            bend(registers, a, out, b, to, sides, window, height, width, even, odd, n)
        elif code == _SERIES:
            series(registers, a, out, b, to, sides, window, height, width, even, odd, n)
        elif code == _MODES:
            modes(registers, a, out, b, to, sides, window, height, width, even, odd, n)
        elif code == _BENT:
            bent_series(registers, a, out, b, to, sides, window, height, width, even, odd, n)
        elif code == _HINGES:
            hinges(registers, a, out, b, to, sides, window, height, width, even, odd, n)
        elif code == _GELU:
            gelu(registers, a, out, b, to, sides, window, height, width, even, odd, n)
        else:
            arc(registers, a, out, b, to, sides, window, height, width, even, odd, n)

    return activate


def _make(slopes: bool) -> Any:
    """The loop over steps, for products alone or for tangent kernels too."""
    activate = _activations(slopes)

    @compiled
    def loop(
        steps: Array, constants: Array, x: Array, y: Array, x_at: Array, y_at: Array, still: int, moves: Array,
        wraps: bool, registers: Array, stores: Stores,
    ) -> None:  # fmt: skip
        """All steps at all displacements (n, 3: down, across, weight) of one tile.

        `x_at`, `y_at`: where each step's numbers of the inputs begin.
        """
        for move in range(moves.shape[0]):
            for k in range(steps.shape[0]):
                s, n = steps[k], constants[k]
                down, across = moves[move, 0] // s[_STRIDE_Y], moves[move, 1] // s[_STRIDE_X]
                window = window_of(s[_HEIGHT], s[_WIDE], down, across, wraps)
                sides = Sides(x, y, x_at[k], y_at[k], s[_FIELDS], still)
                if s[_CODE] >= _BEND:
                    activate(s, n, registers, sides, window, stores.size)
                elif s[_CODE] in (_CONV, _FETCH, _TOTAL, _POOL):
                    carry(s, n, registers, window, stores, np.float64(moves[move, 2]), wraps)
                else:
                    combine(s, n, registers, sides, window, stores.size)

    return loop


_products, _tangents = _make(False), _make(True)


@kept
def run_products(
    steps: Array, constants: Array, x: Array, y: Array, x_at: Array, y_at: Array, still: int, moves: Array, wraps: bool,
    registers: Array, stores: Stores,
) -> None:  # fmt: skip
    """The loop without tangent kernels."""
    x, y, registers = uncounted(x), uncounted(y), uncounted(registers)
    _products(steps, constants, x, y, x_at, y_at, still, moves, wraps, registers, stores)


@kept
def run_tangents(
    steps: Array, constants: Array, x: Array, y: Array, x_at: Array, y_at: Array, still: int, moves: Array, wraps: bool,
    registers: Array, stores: Stores,
) -> None:  # fmt: skip
    """The loop with tangent kernels."""
    x, y, registers = uncounted(x), uncounted(y), uncounted(registers)
    _tangents(steps, constants, x, y, x_at, y_at, still, moves, wraps, registers, stores)
