"""Compiled inner loops of the all-pairs kernels, one step of one pair of windows each, everything in the first cache.

Images lie flat with a common row stride, borders included, so that every step is one long loop over contiguous memory:
sums over taps are shifted additions, the activation is elementwise. What lies between two rows is computed and ignored.
Loop lengths are rounded up to `CHUNK`, which leaves no scalar remainder; buffers carry the slack.

The state `X` of a pair is the product E[uv] or the squared distance E(u - v)², whichever was asked for (see `fused`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.extending import overload

from initscope.networks.fused.lanes import LANES, added, apart, first, is_single, load, spread, store
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
    return cast(F, numba.njit(**_OPTIONS)(_named(function)))


def in_order(function: F) -> F:
    """Compile what must be computed as it is written: another order could leave the range of float32, and the compiler may
    choose another one for what is kept on disk than for what it runs at once.
    """
    return cast(F, numba.njit(**_IN_ORDER)(_named(function)))


def _named(function: F) -> F:
    """A function that was made for some case, with a name that tells the case.

    What is kept on disk is linked by name, and processes count the functions of one name each for itself: two cases that
    two processes compiled would be taken for one another.
    """
    inside = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    if inside:
        case = " ".join(getattr(getattr(v, "py_func", v), "__qualname__", None) or repr(v) for v in inside)
        function.__qualname__ += f"_{zlib.crc32(case.encode()):x}"
    return function


def by_quantity(make: Callable[[bool], Any]) -> Any:
    """A step that is made for products and for distances: its first argument says which, its loop need not ask."""
    product, difference = make(False), make(True)

    @compiled
    def either(distance: bool, *rest: Any) -> Any:
        return difference(*rest) if distance else product(*rest)

    return either


@cache
def _digest() -> str:
    """Of the text of all loops: numba looks for changes in the file of a loop alone, not in those of its steps."""
    rooms = [Path(__file__).parents[1] / name for name in ("fused", "machine")]
    texts = [path.read_bytes() for room in rooms for path in sorted(room.glob("*.py"))]
    return f"{zlib.crc32(b''.join(texts)):x}"


def kept(function: F) -> F:
    """Compile a whole loop with its steps, and keep the result on disk where some folder is writable."""
    function.__qualname__ += f"_{_digest()}"
    try:
        return cast(F, numba.njit(cache=True, **_OPTIONS)(function))
    except RuntimeError:  # neither the package folder nor the user's cache folder can be written
        return compiled(function)


_S0, _S1, _S2, _S3, _S4, _S5 = (np.float32(c) for c in COEFFICIENTS_32)
_D0, _D1, _D2, _D3, _D4, _D5, _D6, _D7, _D8, _D9, _D10, _D11, _D12, _D13, _D14, _D15 = COEFFICIENTS_64
_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)


def psi(u: Any) -> Any:
    """`psi(u) = [sin t - t cos t] / pi`, `u = sin²(t/2)` in [0, 1]; of lanes, in compiled code."""
    raise NotImplementedError


@overload(psi)
def _psi_for(u: Any) -> Any:
    def single(u: Any) -> Any:
        v = _ONE - u
        m = min(u, v)
        h = _S0 + m * (_S1 + m * (_S2 + m * (_S3 + m * (_S4 + m * _S5))))
        return max(u - v, _ZERO) + (m * np.sqrt(m)) * h

    def double(u: Any) -> Any:
        v = 1.0 - u
        m = min(u, v)
        h = _D7 + m * (_D8 + m * (_D9 + m * (_D10 + m * (_D11 + m * (_D12 + m * (_D13 + m * (_D14 + m * _D15)))))))
        h = _D0 + m * (_D1 + m * (_D2 + m * (_D3 + m * (_D4 + m * (_D5 + m * (_D6 + m * h))))))
        return max(u - v, 0.0) + (m * np.sqrt(m)) * h

    return single if is_single(u) else double


def tail(rho: Any) -> Any:
    """What `rhat` has beside the positive part of rho, for rho in [-1, 1] but for rounding; of lanes, in compiled code."""
    raise NotImplementedError


@overload(tail)
def _tail_for(rho: Any) -> Any:
    def single(rho: Any) -> Any:
        m = _HALF - _HALF * abs(rho)
        h = _S0 + m * (_S1 + m * (_S2 + m * (_S3 + m * (_S4 + m * _S5))))
        return (m * np.sqrt(abs(m))) * h

    def double(rho: Any) -> Any:
        return psi(max(0.5 - 0.5 * abs(rho), 0.0))

    return single if is_single(rho) else double


@in_order
def rhat(rho: Any, zero: Any) -> Any:
    """`psi((1 + rho)/2)`, the normalised dual of ReLU; of lanes."""
    return max(rho, zero) + tail(rho)


@compiled
def fields(law: Array) -> tuple[Any, ...]:
    """The numbers of a layer as values: scale, shift, alpha, gamma, centre, slope, chord, 0, 1."""
    return law[0], law[1], law[2], law[3], law[4], law[5], law[6], law[7], law[8]


@in_order
def cosine(value: Any, inverse: Any, law: tuple[Any, ...]) -> Any:
    """rho of a product; inverse: 1/|a||b|."""
    return min(max(value * inverse, -law[8]), law[8])


@in_order
def distance_angle(value: Any, gap: Any, inverse: Any, law: tuple[Any, ...]) -> Any:
    """`u = sin²(t/2)` of a squared distance: what exceeds that of the norms, gap = |a| - |b|; inverse: 1/4|a||b|."""
    return min(max((value - gap * gap) * inverse, law[7]), law[8])


@in_order
def three(x: Array, at: Any, step: Any) -> Any:
    """`x[at] + x[at + step] + x[at + 2 step]`, of lanes."""
    return load(x, at) + load(x, at + step) + load(x, at + step + step)


@by_quantity
def activate(distance: bool) -> Any:
    """One layer, n places: `v = scale (x[p] + x[p + step] + x[p + 2 step]) + shift`, `out = alpha v + gamma |a||b| psi(u)`.

    All arrays are flat, with the place where they begin (of norms see `norm_places`): slices would be counted references, which
    cost more than a row. n is a multiple of CHUNK; unsigned places: numba would look at the sign of others in the loop.
    """

    @in_order
    def loop(
        x: Array, at: int, step: int, a: Array, b: Array, places: tuple[Any, ...], law: tuple[Any, ...],
        out: Array, to: int, n: int,
    ) -> None:  # fmt: skip
        apart()
        start, by, here = np.uint64(at), np.uint64(step), np.uint64(to)
        scale, shift, alpha, gamma = law[0], law[1], law[2], law[3]
        for i in range(np.uint64(0), np.uint64(n), LANES):
            value = scale * three(x, start + i, by) + shift
            left, right = load(a, places[0] + i), load(b, places[2] + i)
            inverse = load(a, places[1] + i) * load(b, places[3] + i)
            ab = left * right
            if distance:
                bent = ab * psi(distance_angle(value, left - right, inverse, law))
            else:  # |a||b| max(rho, 0) is max(value, 0), without rounding
                bent = max(value, law[7]) + ab * tail(cosine(value, inverse, law))
            store(out, here + i, alpha * value + gamma * bent)

    return loop


@in_order
def _product_term(x: Array, a: Array, b: Array, places: tuple[Any, ...], law: tuple[Any, ...], i: Any) -> Any:
    """`|a||b| rhat(rho)` of lanes from 3 taps of what `scaled_taps` gives."""
    rho = three(x, i, np.uint64(1)) * (load(a, places[1] + i) * load(b, places[3] + i))
    return (load(a, places[0] + i) * load(b, places[2] + i)) * rhat(rho, law[7])


@in_order
def activate_sum(x: Array, a: Array, b: Array, places: tuple[Any, ...], law: tuple[Any, ...], n: int) -> float:
    """Sum over n places of what `activate` gives for products of 3 taps with alpha = 0: nothing is written.

    x is of `scaled_taps`. Blocks in the type of x, the rest in float64.
    """
    apart()
    result, whole = 0.0, n - n % int(LANES)
    for start in range(0, whole, BLOCK):
        part = spread(law[7])
        for i in range(np.uint64(start), np.uint64(min(start + BLOCK, whole)), LANES):
            part = part + _product_term(x, a, b, places, law, i)
        result += np.float64(added(part))
    rest = first(_product_term(x, a, b, places, law, np.uint64(whole)), n - whole)
    return np.float64(law[3]) * (result + np.float64(added(rest)))


@compiled
def norm_places(a_at: int, a_by: int, b_at: int, b_by: int) -> tuple[Any, ...]:
    """Where |a|, 1/|a|, |b| and 1/|b| begin, the inverse ones behind the others; see `norms`."""
    return np.uint64(a_at), np.uint64(a_at + a_by), np.uint64(b_at), np.uint64(b_at + b_by)


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


@by_quantity
def combine(distance: bool) -> Any:
    """Sum over channels, x_size and y_size apart, of `x y` or of `(x - y)²`."""

    @in_order
    def joint(x: Array, p: Any, y: Array, q: Any) -> Any:
        gap = load(x, p) - load(y, q)
        return gap * gap if distance else load(x, p) * load(y, q)

    @in_order
    def loop(
        x: Array, x_at: int, x_size: int, y: Array, y_at: int, y_size: int, channels: int, out: Array, n: int
    ) -> None:  # fmt: skip
        apart()
        p, q, by_p, by_q = np.uint64(x_at), np.uint64(y_at), np.uint64(x_size), np.uint64(y_size)
        if channels == 3:  # one pass for colour images
            p1, q1, p2, q2 = p + by_p, q + by_q, p + by_p + by_p, q + by_q + by_q
            for i in range(np.uint64(0), np.uint64(n), LANES):
                store(out, i, joint(x, p + i, y, q + i) + joint(x, p1 + i, y, q1 + i) + joint(x, p2 + i, y, q2 + i))
            return
        for i in range(np.uint64(0), np.uint64(n), LANES):
            store(out, i, joint(x, p + i, y, q + i))
        for _ in range(1, channels):
            p, q = p + by_p, q + by_q
            for i in range(np.uint64(0), np.uint64(n), LANES):
                store(out, i, load(out, i) + joint(x, p + i, y, q + i))

    return loop


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


@in_order
def scaled_taps(x: Array, at: int, step: int, law: tuple[Any, ...], out: Array, n: int) -> None:
    """`out[i] = scale Σ_t x[at + i + t step] + shift/3`, t < 3: three of these are what a layer of 3 x 3 taps gives."""
    start, by, scale, third = np.uint64(at), np.uint64(step), law[0], law[1] / (law[8] + law[8] + law[8])
    for i in range(np.uint64(0), np.uint64(n), LANES):
        store(out, i, scale * three(x, start + i, by) + third)


@compiled
def _source(index: int, size: int, padding: int) -> int:
    """Which position a padded one repeats."""
    if padding == CIRCULAR:
        return index % size
    return -index if index < 0 else 2 * (size - 1) - index


@in_order
def _copy(x: Array, source: Any, to: Any, n: Any) -> None:
    """n numbers from one place of x to another; what is left behind whole lanes is copied with its neighbours before it."""
    if n < LANES:
        for i in range(n):
            x[to + i] = x[source + i]
        return
    for i in range(np.uint64(0), n - LANES + np.uint64(1), LANES):
        store(x, to + i, load(x, source + i))
    store(x, to + n - LANES, load(x, source + n - LANES))


@in_order
def fill_border(x: Array, rows: int, cols: int, stride: int, border: int, padding: int) -> None:
    """Write the `border` columns and rows around the rows x cols window that starts at (border, border)."""
    row, first = np.uint64(stride), border * (stride + 1)
    for t in range(border):
        left, right = np.uint64(first - 1 - t), np.uint64(first + cols + t)
        if padding == ZERO:
            for _ in range(rows):
                x[left], x[right] = 0, 0
                left, right = left + row, right + row
        else:
            before, after = (
                np.uint64(first + _source(-1 - t, cols, padding)),
                np.uint64(first + _source(cols + t, cols, padding)),
            )
            for _ in range(rows):
                x[left], x[right] = x[before], x[after]
                left, right, before, after = left + row, right + row, before + row, after + row
    for t in range(border):
        above, below = (border - 1 - t) * stride, (border + rows + t) * stride
        if padding == ZERO:
            x[above : above + stride] = 0
            x[below : below + stride] = 0
        else:
            up = (border + _source(-1 - t, rows, padding)) * stride
            down = (border + _source(rows + t, rows, padding)) * stride
            _copy(x, np.uint64(up), np.uint64(above), row)
            _copy(x, np.uint64(down), np.uint64(below), row)


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
