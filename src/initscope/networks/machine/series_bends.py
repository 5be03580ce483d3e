"""Compiled Hermite series of the machine: what a tile of products becomes behind an activation without a closed form.

They take the same arguments as the closed forms in `bends`. A step of Horner's rule waits for the one before it: the four inputs
of x take turns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from initscope.networks.fused.lanes import apart, load, store
from initscope.networks.fused.loops import Array, in_order
from initscope.networks.machine.bends import bounded, with_slopes
from initscope.networks.machine.frames import ROWS, TILE, WIDTH
from initscope.networks.machine.steps import Sides, Window, places

_U = np.uint64
_WIDTH, _ROWS = _U(WIDTH), _U(ROWS)


@in_order
def cosines(registers: Array, at: Any, x: Array, p: Any, inverse: Any, one: Any) -> tuple[Any, Any, Any, Any]:
    """Those of the four inputs of x with the inputs of y."""
    return (
        bounded(load(registers, at) * (x[p] * inverse), one),
        bounded(load(registers, at + _WIDTH) * (x[p + _U(1)] * inverse), one),
        bounded(load(registers, at + _U(2) * _WIDTH) * (x[p + _U(2)] * inverse), one),
        bounded(load(registers, at + _U(3) * _WIDTH) * (x[p + _U(3)] * inverse), one),
    )


@in_order
def store_rows(registers: Array, at: Any, values: tuple[Any, Any, Any, Any]) -> None:
    store(registers, at, values[0])
    store(registers, at + _WIDTH, values[1])
    store(registers, at + _U(2) * _WIDTH, values[2])
    store(registers, at + _U(3) * _WIDTH, values[3])


@in_order
def times_rows(registers: Array, at: Any, to: Any, factors: tuple[Any, Any, Any, Any]) -> None:
    """Four rows of a register times these, into another."""
    store(registers, to, load(registers, at) * factors[0])
    store(registers, to + _WIDTH, load(registers, at + _WIDTH) * factors[1])
    store(registers, to + _U(2) * _WIDTH, load(registers, at + _U(2) * _WIDTH) * factors[2])
    store(registers, to + _U(3) * _WIDTH, load(registers, at + _U(3) * _WIDTH) * factors[3])


@with_slopes
def horner(slopes: bool) -> Any:
    """Σ_(i < count) x_i y_i w^i of the fields from `first` on, for the four inputs of x, and its derivative by w (or zeros)."""

    @in_order
    def loop(
        x: Array, y: Array, p: Any, q: Any, first: int, count: int, w: tuple[Any, Any, Any, Any], zero: Any
    ) -> tuple[Any, ...]:  # fmt: skip
        w0, w1, w2, w3 = w
        s0, s1, s2, s3 = zero, zero, zero, zero
        d0, d1, d2, d3 = zero, zero, zero, zero
        p += _ROWS * _U(first + count)
        q += _WIDTH * _U(first + count)
        for _ in range(count):
            p -= _ROWS
            q -= _WIDTH
            c = load(y, q)
            if slopes:
                d0, d1, d2, d3 = d0 * w0 + s0, d1 * w1 + s1, d2 * w2 + s2, d3 * w3 + s3
            s0 = s0 * w0 + x[p] * c
            s1 = s1 * w1 + x[p + _U(1)] * c
            s2 = s2 * w2 + x[p + _U(2)] * c
            s3 = s3 * w3 + x[p + _U(3)] * c
        return s0, s1, s2, s3, d0, d1, d2, d3

    return loop


@with_slopes
def series(slopes: bool) -> Any:
    """Σ_k a_k(x) a_k(y) rho^k; fields: 1/|a|, then a_k of even and of odd k, lowest first. Horner in rho² for both."""
    poly = horner[slopes]

    @in_order
    def loop(
        registers: Array, a: int, out: int, b: int, to: int, sides: Sides, window: Window, height: int, width: int,
        even: int, odd: int, numbers: Array,
    ) -> None:  # fmt: skip
        apart()
        zero, one = numbers[0], numbers[1]
        for row in range(window.top, window.bottom):
            for column in range(window.left, window.right):
                p, q = places(sides, row, column, window, height, width)
                at = _U((row * width + column) * TILE)
                inverse = load(sides.y, q)
                r = cosines(registers, _U(a) + at, sides.x, p, inverse, one)
                w = r[0] * r[0], r[1] * r[1], r[2] * r[2], r[3] * r[3]
                e = poly(sides.x, sides.y, p, q, 1, even, w, inverse * zero)
                o = poly(sides.x, sides.y, p, q, 1 + even, odd, w, inverse * zero)
                values = e[0] + r[0] * o[0], e[1] + r[1] * o[1], e[2] + r[2] * o[2], e[3] + r[3] * o[3]
                store_rows(registers, _U(out) + at, values)
                if slopes:  # d/drho of E(rho²) + rho O(rho²), over |a||b|
                    two = one + one
                    steep = (
                        (o[0] + two * (r[0] * e[4] + w[0] * o[4])) * (sides.x[p] * inverse),
                        (o[1] + two * (r[1] * e[5] + w[1] * o[5])) * (sides.x[p + _U(1)] * inverse),
                        (o[2] + two * (r[2] * e[6] + w[2] * o[6])) * (sides.x[p + _U(2)] * inverse),
                        (o[3] + two * (r[3] * e[7] + w[3] * o[7])) * (sides.x[p + _U(3)] * inverse),
                    )
                    times_rows(registers, _U(b) + at, _U(to) + at, steep)

    return loop


@with_slopes
def tails(slopes: bool) -> Any:
    """Σ_ij u_i u_j' T_ij(rho) and, with slopes, its derivative, for the four inputs of x; see `bending.Tails`.

    The fields u_j begin at the second one. T is a polynomial in e = 2√(1 - rho²) - 1, times rho for even powers; the derivative
    is one times rho for odd powers.
    """

    @in_order
    def polynomial(
        n: Array, at: int, e: tuple[Any, Any, Any, Any], s: tuple[Any, Any, Any, Any], zero: Any
    ) -> tuple[Any, Any, Any, Any]:  # fmt: skip
        """Even and odd powers of e apart: twice as many sums that need not wait for each other; `s` is e²."""
        count = int(n[at])
        k, last = at + 1 + count % 2, at + 1 + count
        a0, a1, a2, a3 = zero, zero, zero, zero
        b0, b1, b2, b3 = zero, zero, zero, zero
        if count % 2:
            c = n[at + 1]
            b0, b1, b2, b3 = zero + c, zero + c, zero + c, zero + c
        while k < last:
            c, d = n[k], n[k + 1]
            a0, a1, a2, a3 = a0 * s[0] + c, a1 * s[1] + c, a2 * s[2] + c, a3 * s[3] + c
            b0, b1, b2, b3 = b0 * s[0] + d, b1 * s[1] + d, b2 * s[2] + d, b3 * s[3] + d
            k += 2
        return a0 * e[0] + b0, a1 * e[1] + b1, a2 * e[2] + b2, a3 * e[3] + b3

    @in_order
    def loop(
        x: Array, y: Array, p: Any, q: Any, n: Array, rho: tuple[Any, Any, Any, Any], w: tuple[Any, Any, Any, Any], zero: Any
    ) -> tuple[Any, ...]:  # fmt: skip
        one = n[1]
        two = one + one
        e = (
            two * np.sqrt(max(one - w[0], zero)) - one,
            two * np.sqrt(max(one - w[1], zero)) - one,
            two * np.sqrt(max(one - w[2], zero)) - one,
            two * np.sqrt(max(one - w[3], zero)) - one,
        )
        s = e[0] * e[0], e[1] * e[1], e[2] * e[2], e[3] * e[3]
        t0, t1, t2, t3 = zero, zero, zero, zero
        d0, d1, d2, d3 = zero, zero, zero, zero
        at, before = 4, 1
        for group in range(2):  # odd powers, even ones
            count = int(n[2 + group])
            by = (zero + one, zero + one, zero + one, zero + one) if group == 0 else rho
            for i in range(before, before + count):
                p_i = p + _ROWS * _U(i)
                y_i = load(y, q + _WIDTH * _U(i))
                for j in range(i, before + count):
                    p_j = p + _ROWS * _U(j)
                    y_j = load(y, q + _WIDTH * _U(j))
                    share = one if i == j else two  # halves of both orders
                    half = share / two
                    u0 = half * (x[p_i] * y_j + x[p_j] * y_i)
                    u1 = half * (x[p_i + _U(1)] * y_j + x[p_j + _U(1)] * y_i)
                    u2 = half * (x[p_i + _U(2)] * y_j + x[p_j + _U(2)] * y_i)
                    u3 = half * (x[p_i + _U(3)] * y_j + x[p_j + _U(3)] * y_i)
                    f = polynomial(n, at, e, s, zero)
                    at += 1 + int(n[at])
                    t0 = t0 + u0 * (by[0] * f[0])
                    t1 = t1 + u1 * (by[1] * f[1])
                    t2 = t2 + u2 * (by[2] * f[2])
                    t3 = t3 + u3 * (by[3] * f[3])
                    if slopes:
                        g = polynomial(n, at, e, s, zero)
                        at += 1 + int(n[at])
                        if group == 0:
                            d0, d1 = d0 + u0 * (rho[0] * g[0]), d1 + u1 * (rho[1] * g[1])
                            d2, d3 = d2 + u2 * (rho[2] * g[2]), d3 + u3 * (rho[3] * g[3])
                        else:
                            d0, d1, d2, d3 = d0 + u0 * g[0], d1 + u1 * g[1], d2 + u2 * g[2], d3 + u3 * g[3]
            before += count
        return t0, t1, t2, t3, d0, d1, d2, d3

    return loop


@with_slopes
def bent_series(slopes: bool) -> Any:
    """`series` for a kink at zero: what orders beyond the last one add of the rectified powers is known, see `tails`.

    Fields: 1/|a|, the u_j of odd and of even powers, a_k of even and of odd k. numbers: 0, 1, then those of `bending.Tails`.
    """
    poly, tail_of = horner[slopes], tails[slopes]

    @in_order
    def loop(
        registers: Array, a: int, out: int, b: int, to: int, sides: Sides, window: Window, height: int, width: int,
        even: int, odd: int, numbers: Array,
    ) -> None:  # fmt: skip
        apart()
        zero, one = numbers[0], numbers[1]
        first = 1 + int(numbers[2]) + int(numbers[3])
        for row in range(window.top, window.bottom):
            for column in range(window.left, window.right):
                p, q = places(sides, row, column, window, height, width)
                at = _U((row * width + column) * TILE)
                inverse = load(sides.y, q)
                nothing = inverse * zero
                r = cosines(registers, _U(a) + at, sides.x, p, inverse, one)
                w = r[0] * r[0], r[1] * r[1], r[2] * r[2], r[3] * r[3]
                e = poly(sides.x, sides.y, p, q, first, even, w, nothing)
                o = poly(sides.x, sides.y, p, q, first + even, odd, w, nothing)
                t = tail_of(sides.x, sides.y, p, q, numbers, r, w, nothing)
                values = (
                    e[0] + (r[0] * o[0] + t[0]), e[1] + (r[1] * o[1] + t[1]), e[2] + (r[2] * o[2] + t[2]),
                    e[3] + (r[3] * o[3] + t[3]),
                )  # fmt: skip
                store_rows(registers, _U(out) + at, values)
                if slopes:
                    two = one + one
                    steep = (
                        (o[0] + two * (r[0] * e[4] + w[0] * o[4]) + t[4]) * (sides.x[p] * inverse),
                        (o[1] + two * (r[1] * e[5] + w[1] * o[5]) + t[5]) * (sides.x[p + _U(1)] * inverse),
                        (o[2] + two * (r[2] * e[6] + w[2] * o[6]) + t[6]) * (sides.x[p + _U(2)] * inverse),
                        (o[3] + two * (r[3] * e[7] + w[3] * o[7]) + t[7]) * (sides.x[p + _U(3)] * inverse),
                    )
                    times_rows(registers, _U(b) + at, _U(to) + at, steep)

    return loop
