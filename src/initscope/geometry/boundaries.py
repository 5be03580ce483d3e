"""The shared boundary of two images on the torus (JL Definition 2) and its extension to grey images."""

from __future__ import annotations

import torch
from torch import Tensor

from initscope.errors import BadInput


def shared_boundary(a: Tensor, b: Tensor, r: int) -> Tensor:
    """Pixels whose (2r+1)-square meets both bodies and is not inside both: JL Definition 2, eq. 15, on the torus.

    `d_r(A, B) = (dilate A and dilate B) minus (erode A and erode B)`, squares of side 2r+1.

    `a`, `b`: (..., h, w), boolean or of zeros and ones; the result is boolean of that shape.

    >>> body = torch.zeros(9, 9, dtype=torch.bool)
    >>> body[2:7, 2:7] = True
    >>> int(shared_boundary(body, body, 1).sum())
    40
    """
    first, second = _binary("shared_boundary", a), _binary("shared_boundary", b)
    return boundary_weight(first, second, r) > 0


def shared_boundary_size(a: Tensor, b: Tensor, r: int) -> Tensor:
    """Size of the shared boundary, (...,) for images (..., h, w): a count for binary images, a weight for grey ones.

    >>> body = torch.zeros(9, 9)
    >>> body[2:7, 2:7] = 1.0
    >>> shared_boundary_size(body, body, 1), shared_boundary_size(0.5 * body, body, 1)
    (tensor(40., dtype=torch.float64), tensor(20., dtype=torch.float64))
    """
    return boundary_weight(a, b, r).sum((-2, -1))


def boundary_weight(a: Tensor, b: Tensor, r: int) -> Tensor:
    """How far one pixel can move the inner product: `max_W a max_W b - min_W a min_W b` over its (2r+1)-square W.

    For binary images this is the indicator of JL Definition 2. For any `a, b >= 0` it extends the definition: with
    filters of side k = 2r+1 and variance 2/k² the pixel's share of the mean inner product, `|a_W||b_W| rhat / k²`, lies
    between `<a_W, b_W>/k² >= min a min b` and `max a max b`, and so does `a_p b_p`. The mean inner product therefore
    differs from `<a, b>` by at most the total weight. No patch need be constant, and low contrast weighs little.

    `a`, `b`: (..., h, w), non-negative; the result is float64 of that shape.
    """
    _check_pair(a, b, r)
    first, second = a.to(torch.float64), b.to(torch.float64)
    return _largest(first, r) * _largest(second, r) - _smallest(first, r) * _smallest(second, r)


def rectangle_boundary_size(e: int, f: int, r: int) -> int:
    """`|d_r(A, B)| = 4r(e + f)` for two axis-aligned rectangles that meet in e x f pixels (JL Example 1).

    How the rectangles lie does not matter: overlapping corners, a cross, one inside the other, common edges. It needs

    - `e, f >= 2r`: otherwise no square fits inside and the size is `(e + 2r)(f + 2r)`;
    - room on the torus: widened by r, the two must meet only around their intersection. It is enough that along each
      axis the pixels from the first of either to the last of either, plus 2r, fit into the side of the image. A
      rectangle that runs all around the torus has no edges there, and the formula counts them.

    >>> rectangle_boundary_size(5, 5, 1)
    40
    """
    if r < 1 or min(e, f) < 2 * r:
        remedy = f"give an intersection of at least {2 * r} x {2 * r}, or count with shared_boundary_size"
        raise BadInput("rectangle_boundary_size", f"intersection {e} x {f} with r = {r}", remedy)
    return 4 * r * (e + f)


def _largest(image: Tensor, r: int) -> Tensor:
    """Cyclic dilation: the largest value in the square of side 2r+1 around each pixel, one axis after the other."""
    for axis in (-2, -1):
        # Beyond half the side the window already goes all around.
        reach = min(r, image.shape[axis] // 2)
        image = torch.stack([image.roll(shift, axis) for shift in range(-reach, reach + 1)]).amax(0)
    return image


def _smallest(image: Tensor, r: int) -> Tensor:
    """Cyclic erosion."""
    return -_largest(-image, r)


def _binary(place: str, image: Tensor) -> Tensor:
    if image.dtype is not torch.bool and not bool(((image == 0) | (image == 1)).all()):
        raise BadInput(place, "the image is not binary", "threshold it, or use boundary_weight for grey images")
    return image.to(torch.bool)


def _check_pair(a: Tensor, b: Tensor, r: int) -> None:
    if a.shape != b.shape or a.dim() < 2 or a.numel() == 0:
        problem = f"images of shapes {tuple(a.shape)} and {tuple(b.shape)}"
        raise BadInput("shared boundary", problem, "give two images (h, w), or two batches (..., h, w), of one shape")
    if isinstance(r, bool) or not isinstance(r, int) or not 1 <= r <= max(a.shape[-2:]):
        raise BadInput("shared boundary", f"r = {r!r}", f"use a whole number from 1 to {max(a.shape[-2:])}")
    for image in (a, b):
        if image.is_complex() or not bool((image >= 0).all()) or not bool(image.isfinite().all()):
            raise BadInput("shared boundary", "pixels are negative, NaN or infinite", "use pixels in [0, 1]")
