"""The tools of the items against independent routes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from initscope.activations import RELU
from initscope.data import load, load_pairs
from initscope.finite import simulate
from initscope.geometry import cyclic_convolution, generator
from initscope.layers import Activate, Conv
from initscope.networks import Sequential
from initscope.papers.nachum2022.sampling import (
    Layered,
    all_agree,
    exact_mean,
    exact_sums,
    filter_sums,
    jackknife,
    many_filter_sums,
    one_layer,
    rarely,
    ratio,
    sampled_slope,
    slope,
    slope_error,
    title_of,
)


def test_filter_sums_are_those_of_the_papers_convolution() -> None:
    """Eq. 4 runs backwards over the filter and starts elsewhere; sums over the torus see neither."""
    pairs = load_pairs("photos", pairs=2, size=6, channels=2 + 1, seed=1)
    sums = filter_sums(pairs.x.double(), pairs.y.double(), 3, 4, seed=5)
    weights = next(Conv(4, 3).sample((3, 6, 6), generator=generator(5), dtype=torch.float64).parameters()).detach()
    for i in range(2):
        a, b = (cyclic_convolution(weights.flip(-2, -1), side[i].double()).relu() for side in (pairs.x, pairs.y))
        torch.testing.assert_close(sums[0, :, i], (a * b).sum((1, 2)))
        torch.testing.assert_close(sums[1, :, i], (a * a).sum((1, 2)))


def test_portions_keep_the_law() -> None:
    pairs = load_pairs("photos", pairs=1, size=5, seed=2)
    sums = many_filter_sums(pairs.x, pairs.y, 3, 20_000, seed=3)
    assert sums.shape == (3, 20_000, 1)
    error = sums.std(1) / math.sqrt(20_000)
    assert bool(((sums.mean(1) - exact_sums(pairs.x, pairs.y, 3)).abs() < 4 * error).all())


def test_a_layer_of_filters_agrees_with_simulate() -> None:
    """One network per filter, averaged as moments, is one layer of as many filters."""
    pairs = load_pairs("photos", pairs=3, size=8, seed=4)
    layer = one_layer(pairs.x, pairs.y, 3, 400, seed=0)
    found = simulate(Sequential(Conv(1, 3), Activate(RELU)), pairs.x, pairs.y, draws=400, seed=9).layers[-1].cosine
    both = (layer.stderr.square() + found.stderr.square()).sqrt()
    assert bool(((layer.after - found.value).abs() < 4 * both).all())
    torch.testing.assert_close(layer.stderr, found.stderr, rtol=0.25, atol=0)  # two estimates of one error
    assert bool(((layer.after - exact_mean(pairs.x, pairs.y, 3)).abs() < 4 * layer.stderr).all())


def test_slope_is_the_least_squares_line() -> None:
    x = torch.linspace(0, 1, 30, dtype=torch.float64)
    y = 0.3 + 0.9 * x + 0.1 * torch.randn(30, generator=generator(0), dtype=torch.float64)
    line, covariance = np.polyfit(x.numpy(), y.numpy(), 1, cov=True)
    assert float(slope(x, y)) == pytest.approx(line[0], rel=1e-12)
    assert slope_error(x, y) == pytest.approx(math.sqrt(covariance[0, 0]), rel=0.35)


def test_the_slopes_interval_covers() -> None:
    """Points with errors of their own and an error that all pairs share: the interval must know of both."""
    covered, runs, pairs, filters = 0, 300, 60, 40
    source = generator(11)
    for _ in range(runs):
        x = torch.rand(pairs, generator=source, dtype=torch.float64)
        own = 0.1 * torch.randn(pairs, generator=source, dtype=torch.float64)
        shared = torch.randn(filters, 1, generator=source, dtype=torch.float64)  # each filter tilts all points
        values = 0.8 * x + own + shared * x
        total = values.sum(0)
        layer = Layered(x, x, total / filters, (total - values) / (filters - 1))
        low, high = sampled_slope(layer).interval()
        covered += low <= 0.8 <= high
    assert covered / runs > 0.95 - 4 * math.sqrt(0.95 * 0.05 / runs)
    assert covered / runs < 0.995  # an interval that is far too wide would cover always


def test_jackknife_of_a_ratio() -> None:
    """Against the spread of the ratio over many independent sets of filters."""
    pairs = load_pairs("photos", pairs=1, size=6, channels=1, seed=6)
    sums = many_filter_sums(pairs.x, pairs.y, 3, 100 * 400, seed=1)[:, :, 0].view(3, 400, 100)
    truth = ratio(sums.sum(2)).std()
    total = sums.sum(2, keepdim=True)
    errors = jackknife(ratio(total - sums).T)
    assert float(errors.square().mean().sqrt()) == pytest.approx(float(truth), rel=0.15)


def test_checks_can_fail() -> None:
    exact, error = torch.zeros(10), torch.ones(10)
    assert all_agree("", torch.full((10,), 2.5), error, exact, 1000).agrees
    wrong = all_agree("", torch.full((10,), 3.5), error, exact, 1000)
    assert wrong.agrees is False
    assert wrong.why
    assert rarely("", 0, 100, 0.05).agrees
    assert rarely("", 0, 40, 0.05).agrees is False  # too few sets to say so
    assert rarely("", 10, 100, 0.05, "why").why == "why"


def test_stand_ins_keep_their_own_name() -> None:
    assert title_of("cifar10", "CIFAR-10", load("photos", count=1, size=8)) == "photos"
