"""The method of cnn-gp in plain torch: covariances of a block of pairs at all positions pass through the layers.

Written from its description (Garriga-Alonso et al. 2019): for a block of images x and y the maps K(x, x), K(y, y) and K(x, y)
of one number per position; a convolution sums each map over its taps with zeros outside, ReLU is the arc-cosine kernel.
Every pair once. No pooling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from serve import serve
from torch import Tensor


def taps(maps: Tensor) -> Tensor:
    """2/9 of the sum over 3 x 3 taps, zeros outside: He weights, fan-in 9."""
    flat = maps.reshape(-1, 1, *maps.shape[-2:])
    return F.conv2d(flat, maps.new_full((1, 1, 3, 3), 2 / 9), padding=1).reshape(maps.shape)


def relu(xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
    norm = (xx[:, None] * yy[None]).sqrt()
    cosine = (xy / norm).clamp(-1, 1)
    angle = cosine.acos()
    return norm * ((1 - cosine.square()).sqrt() + (math.pi - angle) * cosine) / (2 * math.pi)


def block_kernel(x: Tensor, y: Tensor, depth: int) -> Tensor:
    channels = x.shape[1]
    xx, yy = x.square().mean(1), y.square().mean(1)
    xy = torch.einsum("ichw,jchw->ijhw", x, y) / channels
    for _ in range(depth):
        xx, yy, xy = taps(xx), taps(yy), taps(xy)
        xy = relu(xx, yy, xy)
        xx, yy = xx / 2, yy / 2
    return xy.mean((-2, -1))


def prepare(setting: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any], dict[str, str]]:
    x = torch.from_numpy(np.load(setting["inputs"])).to(torch.float64 if setting["dtype"] == "f64" else torch.float32)
    block = setting["block"]

    def run(count: int = len(x)) -> Tensor:
        out = x.new_zeros(count, count)
        for i in range(0, count, block):
            for j in range(i, count, block):
                out[i : i + block, j : j + block] = block_kernel(x[i : i + block], x[j : j + block], setting["depth"])
        return out.triu() + out.triu(1).T

    return run, lambda: run(min(len(x), 2 * block)), {"torch": torch.__version__}


if __name__ == "__main__":
    with torch.no_grad():
        serve(prepare)
