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
    cosine,
    distance_angle,
    fields,
    fill_border,
    psi,
    rounded,
    sum_taps,
    total,
)
from initscope.networks.fused.psi import SLOPES_32, SLOPES_64

_S0, _S1, _S2, _S3, _S4, _S5, _S6 = (np.float32(c) for c in SLOPES_32)
_D0, _D1, _D2, _D3, _D4, _D5, _D6, _D7, _D8, _D9, _D10, _D11, _D12, _D13, _D14, _D15, _D16 = SLOPES_64
Scratch = tuple[Array, Array, Array, Array, Array, Array]
_HALF, _ONE = np.float32(0.5), np.float32(1)


def psi_slope(u: Any) -> Any:
    """`psi'(u) = (4/pi) asin √u` for u in [0, 1]; only callable from compiled code."""
    raise NotImplementedError


@overload(psi_slope)
def _psi_slope_for(u: Any) -> Any:
    def single(u: Any) -> Any:
        m = min(u, _ONE - u)
        h = _S0 + m * (_S1 + m * (_S2 + m * (_S3 + m * (_S4 + m * (_S5 + m * _S6)))))
        return _ONE - np.copysign(_ONE - np.sqrt(m) * h, _HALF - u)  # without a choice: √m h, or 2 - √m h

    def double(u: Any) -> Any:
        m = min(u, 1.0 - u)
        h = _D8 + m * (_D9 + m * (_D10 + m * (_D11 + m * (_D12 + m * (_D13 + m * (_D14 + m * (_D15 + m * _D16)))))))
        h = _D0 + m * (_D1 + m * (_D2 + m * (_D3 + m * (_D4 + m * (_D5 + m * (_D6 + m * (_D7 + m * h)))))))
        low = np.sqrt(m) * h
        return low if u <= 0.5 else 2.0 - low

    return single if u == numba.types.float32 else double


@compiled
def angle(value: Any, a: Any, b: Any, law: tuple[Any, ...], distance: bool) -> Any:
    """u: of a distance sin²(t/2), of a product cos²(t/2)."""
    return distance_angle(value, a, b, law) if distance else (law[8] + cosine(value, a * b, law)) * law[5]


@compiled
def activate_both(
    x: Array, t: Array, step: int, a: Array, a_at: int, b: Array, b_at: int, law: tuple[Any, ...],
    share: tuple[Any, ...], distance: bool, out: Array, t_out: Array, to: int, n: int,
) -> None:  # fmt: skip
    """`loops.activate` of X and T, n places; share: factor and offset, k = |a||b| cos t."""
    x1, x2, here = np.uint64(step), np.uint64(2 * step), np.uint64(to)
    a0, b0 = np.uint64(a_at), np.uint64(b_at)
    scale, shift, alpha, gamma, bend, one = law[0], law[1], law[2], law[3], law[3] * law[5], law[8]
    factor, offset = share
    for i in range(np.uint64(n)):
        value = scale * (x[i] + x[x1 + i] + x[x2 + i]) + shift
        left, right = a[a0 + i], b[b0 + i]
        u = angle(value, left, right, law, distance)
        cos = one - u - u if distance else u + u - one
        own = factor * (left * right) * cos
        t_out[here + i] = (scale * (t[i] + t[x1 + i] + t[x2 + i]) + offset + own) * (alpha + bend * psi_slope(u))
        out[here + i] = alpha * value + gamma * ((left * right) * psi(u))


@compiled
def activate_tangent(
    x: Array, t: Array, step: int, a: Array, a_at: int, b: Array, b_at: int, law: tuple[Any, ...],
    share: tuple[Any, ...], distance: bool, first: bool, t_out: Array, to: int, n: int,
) -> None:  # fmt: skip
    """`activate_both` without X, which nobody needs after the last layer, and in the first one without T."""
    x1, x2, here = np.uint64(step), np.uint64(2 * step), np.uint64(to)
    a0, b0 = np.uint64(a_at), np.uint64(b_at)
    scale, shift, alpha, bend, one = law[0], law[1], law[2], law[3] * law[5], law[8]
    factor, offset = share
    if first:
        for i in range(np.uint64(n)):
            value, ab = scale * (x[i] + x[x1 + i] + x[x2 + i]) + shift, a[a0 + i] * b[b0 + i]
            u = angle(value, a[a0 + i], b[b0 + i], law, distance)
            cos = one - u - u if distance else u + u - one
            t_out[here + i] = (offset + factor * ab * cos) * (alpha + bend * psi_slope(u))
        return
    for i in range(np.uint64(n)):
        value, ab = scale * (x[i] + x[x1 + i] + x[x2 + i]) + shift, a[a0 + i] * b[b0 + i]
        u = angle(value, a[a0 + i], b[b0 + i], law, distance)
        cos = one - u - u if distance else u + u - one
        own = offset + factor * ab * cos
        t_out[here + i] = (scale * (t[i] + t[x1 + i] + t[x2 + i]) + own) * (alpha + bend * psi_slope(u))


@compiled
def window_sums(
    x: Array, x_norms: Array, y: Array, y_norms: Array, i: int, j: int, left: int, right: int, height: int,
    shape: Array, frame: Array, taps: Array, laws: Array, scratch: Scratch,
) -> tuple[float, float]:  # fmt: skip
    """Sums over the positions of one window of X (if frame wants it) and of T after the last layer; see `windows.window_sum`."""
    width, stride, border, padding, distance = frame[0], frame[1], frame[2], frame[3], frame[4] != 0
    channels, x_size, y_size, depth = shape[0], shape[1], shape[2], taps.shape[0]
    state, tangent, columns, t_columns, box, t_box = scratch
    origin = border * (stride + 1)
    rows, cols = height, width
    n = rounded((rows + 2 * border) * stride)
    x_at, y_at = i * channels * x_size + left, j * channels * y_size + right
    combine(x, x_at, x_size, y, y_at, y_size, channels, distance, state, n)
    for layer in range(depth):
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
        sum_taps(state, corner, stride, size, columns, reach)
        last = layer == depth - 1 and frame[5] == 0
        if layer > 0:
            sum_taps(tangent, corner, stride, size, t_columns, reach)
        elif not last:
            t_columns[:reach] = 0
        xs, ts, step = columns, t_columns, 1
        if size != 3:
            sum_taps(columns, 0, 1, size, box, n)
            sum_taps(t_columns, 0, 1, size, t_box, n)
            xs, ts, step = box, t_box, box.shape[0] // 3
        a_at, b_at = (i * depth + layer) * shape[3] + left, (j * depth + layer) * shape[4] + right
        law = fields(laws[layer])
        share = laws[layer, 10], laws[layer, 11]
        if last:
            activate_tangent(
                xs, ts, step, x_norms, a_at, y_norms, b_at, law, share, distance, layer == 0, tangent, origin, n
            )
            return 0.0, total(tangent, origin, rows, cols, stride)
        activate_both(xs, ts, step, x_norms, a_at, y_norms, b_at, law, share, distance, state, tangent, origin, n)
    return total(state, origin, rows, cols, stride), total(tangent, origin, rows, cols, stride)


@compiled
def pair_sums(
    x: Array, x_norms: Array, y: Array, y_norms: Array, span: Array, shifts: Array, weights: Array,
    shape: Array, frame: Array, taps: Array, laws: Array, out: Array,
) -> None:  # fmt: skip
    """As `windows.pair_sums`, into out (2, images i, m): sums of X, then of T."""
    stride, tile = frame[1], span[5]
    size = shape[1] + 2 * stride + 8 * CHUNK
    scratch = (
        np.zeros(size, x.dtype), np.zeros(size, x.dtype), np.zeros(size, x.dtype), np.zeros(size, x.dtype),
        np.zeros(3 * size, x.dtype), np.zeros(3 * size, x.dtype),
    )  # fmt: skip
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
                        shape, frame, taps, laws, scratch,
                    )  # fmt: skip
                    out[0, i - span[0], j] += weights[own, s] * product
                    out[1, i - span[0], j] += weights[own, s] * tangent


@compiled
def dense_rows(gram: Array, x_norms: Array, y_norms: Array, laws: Array, distance: bool, out: Array) -> None:
    """As `windows.dense_rows`, into out (2, r, m)."""
    m = gram.shape[1]
    a, width, right = np.zeros(BLOCK, gram.dtype), y_norms.shape[1], y_norms.reshape(-1)
    state, after = np.zeros(3 * BLOCK, gram.dtype), np.zeros(3 * BLOCK, gram.dtype)
    tangent, t_after = np.zeros(3 * BLOCK, gram.dtype), np.zeros(3 * BLOCK, gram.dtype)
    for start in range(0, m, BLOCK):
        n = min(BLOCK, m - start)
        for row in range(gram.shape[0]):
            state[:n] = gram[row, start : start + n]
            tangent[:BLOCK] = 0
            for layer in range(laws.shape[0]):
                a[:] = x_norms[layer, row]
                share = laws[layer, 10], laws[layer, 11]
                b_at, law = layer * width + start, fields(laws[layer])
                activate_both(
                    state, tangent, BLOCK, a, 0, right, b_at, law, share, distance, after, t_after, 0, rounded(n)
                )
                state, after, tangent, t_after = after, state, t_after, tangent
            out[0, row, start : start + n] = state[:n]
            out[1, row, start : start + n] = tangent[:n]
