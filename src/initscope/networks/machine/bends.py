"""Compiled activations of the machine: what a tile of products becomes, and the tangent kernel beside it.

Each is written once, with and without slopes: `slopes` is known when the loop is compiled. All take the same arguments. `a`,
`out` are places of registers of products, `b`, `to` of tangent kernels, which an activation multiplies by E f'(u) f'(v).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import overload

from initscope.networks.fused.lanes import apart, is_single, load, store, where_less
from initscope.networks.fused.loops import Array, in_order, tail
from initscope.networks.fused.psi import SLOPES_32, SLOPES_64
from initscope.networks.machine.frames import ROWS, TILE, WIDTH
from initscope.networks.machine.steps import Sides, Window, places

_U = np.uint64
_WIDTH, _ROWS = _U(WIDTH), _U(ROWS)


def with_slopes(make: Callable[[bool], Any]) -> tuple[Any, Any]:
    """A step for products alone, and one for tangent kernels too."""
    return make(False), make(True)


_SLOPES_32 = tuple(np.float32(c * np.pi / 2) for c in SLOPES_32)
_SLOPES_64 = tuple(c * np.pi / 2 for c in SLOPES_64)
_E0, _E1, _E2, _E3, _E4, _E5, _E6 = _SLOPES_32
_H0, _H1, _H2, _H3, _H4, _H5, _H6, _H7, _H8, _H9, _H10, _H11, _H12, _H13, _H14, _H15, _H16 = _SLOPES_64
_HALF, _RIGHT, _EDGE = np.float32(0.5), np.float32(np.pi / 2), np.float32(0.5**0.5)


def arcsine(w: Any) -> Any:
    """asin(w) of lanes, |w| <= 1, in compiled code: the series of asin √q at q = w², or beyond q = 1/2 at q = (1 - |w|)/2."""
    raise NotImplementedError


@overload(arcsine)
def _arcsine_for(w: Any) -> Any:
    def single(w: Any) -> Any:
        size, zero = abs(w), w * np.float32(0)
        edge = zero + _EDGE
        rest = abs(_HALF - _HALF * size)
        q = where_less(size, edge, w * w, rest)
        h = _E0 + q * (_E1 + q * (_E2 + q * (_E3 + q * (_E4 + q * (_E5 + q * _E6)))))
        angle = where_less(size, edge, _HALF * size * h, _RIGHT - np.sqrt(rest) * h)
        return where_less(w, zero, zero - angle, angle)

    def double(w: Any) -> Any:
        size, zero = abs(w), w * 0.0
        edge = zero + 0.5**0.5
        rest = abs(0.5 - 0.5 * size)
        q = where_less(size, edge, w * w, rest)
        h = _H8 + q * (_H9 + q * (_H10 + q * (_H11 + q * (_H12 + q * (_H13 + q * (_H14 + q * (_H15 + q * _H16)))))))
        h = _H0 + q * (_H1 + q * (_H2 + q * (_H3 + q * (_H4 + q * (_H5 + q * (_H6 + q * (_H7 + q * h)))))))
        angle = where_less(size, edge, 0.5 * size * h, np.pi / 2 - np.sqrt(rest) * h)
        return where_less(w, zero, zero - angle, angle)

    return single if is_single(w) else double


@in_order
def bounded(value: Any, one: Any) -> Any:
    """Within [-1, 1], where rounding may leave a cosine."""
    return min(max(value, -one), one)


@with_slopes
def bend(slopes: bool) -> Any:
    """Leaky ReLU: alpha P + gamma (max(P, 0) + |a||b| tail(rho)); fields: |a|, 1/|a|. alpha: the slope s, gamma: (1 - s)²/2.

    numbers[6]: `frames.SNAP`.
    """

    @in_order
    def loop(
        registers: Array, a: int, out: int, b: int, to: int, sides: Sides, window: Window, height: int, width: int,
        even: int, odd: int, numbers: Array,
    ) -> None:  # fmt: skip
        apart()
        zero, one, alpha, gamma, half, share = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]
        for row in range(window.top, window.bottom):
            for column in range(window.left, window.right):
                p, q = places(sides, row, column, window, height, width)
                at = _U((row * width + column) * TILE)
                norm, inverse = load(sides.y, q), load(sides.y, q + _WIDTH)
                for i in range(ROWS):
                    here, x = at + _U(i * WIDTH), p + _U(i)
                    value = load(registers, _U(a) + here)
                    rho = bounded(value * (sides.x[x + _ROWS] * inverse), one)
                    bent = max(value, zero) + (sides.x[x] * norm) * tail(rho)  # |a||b| rhat(rho) [cho2009, J1]
                    store(registers, _U(out) + here, alpha * value + gamma * bent)
                    if slopes:
                        angle = arcsine(bounded(rho * numbers[6], one))
                        slope = alpha + gamma * (half + share * angle)  # 1 - t/pi
                        store(registers, _U(to) + here, load(registers, _U(b) + here) * slope)

    return loop


@with_slopes
def arc(slopes: bool) -> Any:
    """shift + alpha asin(P e_x e_y), slope beta e_x e_y / √(1 - w²): erf, and without a slope sign and step; fields: e."""

    @in_order
    def loop(
        registers: Array, a: int, out: int, b: int, to: int, sides: Sides, window: Window, height: int, width: int,
        even: int, odd: int, numbers: Array,
    ) -> None:  # fmt: skip
        apart()
        zero, one, alpha, shift, beta, least = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]
        for row in range(window.top, window.bottom):
            for column in range(window.left, window.right):
                p, q = places(sides, row, column, window, height, width)
                at = _U((row * width + column) * TILE)
                e = load(sides.y, q)
                for i in range(ROWS):
                    here = at + _U(i * WIDTH)
                    both = sides.x[p + _U(i)] * e
                    w = bounded(load(registers, _U(a) + here) * both, one)
                    store(registers, _U(out) + here, alpha * arcsine(w) + shift)
                    if slopes:
                        slope = beta * both / np.sqrt(max(one - w * w, least))
                        store(registers, _U(to) + here, load(registers, _U(b) + here) * slope + zero)

    return loop


@with_slopes
def gelu(slopes: bool) -> Any:
    """P/4 + [P asin w + (P² + ABΔ²)/(cΔ)]/2π, c = (1+A)(1+B), Δ² = c - P², w = P/√c; fields: A, 1/√(1+A)."""

    @in_order
    def loop(
        registers: Array, a: int, out: int, b: int, to: int, sides: Sides, window: Window, height: int, width: int,
        even: int, odd: int, numbers: Array,
    ) -> None:  # fmt: skip
        apart()
        one, quarter, turn, least, two = numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]
        for row in range(window.top, window.bottom):
            for column in range(window.left, window.right):
                p, q = places(sides, row, column, window, height, width)
                at = _U((row * width + column) * TILE)
                norm, inverse = load(sides.y, q), load(sides.y, q + _WIDTH)
                for i in range(ROWS):
                    here, x = at + _U(i * WIDTH), p + _U(i)
                    value = load(registers, _U(a) + here)
                    scale = sides.x[x + _ROWS] * inverse  # 1/√c
                    w = bounded(value * scale, one)
                    both = sides.x[x] * norm  # AB
                    rest = max(one - w * w, least)  # Δ²/c
                    root = np.sqrt(rest)
                    angle = arcsine(w)
                    # (P² + ABΔ²)/(cΔ) = (w² + AB (1 - w²)) / (√c √(1 - w²))
                    bulge = (w * w + both * rest) * scale / root
                    store(registers, _U(out) + here, quarter * value + turn * (value * angle + bulge))
                    if slopes:  # its derivative in P
                        steep = w * (one + (one - both) * (scale * scale) * two + bulge * (scale / root)) / root
                        slope = quarter + turn * (angle + steep)
                        store(registers, _U(to) + here, load(registers, _U(b) + here) * slope)

    return loop


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
    """Σ_(i < count) x_i y_i w^i of the fields from `first` on, for the four inputs of x, and its derivative by w (or zeros).

    One step waits for the one before it: the four take turns.
    """

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
    def polynomial(n: Array, at: int, e: tuple[Any, Any, Any, Any], zero: Any) -> tuple[Any, Any, Any, Any]:
        s0, s1, s2, s3 = zero, zero, zero, zero
        for k in range(at + 1, at + 1 + int(n[at])):
            c = n[k]
            s0, s1, s2, s3 = s0 * e[0] + c, s1 * e[1] + c, s2 * e[2] + c, s3 * e[3] + c
        return s0, s1, s2, s3

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
                    f = polynomial(n, at, e, zero)
                    at += 1 + int(n[at])
                    t0 = t0 + u0 * (by[0] * f[0])
                    t1 = t1 + u1 * (by[1] * f[1])
                    t2 = t2 + u2 * (by[2] * f[2])
                    t3 = t3 + u3 * (by[3] * f[3])
                    if slopes:
                        g = polynomial(n, at, e, zero)
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
