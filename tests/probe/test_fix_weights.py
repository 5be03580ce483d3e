"""`fix` on particular weights: zeros, recurrent weights, attention, norms, and those that no remedy changes."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope.probe import Health, check, fix
from probe.models import he, mlp


def _batch(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _decades(report: object) -> float:
    return Health.of(report).decades  # type: ignore[arg-type]


def test_a_head_of_zeros_is_a_choice_that_fix_agrees_with() -> None:
    torch.manual_seed(0)
    shallow = he(nn.Sequential(*mlp(2, 64, 32), nn.Linear(64, 4)))
    nn.init.zeros_(shallow[-1].weight)
    fixed = fix(shallow, _batch(12, 32), seeds=1)
    assert fixed.before.verdict == check(shallow, _batch(12, 32), seeds=1).verdict != "fail"
    assert fixed.before.verdict == "healthy"
    assert [(f.kind, f.status, f.step) for f in fixed.before.findings] == [("zero-weights", "note", "4")]
    assert fixed.message == "the model is healthy; the weights stay as they are"
    assert fixed.note == "1 of 3 weight layers stay as they are: 4 (initialized to zero on purpose)"
    assert math.isfinite(Health.of(fixed.before).decades)
    deep = nn.Sequential(*mlp(12, 32, 32), nn.Linear(32, 4))
    nn.init.zeros_(deep[-1].weight)
    nn.init.zeros_(deep[-1].bias)
    repaired = fix(deep, _batch(12, 32), seeds=1)
    assert repaired.before.verdict == "fail"
    assert len(repaired.applied) == 1
    assert _decades(repaired.after) < _decades(repaired.before) - 1
    assert not repaired.model[-1].weight.detach().any()


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.memory, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.memory(x)[0][:, -1])
        return out


def test_recurrent_weights_are_repaired() -> None:
    torch.manual_seed(0)
    model = _Recurrent()
    with torch.no_grad():
        for p in model.memory.parameters():
            p.mul_(1e-5)
    fixed = fix(model, _batch(8, 5, 8), seeds=1)
    assert (fixed.before.verdict, fixed.after.verdict) == ("warn", "healthy")
    assert len(fixed.applied) == 1
    assert fixed.note == ""
    assert float(fixed.model.memory.weight_ih_l0.detach().norm()) > 1e3 * float(
        model.memory.weight_ih_l0.detach().norm()
    )


class _Bilinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.form, self.head = nn.Bilinear(8, 8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.form(x, x) * 1e-4)
        return out


def test_weights_that_no_remedy_changes_are_told() -> None:
    torch.manual_seed(0)
    normed = nn.Sequential(
        *(m for _ in range(10) for m in (_Computed(16), nn.ReLU())),
        nn.Linear(16, 4),
    )
    told = "10 of 11 weight layers stay as they are: 0, 2 and 8 more (computed from other parameters)"
    found = fix(normed, _batch(8, 16), seeds=1, remedy="he-fan-in")
    assert found.before.remedies[0].note == told
    assert found.note == told
    assert told in found.summary()
    assert json.loads(json.dumps(found.to_dict()))["note"] == told
    both = fix(normed, _batch(8, 16), seeds=1, remedy="he-fan-in+data-scaling")
    assert both.before.remedies[0].note == told
    unknown = fix(_Bilinear(), _batch(8, 8), seeds=1)
    assert unknown.note == "1 of 2 weight layers stay as they are: form (bilinear uses it in a way that is not known)"
    assert [r.note for r in unknown.applied] == [unknown.note] * len(unknown.applied)
    assert fix(mlp(12, 16, 16), _batch(8, 16), seeds=1).note == ""


class _Computed(nn.Module):
    """A weight that the forward pass makes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.randn(size, size))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, 0.05 * self.raw)


class _Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(16, 32)
        self.attend, self.norm, self.head = (
            nn.MultiheadAttention(32, 4, batch_first=True),
            nn.LayerNorm(32),
            nn.Linear(32, 4),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        x = x + self.attend(x, x, x, need_weights=False)[0]
        out: Tensor = self.head(self.norm(x).mean(1))
        return out


def test_attention_is_repaired() -> None:
    """N(0, 1) weights in the projections make every query look at one key."""
    torch.manual_seed(0)
    model = _Encoder()
    nn.init.normal_(model.attend.in_proj_weight)
    nn.init.normal_(model.enter.weight)
    fixed = fix(model, _batch(8, 12, 16), seeds=1)
    assert fixed.before.verdict == "fail"
    assert fixed.after.verdict == "healthy"
    old, new = (float(m.attend.in_proj_weight.detach().std()) for m in (model, fixed.model))
    assert new < 0.5 * old


@pytest.mark.parametrize(("key", "value"), [("bias", -10.0), ("weight", 1e5)])
def test_normalizations_are_repaired(key: str, value: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
    nn.init.constant_(model[1].get_parameter(key), value)
    fixed = fix(model, _batch(8, 16), seeds=1)
    assert fixed.before.verdict == "fail"
    assert fixed.after.verdict == "healthy"
    assert fixed.applied[0].name == "reset-norms"
    assert torch.equal(fixed.model[1].weight, torch.ones(32))
    assert torch.equal(fixed.model[1].bias, torch.zeros(32))
    assert torch.equal(fixed.model[0].weight, model[0].weight)


def test_a_zero_layer_in_the_middle_is_drawn() -> None:
    torch.manual_seed(0)
    model = he(nn.Sequential(*mlp(3, 64, 32), nn.Linear(64, 4)))
    nn.init.zeros_(model[2].weight)
    fixed = fix(model, _batch(12, 32), seeds=1)
    assert (fixed.before.verdict, fixed.before.first_bad_layer) == ("fail", "2")
    assert fixed.after.verdict == "healthy"
    assert fixed.model[2].weight.detach().any()


def test_what_is_not_a_matter_of_weights_is_left_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.98), nn.Linear(32, 4))
    fixed = fix(model, _batch(16, 16), seeds=1)
    assert fixed.before.leading is not None
    assert fixed.before.leading.kind == "dropout-rate"
    assert fixed.applied == ()
    assert fixed.message == "what was found is not a matter of the weights, they stay as they are"
