"""Compiled series of few products: Σ_pq φ_p(x) φ_q(y) Q_pq(rho), see `modes`. Same arguments as the closed forms in `bends`."""

from __future__ import annotations

from typing import Any

import numpy as np

from initscope.networks.fused.lanes import apart, load
from initscope.networks.fused.loops import Array, in_order
from initscope.networks.machine.bends import with_slopes
from initscope.networks.machine.frames import ROWS, TILE, WIDTH
from initscope.networks.machine.series_bends import cosines, store_rows, times_rows
from initscope.networks.machine.steps import Sides, Window, places

_U = np.uint64
_WIDTH, _ROWS = _U(WIDTH), _U(ROWS)
_FIRST = 3  # number at which polynomials begin

Four = tuple[Any, Any, Any, Any]


@in_order
def polynomial(n: Array, at: int, e: Four, s: Four, zero: Any) -> Four:
    """For the four inputs of x. Even and odd powers of e apart, twice as many sums that need not wait; `s` is e²."""
    count = int(n[at])
    k, last = at + 1 + count % 2, at + 1 + count
    a0, a1, a2, a3 = zero, zero, zero, zero
    b0, b1, b2, b3 = zero, zero, zero, zero
    if count % 2:
        c = zero + n[at + 1]
        b0, b1, b2, b3 = c, c, c, c
    while k < last:
        c, d = n[k], n[k + 1]
        a0, a1, a2, a3 = a0 * s[0] + c, a1 * s[1] + c, a2 * s[2] + c, a3 * s[3] + c
        b0, b1, b2, b3 = b0 * s[0] + d, b1 * s[1] + d, b2 * s[2] + d, b3 * s[3] + d
        k += 2
    return a0 * e[0] + b0, a1 * e[1] + b1, a2 * e[2] + b2, a3 * e[3] + b3


@with_slopes
def group(slopes: bool) -> Any:
    """Σ_(p <= q) of `count` fields from `first` on, its polynomials from `at` on, the derivative, and where these end."""

    @in_order
    def loop(
        x: Array, y: Array, p: Any, q: Any, first: int, count: int, n: Array, at: int, e: Four, s: Four, zero: Any
    ) -> tuple[Any, ...]:  # fmt: skip
        t0, t1, t2, t3 = zero, zero, zero, zero
        d0, d1, d2, d3 = zero, zero, zero, zero
        for i in range(first, first + count):
            p_i = p + _ROWS * _U(i)
            y_i = load(y, q + _WIDTH * _U(i))
            for j in range(i, first + count):
                u0, u1, u2, u3 = x[p_i] * y_i, x[p_i + _U(1)] * y_i, x[p_i + _U(2)] * y_i, x[p_i + _U(3)] * y_i
                if j > i:
                    p_j = p + _ROWS * _U(j)
                    y_j = load(y, q + _WIDTH * _U(j))
                    u0 = x[p_i] * y_j + x[p_j] * y_i
                    u1 = x[p_i + _U(1)] * y_j + x[p_j + _U(1)] * y_i
                    u2 = x[p_i + _U(2)] * y_j + x[p_j + _U(2)] * y_i
                    u3 = x[p_i + _U(3)] * y_j + x[p_j + _U(3)] * y_i
                f = polynomial(n, at, e, s, zero)
                at += 1 + int(n[at])
                t0, t1, t2, t3 = t0 + u0 * f[0], t1 + u1 * f[1], t2 + u2 * f[2], t3 + u3 * f[3]
                if slopes:
                    g = polynomial(n, at, e, s, zero)
                    at += 1 + int(n[at])
                    d0, d1, d2, d3 = d0 + u0 * g[0], d1 + u1 * g[1], d2 + u2 * g[2], d3 + u3 * g[3]
        return t0, t1, t2, t3, d0, d1, d2, d3, at

    return loop


@with_slopes
def modes(slopes: bool) -> Any:
    """Fields: 1/|a|, then the φ_p of even and of odd orders; numbers: those of `modes.Modes`."""
    sums = group[slopes]

    @in_order
    def loop(
        registers: Array, a: int, out: int, b: int, to: int, sides: Sides, window: Window, height: int, width: int,
        even: int, odd: int, numbers: Array,
    ) -> None:  # fmt: skip
        apart()
        zero, one, two = numbers[0], numbers[1], numbers[1] + numbers[1]
        rooted = numbers[2] > zero
        x, y = sides.x, sides.y
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
                f = sums(x, y, p, q, 1, even, numbers, _FIRST, e, s, nothing)
                g = sums(x, y, p, q, 1 + even, odd, numbers, f[8], e, s, nothing)
                store_rows(
                    registers, _U(out) + at,
                    (f[0] + r[0] * g[0], f[1] + r[1] * g[1], f[2] + r[2] * g[2], f[3] + r[3] * g[3]),
                )  # fmt: skip
                if slopes:  # over |a||b|
                    steep = (
                        (r[0] * f[4] + g[4]) * (x[p] * inverse),
                        (r[1] * f[5] + g[5]) * (x[p + _U(1)] * inverse),
                        (r[2] * f[6] + g[6]) * (x[p + _U(2)] * inverse),
                        (r[3] * f[7] + g[7]) * (x[p + _U(3)] * inverse),
                    )
                    times_rows(registers, _U(b) + at, _U(to) + at, steep)

    return loop
