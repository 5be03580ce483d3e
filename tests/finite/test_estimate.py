"""Estimates: mean, standard error, and intervals that cover as often as they say."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, sem, ttest_1samp

from initscope.errors import BadInput
from initscope.finite import Estimate


def samples(draws: int, n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(draws, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("draws", [2, 3, 50])
def test_mean_standard_error_and_interval_are_those_of_scipy(draws: int) -> None:
    values = 3 + 2 * samples(draws, 7)
    estimate = Estimate.from_draws(values)
    assert estimate.draws == draws
    np.testing.assert_allclose(estimate.value, values.numpy().mean(0), rtol=1e-13)
    np.testing.assert_allclose(estimate.stderr, sem(values.numpy()), rtol=1e-12)
    for level in (0.5, 0.95, 0.999):
        theirs = ttest_1samp(values.numpy(), 0.0).confidence_interval(level)
        low, high = estimate.interval(level)
        np.testing.assert_allclose(low, theirs.low, rtol=1e-9)
        np.testing.assert_allclose(high, theirs.high, rtol=1e-9)


@pytest.mark.parametrize("draws", [2, 5, 30])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_intervals_cover_the_truth_as_often_as_they_say(draws: int, level: float) -> None:
    """4,000 experiments; with 5 draws a normal quantile in place of Student's would cover 88 % instead of 95 %."""
    experiments = 4000
    low, high = Estimate.from_draws(1.5 + samples(draws, experiments, seed=draws)).interval(level)
    covered = int(((low <= 1.5) & (high >= 1.5)).sum())
    least, most = binom.interval(0.9999, experiments, level)
    assert least <= covered <= most


def test_the_default_level_is_95_percent() -> None:
    estimate = Estimate.from_draws(samples(4, 3))
    for default, named in zip(estimate.interval(), estimate.interval(0.95), strict=True):
        assert torch.equal(default, named)


def test_one_draw_says_nothing_about_its_error() -> None:
    estimate = Estimate.from_draws(samples(1, 2))
    assert torch.isinf(estimate.stderr).all()
    low, high = estimate.interval()
    assert low.tolist() == [-math.inf] * 2
    assert high.tolist() == [math.inf] * 2


def test_draws_that_agree_have_no_error() -> None:
    estimate = Estimate.from_draws(torch.full((6, 2), 0.25))
    assert estimate.stderr.tolist() == [0.0, 0.0]
    low, high = estimate.interval()
    assert low.tolist() == high.tolist() == [0.25, 0.25]


def test_to_dict_survives_json() -> None:
    estimate = Estimate.from_draws(samples(5, 3))
    document = json.loads(json.dumps(estimate.to_dict(), allow_nan=False))
    assert document == {"value": estimate.value.tolist(), "stderr": estimate.stderr.tolist(), "draws": 5}


@pytest.mark.parametrize("level", [0, 1, -0.1, 95, math.nan, True, "0.95", None])
def test_a_level_is_between_nothing_and_all(level: float) -> None:
    with pytest.raises(BadInput, match=r"level: got .*, expected a number between 0 and 1"):
        Estimate.from_draws(samples(4, 3)).interval(level)


def test_reach_is_half_the_interval() -> None:
    estimate = Estimate.from_draws(samples(9, 3))
    low, high = estimate.interval(0.8)
    torch.testing.assert_close(2 * estimate.reach(0.8), high - low)
