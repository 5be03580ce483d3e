"""The compiled loops once more with two numbers per pair of positions: X, the product or the distance, and the tangent kernel T.

Behind the sum over taps of a layer `v = scale ΣX + shift` is the product or the distance, `k` the covariance, and

    w = scale ΣT + factor k + offset,       T' = w dX'/dv,      dX'/dv = alpha + gamma slope psi'(u),

`factor k + offset` being what the layer's own weights and biases contribute (1 and 0 where they are measured in units of their
deviation). `psi'(u) = (4/pi) asin √u` is `√u` times a short polynomial up to u = 1/2 and 2 - psi'(1 - u) beyond. Its root makes
of an error e of u near 1 one of √e: equal patches are u = 1 of the product, so where it can be had the distance is used, whose u
is 0 there, exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from initscope.networks.fused.lanes import LANES, apart, load, store, uncounted
from initscope.networks.fused.loops import (
    BLOCK,
    CHUNK,
    VALID,
    Array,
    by_quantity,
    combine,
    compiled,
    distance_angle,
    fields,
    fill_border,
    in_order,
    kept,
    norm_places,
    psi,
    rounded,
    sum_taps,
    three,
    total,
)
from initscope.networks.fused.one_layer import one_layer_sum, product_angle, psi_slope

Scratch = tuple[Array, Array, Array, Array, Array, Array]


@by_quantity
def activate_both(distance: bool) -> Any:
    """`loops.activate` of X and T, n places; share: factor and offset, k = |a||b| cos t."""

    @in_order
    def loop(
        x: Array, t: Array, step: int, a: Array, b: Array, places: tuple[Any, ...], law: tuple[Any, ...],
        share: tuple[Any, ...], out: Array, t_out: Array, to: int, n: int,
    ) -> None:  # fmt: skip
        apart()
        by, here = np.uint64(step), np.uint64(to)
        scale, shift, alpha, gamma, bend, one = law[0], law[1], law[2], law[3], law[3] * law[5], law[8]
        factor, offset = share
        for i in range(np.uint64(0), np.uint64(n), LANES):
            value = scale * three(x, i, by) + shift
            left, right = load(a, places[0] + i), load(b, places[2] + i)
            ab, inverse = left * right, load(a, places[1] + i) * load(b, places[3] + i)
            u = distance_angle(value, left - right, inverse, law) if distance else product_angle(value, inverse, law)
            cos = one - (u + u) if distance else (u + u) - one
            own = factor * ab * cos
            store(t_out, here + i, (scale * three(t, i, by) + offset + own) * (alpha + bend * psi_slope(u)))
            store(out, here + i, alpha * value + gamma * (ab * psi(u)))

    return loop


@by_quantity
def activate_tangent(distance: bool) -> Any:
    """`activate_both` without X, which nobody needs after the last layer, and in the first one without T."""

    @in_order
    def loop(
        x: Array, t: Array, step: int, a: Array, b: Array, places: tuple[Any, ...], law: tuple[Any, ...],
        share: tuple[Any, ...], first: bool, t_out: Array, to: int, n: int,
    ) -> None:  # fmt: skip
        apart()
        by, here = np.uint64(step), np.uint64(to)
        scale, shift, alpha, bend, one = law[0], law[1], law[2], law[3] * law[5], law[8]
        factor, offset = share
        for i in range(np.uint64(0), np.uint64(n), LANES):
            value = scale * three(x, i, by) + shift
            left, right = load(a, places[0] + i), load(b, places[2] + i)
            inverse = load(a, places[1] + i) * load(b, places[3] + i)
            u = distance_angle(value, left - right, inverse, law) if distance else product_angle(value, inverse, law)
            cos = one - (u + u) if distance else (u + u) - one
            own = offset + factor * (left * right) * cos
            if not first:
                own = scale * three(t, i, by) + own
            store(t_out, here + i, own * (alpha + bend * psi_slope(u)))

    return loop


@compiled
def window_sums(
    x: Array, x_norms: Array, y: Array, y_norms: Array, i: int, j: int, left: int, right: int, height: int,
    shape: Array, frame: Array, taps: Array, laws: Array, scratch: Scratch,
) -> tuple[float, float]:  # fmt: skip
    """Sums over the positions of one window of X (if frame wants it) and of T after the last layer; see `windows.window_sum`."""
    width, stride, border, padding, distance = frame[0], frame[1], frame[2], frame[3], frame[4] != 0
    channels, x_size, y_size, depth = shape[0], shape[1], shape[2], taps.shape[0]
    state, tangent, columns, t_columns, box, t_box = scratch
    origin = border * (stride + 1)
    rows, cols = height, width
    n = rounded((rows + 2 * border) * stride)
    x_at, y_at = i * channels * x_size + left, j * channels * y_size + right
    combine(distance, x, x_at, x_size, y, y_at, y_size, channels, state, n)
    for layer in range(depth):
        size = taps[layer]
        corner = 0
        if padding == VALID:
            rows, cols = rows - size + 1, cols - size + 1
        else:
            corner = (border - size // 2) * (stride + 1)
            if layer > 0:
                fill_border(state, rows, cols, stride, border, padding)
                fill_border(tangent, rows, cols, stride, border, padding)
        n = rounded(rows * stride)
        reach = n + CHUNK * ((size + CHUNK - 2) // CHUNK)
        sum_taps(state, corner, stride, size, columns, reach)
        last = layer == depth - 1 and frame[5] == 0
        if layer > 0:
            sum_taps(tangent, corner, stride, size, t_columns, reach)
        elif not last:
            t_columns[:reach] = 0
        xs, ts, step = columns, t_columns, 1
        if size != 3:
            sum_taps(columns, 0, 1, size, box, n)
            sum_taps(t_columns, 0, 1, size, t_box, n)
            xs, ts, step = box, t_box, box.shape[0] // 3
        a_at, b_at = (2 * i * depth + layer) * shape[3] + left, (2 * j * depth + layer) * shape[4] + right
        places, law = norm_places(a_at, depth * shape[3], b_at, depth * shape[4]), fields(laws[layer])
        share = laws[layer, 9], laws[layer, 10]
        if last:
            activate_tangent(
                distance, xs, ts, step, x_norms, y_norms, places, law, share, layer == 0, tangent, origin, n
            )
            return 0.0, total(tangent, origin, rows, cols, stride)
        activate_both(distance, xs, ts, step, x_norms, y_norms, places, law, share, state, tangent, origin, n)
    return total(state, origin, rows, cols, stride), total(tangent, origin, rows, cols, stride)


@kept
def pair_sums(
    x: Array, x_norms: Array, y: Array, y_norms: Array, span: Array, shifts: Array, weights: Array,
    shape: Array, frame: Array, taps: Array, laws: Array, scratch: Scratch, out: Array,
) -> None:  # fmt: skip
    """As `windows.pair_sums`, into out (2, images i, m): sums of X, then of T."""
    x, x_norms, y, y_norms = uncounted(x), uncounted(x_norms), uncounted(y), uncounted(y_norms)
    shifts, weights, shape, frame = uncounted(shifts), uncounted(weights), uncounted(shape), uncounted(frame)
    taps, laws = uncounted(taps), uncounted(laws)
    scratch = (
        uncounted(scratch[0]), uncounted(scratch[1]), uncounted(scratch[2]), uncounted(scratch[3]),
        uncounted(scratch[4]), uncounted(scratch[5]),
    )  # fmt: skip
    stride, tile = frame[1], span[5]
    law, factor = fields(laws[0]), laws[0, 9]
    simple = taps.shape[0] == 1 and taps[0] == 3 and shifts.shape[0] == 1
    simple = simple and frame[5] == 0 and factor != 0 and laws[0, 10] == 0
    for first in range(span[2], span[3], tile):
        for i in range(span[0], span[1]):
            start = max(first, i) if span[4] else first
            for j in range(start, min(first + tile, span[3])):
                own = 1 if span[4] and i == j else 0
                if simple:
                    out[1, i - span[0], j] += weights[own, 0] * one_layer_sum(
                        x, x_norms, y, y_norms, i, j, shifts[0, 2], shape, frame, law, factor, scratch[0], scratch[2]
                    )
                    continue
                for s in range(shifts.shape[0]):
                    if weights[own, s] == 0.0:
                        continue
                    kernel, slope = window_sums(
                        x, x_norms, y, y_norms, i, j, shifts[s, 0] * stride, shifts[s, 1] * stride, shifts[s, 2],
                        shape, frame, taps, laws, scratch,
                    )  # fmt: skip
                    out[0, i - span[0], j] += weights[own, s] * kernel
                    out[1, i - span[0], j] += weights[own, s] * slope


@kept
def dense_rows(
    gram: Array, x_norms: Array, y_norms: Array, laws: Array, distance: bool, scratch: tuple[Array, ...], out: Array
) -> None:  # fmt: skip
    """As `windows.dense_rows`, into out (2, r, m)."""
    m, depth = gram.shape[1], laws.shape[0]
    a, width, right = uncounted(scratch[0]), y_norms.shape[1], uncounted(y_norms.reshape(-1))
    state, after, tangent, t_after = (
        uncounted(scratch[1]), uncounted(scratch[2]), uncounted(scratch[3]), uncounted(scratch[4])
    )  # fmt: skip
    for start in range(0, m, BLOCK):
        n = min(BLOCK, m - start)
        for row in range(gram.shape[0]):
            state[:n] = gram[row, start : start + n]
            tangent[:BLOCK] = 0
            for layer in range(depth):
                a[:BLOCK], a[BLOCK : 2 * BLOCK] = x_norms[layer, row], x_norms[depth + layer, row]
                law, share = fields(laws[layer]), (laws[layer, 9], laws[layer, 10])
                places = norm_places(0, BLOCK, layer * width + start, depth * width)
                activate_both(
                    distance, state, tangent, BLOCK, a, right, places, law, share, after, t_after, 0, rounded(n)
                )
                state, after, tangent, t_after = after, state, t_after, tangent
            out[0, row, start : start + n] = state[:n]
            out[1, row, start : start + n] = tangent[:n]
