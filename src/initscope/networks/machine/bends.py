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
