"""All-pairs kernel matrices of wide random networks: convolution + leaky ReLU on images, dense + leaky ReLU on vectors.

Three functions: `same_position_kernel` (no pooling), `pooled_kernel` (global average pooling), `dense_kernel`. Products
come back as `E[h(x) h(y)]` per unit, distances as `E(h(x) - h(y))²` per unit, both averaged over positions (pooled: of
the average), so that distance = norm_x + norm_y - 2 product and `1 - cosine = (distance - (|x| - |y|)²) / (2|x||y|)`.

With numba installed the work runs in compiled loops; without it, or with INITSCOPE_NO_NUMBA=1 in the environment, in
plain torch with the same formulas: equal up to rounding. Inputs are float32 or float64 and answers have the type of the
inputs; sums over positions are in float64. Nothing here is differentiable.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.networks.fused import plain
from initscope.networks.fused.stack import ConvStack, Own, check_layers, layer_norms, make_laws
from initscope.networks.progress import Progress

Quantity = Literal["product", "distance"]

DENSE_BLOCK = 256  # rows of a dense kernel matrix computed at once
NORM_ROWS = 64  # inputs of a dense kernel whose norms are computed at once


def compiled_path() -> ModuleType | None:
    """The module that runs the compiled loops, or None when numba is absent, broken or switched off."""
    if os.environ.get("INITSCOPE_NO_NUMBA") == "1":
        return None
    try:
        from initscope.networks.fused import tasks
    except ImportError:
        return None
    return tasks


def same_position_kernel(
    stack: ConvStack,
    x: Tensor,
    y: Tensor | None = None,
    *,
    quantity: Quantity = "product",
    progress: Progress | None = None,
) -> Tensor:
    """Mean over positions p of `E[h(x)_p h(y)_p]`, or of `E(h(x)_p - h(y)_p)²`, for all pairs.

    x (n, c, h, w), y (m, c, h, w) or None for x itself (each pair once, then mirrored); returns (n, m). The distance
    keeps its relative accuracy however close two images are: about 1e-6 in float32, 1e-14 in float64.

    >>> stack = ConvStack(kernels=(3,), gains=(2.0,), biases=(0.0,), slopes=(0.0,), padding="circular")
    >>> x = torch.ones(1, 1, 4, 4, dtype=torch.float64)
    >>> same_position_kernel(stack, torch.cat([x, -x])).round(decimals=12)
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    x, other = _check_images(stack, x, y)
    distance = _is_distance(quantity)
    path = compiled_path() if x.device.type == "cpu" else None
    sums: Tensor = (path or plain).same_position(stack, x, other, y is None, distance, progress)
    height, width = stack.sizes(*x.shape[2:])[-1]
    return _finish(sums / (height * width), y is None, x.dtype)


def pooled_kernel(
    stack: ConvStack,
    x: Tensor,
    y: Tensor | None = None,
    *,
    quantity: Quantity = "product",
    progress: Progress | None = None,
) -> Tensor:
    """Kernel after global average pooling: mean over all position pairs (p, q) of `E[h(x)_p h(y)_q]`, for all pairs.

    x (n, c, h, w), y (m, c, h, w) or None for x itself; returns (n, m). The displacement q - p (with one layer: of rows) is
    fixed while a pair of images passes through the layers, so that no array over (p, q) is stored; only reflected borders of
    several layers need that array, `(h w)²` numbers for a pair, in plain torch. The distance is `K_xx + K_yy - 2 K_xy` of
    products summed in float64: its absolute error is about 1e-7 (float32) or 1e-15 (float64) of K, so nearly equal images
    lose relative accuracy.

    >>> stack = ConvStack(kernels=(1,), gains=(2.0,), biases=(0.0,), slopes=(1.0,), padding="zero")
    >>> x = torch.tensor([[1.0, 3.0]], dtype=torch.float64).reshape(1, 1, 1, 2)
    >>> pooled_kernel(stack, x)  # 2 * mean(x)²
    tensor([[8.]], dtype=torch.float64)
    """
    x, other = _check_images(stack, x, y)
    distance = _is_distance(quantity)
    height, width = stack.sizes(*x.shape[2:])[-1]
    kernel = _pooled_sums(stack, x, other, y is None, progress) / float(height * width) ** 2
    if distance:
        if y is None:
            own_x = own_y = kernel.diagonal()
        else:
            own_x, own_y = pooled_norms(stack, x), pooled_norms(stack, other)
        kernel = (own_x[:, None] + own_y - 2 * kernel).clamp_(min=0)
    return _finish(kernel, y is None, x.dtype)


def dense_kernel(
    gains: tuple[float, ...], biases: tuple[float, ...], slopes: tuple[float, ...],
    x: Tensor, y: Tensor | None = None, *, quantity: Quantity = "product", progress: Progress | None = None,
) -> Tensor:  # fmt: skip
    """`E[h(x) h(y)]` or `E(h(x) - h(y))²` per unit after dense + leaky ReLU layers, for all pairs.

    x (n, d), y (m, d) or None for x itself; returns (n, m). Products start from a matrix product, distances from
    differences (slower, and accurate for nearly equal inputs).

    >>> dense_kernel((2.0,), (0.0,), (0.0,), torch.eye(2, dtype=torch.float64) * 2**0.5) * torch.pi
    tensor([[3.1416, 1.0000],
            [1.0000, 3.1416]], dtype=torch.float64)
    """
    check_layers(gains, biases, slopes, len(gains))
    x, other = _check(x, y, 2, "(n, d)")
    distance = _is_distance(quantity)
    fans = (x.shape[1], *(1 for _ in gains[1:]))
    laws = make_laws(gains, biases, slopes, fans, distance)
    x_norms = dense_layer_norms(gains, biases, slopes, x)[1].to(x.dtype)
    y_norms = x_norms if y is None else dense_layer_norms(gains, biases, slopes, other)[1].to(x.dtype)
    path = compiled_path() if x.device.type == "cpu" else None
    out = x.new_empty(len(x), len(other))
    for start in range(0, len(x), DENSE_BLOCK):
        if progress is not None:
            progress(start, len(x))
        rows, columns = slice(start, start + DENSE_BLOCK), slice(start if y is None else 0, None)
        if distance:
            gram = torch.cdist(x[rows], other[columns], compute_mode="donot_use_mm_for_euclid_dist").square_()
        else:
            gram = x[rows] @ other[columns].T
        block = (path or plain).dense_layers(gram, laws, x_norms[:, rows], y_norms[:, columns])
        if y is None:
            square = block[:, : len(block)]
            square.copy_(_finish(square, True, x.dtype))
            out[columns, rows] = block.T
        out[rows, columns] = block
    if progress is not None:
        progress(len(x), len(x))
    return out


def dense_norms(gains: tuple[float, ...], biases: tuple[float, ...], slopes: tuple[float, ...], x: Tensor) -> Tensor:
    """`E h(x)²` per unit, the diagonal of the dense kernel: (n,) float64 for x (n, d)."""
    check_layers(gains, biases, slopes, len(gains))
    return dense_layer_norms(gains, biases, slopes, _check(x, None, 2, "(n, d)")[0])[0]


def mean_norms(stack: ConvStack, x: Tensor) -> Tensor:
    """Mean over positions of `E h(x)_p²`, the diagonal of the same-position kernel: (n,) float64 for x (n, c, h, w)."""
    x, _ = _check_images(stack, x, None)
    return layer_norms(stack, x)[0].mean((-1, -2))


def pooled_norms(stack: ConvStack, x: Tensor) -> Tensor:
    """The diagonal of the pooled kernel: (n,) float64 for x (n, c, h, w)."""
    x, _ = _check_images(stack, x, None)
    height, width = stack.sizes(*x.shape[2:])[-1]
    own = [_pooled_sums(stack, image, image, True, None).diagonal() for image in x.unsqueeze(1)]
    return torch.cat([x.new_zeros(0, dtype=torch.float64), *own]) / float(height * width) ** 2


@dataclass(frozen=True)
class Estimate:
    """What a call needs: peak bytes (the answer included), bytes of the answer, updates of a position pair."""

    bytes: int
    output_bytes: int
    updates: int


def estimate(
    stack: ConvStack, n: int, m: int, h: int, w: int, c: int, pooled: bool, dtype: torch.dtype = torch.float32,
    own: Sequence[Own] | None = None, both: bool = False,
) -> Estimate:  # fmt: skip
    """Peak memory of `same_position_kernel` or `pooled_kernel` on n x m images of c channels, beside the inputs.

    With `own` and `both` that of `stack_tangents`, which has an answer twice as large.

    >>> stack = ConvStack(kernels=(3,), gains=(2.0,), biases=(0.0,), slopes=(0.0,), padding="circular")
    >>> estimate(stack, 500, 500, 32, 32, 3, pooled=False).updates
    256000000
    """
    itemsize = dtype.itemsize
    sizes = stack.sizes(h, w)
    output = n * m * (8 + 8 + itemsize) * (1 if own is None else 2)  # sums, their mean, the answer
    updates = n * m * sum((a * b) ** 2 if pooled else a * b for a, b in sizes)
    path = compiled_path()
    norms = (n + m) * h * w * len(sizes) * (8 + 2 * itemsize)
    if path is None or (pooled and not path.can_pool(stack, own, both)):
        places = (h + 2 * stack.border) * (w + 2 * stack.border)
        tile = max(plain.TILE_ELEMENTS, h * w) * places // (h * w)
        if pooled and stack.padding == "reflect":
            tile = max(places * places, tile)
        return Estimate(output + norms + 8 * tile * itemsize, output, updates)
    if pooled:
        return Estimate(output + path.pooled_bytes(stack, n, m, c, h, w, itemsize, own, both), output, updates)
    each = path.image_bytes(stack, c, h, w, itemsize)
    held = min(n, max(1, path.PACK_BYTES // each)) + min(m, max(1, path.PACK_BYTES // each))
    return Estimate(output + held * (3 * each + 8 * h * w * len(sizes)), output, updates)


def _pooled_sums(stack: ConvStack, x: Tensor, y: Tensor, symmetric: bool, progress: Progress | None) -> Tensor:
    path = compiled_path() if x.device.type == "cpu" else None
    path = path if path and path.can_pool(stack) else None
    sums: Tensor = (path or plain).pooled(stack, x, y, symmetric, progress)
    return sums


def dense_layer_norms(
    gains: tuple[float, ...], biases: tuple[float, ...], slopes: tuple[float, ...], x: Tensor
) -> tuple[Tensor, Tensor]:
    """Squared norms after the last layer, (n,), and |a| before each activation, (layers, n), in float64."""
    rows = x.tensor_split(-(-len(x) // NORM_ROWS) or 1)  # the float64 copies stay in the cache
    square = torch.cat([row.double().square().mean(1) for row in rows])
    norms = []
    for gain, bias, s in zip(gains, biases, slopes, strict=True):
        square = gain * square + bias
        norms.append(square.sqrt())
        square = (1 + s * s) / 2 * square  # E f² of leaky ReLU
    return square, torch.stack(norms)


def _finish(kernel: Tensor, symmetric: bool, dtype: torch.dtype) -> Tensor:
    """Mirror the upper triangle of a symmetric kernel and give it its type."""
    kernel = kernel.to(dtype)
    return kernel.triu() + kernel.triu(1).T if symmetric else kernel


def _is_distance(quantity: str) -> bool:
    if quantity not in ("product", "distance"):
        raise BadInput("quantity", f"got {quantity!r}", "use 'product' or 'distance'")
    return quantity == "distance"


def _check_images(stack: ConvStack, x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
    x, other = _check(x, y, 4, "(n, c, h, w)")
    stack.sizes(*x.shape[2:])
    return x, other


def _check(x: Tensor, y: Tensor | None, ndim: int, shape: str) -> tuple[Tensor, Tensor]:
    """x and the other side (x itself when y is None), both usable."""
    for name, tensor in (("x", x), ("y", y)):
        if tensor is None:
            continue
        if tensor.ndim != ndim or 0 in tensor.shape[1:]:
            raise BadInput(name, f"shape {tuple(tensor.shape)}, expected {shape}", "reshape it; no side may be empty")
        if tensor.dtype not in (torch.float32, torch.float64):
            raise BadInput(name, f"dtype {tensor.dtype}, expected float32 or float64", "convert it with .float()")
        if tensor.requires_grad:
            raise BadInput(name, "requires gradients, which this kernel does not have", "pass x.detach()")
        if tensor.numel() and not all(bool(end.isfinite()) for end in tensor.aminmax()):
            raise BadInput(name, "contains NaN or infinity, expected finite numbers", "clean the data first")
    if y is not None and (y.shape[1:] != x.shape[1:] or y.dtype != x.dtype or y.device != x.device):
        got = f"{tuple(y.shape)} {y.dtype} on {y.device} beside x {tuple(x.shape)} {x.dtype} on {x.device}"
        raise BadInput("y", got, "give both the same shape but for the first side, the same dtype and device")
    return x, x if y is None else y
