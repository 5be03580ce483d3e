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


@in_order
def arcs(rho: Any, one: Any, half_pi: Any) -> tuple[Any, Any, Any, Any, Any, Any]:
    """2π J_ij of rectified powers for ij = 11, 13, 22, 33, and τ = π - t, √(1 - rho²) [cho2009]."""
    tau, s = half_pi + arcsine(rho), np.sqrt(max(one - rho * rho, one - one))
    two, three, five = one + one, one + one + one, one + one + one + one + one
    first, cube = s + tau * rho, s * s * s
    second = tau * (one + two * (rho * rho)) + three * (s * rho)
    third = (three * three + (three * two) * (rho * rho)) * first - five * cube
    return first, three * first - cube, second, third, tau, s


@in_order
def cubic(n: Array, at: int, rho: Any) -> Any:
    return n[at] + rho * (n[at + 1] + rho * (n[at + 2] + rho * n[at + 3]))


@in_order
def quadratic(n: Array, at: int, rho: Any) -> Any:
    """The derivative of `cubic`."""
    two = n[1] + n[1]
    return n[at + 1] + rho * (two * n[at + 2] + rho * ((two + n[1]) * n[at + 3]))


@with_slopes
def bent_series(slopes: bool) -> Any:
    """`series` for a kink at zero: Σ_k (a_k a_k' - r_k r_k') rho^k + Σ_ij u_i u_j' (J_ij - its terms of order 0 to 3).

    u_j = c_j s^j are the rectified powers that are taken out, r_k their coefficients of order 4 and more, where only powers of
    the same parity meet. Fields: 1/|a|, u_1, u_2, u_3, a_k of even and of odd k, r_k likewise. numbers: 0, 1, 1/2π, π/2, then
    four coefficients each of J_11, J_13, J_22, J_33, then `frames.SNAP`.
    """

    @in_order
    def loop(
        registers: Array, a: int, out: int, b: int, to: int, sides: Sides, window: Window, height: int, width: int,
        even: int, odd: int, n: Array,
    ) -> None:  # fmt: skip
        apart()
        zero, one, turn, terms = n[0], n[1], n[2], _U(even + odd)
        for row in range(window.top, window.bottom):
            for column in range(window.left, window.right):
                p, q = places(sides, row, column, window, height, width)
                at = _U((row * width + column) * TILE)
                inverse, u1 = load(sides.y, q), load(sides.y, q + _WIDTH)
                u2, u3 = load(sides.y, q + _WIDTH * _U(2)), load(sides.y, q + _WIDTH * _U(3))
                for i in range(ROWS):
                    here, x = at + _U(i * WIDTH), p + _U(i)
                    by = sides.x[x] * inverse
                    rho = bounded(load(registers, _U(a) + here) * by, one)
                    u = rho * rho
                    e = inverse * zero
                    eu, o, ou = e, e, e
                    k = _U(even + 3)
                    for _ in range(even):
                        y, z = load(sides.y, q + k * _WIDTH), load(sides.y, q + (k + terms) * _WIDTH)
                        if slopes:
                            eu = eu * u + e
                        e = e * u + (sides.x[x + k * _ROWS] * y - sides.x[x + (k + terms) * _ROWS] * z)
                        k -= _U(1)
                    k = _U(even + odd + 3)
                    for _ in range(odd):
                        y, z = load(sides.y, q + k * _WIDTH), load(sides.y, q + (k + terms) * _WIDTH)
                        if slopes:
                            ou = ou * u + o
                        o = o * u + (sides.x[x + k * _ROWS] * y - sides.x[x + (k + terms) * _ROWS] * z)
                        k -= _U(1)
                    first, mixed, second, third, tau, s = arcs(bounded(rho * n[20], one), one, n[3])
                    v1, v2, v3 = sides.x[x + _ROWS], sides.x[x + _ROWS * _U(2)], sides.x[x + _ROWS * _U(3)]
                    w11, w13, w22, w33 = v1 * u1, v1 * u3 + v3 * u1, v2 * u2, v3 * u3
                    bent = w11 * (turn * first - cubic(n, 4, rho)) + w13 * (turn * mixed - cubic(n, 8, rho))
                    bent = bent + w22 * (turn * second - cubic(n, 12, rho)) + w33 * (turn * third - cubic(n, 16, rho))
                    store(registers, _U(out) + here, e + rho * o + bent)
                    if slopes:
                        two = one + one
                        three = two + one
                        steep = w11 * (turn * tau - quadratic(n, 4, rho))
                        steep = steep + w13 * ((turn * three) * (tau + s * rho) - quadratic(n, 8, rho))
                        steep = steep + w22 * ((turn * two * two) * first - quadratic(n, 12, rho))
                        steep = steep + w33 * ((turn * three * three) * second - quadratic(n, 16, rho))
                        slope = (o + two * (rho * eu + u * ou) + steep) * by
                        store(registers, _U(to) + here, load(registers, _U(b) + here) * slope)

    return loop
