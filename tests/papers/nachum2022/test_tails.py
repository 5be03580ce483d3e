"""Orlicz norms and the facts about them, against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from initscope.papers.nachum2022.tails import COUNTS, NORMAL, RARE, SIGN, VARIABLES, _squared, _tails, orlicz


def test_orlicz_norms_in_closed_form() -> None:
    assert orlicz(NORMAL, 2) == pytest.approx(math.sqrt(8 / 3), rel=1e-9)  # (1 - 2/t²)^(-1/2) = 2
    assert orlicz(SIGN, 2) == pytest.approx(1 / math.sqrt(math.log(2)), rel=1e-12)
    assert orlicz(SIGN, 1) == pytest.approx(1 / math.log(2), rel=1e-12)
    assert orlicz(_squared(NORMAL), 1) == pytest.approx(8 / 3, rel=1e-9)
    assert orlicz(RARE, 1) == pytest.approx(1 / math.log(11), rel=1e-12)  # 0.9 + 0.1 e^(1/t) = 2
    assert orlicz(VARIABLES[-1], 2, 1.0) == 0


def test_weights_are_laws() -> None:
    for variable in VARIABLES:
        assert variable.weights.sum() == pytest.approx(1, abs=1e-12), variable.name


@pytest.mark.parametrize("place", range(4))
def test_exact_tails_against_drawing(place: int) -> None:
    tail = _tails()[place]
    random = np.random.default_rng(place)
    draw = (
        lambda size: random.standard_normal(size) ** 2 - 1,
        lambda size: random.exponential(size=size) - 1,
        lambda size: random.choice([-1.0, 1.0], size),
        lambda size: random.poisson(1.0, size) - 1.0,
    )[place]
    for count in (c for c in COUNTS if c <= 20):
        means = np.abs(draw((20_000, count)).mean(1))
        for t in (0.3, 0.9):
            exact = float(tail.tail(count, np.array([t]))[0])
            seen = int((means >= t - 1e-12).sum())
            assert binomtest(seen, len(means), exact).pvalue > 1e-4, (tail.name, count, t)  # 40 comparisons
