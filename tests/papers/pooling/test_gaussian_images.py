"""The constant of Theorem 4.4 against brute force and drawn filters."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
import torch

from initscope.data import load_pairs
from initscope.errors import BadInput
from initscope.networks import kernel
from initscope.papers.pooling.gaussian_images import (
    arc_cosine_series,
    even_moments,
    excess,
    excess_sum,
    pooled_defect,
    shift_eigenvalues,
)
from initscope.papers.pooling.measures import arc_cosine, conv_net


@pytest.mark.parametrize("c", [0.1, 0.5, 0.8])
def test_the_series_is_the_arc_cosine_kernel(c: float) -> None:
    even = 1 + sum(b * c ** (2 * m) for m, b in enumerate(arc_cosine_series(), start=1))
    with mp.workdps(30):
        expected = mp.sqrt(1 - mp.mpf(c) ** 2) + (mp.pi - mp.acos(c)) * mp.mpf(c)
        expected -= mp.pi * mp.mpf(c) / 2
    assert even == pytest.approx(float(expected), rel=1e-14)


@pytest.mark.parametrize("kernel_size", [2, 3, 4, 5])
def test_paths_give_the_eigenvalues_of_every_shift(kernel_size: int) -> None:
    for lag in [(i, j) for i in range(kernel_size) for j in range(kernel_size) if (i, j) != (0, 0)]:
        shift = np.kron(np.eye(kernel_size, k=lag[0]), np.eye(kernel_size, k=lag[1]))
        expected = np.linalg.eigvalsh((shift + shift.T) / 2)
        assert np.allclose(np.sort(shift_eigenvalues(kernel_size, lag)), expected, atol=1e-12)


def test_second_and_fourth_moments_by_hand() -> None:
    """E c² = 2 Σλ² / (N(N+2)) and E c⁴ = 12 ((Σλ²)² + 4 Σλ⁴) / (N(N+2)(N+4)(N+6)) for spectra symmetric about zero."""
    values = shift_eigenvalues(3, (0, 1))
    n, two, four = 9, float((values**2).sum()), float((values**4).sum())
    found = even_moments(values)
    assert found[0] == pytest.approx(2 * two / (n * (n + 2)), rel=1e-13)
    assert found[1] == pytest.approx(12 * (two**2 + 4 * four) / (n * (n + 2) * (n + 4) * (n + 6)), rel=1e-13)


@pytest.mark.parametrize(("size", "lag"), [(2, (1, 1)), (3, (0, 1)), (3, (1, 1)), (5, (0, 1)), (5, (2, 3))])
def test_against_drawn_filters(size: int, lag: tuple[int, int]) -> None:
    g = torch.Generator().manual_seed(1)
    w = torch.randn(400_000, size, size, generator=g, dtype=torch.float64)
    shifted = w[:, lag[0] :, lag[1] :] * w[:, : size - lag[0], : size - lag[1]]
    c = shifted.sum((1, 2)) / w.square().sum((1, 2))
    values = math.pi * arc_cosine(c) - 1 - math.pi * c / 2  # the odd part has mean zero: a smaller error without it
    assert abs(float(values.mean()) - excess(size, lag)) <= 4 * float(values.std()) / math.sqrt(len(w))


def test_one_tap_is_the_dense_layer() -> None:
    """Filters of one pixel: positions are independent units, so Theorem 4.1's exact value at right angles holds."""
    for side in (2, 5, 30):
        assert pooled_defect(side, 1) == pytest.approx((math.pi - 1) / (math.pi + side**2 - 1), rel=1e-14)


@pytest.mark.parametrize(("side", "size"), [(5, 3), (9, 3), (9, 5)])
def test_against_images_and_the_kernel(side: int, size: int) -> None:
    """The mean over images of exact kernels, which sum over all pairs of positions."""
    pairs = load_pairs("gaussian:0", pairs=300, size=side, channels=1, seed=3)
    net = conv_net("average", 1, size)
    found = torch.stack([kernel(net, torch.stack(p).double()) for p in zip(pairs.x, pairs.y, strict=True)])
    own, other = (found[:, 0, 0] + found[:, 1, 1]) / 2, found[:, 0, 1]
    expected = pooled_defect(side, size)
    # (own - other) - own (1 - C) has mean zero.
    off = own - other - own * expected
    assert abs(float(off.mean())) <= 4 * float(off.std()) / math.sqrt(len(off))


def test_the_limit_rises_towards_pi_less_a_half() -> None:
    values = [excess_sum(k) for k in (1, 2, 3, 5, 8, 12)]
    assert values == sorted(values)
    assert math.pi - 1 == values[0]
    assert math.pi - 0.5 - 0.02 < values[-1] < math.pi - 0.5


def test_windows_that_meet_twice_are_refused() -> None:
    with pytest.raises(BadInput, match="meet twice"):
        pooled_defect(4, 3)
