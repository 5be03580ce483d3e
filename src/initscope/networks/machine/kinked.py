"""Compiled step of functions made of hinges: what a tile of products becomes behind hardswish, relu6, hardtanh and their kind.

See `kinks` for the hinges, `owen` for the polynomials. It takes the same arguments as the closed forms in `bends`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload

from initscope.networks.fused.exponential import exponential
from initscope.networks.fused.lanes import apart, is_single, load, store, where_less
from initscope.networks.fused.loops import Array, in_order
from initscope.networks.machine.bends import arcsine, bounded, with_slopes
from initscope.networks.machine.frames import ROWS, TILE, WIDTH
from initscope.networks.machine.hinge_cells import HEADER, PER_VERTEX
from initscope.networks.machine.owen import DOUBLE, MILLS_ZERO, SINGLE
from initscope.networks.machine.steps import Sides, Window, places

_U = np.uint64
_WIDTH, _ROWS = _U(WIDTH), _U(ROWS)
_HEADER, _PER_VERTEX = HEADER, PER_VERTEX
_TERMS_32, _TERMS_64 = SINGLE.terms, DOUBLE.terms
_Q0, _Q1, _Q2, _Q3, _Q4, _Q5, _Q6 = (np.float32(c) for c in SINGLE.mills)
_D0, _D1, _D2, _D3, _D4, _D5, _D6, _D7, _D8, _D9, _D10, _D11 = DOUBLE.mills
_ZERO_32, _ZERO_64 = np.float32(MILLS_ZERO), MILLS_ZERO
_ONE, _HALF = np.float32(1), 0.5


def mills(x: Any, u: Any) -> Any:
    """Q at x, with u = 1 - x; of lanes, in compiled code."""
    raise NotImplementedError


@overload(mills)
def _mills_for(x: Any, u: Any) -> Any:
    def single(x: Any, u: Any) -> Any:
        return _ZERO_32 + u * (_Q6 + x * (_Q5 + x * (_Q4 + x * (_Q3 + x * (_Q2 + x * (_Q1 + x * _Q0))))))

    def double(x: Any, u: Any) -> Any:
        h = _D5 + x * (_D4 + x * (_D3 + x * (_D2 + x * (_D1 + x * _D0))))
        h = _D11 + x * (_D10 + x * (_D9 + x * (_D8 + x * (_D7 + x * (_D6 + x * h)))))
        return _ZERO_64 + u * h

    return single if is_single(x) else double


def weight(z: Any) -> Any:
    """The first terms of e^z; of lanes, in compiled code."""
    raise NotImplementedError


@overload(weight)
def _weight_for(z: Any) -> Any:
    def single(z: Any) -> Any:
        return _ONE + z

    def double(z: Any) -> Any:
        return 1.0 + z * (1.0 + z * _HALF)

    return single if is_single(z) else double


def beside_x(x: Array, at: Any, w: Any, u: Any) -> Any:
    """B of an input of x, whose numbers begin at `at`: the value at 0 and u = 1 - w times a polynomial in w, of lanes."""
    raise NotImplementedError


@overload(beside_x)
def _beside_x_for(x: Array, at: Any, w: Any, u: Any) -> Any:
    terms = _TERMS_32 if is_single(w) else _TERMS_64

    def value(x: Array, at: Any, w: Any, u: Any) -> Any:
        h = w * x[at + _ROWS] + x[at + _ROWS + _ROWS]
        for n in range(_U(3), _U(terms + 1)):
            h = h * w + x[at + n * _ROWS]
        return u * h + x[at]

    return value


def beside_y(y: Array, at: Any, w: Any, u: Any) -> Any:
    """The same of the inputs of y."""
    raise NotImplementedError


@overload(beside_y)
def _beside_y_for(y: Array, at: Any, w: Any, u: Any) -> Any:
    terms = _TERMS_32 if is_single(w) else _TERMS_64

    def value(y: Array, at: Any, w: Any, u: Any) -> Any:
        h = w * load(y, at + _WIDTH) + load(y, at + _WIDTH + _WIDTH)
        for n in range(_U(3), _U(terms + 1)):
            h = h * w + load(y, at + n * _WIDTH)
        return u * h + load(y, at)

    return value


@in_order
def vertex(
    x: Array, y: Array, p: Any, q: Any, pair: tuple[Any, ...], numbers: Array, n: int
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """S_00, φ(α) Φ(-m), φ(β) Φ(-m') and √(1-ρ²) times the density, of one input of x whose hinge begins at p, y's at q.

    `pair`: rho, 1/√(1-ρ²), √(1-ρ²), θ/2π. `n`: where the numbers of the vertex begin. At 0 a hinge has no B.
    """
    rho, inverse, root, angle = pair
    zero, one, half, turn = rho * numbers[0], numbers[1], numbers[2], numbers[3]
    per, reach, first, second = numbers[7], numbers[8], numbers[9], numbers[10]
    alpha, beta = x[p], load(y, q)
    m, k = (beta - rho * alpha) * inverse, (alpha - rho * beta) * inverse
    z = half * (m * m + alpha * alpha)
    fall = exponential(zero - z)
    a, b = one + per * min(abs(m), reach), one + per * min(abs(k), reach)
    both = one / (a * b)
    v, w = first * (b * both) + second, first * (a * both) + second
    v1, w1 = one - v, one - w
    g, h = fall * mills(v, v1), fall * mills(w, w1)
    s, t = zero, zero
    if numbers[n + 7] > 0:
        s = beside_x(x, p + _ROWS + _ROWS + _ROWS, v, v1)
    if numbers[n + 8] > 0:
        t = beside_y(y, q + _WIDTH + _WIDTH + _WIDTH, w, w1)
    k = where_less(m, zero, abs(k), k)  # both may only seem to be below 0
    # φ(α) and Φ(-α) of the one whose m is below 0
    g = where_less(m, zero, x[p + _ROWS] - g, g)
    h = where_less(k, zero, load(y, q + _WIDTH) - h, h)
    beyond = where_less(m, zero, zero + x[p + _ROWS + _ROWS], zero)
    beyond = where_less(k, zero, load(y, q + _WIDTH + _WIDTH), beyond)
    s, t = where_less(m, zero, zero - s, s), where_less(k, zero, zero - t, t)
    open_angle = where_less(min(m, k), zero, zero, zero + half) - angle
    return beyond + fall * (open_angle * weight(z) + (s + t)), g, h, (root * turn) * fall


@in_order
def series_term(x: Array, y: Array, p: Any, q: Any, field: int) -> Any:
    """a_k a_k' - η_k η_k'; η_k lies three fields behind a_k."""
    f, g = _U(field), _U(field + 3)
    return load(y, q + f * _WIDTH) * x[p + f * _ROWS] - load(y, q + g * _WIDTH) * x[p + g * _ROWS]


@with_slopes
def hinges(slopes: bool) -> Any:
    """Σ_k (a_k a_k' - η_k η_k') ρ^k over k <= 2 and the moments of every two hinges; see `hinge_cells` for numbers and fields.

    `even`: whether a hinge has a square; `odd`: how many vertices there are.
    """

    @in_order
    def loop(
        registers: Array, a: int, out: int, b: int, to: int, sides: Sides, window: Window, height: int, width: int,
        even: int, odd: int, numbers: Array,
    ) -> None:  # fmt: skip
        apart()
        x, y = sides.x, sides.y
        one, turn, right, least = numbers[1], numbers[3], numbers[4], numbers[6]
        two = one + one
        for row in range(window.top, window.bottom):
            for column in range(window.left, window.right):
                start, q = places(sides, row, column, window, height, width)
                at = _U((row * width + column) * TILE)
                inverse, norm = load(y, q), load(y, q + _WIDTH)
                for i in range(ROWS):
                    here, p = at + _U(i * WIDTH), start + _U(i)
                    scale = x[p] * inverse
                    rho = bounded(bounded(load(registers, _U(a) + here) * scale, one) * numbers[5], one)
                    root, arc = np.sqrt(abs((one - rho) * (one + rho))), arcsine(rho)
                    steep_root = one / max(root, least)
                    c0, c1, c2 = series_term(x, y, p, q, 2), series_term(x, y, p, q, 3), series_term(x, y, p, q, 4)
                    total, slope = rho * numbers[0], rho * numbers[0]
                    n = _HEADER
                    for _ in range(odd):
                        f, g, sign = _U(int(numbers[n])), _U(int(numbers[n + 1])), numbers[n + 2]
                        cosine, angle = sign * rho, turn * (right - sign * arc)
                        s00, left, low, density = vertex(
                            x, y, p + f * _ROWS, q + g * _WIDTH, (cosine, steep_root, root, angle), numbers, n
                        )
                        alpha, beta = x[p + f * _ROWS], load(y, q + g * _WIDTH)
                        s11 = (cosine + alpha * beta) * s00 + (density - alpha * low - beta * left)
                        total = total + numbers[n + 3] * s11
                        if slopes:
                            slope = slope + (sign * numbers[n + 3]) * s00
                        if even:
                            s01, s10 = cosine * left + low - beta * s00, left + cosine * low - alpha * s00
                            s12, s21 = s10 + cosine * s01 - beta * s11, s01 + cosine * s10 - alpha * s11
                            s02 = s00 + cosine * (density - (beta - cosine * alpha) * left) - beta * s01
                            s22 = s02 + two * (cosine * s11) - alpha * s12
                            cd, dc = numbers[n + 4] * norm, numbers[n + 5] * x[p + _ROWS]
                            dd = (numbers[n + 6] * x[p + _ROWS]) * norm
                            total = total + (cd * s12 + dc * s21 + dd * s22)
                            if slopes:
                                slope = slope + (sign * two) * (cd * s01 + dc * s10 + two * (dd * s11))
                        n += _PER_VERTEX
                    value = c0 + rho * (c1 + rho * c2) + (x[p + _ROWS] * norm) * total
                    store(registers, _U(out) + here, value)
                    if slopes:
                        slope = slope + (c1 + two * (rho * c2)) * scale
                        store(registers, _U(to) + here, load(registers, _U(b) + here) * slope)

    return loop
