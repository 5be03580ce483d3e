"""Intervals of `simulate` hold the exact prediction as often as they say, over all layers.

Each case is a simulation of its own, with networks that no other case uses, read at one layer, one pair and one quantity. The
table's networks are so shallow (or, where their law is that of many channels only, so wide) that a finite network has the exact
second moments, so that misses are chance alone. `benchmarks/simulation.py --coverage` prints the shares.
"""

from __future__ import annotations

import pytest
from scipy.stats import binom

from finite.coverage import deep_hits, exact_cases, table_hits


def test_the_table_covers_most_layers() -> None:
    names = {word for case, net, _ in exact_cases() for word in [case.name.split()[0]]}
    assert {"conv", "average", "global", "batch", "layer", "group", "upsample", "dropout", "residual", "dense"} <= names
    assert len(exact_cases()) > 60


def test_intervals_of_every_layer_hold_the_prediction() -> None:
    hits = list(table_hits(30, range(2)))
    low, high = binom.interval(0.999, len(hits), 0.95)
    assert low <= sum(hits) <= high


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"until": 0.05}], ids=["100 draws", "until 0.05"])
def test_93_to_97_percent_of_500_intervals_hold_the_prediction(options: dict[str, float]) -> None:
    hits = list(table_hits(2000 if options else 100, range(8), **options))
    assert len(hits) >= 500
    assert 0.93 <= sum(hits) / len(hits) <= 0.97


@pytest.mark.slow
def test_93_to_97_percent_in_a_deep_network() -> None:
    """At width 1000 what is left of the finite width, O(depth/width), hides within the standard error of 40 draws."""
    hits = list(deep_hits(40, range(600)))
    assert {layer for layer, _ in hits} == set(range(1, 21))
    assert 0.93 <= sum(hit for _, hit in hits) / len(hits) <= 0.97
