"""One layer of 3 x 3 taps and nothing behind it, at the same positions of both images: no state is kept, only sums.

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
    distance_angle,
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
        h = _S0 + m * (_S1 + m * (_S2 + m * (_S3 + m * (_S4 + m * (_S5 + m * _S6)))))
        return np.sqrt(m) * h

    def double(m: Any) -> Any:
        h = _D8 + m * (_D9 + m * (_D10 + m * (_D11 + m * (_D12 + m * (_D13 + m * (_D14 + m * (_D15 + m * _D16)))))))
        h = _D0 + m * (_D1 + m * (_D2 + m * (_D3 + m * (_D4 + m * (_D5 + m * (_D6 + m * (_D7 + m * h)))))))
        return np.sqrt(m) * h

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
def product_angle(value: Any, inverse: Any, law: tuple[Any, ...]) -> Any:
    """`u = cos²(t/2)` of a product; inverse: 1/|a||b|."""
    return (law[8] + cosine(value, inverse, law)) * law[5]


@by_quantity
def tangent_sum(distance: bool) -> Any:
    """Sum over n places of the tangent kernel behind a first layer of 3 taps without bias; see `tangent_loops`."""

    @in_order
    def terms(
        x: Array, a: Array, b: Array, places: tuple[Any, ...], law: tuple[Any, ...], i: Any
    ) -> tuple[Any, Any]:  # fmt: skip
        """`|a||b| c` and `|a||b| c psi'(u)` of lanes, with `c = 1 - 2u`: plus or minus the cosine.

        The second is even but for a line: m being the smaller of u and 1 - u, so that |c| = 1 - 2m, it is
        `c - |c| + |c| psi'(m)`.
        """
        one, value = law[8], three(x, i, np.uint64(1))
        left, right = load(a, places[0] + i), load(b, places[2] + i)
        inverse = load(a, places[1] + i) * load(b, places[3] + i)
        u = distance_angle(value, left - right, inverse, law) if distance else product_angle(value, inverse, law)
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
    x: Array, x_norms: Array, y: Array, y_norms: Array, i: int, j: int, height: int, shape: Array, frame: Array,
    law: tuple[Any, ...], factor: Any, state: Array, columns: Array,
) -> float:  # fmt: skip
    """Sum over the positions of a pair of the product, or with a factor of the tangent kernel; alpha or the bias is 0.

    Strip after strip: what one needs stays in the first cache. Between the rows |a| is 0.
    """
    stride, border, distance, tangent = frame[1], frame[2], frame[4] != 0, factor != 0
    channels, x_size, y_size = shape[0], shape[1], shape[2]
    rows, result = height - (2 - 2 * border), 0.0  # without those that only go in
    for start in range(0, rows, STRIP):
        here, at = min(STRIP, rows - start), start * stride
        n, places = rounded(here * stride), here * stride
        x_at, y_at = i * channels * x_size + at, j * channels * y_size + at
        combine(distance, x, x_at, x_size, y, y_at, y_size, channels, state, rounded((here + 2) * stride))
        scaled_taps(state, 0, stride, law, columns, n + CHUNK)
        begin = norm_places(2 * i * shape[3] + at, shape[3], 2 * j * shape[4] + at, shape[4])
        if tangent:
            result += tangent_sum(distance, columns, x_norms, y_norms, begin, law, factor, places)
        else:
            result += activate_sum(columns, x_norms, y_norms, begin, law, places)
    return result
