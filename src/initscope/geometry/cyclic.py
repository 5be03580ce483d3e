"""Cyclic convolution exactly as in JL eq. 4."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import conv2d, pad

from initscope.errors import BadInput


def cyclic_convolution(filters: Tensor, x: Tensor) -> Tensor:
    """Convolution on the torus, `(F * x)_uv = sum_{i,j,k} F_ijk x_{u-i, v-j, k}`, indices modulo the sides (JL eq. 4).

    `filters`: (c, r, s) or (m, c, r, s); `x`: (c, h, w) or (n, c, h, w), with r <= h and s <= w. The result is
    (h, w) for one filter on one image and gains an axis, image first, for each batch: (n, m, h, w).

    >>> import torch
    >>> cyclic_convolution(torch.tensor([[[0.0, 1.0]]]), torch.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[3., 1., 2.]])
    """
    one_filter, one_image = filters.dim() == 3, x.dim() == 3
    kernel = filters[None] if one_filter else filters
    images = x[None] if one_image else x
    if kernel.dim() != 4 or images.dim() != 4 or kernel.shape[1] != images.shape[1]:
        problem = f"filters {tuple(filters.shape)} do not fit images {tuple(x.shape)}"
        raise BadInput("cyclic_convolution", problem, "use filters (m, c, r, s) and images (n, c, h, w)")
    (r, s), (h, w) = kernel.shape[2:], images.shape[2:]
    if not (1 <= r <= h and 1 <= s <= w):
        raise BadInput("cyclic_convolution", f"a {r}x{s} filter on a {h}x{w} image", "use a filter within the image")
    # conv2d reads forwards from its corner; JL reads backwards: flip the taps and wrap r - 1 rows in front.
    out = conv2d(pad(images, (s - 1, 0, r - 1, 0), mode="circular"), kernel.flip(2, 3))
    out = out.squeeze(1) if one_filter else out
    return out.squeeze(0) if one_image else out
