"""What a check will take: measured on a few samples, within a factor, and nothing of it shows."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from initscope import check
from initscope.probe.batches import as_batch
from initscope.probe.progress import Cost, CostModel, cost_model, estimate_cost, no_progress


def mlp(depth: int = 10, width: int = 64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(m for _ in range(depth) for m in (nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()))
    )


def model_of(module: nn.Module, batch: Any) -> CostModel:
    found = cost_model(module, as_batch(batch, module))
    assert found is not None
    return found


def test_steps_units_and_kept_activations_are_counted() -> None:
    found = model_of(mlp(), torch.randn(32, 64))
    assert (found.steps, found.units) == (30, 30 * 64)
    # The input of each layer is kept for the backward pass: 64 numbers of 4 bytes each, and what batch norm keeps.
    assert 20 * 64 * 4 <= found.bytes[1] <= 40 * 64 * 4


def test_it_grows_with_samples_and_passes() -> None:
    found = CostModel(seconds=(0.5, 0.1), bytes=(1000.0, 100.0), steps=3, units=30)
    one, more = found.of(10), found.of(1000)
    assert more.seconds > 50 * one.seconds
    assert more.bytes > 1000 * one.bytes, "pairs of samples are kept"
    assert found.of(10, passes=3).seconds == pytest.approx(3 * one.seconds)
    assert isinstance(one, tuple)
    seconds, memory = one
    assert Cost(seconds, memory) == one


def test_the_most_samples_that_fit() -> None:
    found = CostModel(seconds=(0.5, 0.1), bytes=(1000.0, 100.0), steps=3, units=30)
    most = found.most_samples(10**6, passes=2)
    assert found.of(most, 2).bytes <= 10**6 < found.of(most + 1, 2).bytes
    assert found.most_samples(10) == 0


def test_the_estimate_is_near_what_a_check_takes() -> None:
    module, x = mlp(20, 256), torch.randn(256, 256)
    cost = estimate_cost(module, x)
    assert cost is not None
    started = time.perf_counter()
    check(module, x, seeds=1)
    taken = time.perf_counter() - started
    assert taken / 6 < cost.seconds < 6 * taken  # other work on the machine moves both


def test_nothing_of_it_shows() -> None:
    module, x = mlp(), torch.randn(16, 64)
    x.requires_grad_()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state, copy = torch.random.get_rng_state(), x.detach().clone()
    module.eval()
    assert estimate_cost(module, x) is not None
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
    assert not module.training
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(x, copy)
    assert x.grad is None


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 16), nn.Linear(4, 16)

    def forward(self, left: Tensor, right: Tensor, factor: Tensor) -> dict[str, Tensor]:
        return {"logits": self.left(left) + factor * self.right(right)}


def test_several_inputs_are_cut_alike() -> None:
    batch = {"left": torch.randn(12, 6), "right": torch.randn(12, 4), "factor": torch.tensor(2.0)}
    assert estimate_cost(Two(), batch) is not None


class Stubborn(nn.Module):
    """Takes batches of one size only."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) != 32:
            raise ValueError("32 samples, please")
        return self.linear(x)


def test_unknown_where_a_part_does_not_run() -> None:
    assert estimate_cost(Stubborn(), torch.randn(32, 4)) is None
    assert estimate_cost(nn.Linear(4, 4), torch.randn(4, 4)) is None, "as long as the work itself"


def test_lazy_weights_stay_lazy() -> None:
    module = nn.LazyLinear(4)
    assert estimate_cost(module, torch.randn(16, 4)) is None
    assert isinstance(module.weight, nn.parameter.UninitializedParameter)


def test_no_progress_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    no_progress("check", 0.5)
    assert capsys.readouterr() == ("", "")
