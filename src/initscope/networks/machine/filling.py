"""Compiled loops over the variances of single inputs: the numbers that `cells` and `rows` lay out for the machine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from initscope.networks.fused.lanes import LANES, apart, load, spread, store
from initscope.networks.fused.loops import Array, compiled, kept
from initscope.networks.machine.cells import DEGREES
from initscope.networks.machine.frames import ROWS

_U = np.uint64
_COUNT = int(LANES)
_SHORT = DEGREES[torch.float32] + 1
DENSITY, ROOT_HALF = 1 / math.sqrt(2 * math.pi), math.sqrt(0.5)
FARTHEST, LEAST = 1e6, 1e-150  # α that is as good as infinite; a standard deviation that is as good as 0


def _horner(degree: int) -> Any:
    """All rows at t cells from the first one on; a degree that is known when it is compiled makes one pass over the rows."""

    @compiled
    def coefficients_at(values: Array, t: float, out: Array) -> None:
        cell = min(max(int(t), 0), values.shape[0] - 1)
        x = 2 * (t - cell) - 1
        rows = values[cell]
        for k in range(values.shape[2]):
            total = rows[0, k]
            for n in range(1, degree + 1):
                total = total * x + rows[n, k]
            out[k] = total

    return coefficients_at


_short, _long = (_horner(DEGREES[dtype]) for dtype in (torch.float32, torch.float64))


@compiled
def coefficients_at(values: Array, t: float, out: Array) -> None:
    if values.shape[1] == _SHORT:
        _short(values, t, out)
    else:
        _long(values, t, out)


@kept
def fill_series(
    a: Array, values: Array, low: float, per: float, zero: int, at_zero: float, shares: Array, exponents: Array, out: Array,
    width: int,
) -> None:  # fmt: skip
    """1/s, the shares c_j s^j and the coefficients of variances (images, places), into (block, place, field, width)."""
    images, count = a.shape
    rows, lead = values.shape[2], 1 + len(shares)
    scaled = np.empty(rows)
    for block in range((images + width - 1) // width):
        lanes = min(width, images - block * width)
        for place in range(count):
            start = (block * count + place) * (lead + rows) * width
            for lane in range(lanes):
                variance = a[block * width + lane, place]
                here = start + lane
                if variance <= 0:
                    for k in range(lead + rows):
                        out[here + k * width] = 0
                    if zero >= 0:
                        out[here + (lead + zero) * width] = at_zero
                    continue
                s = np.sqrt(variance)
                out[here] = 1 / s
                for j in range(len(shares)):
                    out[here + (1 + j) * width] = shares[j] * s ** exponents[j]
                coefficients_at(values, (np.log(variance) / 2 - low) * per, scaled)
                for k in range(rows):
                    out[here + (lead + k) * width] = scaled[k] * s
                if zero >= 0:
                    out[here + (lead + zero) * width] = scaled[zero]


@kept
def sum_squares(
    a: Array, values: Array, low: float, per: float, zero: int, at_zero: float, squares: Array, means: Array
) -> None:
    """Σ a_k² at the variances a, and a_0 where there is one."""
    scaled = np.empty(values.shape[2])
    for i in range(len(a)):
        if a[i] <= 0:
            squares[i] = 0.0
            if zero >= 0:
                squares[i], means[i] = at_zero * at_zero, at_zero
            continue
        coefficients_at(values, (np.log(a[i]) / 2 - low) * per, scaled)
        total = 0.0
        for k in range(len(scaled)):
            total += scaled[k] * scaled[k]
        squares[i] = total * a[i]
        if zero >= 0:
            squares[i] += scaled[zero] * scaled[zero] * (1 - a[i])
            means[i] = scaled[zero]


@compiled
def rows_at(a: Array, t: Array, at: int, values: Array, at_zero: Array, checked: bool, out: Array) -> None:
    """1/s and all rows of `LANES` variances, one row of lanes after the other; four rows take turns.

    `checked`: there are no variances of zero, nor negative ones, which stand for nothing.
    """
    apart()
    x, one = load(t, _U(at)), spread(1.0)
    store(out, _U(0), one / np.sqrt(load(a, _U(at))))
    rows, terms = values.shape[1], values.shape[0]
    nothing = x * 0.0
    for r in range(0, rows, 4):
        i, j, k = min(r + 1, rows - 1), min(r + 2, rows - 1), min(r + 3, rows - 1)
        s0, s1, s2, s3 = nothing + values[0, r], nothing + values[0, i], nothing + values[0, j], nothing + values[0, k]
        for n in range(1, terms):
            s0, s1 = s0 * x + values[n, r], s1 * x + values[n, i]
            s2, s3 = s2 * x + values[n, j], s3 * x + values[n, k]
        store(out, _U((1 + r) * _COUNT), s0)
        store(out, _U((1 + i) * _COUNT), s1)
        store(out, _U((1 + j) * _COUNT), s2)
        store(out, _U((1 + k) * _COUNT), s3)
    if not checked:
        for lane in range(_COUNT):
            variance = a[at + lane]
            if variance <= 0:
                out[lane] = 0.0
                for r in range(rows):
                    out[(1 + r) * _COUNT + lane] = at_zero[r] if variance == 0 else 0.0


def _columns_of(width: int) -> Any:
    """Numbers (field, variance) into (block, field, lane); a width that is known when it is compiled moves lanes at once."""

    @compiled
    def move(made: Array, out: Array, start: int, fields: int, count: int) -> None:
        for first in range(0, count, width):
            here = (start + first) * fields
            for r in range(fields):
                for lane in range(width):
                    out[_U(here + r * width + lane)] = made[_U(r * _COUNT + first + lane)]

    return move


_in_rows, _in_lanes = _columns_of(ROWS), _columns_of(_COUNT)


@kept
def fill_rows(a: Array, t: Array, values: Array, at_zero: Array, checked: bool, out: Array, width: int) -> None:
    """1/s and the rows of variances in the order (block, place, lane), into (block, place, field, lane), `width` lanes wide."""
    fields = values.shape[1] + 1
    made = np.empty(fields * _COUNT)
    total = len(out) // fields
    for start in range(0, total, _COUNT):
        rows_at(a, t, start, values, at_zero, checked, made)
        count = min(_COUNT, total - start)
        if width == ROWS:
            _in_rows(made, out, start, fields, count)
        elif width == _COUNT:
            _in_lanes(made, out, start, fields, count)
        else:
            for first in range(0, count, width):
                here = (start + first) * fields
                for r in range(fields):
                    for lane in range(width):
                        out[here + r * width + lane] = made[r * _COUNT + first + lane]


@kept
def fill_moments(a: Array, t: Array, values: Array, at_zero: Array, checked: bool, out: Array) -> None:
    """The rows alone, (rows, variances)."""
    rows, total = values.shape[1], out.shape[1]
    made = np.empty((rows + 1) * _COUNT)
    for start in range(0, total, _COUNT):
        rows_at(a, t, start, values, at_zero, checked, made)
        for r in range(rows):
            for i in range(min(_COUNT, total - start)):
                out[r, start + i] = made[(1 + r) * _COUNT + i]


@kept
def interleave(x: Array, y: Array, first: int) -> None:
    """Blocks (block, number, ROWS) of x from block `first` on as blocks (block, number, WIDTH) of y; zeros behind the last."""
    per, numbers = y.shape[2] // x.shape[2], y.shape[1]
    width = x.shape[2]
    for block in range(y.shape[0]):
        for part in range(per):
            source = first + block * per + part
            for n in range(numbers):
                for lane in range(width):
                    y[block, n, part * width + lane] = x[source, n, lane] if source < x.shape[0] else 0


@kept
def fill_hinges(
    a: Array, table: Array, center: Array, low: float, high: float, per: float, values: Array, starts: Array,
    out: Array, width: int,
) -> None:  # fmt: skip
    """What `hinge_cells` says of variances (images, places), into (block, place, field, width)."""
    images, count = a.shape
    fields = starts[-1]
    hinges, cells, places = np.zeros((table.shape[0], 3, width)), np.zeros(width, np.int64), np.zeros(width)
    deviations, logs, shares = np.zeros(width), np.zeros(width), np.zeros(width)
    for block in range((images + width - 1) // width):
        lanes = min(width, images - block * width)
        for place in range(count):
            start = (block * count + place) * fields * width
            for lane in range(lanes):
                s = np.sqrt(max(a[block * width + lane, place], 0.0))
                deviations[lane], logs[lane] = s, np.log(max(s, LEAST))
                out[start + lane], out[start + width + lane] = 1 / s if s > 0 else 0.0, s
            for i in range(table.shape[0]):
                at, h = start + starts[i] * width, table[i, 0]
                if h > 0:
                    for lane in range(lanes):
                        hinges[i, 0, lane] = min(h / max(deviations[lane], LEAST), FARTHEST)
                        log_alpha = np.log(h) - logs[lane]
                        shares[lane] = np.exp(min(log_alpha - low, 0.0))  # B is proportional to α below
                        cells[lane], places[lane] = _cell(min(max(log_alpha, low), high) - low, per, values.shape[0])
                    _either_columns(values, cells, places, shares, lanes, out, at + 3 * width, width)
                for lane in range(lanes):
                    _edge(hinges[i, 0, lane], hinges, i, lane)
                    for k in range(3):
                        out[at + k * width + lane] = hinges[i, k, lane]
            for lane in range(lanes):
                _hermite(deviations[lane], table, center, hinges, lane, out, start + 2 * width + lane, width)


@compiled
def _cell(log: float, per: float, count: int) -> tuple[int, float]:
    """The cell of a logarithm and the place in it, from -1 to 1."""
    cell = min(int(log * per), count - 1)
    return cell, 2 * (log * per - cell) - 1


def _columns(degree: int) -> Any:
    """Polynomials of one cell for each lane; a degree that is known when it is compiled needs no inner loop."""

    @compiled
    def evaluate(
        values: Array, cells: Array, places: Array, shares: Array, lanes: int, out: Array, at: int, width: int
    ) -> None:  # fmt: skip
        for k in range(values.shape[2]):
            for lane in range(lanes):
                cell, x = cells[lane], places[lane]
                total = values[cell, 0, k]
                for n in range(1, degree + 1):
                    total = total * x + values[cell, n, k]
                out[at + k * width + lane] = total * shares[lane]

    return evaluate


_short_columns, _long_columns = (_columns(DEGREES[dtype]) for dtype in (torch.float32, torch.float64))


@compiled
def _either_columns(
    values: Array, cells: Array, places: Array, shares: Array, lanes: int, out: Array, at: int, width: int
) -> None:  # fmt: skip
    if values.shape[1] == _SHORT:
        _short_columns(values, cells, places, shares, lanes, out, at, width)
    else:
        _long_columns(values, cells, places, shares, lanes, out, at, width)


@compiled
def _edge(alpha: float, hinges: Array, i: int, lane: int) -> None:
    """φ(α) and Φ(-α)."""
    fall = np.exp(-alpha * alpha / 2) * DENSITY
    hinges[i, 1, lane], hinges[i, 2, lane] = fall, math.erfc(alpha * ROOT_HALF) / 2


@compiled
def _hermite(s: float, table: Array, center: Array, hinges: Array, lane: int, out: Array, at: int, width: int) -> None:
    """The first Hermite coefficients of f and of its hinges."""
    e0, e1, e2 = 0.0, 0.0, 0.0
    variance = s * s
    for i in range(table.shape[0]):
        alpha, density, beyond = hinges[i, 0, lane], hinges[i, 1, lane], hinges[i, 2, lane]
        first, second = density - alpha * beyond, (1 + alpha * alpha) * beyond - alpha * density
        for side in range(2):
            c, d, sign = table[i, 1 + 2 * side] * s, table[i, 2 + 2 * side] * variance, 1.0 - 2 * side
            e0 += c * first + d * second
            e1 += sign * (c * beyond + 2 * d * first)
            e2 += (c * density + 2 * d * beyond) * ROOT_HALF
    out[at], out[at + width] = center[0] + center[2] * variance + e0, center[1] * s + e1
    out[at + 2 * width] = 2 * ROOT_HALF * center[2] * variance + e2
    out[at + 3 * width], out[at + 4 * width], out[at + 5 * width] = e0, e1, e2
