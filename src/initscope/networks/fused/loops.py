"""Compiled inner loops of the all-pairs kernels: one pair of windows at a time, everything in the first cache.

Images lie flat with a common row stride, borders included, so that every step is one long loop over contiguous memory:
sums over taps are shifted additions, the activation is elementwise. What lies between two rows is computed and ignored.
Loop lengths are rounded up to `CHUNK`, which leaves no scalar remainder; buffers carry the slack.

The state `X` of a pair is the product E[uv] or the squared distance E(u - v)², whichever was asked for (see `fused`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.extending import overload

from initscope.networks.fused.psi import COEFFICIENTS_32, COEFFICIENTS_64

CHUNK = 32
BLOCK = 16 * CHUNK
VALID, ZERO, CIRCULAR, REFLECT = 0, 1, 2, 3

Array = np.ndarray[Any, Any]
F = TypeVar("F", bound=Callable[..., Any])

# Reassociation lets sums use vector lanes; NaN and infinity keep their meaning.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "arcp", "nsz"}}


def compiled(function: F) -> F:
    """Compile, and keep the result on disk where some folder is writable."""
    try:
        return cast(F, numba.njit(cache=True, **_OPTIONS)(function))
    except RuntimeError:  # neither the package folder nor the user's cache folder can be written
        return cast(F, numba.njit(**_OPTIONS)(function))


_S0, _S1, _S2, _S3, _S4, _S5 = (np.float32(c) for c in COEFFICIENTS_32)
_D0, _D1, _D2, _D3, _D4, _D5, _D6, _D7, _D8, _D9, _D10, _D11, _D12, _D13, _D14, _D15 = COEFFICIENTS_64
_ZERO, _ONE = np.float32(0), np.float32(1)


def psi(u: Any) -> Any:
    """`psi(u) = [sin t - t cos t] / pi`, `u = sin²(t/2)` in [0, 1]; only callable from compiled code."""
    raise NotImplementedError


@overload(psi)
def _psi_for(u: Any) -> Any:
    def single(u: Any) -> Any:
        v = _ONE - u
        m = min(u, v)
        h = _S0 + m * (_S1 + m * (_S2 + m * (_S3 + m * (_S4 + m * _S5))))
        return max(u - v, _ZERO) + m * np.sqrt(m) * h

    def double(u: Any) -> Any:
        v = 1.0 - u
        m = min(u, v)
        h = _D7 + m * (_D8 + m * (_D9 + m * (_D10 + m * (_D11 + m * (_D12 + m * (_D13 + m * (_D14 + m * _D15)))))))
        h = _D0 + m * (_D1 + m * (_D2 + m * (_D3 + m * (_D4 + m * (_D5 + m * (_D6 + m * h))))))
        return max(u - v, 0.0) + m * np.sqrt(m) * h

    return single if u == numba.types.float32 else double


@compiled
def activate(x: Array, a: Array, inv_a: Array, b: Array, inv_b: Array, law: Array, out: Array, n: int) -> None:
    """One layer after its sum over taps: `v = scale x + shift`, `out = alpha v + gamma |a||b| psi(u)`, n places."""
    scale, shift, alpha, gamma, centre, slope, chord = law[0], law[1], law[2], law[3], law[4], law[5], law[6]
    zero, one = law[7], law[8]
    for i in range(n):
        value = scale * x[i] + shift
        gap = a[i] - b[i]
        u = centre + slope * ((value - chord * (gap * gap)) * (inv_a[i] * inv_b[i]))
        u = min(max(u, zero), one)
        out[i] = alpha * value + gamma * ((a[i] * b[i]) * psi(u))


@compiled
def combine(x: Array, y: Array, i: int, j: int, left: int, right: int, distance: bool, out: Array, n: int) -> None:
    """Sum over channels of `x y`, or of `(x - y)²`, for images i and j from columns left and right on."""
    channels = x.shape[1]
    if channels == 3 and not distance:  # one pass for colour images
        x0, x1, x2 = x[i, 0, left:], x[i, 1, left:], x[i, 2, left:]
        y0, y1, y2 = y[j, 0, right:], y[j, 1, right:], y[j, 2, right:]
        for p in range(n):
            out[p] = x0[p] * y0[p] + x1[p] * y1[p] + x2[p] * y2[p]
        return
    out[:n] = 0
    for c in range(channels):
        xc, yc = x[i, c, left:], y[j, c, right:]
        if distance:
            for p in range(n):
                gap = xc[p] - yc[p]
                out[p] += gap * gap
        else:
            for p in range(n):
                out[p] += xc[p] * yc[p]


@compiled
def sum_taps(x: Array, step: int, taps: int, out: Array, n: int) -> None:
    """`out[i] = sum_t x[i + t step]`, t < taps."""
    if taps == 3:
        x0, x1, x2 = x[:n], x[step : step + n], x[2 * step : 2 * step + n]
        for i in range(n):
            out[i] = x0[i] + x1[i] + x2[i]
        return
    for i in range(n):
        out[i] = x[i]
    for t in range(1, taps):
        shifted = x[t * step : t * step + n]
        for i in range(n):
            out[i] += shifted[i]


@compiled
def _source(index: int, size: int, padding: int) -> int:
    """Which position a padded one repeats."""
    if padding == CIRCULAR:
        return index % size
    return -index if index < 0 else 2 * (size - 1) - index


@compiled
def fill_border(x: Array, rows: int, cols: int, stride: int, border: int, padding: int) -> None:
    """Write the `border` columns and rows around the rows x cols window that starts at (border, border)."""
    for row in range(border, border + rows):
        start = row * stride + border
        for t in range(border):
            left, right = start - 1 - t, start + cols + t
            if padding == ZERO:
                x[left] = 0
                x[right] = 0
            else:
                x[left] = x[start + _source(-1 - t, cols, padding)]
                x[right] = x[start + _source(cols + t, cols, padding)]
    for t in range(border):
        above, below = (border - 1 - t) * stride, (border + rows + t) * stride
        if padding == ZERO:
            x[above : above + stride] = 0
            x[below : below + stride] = 0
        else:
            up = (border + _source(-1 - t, rows, padding)) * stride
            down = (border + _source(rows + t, rows, padding)) * stride
            for i in range(stride):
                x[above + i] = x[up + i]
                x[below + i] = x[down + i]


@compiled
def rounded(n: int) -> int:
    """n up to the next multiple of CHUNK."""
    return (n + CHUNK - 1) // CHUNK * CHUNK


@compiled
def total(x: Array, rows: int, cols: int, stride: int) -> float:
    """Sum of the window at the start of x, blocks in the type of x, the rest in float64; clears what lies between."""
    end = rounded(rows * stride)
    for row in range(rows):
        for p in range(row * stride + cols, (row + 1) * stride):
            x[p] = 0
    for p in range(rows * stride, end):
        x[p] = 0
    result = 0.0
    for start in range(0, end, BLOCK):
        part = x[0] * 0
        block = x[start : min(start + BLOCK, end)]
        for p in range(block.shape[0]):
            part += block[p]
        result += np.float64(part)
    return result


@compiled
def window_sum(
    x: Array, x_norms: Array, y: Array, y_norms: Array, i: int, j: int, left: int, right: int, height: int,
    frame: Array, taps: Array, laws: Array, state: Array, columns: Array, box: Array,
) -> float:  # fmt: skip
    """Sum over the positions of one window of X after the last layer.

    frame: width, stride, border, padding, distance; state, columns, box: scratch.
    """
    width, stride, border, padding, distance = frame[0], frame[1], frame[2], frame[3], frame[4] != 0
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
        n = rounded(rows * stride)
        sum_taps(state[corner:], stride, size, columns, n + CHUNK * ((size + CHUNK - 2) // CHUNK))
        sum_taps(columns, 1, size, box, n)
        activate(
            box, x_norms[i, layer, 0, left:], x_norms[i, layer, 1, left:], y_norms[j, layer, 0, right:],
            y_norms[j, layer, 1, right:], laws[layer], state[origin:], n,
        )  # fmt: skip
    return total(state[origin:], rows, cols, stride)


@compiled
def pair_sums(
    x: Array, x_norms: Array, y: Array, y_norms: Array, span: Array, shifts: Array, weights: Array,
    frame: Array, taps: Array, laws: Array, out: Array,
) -> None:  # fmt: skip
    """Add to `out[i - first i, j]` the weighted window sums of a range of i with a range of j (symmetric: j >= i).

    span: first i, end of i, first j, end of j, symmetric, tile; shifts: (s, 3) row in x, row in y, height of a window;
    weights: (2, s), for different images and for an image with itself; out: (images i, m) float64.
    """
    stride = frame[1]
    size = x.shape[2] + 2 * stride + 8 * CHUNK
    state, columns, box = np.zeros(size, x.dtype), np.zeros(size, x.dtype), np.zeros(size, x.dtype)
    tile = span[5]
    for first in range(span[2], span[3], tile):
        for i in range(span[0], span[1]):
            start = max(first, i) if span[4] else first
            for j in range(start, min(first + tile, span[3])):
                own = 1 if span[4] and i == j else 0
                for s in range(shifts.shape[0]):
                    if weights[own, s] == 0.0:
                        continue
                    out[i - span[0], j] += weights[own, s] * window_sum(
                        x, x_norms, y, y_norms, i, j, shifts[s, 0] * stride, shifts[s, 1] * stride, shifts[s, 2],
                        frame, taps, laws, state, columns, box,
                    )  # fmt: skip


@compiled
def dense_rows(gram: Array, x_norms: Array, y_norms: Array, laws: Array, out: Array) -> None:
    """All dense layers on rows of products or distances: gram, out (r, m), norms (layers, 2, r) and (layers, 2, size).

    The columns go through all layers in strips that stay in the first cache; y_norms carries CHUNK columns of slack.
    """
    m = gram.shape[1]
    state, a, inv_a = np.zeros(BLOCK, gram.dtype), np.zeros(BLOCK, gram.dtype), np.zeros(BLOCK, gram.dtype)
    for start in range(0, m, BLOCK):
        n = min(BLOCK, m - start)
        for row in range(gram.shape[0]):
            state[:n] = gram[row, start : start + n]
            for layer in range(laws.shape[0]):
                a[:] = x_norms[layer, 0, row]
                inv_a[:] = x_norms[layer, 1, row]
                b, inv_b = y_norms[layer, 0, start:], y_norms[layer, 1, start:]
                activate(state, a, inv_a, b, inv_b, laws[layer], state, rounded(n))
            out[row, start : start + n] = state[:n]
