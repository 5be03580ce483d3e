"""Models and batches from `torch.inference_mode`: they work, or give one clear error."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from initscope import check, fix, parse, simulate_gradients
from initscope.errors import BadInput


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


@pytest.fixture
def inference() -> tuple[nn.Module, Tensor, Tensor]:
    with torch.inference_mode():
        return net(), torch.randn(8, 8), torch.arange(8) % 4


def test_batches_and_targets_work(inference: tuple[nn.Module, Tensor, Tensor]) -> None:
    _, x, labels = inference
    assert check(net(), (x, labels), seeds=2).loss == "cross-entropy"
    assert check(net(), {"input": x}, target=labels.float(), seeds=1).failure is None
    assert fix(net(), (x, labels), seeds=1, train_steps=2).training is not None


@pytest.mark.parametrize("call", [check, fix])
def test_a_model_gives_one_clear_error(call: object, inference: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, _, _ = inference
    x = torch.randn(8, 8)
    said = r"model: 0.weight was made under torch.inference_mode, .*copy.deepcopy\(model\)"
    with pytest.raises(BadInput, match=said):
        call(model, x, seeds=1)  # type: ignore[operator]
    assert call(copy.deepcopy(model), x, seeds=1) is not None  # type: ignore[operator]


def test_the_calls_work_inside() -> None:
    model, x = net(), torch.randn(8, 8)
    with torch.inference_mode():
        assert check(model, x, seeds=3).seeds == 3
        assert fix(model, x, seeds=2).before.failure is None


def test_gradients_of_simulated_networks(inference: tuple[nn.Module, Tensor, Tensor]) -> None:
    _, x, labels = inference
    layers = parse("dense(16) relu dense(4)")
    outside = simulate_gradients(layers, x, targets=labels, draws=3)
    with torch.inference_mode():
        inside = simulate_gradients(layers, x, targets=labels, draws=3)
    assert torch.equal(outside.layers[0].weight.value, inside.layers[0].weight.value)
