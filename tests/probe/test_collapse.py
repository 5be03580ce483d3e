"""Collapsed networks, the main thing `check` is asked about: it never raises, and what is not a number is null."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from initscope.probe import Report, check
from initscope.probe.measure import batch_geometry


def plain_stack(seed: int, dtype: torch.dtype = torch.float32, depth: int = 60) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [layer for _ in range(depth) for layer in (nn.Linear(16, 16), nn.ReLU())]
        return nn.Sequential(*layers).to(dtype)


def samples(seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_sound(report: Report) -> None:
    json.dumps(report.to_dict(), allow_nan=False)
    for layer in report.layers:
        cosine = layer.centred_cosine
        assert cosine is None or cosine != cosine or -1 <= cosine <= 1, (layer.name, cosine)


def test_sixty_plain_stacks() -> None:
    for seed in range(60):
        assert_sound(check(plain_stack(seed), samples(seed), seeds=1, theory=False))


def _alike(x: Tensor) -> Tensor:
    return x[:1].repeat(len(x), 1)


def _one_differs(x: Tensor) -> Tensor:
    x = _alike(x)
    x[3] += 1
    return x


BATCHES = {"zeros": torch.zeros_like, "alike": _alike, "one differs": _one_differs, "tiny": lambda x: x * 1e-7}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_batches_and_number_formats(dtype: torch.dtype, name: str) -> None:
    for seed in range(3):
        x = BATCHES[name](samples(seed, dtype))
        report = check(plain_stack(seed, dtype), x, seeds=1, theory=seed == 0)
        assert_sound(report)
        assert report.verdict != "healthy"


def test_layers_that_give_exact_zeros() -> None:
    model = plain_stack(0, depth=20)
    with torch.no_grad():
        model[10].weight.zero_()
        model[10].bias.fill_(-1)
    assert_sound(check(model, samples(0), seeds=2))


def test_samples_that_are_the_mean_have_no_centred_cosine() -> None:
    g = batch_geometry(torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, -1.0]]))
    # The mean is (1, 0): the first two are it, the last two lie on opposite sides.
    assert g.centred_cosine.isfinite().sum() == 1
    assert float(g.centred_cosine[-1]) == pytest.approx(-1)
