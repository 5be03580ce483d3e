"""How remedies are ranked: the verdict, then by how many powers of ten a network is off."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from initscope.probe import Effect, Health, check, prescribe
from initscope.probe.fixing import MARGIN
from probe.models import mlp, noise


def test_remedies_are_ranked_by_the_verdict_and_then_by_the_measured_fall_of_the_score() -> None:
    torch.manual_seed(0)
    found = prescribe(mlp(12, 64, 32), noise(16, 32))
    after = [r.effect.after for r in found if r.effect.after is not None]
    known = [(("healthy", "warn", "fail").index(health.verdict), health.decades) for health in after]
    assert known == sorted(known)
    assert len({verdict for verdict, _ in known}) > 1  # or the verdict could not show in the order
    assert all(r.improvement is None for r in found[len(known) :])
    best = found[0]
    assert best.effect.after is not None
    assert best.improvement == best.effect.before.decades - best.effect.after.decades
    assert {r.name for r in found if r.changes == "weights"} >= {
        "he-fan-in",
        "he-fan-out",
        "he-geometric",
        "orthogonal",
        "zero-sum",
        "data-scaling",
    }
    again = prescribe(mlp(12, 64, 32), noise(16, 32), shell="mlp:12 --data gaussian", changes=("weights",))
    assert (
        next(r for r in again if r.name == "orthogonal").command
        == "initscope fix mlp:12 --data gaussian --remedy orthogonal"
    )


def test_the_score_is_the_sum_of_three_powers_of_ten() -> None:
    torch.manual_seed(0)
    report = check(mlp(6, 64, 32), noise(8, 32), seeds=1)
    health = Health.of(report)
    norm = max((abs(math.log10(r.norm_ratio)) for r in report.layers if r.norm_ratio), default=0.0)
    assert all(r.grad_norm_ratio and r.sensitivity_ratio and r.grad_norm_ratio < 1.001 for r in report.layers)
    pairs = [(r.grad_norm_ratio, r.sensitivity_ratio) for r in report.layers]
    # All gradients shrink: of the two readings of the gradient at a step, the one nearer to 1 counts.
    mild = [min(-math.log10(g), max(-math.log10(s), 0.0)) for g, s in pairs if g and s]
    gradient = max(mild)
    before, last, out = (r.angle_deg for r in report.layers[-3:])
    assert before is not None
    assert last is not None
    assert out is not None
    angle = out * max(1.0, before / last)  # what the last weights take away does not count
    assert health.decades == pytest.approx(math.log10(90 / angle) + norm + gradient)
    dead = mlp(2, 16, 8)
    with torch.no_grad():
        dead[2].bias.fill_(-100)
    assert math.isfinite(Health.of(check(dead, noise(4, 8), seeds=1)).decades)


@pytest.mark.parametrize(
    ("before", "after", "helps"),
    [
        (("fail", 3.0), ("warn", 3.5), True),
        (("fail", 3.0), ("fail", 2.8), True),
        (("fail", 3.0), ("fail", 2.95), False),
        (("warn", 3.0), ("fail", 1.0), False),
        (("warn", 3.0), None, False),
    ],
)
def test_a_better_verdict_helps_and_then_powers_of_ten_count(before: Any, after: Any, helps: bool) -> None:
    found = Effect(*(None if given is None else Health(1.0, 1.0, 1.0, *given) for given in (before, after)))  # type: ignore[arg-type]
    assert found.helps(MARGIN) is helps


def test_health_follows_the_trunk() -> None:
    """What is made beside the way from the data to the output, constants of zeros too, does not make a network worse."""

    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.side = mlp(2, 64, 32), nn.Linear(64, 64)

        def forward(self, x: Tensor) -> Tensor:
            y = self.net(x)
            state = torch.zeros_like(y) + y.new_zeros(y.shape)
            out: Tensor = y + 1e-9 * torch.tanh(self.side(y * 1e-6)) + state
            return out

    torch.manual_seed(0)
    model = Beside()
    plain = Health.of(check(model.net, noise(8, 32), seeds=1))
    beside = Health.of(check(model, noise(8, 32), seeds=1))
    assert beside.verdict == plain.verdict
    assert beside.decades == pytest.approx(plain.decades, rel=1e-3)
