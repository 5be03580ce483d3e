"""Targets that the output cannot take, and losses in which samples meet the targets of others."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope.probe import Finding, check

N = 24


def _model(*last: nn.Module, outputs: int = 1) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, outputs), *last)


def _x() -> Tensor:
    return torch.randn(N, 8, generator=torch.Generator().manual_seed(1))


def _found(kind: str, model: nn.Module, target: Tensor, **options: Any) -> list[Finding]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the shapes too
        report = check(model, _x(), target=target, seeds=1, theory=False, **options)
    return [f for f in report.findings if f.kind == kind]


LINE = torch.linspace(-1.5, 1.5, N)[:, None]
RANGES: list[tuple[nn.Module, Tensor, str | None]] = [
    (nn.ReLU(), LINE, "fail"),
    (nn.ReLU(), LINE + 1.4, "warn"),
    (nn.ReLU(), LINE + 1.5, None),
    (nn.Sigmoid(), LINE, "fail"),
    (nn.Sigmoid(), (LINE > 0).float(), None),
    (nn.Tanh(), LINE / 1.5, None),
    (nn.Tanh(), LINE, "warn"),
    (nn.Softplus(), LINE, "fail"),
    (nn.LeakyReLU(), LINE, None),
    (nn.Identity(), 100 * LINE, None),
]


@pytest.mark.parametrize(("last", "target", "expected"), RANGES)
def test_targets_out_of_reach(last: nn.Module, target: Tensor, expected: str | None) -> None:
    found = _found("output-range", _model(last), target)
    assert [f.status for f in found] == ([] if expected is None else [expected])
    if found:
        low, high = found[0].evidence["low"], found[0].evidence["high"]
        assert found[0].value == float(((target < low) | (target > high)).double().mean())
        assert found[0].step == "3"


def test_a_loss_that_may_use_targets_in_any_way_warns_at_most() -> None:
    found = _found("output-range", _model(nn.ReLU()), LINE, loss=lambda out, t: (out * t).mean())
    assert [f.status for f in found] == ["warn"]


BROADCAST: list[Callable[[Tensor, Tensor], Tensor]] = [
    F.mse_loss,
    nn.L1Loss(),
    nn.SmoothL1Loss(),
    lambda out, t: ((out - t) ** 2).mean(),
    lambda out, t: (t - out).abs().mean(),
]


@pytest.mark.parametrize("loss", BROADCAST)
def test_a_loss_that_broadcasts_fails(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    found = _found("target-shape", _model(), LINE[:, 0], loss=loss)
    assert [(f.status, f.evidence["output"], f.evidence["target"]) for f in found] == [("fail", [N, 1], [N])]
    assert not _found("target-shape", _model(), LINE, loss=loss)


def test_a_loss_that_takes_care_of_shapes_is_fine() -> None:
    assert not _found("target-shape", _model(), LINE[:, 0], loss=lambda out, t: F.mse_loss(out.squeeze(-1), t))
    assert not _found("target-shape", _model(outputs=3), LINE.expand(N, 3), loss=F.mse_loss)


def test_the_default_loss_compares_entry_by_entry() -> None:
    flat = check(_model(), (_x(), LINE[:, 0]), seeds=1, theory=False)
    full = check(_model(), (_x(), LINE), seeds=1, theory=False)
    assert (flat.loss, flat.verdict) == (full.loss, full.verdict) == ("squared error", "healthy")
    assert flat.initial_loss == full.initial_loss
    assert [f.status for f in flat.findings] == ["note"]
