"""Cyclic convolution against the sum it is defined by, and against the Fourier transform."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.geometry.cyclic import cyclic_convolution

SHAPES = [(1, 1, 5, 4), (3, 3, 3, 3), (2, 3, 6, 5), (4, 1, 4, 7), (5, 5, 5, 5)]  # filter sides, image sides


def by_definition(filters: Tensor, x: Tensor) -> Tensor:
    """JL eq. 4, term by term: filters (c, r, s), x (c, h, w)."""
    (c, r, s), (_, h, w) = filters.shape, x.shape
    out = torch.zeros(h, w, dtype=x.dtype)
    for u, v, i, j, k in itertools.product(range(h), range(w), range(r), range(s), range(c)):
        out[u, v] += filters[k, i, j] * x[k, (u - i) % h, (v - j) % w]
    return out


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("sides", SHAPES)
def test_equals_the_defining_sum(sides: tuple[int, int, int, int]) -> None:
    r, s, h, w = sides
    filters, x = random(1, 2, r, s), random(2, 2, h, w)
    torch.testing.assert_close(cyclic_convolution(filters, x), by_definition(filters, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sides", SHAPES)
def test_equals_the_product_of_fourier_transforms(sides: tuple[int, int, int, int]) -> None:
    r, s, h, w = sides
    filters, x = random(3, 4, 3, r, s), random(4, 2, 3, h, w)
    product = torch.fft.fft2(x)[:, None] * torch.fft.fft2(filters, s=(h, w))[None]
    expected = torch.fft.ifft2(product.sum(2)).real
    torch.testing.assert_close(cyclic_convolution(filters, x), expected, rtol=1e-11, atol=1e-11)


def test_shapes_follow_the_batches() -> None:
    filters, x = random(5, 4, 3, 3, 3), random(6, 2, 3, 6, 6)
    both = cyclic_convolution(filters, x)
    assert both.shape == (2, 4, 6, 6)
    close = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
    close(cyclic_convolution(filters[1], x), both[:, 1])
    close(cyclic_convolution(filters, x[0]), both[0])
    close(cyclic_convolution(filters[1], x[0]), both[0, 1])


@pytest.mark.parametrize(
    ("filters", "images"),
    [
        ((2, 3, 3), (3, 5, 5)),
        ((3, 6, 3), (3, 5, 5)),
        ((3, 3, 6), (3, 5, 5)),
        ((3, 3), (3, 5, 5)),
        ((3, 0, 3), (3, 5, 5)),
    ],
)
def test_misfits_are_refused(filters: tuple[int, ...], images: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="cyclic_convolution"):
        cyclic_convolution(torch.ones(filters), torch.ones(images))
