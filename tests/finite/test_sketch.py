"""Sketched kernels against the exact sum over all pairs of positions: unbiased, and the intervals hold at their rate."""

from __future__ import annotations

import math

import pytest
import torch

from initscope.data import load
from initscope.errors import BadInput, NoExactForm
from initscope.finite import sketch_kernel
from initscope.finite.sketch import GROUPS, _stratified
from initscope.geometry import generator
from initscope.networks import kernel, parse
from initscope.networks.fused import compiled_path

ONE_LAYER = (
    "conv3 relu gap",
    "conv3(padding=zero, bias=0.3) leaky(0.2) gap dense(1)",
    "conv5(padding=valid) leaky(0.7) gap",
    "conv3(padding=reflect) relu gap",
    "conv3 gap",
)
DEEP = (
    "3x(conv3 relu) gap",
    "2x(conv3(padding=zero) relu) gap dense(1, bias=0.2)",
    "2x(conv3(padding=valid) relu) gap",
)
compiled = pytest.mark.skipif(compiled_path() is None, reason="needs numba")


def _photos(count: int, size: int) -> torch.Tensor:
    return load("photos", count=count, size=size).images


def _check_coverage(arch: str, images: torch.Tensor, work: int, seeds: int) -> None:
    """Entries of one sketch are strongly related: the rate's error is taken between seeds."""
    net = parse(arch)
    exact = kernel(net, images.double())
    rates = []
    for seed in range(seeds):
        low, high = sketch_kernel(net, images, work=work, seed=seed).interval()
        rates.append(((low <= exact) & (exact <= high)).double().mean())
    found = torch.stack(rates)
    assert float(found.mean()) > 0.95 - 3.5 * float(found.std()) / math.sqrt(seeds)


@pytest.mark.parametrize("arch", [a for a in ONE_LAYER if a != "conv3 gap"])
def test_intervals_hold_for_one_layer(arch: str) -> None:
    _check_coverage(arch, _photos(4, 12), 64, 24)


@compiled
@pytest.mark.parametrize("arch", DEEP)
def test_intervals_hold_for_deep_networks(arch: str) -> None:
    _check_coverage(arch, _photos(3, 12), 16 * GROUPS, 24)


@pytest.mark.parametrize("arch", ONE_LAYER)
def test_one_layer_is_precise(arch: str) -> None:
    """References from the images themselves leave little to the random filters."""
    net, images = parse(arch), _photos(4, 24)
    exact = kernel(net, images.double())
    found = sketch_kernel(net, images, work=256)
    assert found.value.shape == (4, 4)
    assert float(((found.value - exact) / exact.abs().max()).abs().max()) < 1e-4
    beside = sketch_kernel(net, images[:1], images[1:], work=256)
    low, high = beside.interval(0.9999)
    slack = 1e-6 * float(exact.abs().max())
    assert ((low - slack <= exact[:1, 1:]) & (exact[:1, 1:] <= high + slack)).all()


def test_images_that_are_mostly_zero() -> None:
    """Patches without a direction are references for nothing."""
    images = torch.zeros(3, 1, 16, 16)
    images[0, 0, 4:6, 4:6] = 1.0
    images[1, 0, 9:12, 2:3] = -2.0
    net = parse("conv3 relu gap")
    exact = kernel(net, images.double())
    found = sketch_kernel(net, images, work=4096)
    low, high = found.interval(0.9999)
    assert ((low - 1e-12 <= exact) & (exact <= high + 1e-12)).all()
    assert float(found.value[2].abs().max()) == 0.0


def test_the_same_seed_gives_the_same_and_another_another() -> None:
    net, images = parse("conv3 relu gap"), _photos(3, 12)
    one, again, other = (sketch_kernel(net, images, work=16, seed=seed).value for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("counts", [[7, 7], [23, 5], [3, 40]])
def test_every_displacement_is_equally_likely(counts: list[int]) -> None:
    """One draw in every cell, the whole shifted at random: counts over many groups follow the multinomial law."""
    seen = torch.zeros(counts[0], counts[1], dtype=torch.float64)
    groups = 1500
    size = 0
    for seed in range(groups):
        chosen = _stratified(counts, 9, generator(3, seed))
        size = len(chosen)
        for row, column in chosen:
            seen[row, column] += 1
    expected = groups * size / math.prod(counts)
    # Stratified draws vary no more than independent ones.
    assert float((seen - expected).abs().max()) < 4.5 * math.sqrt(expected)


@pytest.mark.parametrize("arch", ["conv3 relu", "dense(10) relu", "conv3 tanh gap", "conv3 relu gmp"])
def test_other_networks_are_refused(arch: str) -> None:
    images = torch.rand(2, 3, 6, 6)
    with pytest.raises(NoExactForm, match="global average"):
        sketch_kernel(parse(arch), images.flatten(1) if arch.startswith("dense") else images)


def test_bad_input() -> None:
    net = parse("conv3 relu gap")
    with pytest.raises(BadInput, match="work is 0"):
        sketch_kernel(net, torch.rand(2, 3, 6, 6), work=0)
    with pytest.raises(BadInput, match="NaN"):
        sketch_kernel(net, torch.full((2, 3, 6, 6), math.nan))
