"""The constant C of Theorem 4.4 in closed form: Gaussian images, a ReLU convolution on the torus, the global mean.

Given the filter W, the responses at two positions of a white image are Gaussian with variance |W|² and covariance
<W, W shifted by the lag>, and those of two independent images are independent. With c the covariance over |W|²,

    E r(u) r(v) = k²/2 · E r̂(c),   so   C = (d²/π) / Σ_lags E r̂(c_lag),   E r̂ = 1/π for lags where the windows are apart.

c = u'Tu on the sphere, T the symmetric part of the shift; r̂ is a power series with positive coefficients, and the moments of
a quadratic form follow from the power sums of its eigenvalues, all positive: no digits are lost.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
from numpy.typing import NDArray

from initscope.errors import BadInput

Vector = NDArray[np.float64]
_TERMS = 400


@functools.cache
def arc_cosine_series() -> tuple[float, ...]:
    """b_m in π r̂(c) = 1 + π c/2 + Σ_{m>=1} b_m c^(2m), from r̂'' = 1 / (π √(1 - c²)).

    >>> arc_cosine_series()[:2]
    (0.5, 0.041666666666666664)
    """
    found, central = [], 1.0  # central: binom(2j, j) / 4^j
    for j in range(_TERMS):
        found.append(central / ((2 * j + 1) * (2 * j + 2)))
        central *= (2 * j + 1) / (2 * j + 2)
    return tuple(found)


def even_moments(eigenvalues: Vector) -> Vector:
    """E c^(2m), m = 1, 2, ..., of c = Σ λ_i u_i² with u uniform on the sphere and eigenvalues symmetric about zero.

    With p_j = Σ λ^j, n G_n = ½ Σ_j p_j G_{n-j} and E c^n = n! G_n / (N/2)_n.

    >>> round(float(even_moments(np.array([0.5, -0.5]))[0]), 12)
    0.125
    """
    squares, counts = np.unique((eigenvalues**2).round(15), return_counts=True)
    power_sums, g, found = np.zeros(_TERMS), np.zeros(_TERMS + 1), np.zeros(_TERMS)
    powers, scale = counts.astype(np.float64), 1.0
    g[0] = 1.0
    for m in range(1, _TERMS + 1):
        powers = powers * squares
        power_sums[m - 1] = powers.sum()  # p_2, p_4, ...; odd ones vanish
        g[m] = power_sums[:m] @ g[m - 1 :: -1] / (4 * m)
        for n in (2 * m - 1, 2 * m):
            scale *= n / (len(eigenvalues) / 2 + n - 1)
        found[m - 1] = g[m] * scale
        if found[m - 1] < 1e-18 * found[0]:
            return found[:m]
    return found


def shift_eigenvalues(kernel: int, lag: tuple[int, int]) -> Vector:
    """Of the symmetric part of a shift on a grid: the grid falls into paths, a path of L has cos(π m / (L+1)), m = 1 .. L.

    >>> shift_eigenvalues(2, (0, 1)).round(3)
    array([ 0.5, -0.5,  0.5, -0.5])
    """
    lengths = []
    for cell in itertools.product(range(kernel), repeat=2):
        if cell[0] < lag[0] or cell[1] < lag[1]:  # no cell before it: a path begins
            lengths.append(1 + min((kernel - 1 - c) // step for c, step in zip(cell, lag, strict=True) if step))
    return np.concatenate([np.cos(np.pi * np.arange(1, length + 1) / (length + 1)) for length in lengths])


def excess(kernel: int, lag: tuple[int, int]) -> float:
    """π E r̂(c_lag) - 1 for a Gaussian filter of `kernel` x `kernel`; π - 1 at lag zero.

    >>> excess(3, (0, 0)) + 1 == math.pi
    True
    """
    if lag == (0, 0):
        return math.pi - 1
    moments = even_moments(shift_eigenvalues(kernel, lag))
    return float(np.dot(arc_cosine_series()[: len(moments)], moments))


def pooled_defect(side: int, kernel: int) -> float:
    """1 - C of Theorem 4.4 for white Gaussian images of `side` x `side` and filters of `kernel` x `kernel`.

    >>> round(pooled_defect(4, 1) * (math.pi + 15) - math.pi + 1, 12)
    0.0
    """
    if side < 2 * kernel - 1:
        problem = f"windows of {kernel}x{kernel} meet twice on a torus of {side}x{side}"
        raise BadInput("pooled_defect", problem, f"use images of at least {2 * kernel - 1}")
    total = excess_sum(kernel)
    return total / (side**2 + total)


@functools.cache
def excess_sum(kernel: int) -> float:
    """Σ over all lags of π E r̂ - 1, which lags apart do not add to: d² (1 - C) tends to it.

    Lags come in fours of one value: signs only transpose or mirror the filter.
    """
    total = 0.0
    for i in range(kernel):
        for j in range(kernel):
            total += (1 if i == 0 else 2) * (1 if j == 0 else 2) * excess(kernel, (i, j))
    return total
