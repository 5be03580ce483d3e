"""Compiled inner loops of the all-pairs kernels, one step of one pair of windows each, everything in the first cache.

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
_IN_ORDER: dict[str, Any] = {**_OPTIONS, "fastmath": {"contract", "nsz"}}


def compiled(function: F) -> F:
    """Compile a step of the loops, together with the loop that calls it."""
    return cast(F, numba.njit(**_OPTIONS)(function))


def in_order(function: F) -> F:
    """Compile what must be computed as it is written: another order could leave the range of float32, and the compiler may
    choose another one for what is kept on disk than for what it runs at once.
    """
    return cast(F, numba.njit(**_IN_ORDER)(function))


def kept(function: F) -> F:
    """Compile a whole loop with its steps, and keep the result on disk where some folder is writable."""
    try:
        return cast(F, numba.njit(cache=True, **_OPTIONS)(function))
    except RuntimeError:  # neither the package folder nor the user's cache folder can be written
        return compiled(function)


_S0, _S1, _S2, _S3, _S4, _S5 = (np.float32(c) for c in COEFFICIENTS_32)
_D0, _D1, _D2, _D3, _D4, _D5, _D6, _D7, _D8, _D9, _D10, _D11, _D12, _D13, _D14, _D15 = COEFFICIENTS_64
_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)


def psi(u: Any) -> Any:
    """`psi(u) = [sin t - t cos t] / pi`, `u = sin²(t/2)` in [0, 1] but for rounding; only callable from compiled code."""
    raise NotImplementedError


@overload(psi)
def _psi_for(u: Any) -> Any:
    def single(u: Any) -> Any:
        v = _ONE - u
        m = min(u, v)
        h = _S0 + m * (_S1 + m * (_S2 + m * (_S3 + m * (_S4 + m * _S5))))
        return max(u - v, _ZERO) + m * np.sqrt(abs(m)) * h

    def double(u: Any) -> Any:
        v = 1.0 - u
        m = min(u, v)
        h = _D7 + m * (_D8 + m * (_D9 + m * (_D10 + m * (_D11 + m * (_D12 + m * (_D13 + m * (_D14 + m * _D15)))))))
        h = _D0 + m * (_D1 + m * (_D2 + m * (_D3 + m * (_D4 + m * (_D5 + m * (_D6 + m * h))))))
        return max(u - v, 0.0) + m * np.sqrt(abs(m)) * h

    return single if u == numba.types.float32 else double


def rhat(rho: Any) -> Any:
    """`psi((1 + rho)/2)`, the normalised dual of ReLU, rho in [-1, 1] but for rounding; only callable from compiled code."""
    raise NotImplementedError


@overload(rhat)
def _rhat_for(rho: Any) -> Any:
    def single(rho: Any) -> Any:
        m = _HALF - _HALF * abs(rho)
        h = _S0 + m * (_S1 + m * (_S2 + m * (_S3 + m * (_S4 + m * _S5))))
        return max(rho, _ZERO) + m * np.sqrt(abs(m)) * h

    def double(rho: Any) -> Any:
        return psi(0.5 + 0.5 * rho)

    return single if rho == numba.types.float32 else double


@compiled
def fields(law: Array) -> tuple[Any, ...]:
    """The numbers of a layer as values: scale, shift, alpha, gamma, centre, slope, chord, 0, 1, the smallest |a||b|."""
    return law[0], law[1], law[2], law[3], law[4], law[5], law[6], law[7], law[8], law[9]


@compiled
def cosine(value: Any, ab: Any, law: tuple[Any, ...]) -> Any:
    """rho of a product; ab = |a||b|."""
    return min(max(value / max(ab, law[9]), -law[8]), law[8])


@compiled
def distance_angle(value: Any, a: Any, b: Any, law: tuple[Any, ...]) -> Any:
    """`u = sin²(t/2)` of a squared distance: what exceeds the difference of the norms, by 4|a||b|."""
    gap = a - b
    return min(max(law[5] * ((value - gap * gap) / max(a * b, law[9])), law[7]), law[8])


@in_order
def activate(
    x: Array, at: int, step: int, a: Array, a_at: int, b: Array, b_at: int, law: tuple[Any, ...], distance: bool,
    out: Array, to: int, n: int,
) -> None:  # fmt: skip
    """One layer, n places: `v = scale (x[p] + x[p + step] + x[p + 2 step]) + shift`, `out = alpha v + gamma |a||b| psi(u)`.

    All arrays are flat, with the place where they begin: slices would be counted references, which cost more than a row. Unsigned
    places: numba would look at the sign of others in the loop.
    """
    x0, x1, x2, here = np.uint64(at), np.uint64(at + step), np.uint64(at + 2 * step), np.uint64(to)
    left, right = np.uint64(a_at), np.uint64(b_at)
    scale, shift, alpha, gamma = law[0], law[1], law[2], law[3]
    if distance:
        for i in range(np.uint64(n)):
            value = scale * (x[x0 + i] + x[x1 + i] + x[x2 + i]) + shift
            u = distance_angle(value, a[left + i], b[right + i], law)
            out[here + i] = alpha * value + gamma * ((a[left + i] * b[right + i]) * psi(u))
    else:
        for i in range(np.uint64(n)):
            value = scale * (x[x0 + i] + x[x1 + i] + x[x2 + i]) + shift
            ab = a[left + i] * b[right + i]
            out[here + i] = alpha * value + gamma * (ab * rhat(cosine(value, ab, law)))


@in_order
def ratio(value: Any, a: Any, b: Any) -> Any:
    """value/(|a||b|) from 1/|a| and 1/|b|, 0 for zero vectors; `value` has at most the size of |a||b|."""
    return (value * a) * b


@compiled
def activate_sum(
    x: Array, a: Array, a_at: int, over_a: int, b: Array, b_at: int, over_b: int, law: tuple[Any, ...], n: int
) -> float:  # fmt: skip
    """Sum over n places of what `activate` gives for products of 3 taps with alpha = 0: no division, nothing is written.

    1/|a| begins at over_a of a. Blocks in the type of x, the rest in float64.
    """
    scale, shift, result = law[0], law[1], 0.0
    for start in range(0, n, BLOCK):
        part, x0, x1, x2 = law[7], np.uint64(start), np.uint64(start + 1), np.uint64(start + 2)
        left, right = np.uint64(a_at + start), np.uint64(b_at + start)
        by_left, by_right = np.uint64(over_a + start), np.uint64(over_b + start)
        for i in range(np.uint64(min(BLOCK, n - start))):
            value = scale * (x[x0 + i] + x[x1 + i] + x[x2 + i]) + shift
            rho = ratio(value, a[by_left + i], b[by_right + i])
            part += (a[left + i] * b[right + i]) * rhat(rho)
        result += np.float64(part)
    return np.float64(law[3]) * result


@compiled
def plain_sum(x: Array, at: int, n: int) -> float:
    """Sum of n places, blocks in the type of x, the rest in float64."""
    result = 0.0
    for start in range(0, n, BLOCK):
        quarter, part = min(BLOCK, n - start) // 4, x[0] * 0  # four at once: additions need not wait for each other
        p0, p1 = np.uint64(at + start), np.uint64(at + start + quarter)
        p2, p3 = np.uint64(at + start + 2 * quarter), np.uint64(at + start + 3 * quarter)
        for i in range(np.uint64(quarter)):
            part += (x[p0 + i] + x[p1 + i]) + (x[p2 + i] + x[p3 + i])
        for i in range(at + start + 4 * quarter, at + min(start + BLOCK, n)):
            part += x[i]
        result += np.float64(part)
    return result


@compiled
def combine(
    x: Array, x_at: int, x_size: int, y: Array, y_at: int, y_size: int, channels: int, distance: bool,
    out: Array, n: int,
) -> None:  # fmt: skip
    """Sum over channels, x_size and y_size apart, of `x y` or of `(x - y)²`."""
    count = np.uint64(n)
    if channels == 3:  # one pass for colour images
        x0, x1, x2 = np.uint64(x_at), np.uint64(x_at + x_size), np.uint64(x_at + 2 * x_size)
        y0, y1, y2 = np.uint64(y_at), np.uint64(y_at + y_size), np.uint64(y_at + 2 * y_size)
        if distance:
            for p in range(count):
                g0, g1, g2 = x[x0 + p] - y[y0 + p], x[x1 + p] - y[y1 + p], x[x2 + p] - y[y2 + p]
                out[p] = g0 * g0 + g1 * g1 + g2 * g2
        else:
            for p in range(count):
                out[p] = x[x0 + p] * y[y0 + p] + x[x1 + p] * y[y1 + p] + x[x2 + p] * y[y2 + p]
        return
    out[:n] = 0
    for c in range(channels):
        left, right = np.uint64(x_at + c * x_size), np.uint64(y_at + c * y_size)
        if distance:
            for p in range(count):
                gap = x[left + p] - y[right + p]
                out[p] += gap * gap
        else:
            for p in range(count):
                out[p] += x[left + p] * y[right + p]


@compiled
def sum_taps(x: Array, at: int, step: int, taps: int, out: Array, n: int) -> None:
    """`out[i] = sum_t x[at + i + t step]`, t < taps."""
    first, second, third, count = np.uint64(at), np.uint64(at + step), np.uint64(at + 2 * step), np.uint64(n)
    if taps == 3:
        for i in range(count):
            out[i] = x[first + i] + x[second + i] + x[third + i]
        return
    for i in range(count):
        out[i] = x[first + i]
    for t in range(1, taps):
        shifted = np.uint64(at + t * step)
        for i in range(count):
            out[i] += x[shifted + i]


@compiled
def _source(index: int, size: int, padding: int) -> int:
    """Which position a padded one repeats."""
    if padding == CIRCULAR:
        return index % size
    return -index if index < 0 else 2 * (size - 1) - index


@compiled
def fill_border(x: Array, rows: int, cols: int, stride: int, border: int, padding: int) -> None:
    """Write the `border` columns and rows around the rows x cols window that starts at (border, border)."""
    for t in range(border):
        before, after = _source(-1 - t, cols, padding), _source(cols + t, cols, padding)
        for row in range(border, border + rows):
            start = row * stride + border
            left, right = start - 1 - t, start + cols + t
            if padding == ZERO:
                x[left] = 0
                x[right] = 0
            else:
                x[left] = x[start + before]
                x[right] = x[start + after]
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
def total(x: Array, at: int, rows: int, cols: int, stride: int) -> float:
    """Sum of the window that begins at a place of x, blocks in the type of x, the rest in float64; clears what lies between."""
    for row in range(rows - 1):
        for p in range(at + row * stride + cols, at + (row + 1) * stride):
            x[p] = 0
    return plain_sum(x, at, (rows - 1) * stride + cols)
