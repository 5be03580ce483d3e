"""Compiled loops over the variances of single inputs: the numbers that `cells` lays out for the machine."""

from __future__ import annotations

from math import erfc
from typing import Any

import numpy as np
import torch

from initscope.networks.fused.loops import Array, compiled, kept
from initscope.networks.machine.cells import DEGREES

_SHORT = DEGREES[torch.float32] + 1
FARTHEST, NEAR = 1e6, 25.0  # α beyond it is as good as infinite; beyond it e^(α²/2) leaves the range


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


@kept
def fill_hinges(
    a: Array, table: Array, center: Array, low: float, high: float, per: float, values: Array, order: int, out: Array, width: int
) -> None:
    """What `HingeCells` says of variances (images, places), into (block, place, field, width)."""
    images, count = a.shape
    terms, groups = values.shape[2], table.shape[0]
    each = 4 + terms
    numbers = np.empty(8 + groups * each)
    for block in range((images + width - 1) // width):
        for place in range(count):
            start = (block * count + place) * len(numbers) * width
            for lane in range(min(width, images - block * width)):
                _hinges_at(a[block * width + lane, place], table, center, low, high, per, values, order, numbers)
                for k in range(len(numbers)):
                    out[start + k * width + lane] = numbers[k]


@compiled
def _hinges_at(
    variance: float, table: Array, center: Array, low: float, high: float, per: float, values: Array, order: int, numbers: Array
) -> None:
    s = np.sqrt(max(variance, 0.0))
    numbers[0] = 1 / s if s > 0 else 0.0
    numbers[1] = s
    p0, p1, p2 = center[0] + center[2] * variance, center[1] * s, np.sqrt(2.0) * center[2] * variance
    e0, e1, e2 = 0.0, 0.0, 0.0
    each = 4 + values.shape[2]
    for i in range(table.shape[0]):
        alpha = min(table[i, 0] / max(s, 1e-30), FARTHEST) if table[i, 0] > 0 else 0.0
        density, beyond = np.exp(-alpha * alpha / 2) / np.sqrt(2 * np.pi), erfc(alpha / np.sqrt(2.0)) / 2
        at = 8 + i * each
        numbers[at], numbers[at + 1], numbers[at + 2] = alpha, density, beyond
        bounded = min(alpha, NEAR)
        z, w, term = bounded * bounded / 2, 1.0, 1.0
        for n in range(1, order + 1):
            term *= z / n
            w += term
        numbers[at + 3] = erfc(bounded / np.sqrt(2.0)) * np.exp(z) / 4 - w / 4
        if alpha > 0:
            t = np.log(alpha)
            coefficients_at(values, (min(max(t, low), high) - low) * per, numbers[at + 4 : at + each])
            if t < low:  # B is proportional to α
                for n in range(at + 4, at + each):
                    numbers[n] *= np.exp(t - low)
        else:
            numbers[at + 3 : at + each] = 0.0
        first, second = density - alpha * beyond, (1 + alpha * alpha) * beyond - alpha * density
        for side in range(2):
            c, d, sign = table[i, 1 + 2 * side] * s, table[i, 2 + 2 * side] * variance, 1.0 - 2 * side
            e0 += c * first + d * second
            e1 += sign * (c * beyond + 2 * d * first)
            e2 += (c * density + 2 * d * beyond) / np.sqrt(2.0)
    numbers[2], numbers[3], numbers[4] = p0 + e0, p1 + e1, p2 + e2
    numbers[5], numbers[6], numbers[7] = e0, e1, e2
