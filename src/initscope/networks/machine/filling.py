"""Compiled loops over the variances of single inputs: the numbers that `cells` lays out for the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from initscope.networks.fused.loops import Array, compiled, kept
from initscope.networks.machine.cells import DEGREES

_SHORT = DEGREES[torch.float32] + 1
DENSITY = 1 / np.sqrt(2 * np.pi)
FARTHEST, NEAR, LEAST = (
    1e6,
    16.0,
    1e-150,
)  # α that is as good as infinite, where `owen` ends; a standard deviation above 0


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
    a: Array, table: Array, center: Array, low: float, high: float, per: float, values: Array, order: int, out: Array,
    width: int,
) -> None:  # fmt: skip
    """What `hinge_cells` says of variances (images, places), into (block, place, field, width)."""
    images, count = a.shape
    each = 3 + values.shape[2]
    fields = 8 + table.shape[0] * each
    numbers, logs = np.zeros(fields), np.log(np.maximum(table[:, 0], 1e-300))
    for block in range((images + width - 1) // width):
        lanes = min(width, images - block * width)
        for place in range(count):
            start = (block * count + place) * fields * width
            for lane in range(lanes):
                variance = max(a[block * width + lane, place], 0.0)
                s = np.sqrt(variance)
                log_s = np.log(max(s, LEAST))
                for i in range(table.shape[0]):
                    at = 8 + i * each
                    if table[i, 0] > 0:
                        numbers[at] = min(table[i, 0] / max(s, LEAST), FARTHEST)
                        _hinge_at(logs[i] - log_s, low, high, per, values, order, numbers, at)
                    else:  # B is zero
                        numbers[at + 1], numbers[at + 2] = DENSITY, 0.5
                _hermite(variance, s, table, center, each, numbers)
                for k in range(fields):
                    out[start + k * width + lane] = numbers[k]


@compiled
def _hinge_at(
    t: float, low: float, high: float, per: float, values: Array, order: int, numbers: Array, at: int
) -> None:  # fmt: skip
    """φ(α), Φ(-α) and B behind α, whose logarithm is t."""
    alpha, place = numbers[at], (min(max(t, low), high) - low) * per
    cell = min(int(place), values.shape[0] - 1)
    x, first = 2 * (place - cell) - 1, at + 3
    for k in range(values.shape[2]):
        numbers[first + k] = values[cell, 0, k]
    for n in range(1, values.shape[1]):
        for k in range(values.shape[2]):
            numbers[first + k] = numbers[first + k] * x + values[cell, n, k]
    if t < low:  # B is proportional to α
        share = np.exp(t - low)
        for k in range(values.shape[2]):
            numbers[first + k] *= share
    z = min(alpha, NEAR) ** 2 / 2
    w = 1 + z if order == 1 else 1 + z + z * z / 2
    fall = np.exp(-alpha * alpha / 2)
    numbers[at + 1], numbers[at + 2] = fall * DENSITY, fall * (2 * numbers[first] + w / 2)


@compiled
def _hermite(variance: float, s: float, table: Array, center: Array, each: int, numbers: Array) -> None:
    """1/s, s and the first Hermite coefficients of f and of its hinges."""
    e0, e1, e2 = 0.0, 0.0, 0.0
    for i in range(table.shape[0]):
        at = 8 + i * each
        alpha, density, beyond = numbers[at], numbers[at + 1], numbers[at + 2]
        first, second = density - alpha * beyond, (1 + alpha * alpha) * beyond - alpha * density
        for side in range(2):
            c, d, sign = table[i, 1 + 2 * side] * s, table[i, 2 + 2 * side] * variance, 1.0 - 2 * side
            e0 += c * first + d * second
            e1 += sign * (c * beyond + 2 * d * first)
            e2 += (c * density + 2 * d * beyond) / np.sqrt(2.0)
    numbers[0] = 1 / s if s > 0 else 0.0
    numbers[1] = s
    numbers[2], numbers[3] = center[0] + center[2] * variance + e0, center[1] * s + e1
    numbers[4] = np.sqrt(2.0) * center[2] * variance + e2
    numbers[5], numbers[6], numbers[7] = e0, e1, e2
