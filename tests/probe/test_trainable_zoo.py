"""`check` raises no alarm about models that train: over three draws of the weights none fails."""

from __future__ import annotations

import pytest
import torch

from initscope import check
from probe.trainable_zoo import TRAINABLE

DRAWS = 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRAINABLE)
def test_a_model_that_trains_does_not_fail(name: str) -> None:
    entry = TRAINABLE[name]
    if entry.needs is not None:
        pytest.importorskip(entry.needs)
    for draw in range(DRAWS):
        torch.manual_seed(draw)
        report = check(entry.build(), entry.batch(), seeds=1, seed=draw, **entry.options)
        first = next((row.reason for row in report.layers if row.name == report.first_bad_layer and row.reason), "")
        assert report.verdict != "fail", f"draw {draw}: {report.first_bad_layer}: {first}"


def test_the_zoo_is_large_and_half_of_it_has_targets() -> None:
    known = [entry for entry in TRAINABLE.values() if entry.goal is None or "target" in entry.options]
    assert len(TRAINABLE) >= 60
    assert len(known) >= 0.4 * len(TRAINABLE)
