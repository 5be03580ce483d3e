"""Similarity, angle and distance of zipped pairs, accurate down to nearly parallel pairs.

`1 - cosine` formed by subtraction keeps nothing once the angle is small. Here one vector of each pair is first
stretched to the length of the other, with products that carry their rounding error along, and everything is read from
the two chords `|y - s x|` and `|y + s x|`:

    1 - cos t = 2 d / (d + e),   t = 2 atan2(sqrt d, sqrt e),   d = |y - s x|²,  e = |y + s x|²,  s = |y| / |x|
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from initscope.errors import BadInput, UndefinedSimilarity

# Veltkamp's splitting constant for the 53 bits of float64.
_SPLITTER = 2.0**27 + 1.0
# Indices named in a warning.
_SHOWN = 10
# Numbers of each side worked on at once: a dozen float64 temporaries of this length stay near the cache.
_BLOCK = 2**16


def similarity(x: Tensor, y: Tensor) -> Tensor:
    """Cosine similarity of zipped pairs, `<x, y> / (|x||y|)`, always within [-1, 1].

    `x`, `y`: (n, ...) of one shape; the result is (n,), NaN (with a warning) where a vector is zero.

    >>> similarity(torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0]]))
    tensor([0.9600])
    """
    near, far = _chords("similarity", x, y)
    return _as_result((far - near) / (far + near), x, y)


def defect(x: Tensor, y: Tensor) -> Tensor:
    """`1 - cosine` of zipped pairs, with full relative accuracy however small it is.

    `x`, `y`: (n, ...) of one shape; the result is (n,), NaN (with a warning) where a vector is zero.

    >>> x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 2e-6]])
    >>> defect(x, y), 1 - torch.cosine_similarity(x, y)
    (tensor([5.0000e-13]), tensor([0.]))
    """
    near, far = _chords("defect", x, y)
    return _as_result(2.0 * near / (near + far), x, y)


def angle(x: Tensor, y: Tensor) -> Tensor:
    """Angle of zipped pairs in radians, accurate near 0 and near pi.

    `x`, `y`: (n, ...) of one shape; the result is (n,), NaN (with a warning) where a vector is zero.

    >>> angle(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1e-8]]))
    tensor([1.0000e-08])
    """
    near, far = _chords("angle", x, y)
    return _as_result(2.0 * torch.atan2(near.sqrt(), far.sqrt()), x, y)


def squared_distance(x: Tensor, y: Tensor) -> Tensor:
    """Squared Euclidean distance of zipped pairs, `|x - y|²`, summed in float64.

    `x`, `y`: (n, ...) of one shape; the result is (n,).

    >>> squared_distance(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor([25.])
    """
    _check_pairs("squared_distance", x, y)
    return _as_result((x.flatten(1).to(torch.float64) - y.flatten(1)).square().sum(1), x, y)


def warn_undefined(place: str, mask_x: Tensor, mask_y: Tensor) -> None:
    """Warn once, naming the pairs whose angle does not exist because a vector is zero.

    `mask_x`, `mask_y`: (n,) booleans, true where that side of the pair is zero. Nothing happens when none is.

    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_undefined("similarity", torch.tensor([False, True]), torch.tensor([False, False]))
    >>> print(caught[0].message)
    similarity: the angle of a zero vector does not exist, the answer is NaN; zero in x: 1
    """
    sides = [f"zero in {side}: {_listed(mask)}" for side, mask in (("x", mask_x), ("y", mask_y)) if bool(mask.any())]
    if sides:
        text = f"{place}: the angle of a zero vector does not exist, the answer is NaN; {'; '.join(sides)}"
        warnings.warn(text, UndefinedSimilarity, stacklevel=2)


def _listed(mask: Tensor) -> str:
    indices = [int(i) for i in mask.nonzero().flatten()]
    more = f" and {len(indices) - _SHOWN} more" if len(indices) > _SHOWN else ""
    return ", ".join(map(str, indices[:_SHOWN])) + more


def _check_pairs(place: str, x: Tensor, y: Tensor) -> None:
    if x.shape != y.shape:
        raise BadInput(place, f"x has shape {tuple(x.shape)}, y has {tuple(y.shape)}", "give pairs of one shape")
    if x.dim() < 2 or x[:1].numel() == 0 < x.shape[0]:
        raise BadInput(place, f"got shape {tuple(x.shape)}, not a batch of vectors", "use (n, d) or (n, c, h, w)")
    if x.is_complex() or y.is_complex():
        raise BadInput(place, "got complex numbers", "pass real tensors")


def _as_result(value: Tensor, x: Tensor, y: Tensor) -> Tensor:
    # Half precision could not even hold a small defect (smallest float16 is 6e-8): answer in float32 at least.
    return value.to(torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32))


def _chords(place: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The squared chords `|y - s x|²` and `|y + s x|²` of each pair after `x` is stretched to the length of `y`."""
    _check_pairs(place, x, y)
    zero_x, zero_y = (x == 0).flatten(1).all(1), (y == 0).flatten(1).all(1)
    warn_undefined(place, zero_x, zero_y)
    rows = max(1, _BLOCK // max(1, x[:1].numel()))
    blocks = [_block_chords(a, b) for a, b in zip(torch.split(x, rows), torch.split(y, rows), strict=True)]
    near, far = (torch.cat(chord).masked_fill(zero_x | zero_y, torch.nan) for chord in zip(*blocks, strict=True))
    return near, far


def _block_chords(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if len(x) == 0:
        empty = torch.empty(0, dtype=torch.float64, device=x.device)
        return empty, empty
    a, b = (_unit_range(v.flatten(1).to(torch.float64)) for v in (x, y))
    stretch = b.square().sum(1, keepdim=True).sqrt() / a.square().sum(1, keepdim=True).sqrt()
    product, error = _two_product(stretch, a)
    # Only the near chord needs the error term: close to pi neither the angle nor the cosine could show its effect.
    return ((b - product) - error).square().sum(1), (b + product).square().sum(1)


def _unit_range(v: Tensor) -> Tensor:
    """Each row times a power of two (exact) that brings its largest entry into [1/2, 1): squares cannot overflow."""
    largest = v.detach().abs().amax(1, keepdim=True)
    _, exponent = torch.frexp(largest)
    half = exponent.div(2, rounding_mode="floor")
    # In two steps: 2^-exponent alone overflows for subnormal rows.
    return torch.ldexp(torch.ldexp(v, -half), half - exponent)


def _two_product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """`a b` as a rounded product and its rounding error, `a b = product + error` exactly (Dekker 1971)."""
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


def _split(a: Tensor) -> tuple[Tensor, Tensor]:
    wide = _SPLITTER * a
    high = wide - (wide - a)
    return high, a - high
