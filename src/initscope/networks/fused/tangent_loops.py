"""The compiled loops once more with two numbers per pair of positions: X, the product or the distance, and the tangent kernel T.

Behind the sum over taps of a layer `v = scale ΣX + shift` is the product or the distance, `k` the covariance, and

    w = scale ΣT + factor k + offset,       T' = w dX'/dv,      dX'/dv = alpha + gamma slope psi'(u),

`factor k + offset` being what the layer's own weights and biases contribute (1 and 0 where they are measured in units of their
deviation). `psi'(u) = (4/pi) asin √u` is `√u` times a short polynomial up to u = 1/2 and 2 - psi'(1 - u) beyond. Its root makes
of an error e of u near 1 one of √e: equal patches are u = 1 of the product, so where it can be had the distance is used, whose u
is 0 there, exactly.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.extending import overload

from initscope.networks.fused.loops import (
    BLOCK,
    CHUNK,
    VALID,
    Array,
    combine,
    compiled,
    fill_border,
    psi,
    rounded,
    sum_taps,
    total,
)
from initscope.networks.fused.psi import SLOPES_32, SLOPES_64

_S0, _S1, _S2, _S3, _S4, _S5, _S6 = (np.float32(c) for c in SLOPES_32)
_D0, _D1, _D2, _D3, _D4, _D5, _D6, _D7, _D8, _D9, _D10, _D11, _D12, _D13, _D14, _D15, _D16 = SLOPES_64
_HALF, _ONE, _TWO = np.float32(0.5), np.float32(1), np.float32(2)


def psi_slope(u: Any) -> Any:
    """`psi'(u) = (4/pi) asin √u` for u in [0, 1]; only callable from compiled code."""
    raise NotImplementedError


@overload(psi_slope)
def _psi_slope_for(u: Any) -> Any:
    def single(u: Any) -> Any:
        m = min(u, _ONE - u)
        h = _S0 + m * (_S1 + m * (_S2 + m * (_S3 + m * (_S4 + m * (_S5 + m * _S6)))))
        low = np.sqrt(m) * h
        return low if u <= _HALF else _TWO - low

    def double(u: Any) -> Any:
        m = min(u, 1.0 - u)
        h = _D8 + m * (_D9 + m * (_D10 + m * (_D11 + m * (_D12 + m * (_D13 + m * (_D14 + m * (_D15 + m * _D16)))))))
        h = _D0 + m * (_D1 + m * (_D2 + m * (_D3 + m * (_D4 + m * (_D5 + m * (_D6 + m * (_D7 + m * h)))))))
        low = np.sqrt(m) * h
        return low if u <= 0.5 else 2.0 - low

    return single if u == numba.types.float32 else double


@compiled
def activate_both(
    x: Array, t: Array, a: Array, inv_a: Array, b: Array, inv_b: Array, law: Array, out: Array, t_out: Array, n: int
) -> None:
    """One layer after its sums over taps, n places.

    The fields of `law` are those of `activate`; then own_v, own_n and offset: factor k = own_v v + own_n (|a|² + |b|²).
    """
    scale, shift, alpha, gamma, centre, slope, chord = law[0], law[1], law[2], law[3], law[4], law[5], law[6]
    zero, one, own_v, own_n, offset = law[7], law[8], law[9], law[10], law[11]
    bend = gamma * slope
    for i in range(n):
        value = scale * x[i] + shift
        gap = a[i] - b[i]
        u = centre + slope * ((value - chord * (gap * gap)) * (inv_a[i] * inv_b[i]))
        u = min(max(u, zero), one)
        own = own_v * value + own_n * (a[i] * a[i] + b[i] * b[i]) + offset
        t_out[i] = (scale * t[i] + own) * (alpha + bend * psi_slope(u))
        out[i] = alpha * value + gamma * ((a[i] * b[i]) * psi(u))


@compiled
def window_sums(
    x: Array, x_norms: Array, y: Array, y_norms: Array, i: int, j: int, left: int, right: int, height: int,
    frame: Array, taps: Array, laws: Array, scratch: Array,
) -> tuple[float, float]:  # fmt: skip
    """Sums over the positions of one window of X and of T after the last layer; see `loops.window_sum`."""
    width, stride, border, padding, distance = frame[0], frame[1], frame[2], frame[3], frame[4] != 0
    state, tangent, columns, box, t_box = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    origin = border * (stride + 1)
    rows, cols = height, width
    combine(x, y, i, j, left, right, distance, state, rounded((rows + 2 * border) * stride))
    for layer in range(taps.shape[0]):
        size = taps[layer]
        corner = 0
        if padding == VALID:
            rows, cols = rows - size + 1, cols - size + 1
        else:
            corner = (border - size // 2) * (stride + 1)
            if layer > 0:
                fill_border(state, rows, cols, stride, border, padding)
                fill_border(tangent, rows, cols, stride, border, padding)
        n = rounded(rows * stride)
        reach = n + CHUNK * ((size + CHUNK - 2) // CHUNK)
        sum_taps(state[corner:], stride, size, columns, reach)
        sum_taps(columns, 1, size, box, n)
        if layer > 0:
            sum_taps(tangent[corner:], stride, size, columns, reach)
            sum_taps(columns, 1, size, t_box, n)
        else:
            t_box[:n] = 0
        activate_both(
            box, t_box, x_norms[i, layer, 0, left:], x_norms[i, layer, 1, left:], y_norms[j, layer, 0, right:],
            y_norms[j, layer, 1, right:], laws[layer], state[origin:], tangent[origin:], n,
        )  # fmt: skip
    return total(state[origin:], rows, cols, stride), total(tangent[origin:], rows, cols, stride)


@compiled
def pair_sums(
    x: Array, x_norms: Array, y: Array, y_norms: Array, span: Array, shifts: Array, weights: Array,
    frame: Array, taps: Array, laws: Array, out: Array,
) -> None:  # fmt: skip
    """As `loops.pair_sums`, into out (2, images i, m): sums of X, then of T."""
    stride = frame[1]
    scratch = np.zeros((5, x.shape[2] + 2 * stride + 8 * CHUNK), x.dtype)
    tile = span[5]
    for first in range(span[2], span[3], tile):
        for i in range(span[0], span[1]):
            start = max(first, i) if span[4] else first
            for j in range(start, min(first + tile, span[3])):
                own = 1 if span[4] and i == j else 0
                for s in range(shifts.shape[0]):
                    if weights[own, s] == 0.0:
                        continue
                    product, tangent = window_sums(
                        x, x_norms, y, y_norms, i, j, shifts[s, 0] * stride, shifts[s, 1] * stride, shifts[s, 2],
                        frame, taps, laws, scratch,
                    )  # fmt: skip
                    out[0, i - span[0], j] += weights[own, s] * product
                    out[1, i - span[0], j] += weights[own, s] * tangent


@compiled
def dense_rows(gram: Array, x_norms: Array, y_norms: Array, laws: Array, out: Array) -> None:
    """As `loops.dense_rows` on products, into out (2, r, m)."""
    m = gram.shape[1]
    state, tangent = np.zeros(BLOCK, gram.dtype), np.zeros(BLOCK, gram.dtype)
    a, inv_a = np.zeros(BLOCK, gram.dtype), np.zeros(BLOCK, gram.dtype)
    for start in range(0, m, BLOCK):
        n = min(BLOCK, m - start)
        for row in range(gram.shape[0]):
            state[:n] = gram[row, start : start + n]
            tangent[:] = 0
            for layer in range(laws.shape[0]):
                a[:] = x_norms[layer, 0, row]
                inv_a[:] = x_norms[layer, 1, row]
                b, inv_b = y_norms[layer, 0, start:], y_norms[layer, 1, start:]
                activate_both(state, tangent, a, inv_a, b, inv_b, laws[layer], state, tangent, rounded(n))
            out[0, row, start : start + n] = state[:n]
            out[1, row, start : start + n] = tangent[:n]
