"""One layer of 3 x 3 taps and nothing behind it but the mean: no state is kept, only sums.

What the tangent kernel needs of `psi` and of angles is here as well, for these sums and for `tangent_loops`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.extending import overload

from initscope.networks.fused.loops import (
    BLOCK,
    CHUNK,
    Array,
    activate_sum,
    combine,
    compiled,
    cosine,
    distance_angle,
    rounded,
    sum_taps,
)
from initscope.networks.fused.psi import SLOPES_32, SLOPES_64

_S0, _S1, _S2, _S3, _S4, _S5, _S6 = (np.float32(c) for c in SLOPES_32)
_D0, _D1, _D2, _D3, _D4, _D5, _D6, _D7, _D8, _D9, _D10, _D11, _D12, _D13, _D14, _D15, _D16 = SLOPES_64
_HALF, _ONE = np.float32(0.5), np.float32(1)
STRIP = 16  # rows of a strip; times an even stride they are a multiple of CHUNK


def psi_slope(u: Any) -> Any:
    """`psi'(u) = (4/pi) asin √u` for u in [0, 1], with the root that `psi` has; only callable from compiled code."""
    raise NotImplementedError


@overload(psi_slope)
def _psi_slope_for(u: Any) -> Any:
    def single(u: Any) -> Any:
        m = min(u, _ONE - u)
        h = _S0 + m * (_S1 + m * (_S2 + m * (_S3 + m * (_S4 + m * (_S5 + m * _S6)))))
        return _ONE - np.copysign(_ONE - np.sqrt(abs(m)) * h, _HALF - u)  # without a choice: √m h, or 2 - √m h

    def double(u: Any) -> Any:
        m = min(u, 1.0 - u)
        h = _D8 + m * (_D9 + m * (_D10 + m * (_D11 + m * (_D12 + m * (_D13 + m * (_D14 + m * (_D15 + m * _D16)))))))
        h = _D0 + m * (_D1 + m * (_D2 + m * (_D3 + m * (_D4 + m * (_D5 + m * (_D6 + m * (_D7 + m * h)))))))
        low = np.sqrt(abs(m)) * h
        return low if u <= 0.5 else 2.0 - low

    return single if u == numba.types.float32 else double


@compiled
def angle(value: Any, a: Any, b: Any, law: tuple[Any, ...], distance: bool) -> Any:
    """u: of a distance sin²(t/2), of a product cos²(t/2)."""
    return distance_angle(value, a, b, law) if distance else (law[8] + cosine(value, a * b, law)) * law[5]


@compiled
def tangent_sum(
    x: Array, a: Array, a_at: int, b: Array, b_at: int, law: tuple[Any, ...], factor: Any, distance: bool, n: int
) -> float:  # fmt: skip
    """Sum over n places of the tangent kernel behind a first layer of 3 taps without bias; see `tangent_loops`.

    Divided, not multiplied by inverse norms as in `activate_sum`: terms of both signs leave fewer digits.
    """
    scale, shift, alpha, bend, one, result = law[0], law[1], law[2], law[3] * law[5], law[8], 0.0
    for start in range(0, n, BLOCK):
        part, x0, x1, x2 = law[7], np.uint64(start), np.uint64(start + 1), np.uint64(start + 2)
        a0, b0 = np.uint64(a_at + start), np.uint64(b_at + start)
        for i in range(np.uint64(min(BLOCK, n - start))):
            left, right = a[a0 + i], b[b0 + i]
            u = angle(scale * (x[x0 + i] + x[x1 + i] + x[x2 + i]) + shift, left, right, law, distance)
            cos = one - u - u if distance else u + u - one
            part += (left * right) * cos * (alpha + bend * psi_slope(u))
        result += np.float64(part)
    return np.float64(factor) * result


@compiled
def one_layer_sum(
    x: Array, x_norms: Array, y: Array, y_norms: Array, i: int, j: int, shifts: Array, weights: Array, shape: Array,
    frame: Array, law: tuple[Any, ...], factor: Any, state: Array, columns: Array,
) -> float:  # fmt: skip
    """Weighted sum over the windows of a pair of the product, or with a factor of the tangent kernel; alpha or the bias is 0.

    Strip after strip of all windows: what two strips need stays in the first cache. Between the rows |a| is 0.
    """
    stride, border, distance, tangent = frame[1], frame[2], frame[4] != 0, factor != 0
    channels, x_size, y_size = shape[0], shape[1], shape[2]
    above, result = 2 - 2 * border, 0.0  # rows that only go in
    for start in range(0, shape[5] - above, STRIP):
        for s in range(shifts.shape[0]):
            rows = min(STRIP, shifts[s, 2] - above - start)
            if weights[s] == 0.0 or rows <= 0:
                continue
            left, right = (shifts[s, 0] + start) * stride, (shifts[s, 1] + start) * stride
            n, places = rounded(rows * stride), rows * stride
            x_at, y_at = i * channels * x_size + left, j * channels * y_size + right
            combine(x, x_at, x_size, y, y_at, y_size, channels, distance, state, rounded((rows + 2) * stride))
            sum_taps(state, 0, stride, 3, columns, n + CHUNK)
            a_at, b_at = 2 * i * shape[3] + left, 2 * j * shape[4] + right
            if tangent:
                part = tangent_sum(columns, x_norms, a_at, y_norms, b_at, law, factor, distance, places)
            else:
                over_a, over_b = a_at + shape[3], b_at + shape[4]
                part = activate_sum(columns, x_norms, a_at, over_a, y_norms, b_at, over_b, law, places)
            result += weights[s] * part
    return result
