"""One layer of 3 x 3 taps and nothing behind it but the mean: no state is kept, only sums.

What the tangent kernel needs of `psi` and of angles is here as well, for these sums and for `tangent_loops`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload

from initscope.networks.fused.lanes import LANES, added, apart, first, is_single, load, spread, where_less
from initscope.networks.fused.loops import (
    BLOCK,
    CHUNK,
    Array,
    activate_sum,
    by_quantity,
    combine,
    compiled,
    cosine,
    in_order,
    norm_places,
    rounded,
    scaled_taps,
    three,
)
from initscope.networks.fused.psi import SLOPES_32, SLOPES_64

_S0, _S1, _S2, _S3, _S4, _S5, _S6 = (np.float32(c) for c in SLOPES_32)
_D0, _D1, _D2, _D3, _D4, _D5, _D6, _D7, _D8, _D9, _D10, _D11, _D12, _D13, _D14, _D15, _D16 = SLOPES_64
_ONE, _TWO = np.float32(1), np.float32(2)
STRIP = 16  # rows of a strip


def low_slope(m: Any) -> Any:
    """`psi'(m) = (4/pi) asin √m` for m in [0, 1/2], with the root that `psi` has; of lanes, in compiled code."""
    raise NotImplementedError


@overload(low_slope)
def _low_slope_for(m: Any) -> Any:
    def single(m: Any) -> Any:
        mm = m * m  # by pairs: fewer steps wait for each other
        h = (_S0 + m * _S1) + mm * ((_S2 + m * _S3) + mm * ((_S4 + m * _S5) + mm * _S6))
        return np.sqrt(abs(m)) * h

    def double(m: Any) -> Any:
        h = _D8 + m * (_D9 + m * (_D10 + m * (_D11 + m * (_D12 + m * (_D13 + m * (_D14 + m * (_D15 + m * _D16)))))))
        h = _D0 + m * (_D1 + m * (_D2 + m * (_D3 + m * (_D4 + m * (_D5 + m * (_D6 + m * (_D7 + m * h)))))))
        return np.sqrt(abs(m)) * h

    return single if is_single(m) else double


def psi_slope(u: Any) -> Any:
    """`psi'(u)` for u in [0, 1]: beyond 1/2 it is 2 - psi'(1 - u); written as `psi` is, to share its steps."""
    raise NotImplementedError


@overload(psi_slope)
def _psi_slope_for(u: Any) -> Any:
    def single(u: Any) -> Any:
        v = _ONE - u
        low = low_slope(min(u, v))
        return where_less(v, u, _TWO - low, low)

    def double(u: Any) -> Any:
        v = 1.0 - u
        low = low_slope(min(u, v))
        return where_less(v, u, 2.0 - low, low)

    return single if is_single(u) else double


@in_order
def product_angle(value: Any, a: Any, b: Any, law: tuple[Any, ...]) -> Any:
    """`u = cos²(t/2)` of a product."""
    return (law[8] + cosine(value, a * b, law)) * law[5]


@by_quantity
def tangent_sum(distance: bool) -> Any:
    """Sum over n places of the tangent kernel behind a first layer of 3 taps without bias; see `tangent_loops`."""

    @in_order
    def terms(
        x: Array, a: Array, b: Array, places: tuple[Any, ...], law: tuple[Any, ...], i: Any
    ) -> tuple[Any, Any]:  # fmt: skip
        """`|a||b| c` and `|a||b| c psi'(u)` of lanes, with `c = 1 - 2u`: plus or minus the cosine.

        The second is even but for a line: m being the smaller of u and 1 - u, so that |c| = 1 - 2m, it is
        `c - |c| + |c| psi'(m)`. A distance is multiplied by the inverse norms, which are halved for it (4|a||b|); a product is
        divided: there an error of u counts by its root.
        """
        one, value = law[8], three(x, i, np.uint64(1))
        left, right = load(a, places[0] + i), load(b, places[2] + i)
        if distance:
            gap = left - right
            u = ((value - gap * gap) * load(a, places[1] + i)) * load(b, places[3] + i)
            u = min(max(u, law[7]), one)
        else:
            u = product_angle(value, left, right, law)
        m, ab, c = min(u, one - u), left * right, one - (u + u)
        size = one - (m + m)
        return ab * c, ab * ((c - size) + size * low_slope(m))

    @in_order
    def loop(
        x: Array, a: Array, b: Array, places: tuple[Any, ...], law: tuple[Any, ...], factor: Any, n: int
    ) -> float:  # fmt: skip
        apart()
        lines, bends, whole = 0.0, 0.0, n - n % int(LANES)
        for start in range(0, whole, BLOCK):
            line, bend = spread(law[7]), spread(law[7])
            for i in range(np.uint64(start), np.uint64(min(start + BLOCK, whole)), LANES):
                straight, bent = terms(x, a, b, places, law, i)
                line, bend = line + straight, bend + bent
            lines, bends = lines + np.float64(added(line)), bends + np.float64(added(bend))
        straight, bent = terms(x, a, b, places, law, np.uint64(whole))
        lines += np.float64(added(first(straight, n - whole)))
        bends += np.float64(added(first(bent, n - whole)))
        total = np.float64(law[2]) * lines + np.float64(law[3]) * np.float64(law[5]) * bends
        return (np.float64(factor) if distance else -np.float64(factor)) * total

    return loop


@compiled
def one_layer_sum(
    x: Array, x_norms: Array, y: Array, y_norms: Array, i: int, j: int, shifts: Array, weights: Array, shape: Array,
    frame: Array, law: tuple[Any, ...], factor: Any, state: Array, columns: Array,
) -> float:  # fmt: skip
    """Weighted sum over the windows of a pair of the product, or with a factor of the tangent kernel; alpha or the bias is 0.

    Strip after strip of all windows: what two strips need stays in the first cache. Between the rows |a| is 0.
    """
    stride, border, distance, tangent = frame[1], frame[2], frame[4] != 0, factor != 0
    channels, x_size, y_size = shape[0], shape[1], shape[2]
    above, result = 2 - 2 * border, 0.0  # rows that only go in
    for start in range(0, shape[5] - above, STRIP):
        for s in range(shifts.shape[0]):
            rows = min(STRIP, shifts[s, 2] - above - start)
            if weights[s] == 0.0 or rows <= 0:
                continue
            left, right = (shifts[s, 0] + start) * stride, (shifts[s, 1] + start) * stride
            n, places = rounded(rows * stride), rows * stride
            x_at, y_at = i * channels * x_size + left, j * channels * y_size + right
            combine(distance, x, x_at, x_size, y, y_at, y_size, channels, state, rounded((rows + 2) * stride))
            scaled_taps(state, 0, stride, law, columns, n + CHUNK)
            a_at, b_at = 2 * i * shape[3] + left, 2 * j * shape[4] + right
            begin = norm_places(a_at, shape[3], b_at, shape[4])
            if tangent:
                part = tangent_sum(distance, columns, x_norms, y_norms, begin, law, factor, places)
            else:
                part = activate_sum(columns, x_norms, y_norms, begin, law, places)
            result += weights[s] * part
    return result
