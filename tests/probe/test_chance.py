"""The loss before training beside chance, against torch's own losses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope.probe import check
from initscope.probe.batches import as_batch
from initscope.probe.chance import initial_loss
from initscope.probe.losses import RANDOM_DIRECTION
from probe.models import noise


def start(logits: Any, target: Any = None, name: str = "cross-entropy", value: float = 0.0, **keywords: Tensor) -> Any:
    inputs = noise(len(logits) if isinstance(logits, Tensor) else 4, 3)
    batch = as_batch({"x": inputs, **keywords} if keywords else inputs, nn.Identity(), target)
    return initial_loss(logits, batch, torch.tensor(value), name)


def labels(*shape: int, classes: int = 10) -> Tensor:
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(6, 10), (6, 10, 4, 4), (6, 10, 5)])
def test_cross_entropy_is_torchs(shape: tuple[int, ...]) -> None:
    logits, target = 3 * noise(*shape), labels(shape[0], *shape[2:])
    found = start(logits, target)
    assert found.kind == "cross-entropy"
    assert found.value == pytest.approx(float(F.cross_entropy(logits, target)), rel=1e-6)
    assert (found.chance, found.classes) == (math.log(10), 10)
    assert found.output_rms == pytest.approx(float(logits.square().mean().sqrt()), rel=1e-6)


def test_labels_that_do_not_count_are_left_out() -> None:
    logits, target = noise(6, 10), labels(6)
    target[:3] = -100
    assert start(logits, target).value == pytest.approx(float(F.cross_entropy(logits[3:], target[3:])), rel=1e-6)
    assert start(logits, torch.full((6,), -100)) is None
    target[0] = 10
    assert start(logits, target) is None


def test_squared_error_against_the_best_constant() -> None:
    output, target = noise(6, 3), 2 + noise(6, 3, seed=1)
    found = start(output, target, "squared error")
    assert found.kind == "squared error"
    assert found.value == pytest.approx(float(F.mse_loss(output, target)), rel=1e-6)
    assert found.chance == pytest.approx(float(target.var(0, correction=0).mean()), rel=1e-6)
    assert start(output, torch.ones(6, 3), "squared error") is None  # a constant is the answer
    assert start(output, target, "the given loss") is None


def test_the_models_own_loss_counts() -> None:
    """It may shift the labels: the value is its own, per sample of the sum over samples."""
    logits, target = noise(4, 7, 10), labels(4, 7)
    found = start(logits, None, "the model's own", value=4 * 2.5, labels=target)
    assert (found.kind, found.value, found.chance) == ("cross-entropy", 2.5, math.log(10))


def test_without_labels_it_is_the_mean_over_all() -> None:
    logits = 3 * noise(6, 10)
    every = torch.stack([F.cross_entropy(logits.double(), torch.full((6,), c)) for c in range(10)]).mean()
    found = start(logits, None, RANDOM_DIRECTION)
    assert found.kind == "logits"
    assert found.value == pytest.approx(float(every), rel=1e-6)
    assert start(logits, None, "cross-entropy with random labels").kind == "cross-entropy"
    assert start(torch.zeros(6, 10), None, RANDOM_DIRECTION).value == pytest.approx(math.log(10))


def test_what_means_nothing_has_none() -> None:
    assert start(noise(6, 1), None, RANDOM_DIRECTION) is None
    assert start(noise(6, 4, 4), None, RANDOM_DIRECTION) is None
    assert start(torch.full((6, 10), math.nan), labels(6)) is None
    assert start(torch.zeros(6, 0), None, RANDOM_DIRECTION) is None
    assert start("no tensor") is None


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_a_check_reports_the_loss_of_its_targets(scale: float) -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(16, 10), noise(32, 16), labels(32)
    with torch.no_grad():
        model.weight.mul_(scale)
    report = check(model, (x, y), seeds=1)
    assert report.initial_loss is not None
    assert report.initial_loss["value"] == pytest.approx(float(F.cross_entropy(model(x).detach(), y)), rel=1e-5)
    kinds = [f.kind for f in report.findings]
    assert ("initial-loss" in kinds) == (scale > 1)
    assert report.verdict == ("warn" if scale > 1 else "healthy")
