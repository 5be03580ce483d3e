"""Compiled loops over the variances of single inputs: the numbers that `cells` lays out for the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from initscope.networks.fused.loops import Array, compiled, kept
from initscope.networks.machine.cells import DEGREES

_SHORT = DEGREES[torch.float32] + 1


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
