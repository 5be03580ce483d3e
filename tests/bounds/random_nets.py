"""What the tests of DC's theorems share: pictures, and the small networks they go through."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from initscope.layers import Conv, L2Pool, ReLU, Upsample
from initscope.networks import Sequential

R = ReLU()
K1, K2 = math.pi - 1, 5.0  # Gaussian filters and ReLU: k1 = s/sqrt(2 pi), k2 = s²/2, k4 = 3 s⁴/2


def picture(seed: int, *shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cnn_dcn(width: int, stride: int = 1) -> Sequential:
    """Convolution, l2 pooling, convolution, upsampling with zeros, convolution; windows that overlap (or not)."""
    if stride > 1:
        return Sequential(Conv(width, 3, padding="zero"), R, L2Pool(2), Conv(width, 2, 2), R, Conv(width, 1), R)
    convs = [Conv(width, 3, padding="zero") for _ in range(3)]
    return Sequential(convs[0], R, L2Pool(2), convs[1], R, Upsample(2, "zeros"), convs[2], R)
