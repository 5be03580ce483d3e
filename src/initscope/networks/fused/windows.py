"""Compiled loops over pairs of windows and over layers, made of the steps in `loops`."""

from __future__ import annotations

from initscope.networks.fused.lanes import uncounted
from initscope.networks.fused.loops import (
    BLOCK,
    CHUNK,
    VALID,
    Array,
    activate,
    activate_sum,
    combine,
    compiled,
    fields,
    fill_border,
    kept,
    norm_places,
    rounded,
    scaled_taps,
    sum_taps,
    total,
)
from initscope.networks.fused.one_layer import one_layer_sum


@compiled
def window_sum(
    x: Array, x_norms: Array, y: Array, y_norms: Array, i: int, j: int, left: int, right: int, height: int,
    shape: Array, frame: Array, taps: Array, laws: Array, scratch: tuple[Array, Array, Array],
) -> float:  # fmt: skip
    """Sum over the positions of one window of X after the last layer.

    x, x_norms, y, y_norms: flat, norms those of all layers, then the inverse ones; shape: channels, then sizes: of a channel of
    x, of y, of norms of x, of y. frame: width, stride, border, padding, distance. scratch: state, columns, box, the
    last followed by two sizes of zeros.
    """
    width, stride, border, padding, distance = frame[0], frame[1], frame[2], frame[3], frame[4] != 0
    channels, x_size, y_size, depth = shape[0], shape[1], shape[2], taps.shape[0]
    state, columns, box = scratch
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
        n = rounded(rows * stride)
        reach = n + CHUNK * ((size + CHUNK - 2) // CHUNK)
        a_at, b_at = (2 * i * depth + layer) * shape[3] + left, (2 * j * depth + layer) * shape[4] + right
        places, law = norm_places(a_at, depth * shape[3], b_at, depth * shape[4]), fields(laws[layer])
        if layer == depth - 1 and laws[layer, 2] == 0 and not distance and size == 3:  # |a| = 0 between the rows
            scaled_taps(state, corner, stride, law, columns, reach)
            return activate_sum(columns, x_norms, y_norms, places, law, rows * stride)
        sum_taps(state, corner, stride, size, columns, reach)
        if size == 3:
            activate(distance, columns, 0, 1, x_norms, y_norms, places, law, state, origin, n)
        else:
            sum_taps(columns, 0, 1, size, box, n)
            activate(distance, box, 0, box.shape[0] // 3, x_norms, y_norms, places, law, state, origin, n)
    return total(state, origin, rows, cols, stride)


@kept
def pair_sums(
    x: Array, x_norms: Array, y: Array, y_norms: Array, span: Array, shifts: Array, weights: Array,
    shape: Array, frame: Array, taps: Array, laws: Array, scratch: tuple[Array, Array, Array], out: Array,
) -> None:  # fmt: skip
    """Add to `out[i - first i, j]` the weighted window sums of a range of i with a range of j (symmetric: j >= i).

    span: first i, end of i, first j, end of j, symmetric, tile; shifts: (s, 3) row in x, row in y, height of a window;
    weights: (2, s), for different images and for an image with itself; out: (images i, m) float64.
    """
    x, x_norms, y, y_norms = uncounted(x), uncounted(x_norms), uncounted(y), uncounted(y_norms)
    shifts, weights, shape, frame = uncounted(shifts), uncounted(weights), uncounted(shape), uncounted(frame)
    taps, laws = uncounted(taps), uncounted(laws)
    scratch = uncounted(scratch[0]), uncounted(scratch[1]), uncounted(scratch[2])
    stride, tile = frame[1], span[5]
    law = fields(laws[0])
    simple = taps.shape[0] == 1 and taps[0] == 3 and shifts.shape[0] == 1 and law[2] == 0 and frame[4] == 0
    for first in range(span[2], span[3], tile):
        for i in range(span[0], span[1]):
            start = max(first, i) if span[4] else first
            for j in range(start, min(first + tile, span[3])):
                own = 1 if span[4] and i == j else 0
                if simple:
                    out[i - span[0], j] += weights[own, 0] * one_layer_sum(
                        x, x_norms, y, y_norms, i, j, shifts[0, 2], shape, frame, law, law[7], scratch[0], scratch[1]
                    )
                    continue
                for s in range(shifts.shape[0]):
                    if weights[own, s] == 0.0:
                        continue
                    out[i - span[0], j] += weights[own, s] * window_sum(
                        x, x_norms, y, y_norms, i, j, shifts[s, 0] * stride, shifts[s, 1] * stride, shifts[s, 2],
                        shape, frame, taps, laws, scratch,
                    )  # fmt: skip


@kept
def dense_rows(
    gram: Array, x_norms: Array, y_norms: Array, laws: Array, distance: bool, scratch: tuple[Array, ...], out: Array
) -> None:  # fmt: skip
    """All dense layers on rows of products or distances: gram, out (r, m); norms and inverse ones (2 layers, r or size).

    The columns go through all layers in strips that stay in the first cache; y_norms carries CHUNK columns of slack. scratch:
    norms of a row, then twice a strip with two more of zeros behind it.
    """
    m, depth = gram.shape[1], laws.shape[0]
    a, width, right = uncounted(scratch[0]), y_norms.shape[1], uncounted(y_norms.reshape(-1))
    state, after = uncounted(scratch[1]), uncounted(scratch[2])
    for start in range(0, m, BLOCK):
        n = min(BLOCK, m - start)
        for row in range(gram.shape[0]):
            state[:n] = gram[row, start : start + n]
            for layer in range(depth):
                a[:BLOCK], a[BLOCK : 2 * BLOCK] = x_norms[layer, row], x_norms[depth + layer, row]
                law, places = fields(laws[layer]), norm_places(0, BLOCK, layer * width + start, depth * width)
                activate(distance, state, 0, BLOCK, a, right, places, law, after, 0, rounded(n))
                state, after = after, state
            out[row, start : start + n] = state[:n]
