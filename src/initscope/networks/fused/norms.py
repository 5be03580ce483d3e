"""Norms of every position before each activation, as the compiled loops want them; in float64, image after image."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from initscope.networks.fused.loops import CHUNK, VALID, Array, fill_border, kept, rounded, sum_taps
from initscope.networks.fused.stack import PADDINGS, ConvStack, smallest_norm
from initscope.networks.fused.threads import run

IMAGES = 8  # of a task


@kept
def _image_norms(
    x: Array, taps: Array, scales: Array, biases: Array, growths: Array, border: int, padding: int, smallest: float,
    numerator: float, row: int, out: Array,
) -> None:  # fmt: skip
    """`A' = scale Σ_taps A + bias`, |a| = √A', and behind the activation growth A'; out (n, 2 layers, size), see `norms`."""
    depth, channels = taps.shape[0], x.shape[1]
    stride = x.shape[3] + 2 * border
    room = (x.shape[2] + 2 * border + 2) * stride + 8 * CHUNK
    state, columns, box = np.zeros(room), np.zeros(room), np.zeros(room)
    for image in range(x.shape[0]):
        rows, cols = x.shape[2], x.shape[3]
        for r in range(rows):
            start = (border + r) * stride + border
            for c in range(cols):
                state[start + c] = 0.0
            for channel in range(channels):
                for c in range(cols):
                    value = np.float64(x[image, channel, r, c])
                    state[start + c] += value * value
        for layer in range(depth):
            size, corner = taps[layer], 0
            if padding == VALID:
                rows, cols = rows - size + 1, cols - size + 1
            else:
                corner = (border - size // 2) * (stride + 1)
                fill_border(state, rows, cols, stride, border, padding)
            n = rounded(rows * stride)
            sum_taps(state, corner, stride, size, columns, n + CHUNK * ((size + CHUNK - 2) // CHUNK))
            sum_taps(columns, 0, 1, size, box, n)
            scale, bias, growth = scales[layer], biases[layer], growths[layer]
            for r in range(rows):
                source, to = r * stride, (border + r) * stride + border
                norm, inverse = out[image, layer, r * row :], out[image, depth + layer, r * row :]
                for c in range(cols):
                    square = scale * box[source + c] + bias
                    norm[c] = np.sqrt(square)
                    inverse[c] = numerator / norm[c] if norm[c] > smallest else 0.0
                    state[to + c] = growth * square


def norms(stack: ConvStack, x: Tensor, distance: bool, row: int, slack: int) -> Tensor:
    """|a| before each activation and then 1/|a|, (n, 2 layers, size) in the type of x, flat, rows so far apart, with slack.

    Smaller (valid) layers lie in the top left corner. The inverse ones are 0 for zero vectors and halved for distances, which are
    divided by 4|a||b|.
    """
    out = torch.zeros(len(x), 2 * len(stack.kernels), x.shape[2] * row + slack, dtype=x.dtype)
    taps = np.array(stack.kernels)
    scales = np.array(stack.gains) / taps**2
    scales[0] /= x.shape[1]
    growths = (1 + np.array(stack.slopes) ** 2) / 2  # E f² of leaky ReLU
    source, to = x.contiguous().numpy(), out.numpy()

    def task(start: int) -> None:
        images = slice(start, start + IMAGES)
        _image_norms(
            source[images], taps, scales, np.array(stack.biases), growths, stack.border, PADDINGS.index(stack.padding),
            smallest_norm(x.dtype), 0.5 if distance else 1.0, row, to[images],
        )  # fmt: skip

    for _ in run([partial(task, start) for start in range(0, len(x), IMAGES)]):
        pass
    return out
