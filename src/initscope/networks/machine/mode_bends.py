"""Compiled series of few products: Σ_pq φ_p(x) φ_q(y) Q_pq(rho), see `modes`. Same arguments as the closed forms in `bends`."""

from __future__ import annotations

from typing import Any

import numpy as np

from initscope.networks.fused.lanes import LANES, apart, load, spread, store, within
from initscope.networks.fused.loops import Array, in_order
from initscope.networks.machine.bends import with_slopes
from initscope.networks.machine.frames import MIXED, ROWS, TILE, WIDTH
from initscope.networks.machine.series_bends import cosines, store_rows, times_rows
from initscope.networks.machine.steps import Sides, Window, places

_U = np.uint64
_WIDTH, _ROWS = _U(WIDTH), _U(ROWS)
_FIRST = 3  # number at which polynomials begin

Four = tuple[Any, Any, Any, Any]


@in_order
def mixed(x: Array, p: Any, first: int, count: int, n: Array, at: int, size: int, out: Array) -> None:
    """Σ_p φ_p(x) Q_pq of the four inputs of x, `size` coefficients each; the φ_p are `count` fields from `first` on."""
    within()
    zero = spread(out.dtype.type(0))
    for i in range(_U(0), _U(size), LANES):
        s0, s1, s2, s3 = zero, zero, zero, zero
        for k in range(count):
            here = p + _ROWS * _U(first + k)
            c = load(n, _U(at + k * size) + i)
            s0, s1, s2, s3 = (
                s0 + x[here] * c,
                s1 + x[here + _U(1)] * c,
                s2 + x[here + _U(2)] * c,
                s3 + x[here + _U(3)] * c,
            )
        store(out, i, s0)
        store(out, i + _U(size), s1)
        store(out, i + _U(2 * size), s2)
        store(out, i + _U(3 * size), s3)


@in_order
def strand(
    x: Array, y: Array, p: Any, q: Any, first: int, count: int, n: Array, at: int, e: Four, s: Four, zero: Any, out: Array
) -> tuple[Any, ...]:  # fmt: skip
    """Σ_q φ_q(y) Σ_p φ_p(x) Q_pq(e), its numbers from `at` on, and where these end; `s` is e².

    Even and odd powers of e apart: twice as many sums that need not wait for each other.
    """
    within()
    size, k = _U(int(n[at])), _U(0)
    lengths = at + 1
    start = lengths + count
    mixed(x, p, first, count, n, start, int(size), out)
    t0, t1, t2, t3 = zero, zero, zero, zero
    for j in range(count):
        last = k + _U(int(n[lengths + j]))
        a0, a1, a2, a3 = zero, zero, zero, zero
        b0, b1, b2, b3 = zero, zero, zero, zero
        while k < last:
            k1, k2, k3 = k + size, k + size + size, k + size + size + size
            a0, a1, a2, a3 = a0 * s[0] + out[k], a1 * s[1] + out[k1], a2 * s[2] + out[k2], a3 * s[3] + out[k3]
            k, k1, k2, k3 = k + _U(1), k1 + _U(1), k2 + _U(1), k3 + _U(1)
            b0, b1, b2, b3 = b0 * s[0] + out[k], b1 * s[1] + out[k1], b2 * s[2] + out[k2], b3 * s[3] + out[k3]
            k += _U(1)
        c = load(y, q + _WIDTH * _U(first + j))
        t0, t1 = t0 + c * (a0 * e[0] + b0), t1 + c * (a1 * e[1] + b1)
        t2, t3 = t2 + c * (a2 * e[2] + b2), t3 + c * (a3 * e[3] + b3)
    return t0, t1, t2, t3, start + count * int(size)


@with_slopes
def modes(slopes: bool) -> Any:
    """Fields: 1/|a|, then the φ_p of even and of odd orders; numbers: those of `modes.Modes`."""

    @in_order
    def loop(
        registers: Array, a: int, out: int, b: int, to: int, sides: Sides, window: Window, height: int, width: int,
        even: int, odd: int, numbers: Array,
    ) -> None:  # fmt: skip
        apart()
        zero, one, two = numbers[0], numbers[1], numbers[1] + numbers[1]
        rooted = numbers[2] > zero
        x, y = sides.x, sides.y
        made = np.empty(ROWS * MIXED, registers.dtype)
        for row in range(window.top, window.bottom):
            for column in range(window.left, window.right):
                p, q = places(sides, row, column, window, height, width)
                at = _U((row * width + column) * TILE)
                inverse = load(y, q)
                nothing = inverse * zero
                r = cosines(registers, _U(a) + at, x, p, inverse, one)
                w = r[0] * r[0], r[1] * r[1], r[2] * r[2], r[3] * r[3]
                if rooted:
                    w = (
                        np.sqrt(max(one - w[0], zero)), np.sqrt(max(one - w[1], zero)), np.sqrt(max(one - w[2], zero)),
                        np.sqrt(max(one - w[3], zero)),
                    )  # fmt: skip
                e = w[0] * two - one, w[1] * two - one, w[2] * two - one, w[3] * two - one
                s = e[0] * e[0], e[1] * e[1], e[2] * e[2], e[3] * e[3]
                f = strand(x, y, p, q, 1, even, numbers, _FIRST, e, s, nothing, made)
                at_odd = f[4]
                if slopes:
                    df = strand(x, y, p, q, 1, even, numbers, f[4], e, s, nothing, made)
                    at_odd = df[4]
                g = strand(x, y, p, q, 1 + even, odd, numbers, at_odd, e, s, nothing, made)
                store_rows(
                    registers, _U(out) + at,
                    (f[0] + r[0] * g[0], f[1] + r[1] * g[1], f[2] + r[2] * g[2], f[3] + r[3] * g[3]),
                )  # fmt: skip
                if slopes:  # over |a||b|
                    dg = strand(x, y, p, q, 1 + even, odd, numbers, g[4], e, s, nothing, made)
                    steep = (
                        (r[0] * df[0] + dg[0]) * (x[p] * inverse),
                        (r[1] * df[1] + dg[1]) * (x[p + _U(1)] * inverse),
                        (r[2] * df[2] + dg[2]) * (x[p + _U(2)] * inverse),
                        (r[3] * df[3] + dg[3]) * (x[p + _U(3)] * inverse),
                    )
                    times_rows(registers, _U(b) + at, _U(to) + at, steep)

    return loop
