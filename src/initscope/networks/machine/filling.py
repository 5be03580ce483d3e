"""Compiled loops over the variances of single inputs: the numbers that `cells` lays out for the machine."""

from __future__ import annotations

import numpy as np

from initscope.networks.fused.loops import Array, compiled, kept


@compiled
def coefficients_at(values: Array, t: float, out: Array) -> None:
    """All rows at t cells from the first one on."""
    cell = min(max(int(t), 0), values.shape[0] - 1)
    x = 2 * (t - cell) - 1
    for k in range(values.shape[2]):
        out[k] = values[cell, 0, k]
    for n in range(1, values.shape[1]):
        for k in range(values.shape[2]):
            out[k] = out[k] * x + values[cell, n, k]


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
                coefficients_at(values, (np.log(s) - low) * per, scaled)
                for k in range(rows):
                    out[here + (lead + k) * width] = scaled[k] * s
                if zero >= 0:
                    out[here + (lead + zero) * width] = scaled[zero]


@kept
def sum_squares(a: Array, values: Array, low: float, per: float, zero: int, at_zero: float, out: Array) -> None:
    """Σ a_k² at the variances a."""
    scaled = np.empty(values.shape[2])
    for i in range(len(a)):
        if a[i] <= 0:
            out[i] = at_zero * at_zero if zero >= 0 else 0.0
            continue
        s = np.sqrt(a[i])
        coefficients_at(values, (np.log(s) - low) * per, scaled)
        total = 0.0
        for k in range(len(scaled)):
            total += scaled[k] * scaled[k]
        if zero >= 0:
            total += scaled[zero] * scaled[zero] * (1 / a[i] - 1)
        out[i] = total * a[i]
