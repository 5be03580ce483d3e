"""`check` leaves no trace: weights, buffers, random states, modes, hooks and gradients are as they were."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from initscope.probe import check
from probe.models import Stops, cnn, mlp


def _fingerprint(model: nn.Module) -> dict[str, object]:
    return {
        "state": {k: v.clone() for k, v in model.state_dict().items()},
        "ids": [id(p) for p in model.parameters()] + [id(b) for b in model.buffers()],
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "versions": [p._version for p in model.parameters()],
        "modes": [m.training for m in model.modules()],
        "needs": [p.requires_grad for p in model.parameters()],
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()],
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state()[1].copy(),  # noqa: NPY002
        "python": random.getstate(),
    }


def _equal(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def _mixed() -> nn.Module:
    model = cnn(3, 8, norm=True)
    model.append(nn.Dropout(0.5))
    model[1].eval()
    model[0].weight.requires_grad_(False)
    model[3].weight.grad = torch.ones_like(model[3].weight)
    return model


@pytest.mark.parametrize("make", [_mixed, lambda: mlp(3, 16, 3 * 64)], ids=["mixed modes", "mlp"])
def test_nothing_of_the_model_changes(make: Callable[[], nn.Module]) -> None:
    model = make()
    x = torch.randn(4, 3, 8, 8) if isinstance(model[0], nn.Conv2d) else torch.randn(4, 3 * 64)
    data = x.clone()
    before = _fingerprint(model)
    check(model, x, seeds=2)
    after = _fingerprint(model)
    assert [k for k in before if not _equal(before[k], after[k])] == []
    assert torch.equal(x, data)


def test_nothing_changes_when_the_model_raises() -> None:
    model, x = Stops(), torch.randn(3, 8)
    before = _fingerprint(model)
    report = check(model, x)
    assert report.failure is not None
    assert [k for k, v in before.items() if not _equal(v, _fingerprint(model)[k])] == []


def test_nothing_changes_when_the_loss_raises() -> None:
    model, x = cnn(2, 4, norm=True), torch.randn(3, 3, 8, 8)
    before = _fingerprint(model)

    def broken(output: object, target: object) -> torch.Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        check(model, x, loss=broken)
    assert [k for k, v in before.items() if not _equal(v, _fingerprint(model)[k])] == []


def test_it_works_without_gradients_around_it() -> None:
    model, x = mlp(2, 8, 6), torch.randn(4, 6)
    with torch.no_grad():
        report = check(model, x, seeds=1)
    with torch.inference_mode():
        again = check(model, x.clone(), seeds=1)
    assert report.layers[0].grad_norm_ratio is not None
    assert again.layers[0].grad_norm_ratio == pytest.approx(report.layers[0].grad_norm_ratio)


def test_the_same_seed_gives_the_same_numbers() -> None:
    model, x = cnn(3, 8, norm=True), torch.randn(4, 3, 8, 8)
    first, second = (check(model, x, seeds=3, seed=5).to_dict() for _ in range(2))
    first["seconds"] = second["seconds"] = 0
    assert first == second
