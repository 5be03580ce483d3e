"""Biases that are not Gaussian: the interval says how far theory may be off."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from initscope.probe import check
from initscope.probe.bent_biases import BiasShape

Cases = list[tuple[float, tuple[float, float]]]
ACTIVATIONS = ("hardtanh", "tanhshrink", "relu", "tanh")


def followed(make: Callable[[], nn.Module], bias: float | None, seed: int) -> Cases:
    """Measured cosines behind activations and the intervals around the predicted ones; `bias`: the same for all units."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(40, 800), make(), nn.Linear(800, 800), make(), nn.Linear(800, 800), make()]
    for layer in layers[::2]:
        if bias is not None:
            nn.init.constant_(layer.bias, bias)
    batch = torch.randn(12, 40, generator=torch.Generator().manual_seed(seed))
    found = check(nn.Sequential(*layers, nn.Linear(800, 20)), batch, seeds=1, theory_seconds=30).to_dict()["layers"]
    return [(r["cosine_followed"], tuple(r["cosine_interval"])) for r in found if r["op"] in ACTIVATIONS]


@pytest.mark.parametrize(
    ("make", "bias"),
    [(lambda: nn.Hardtanh(-0.005, 0.01), None), (nn.Tanhshrink, None), (nn.ReLU, 0.3), (nn.Tanh, 0.5)],
    ids=["hardtanh", "tanhshrink", "constant", "constant, tanh"],
)
def test_intervals_hold_the_measured_cosine(make: Callable[[], nn.Module], bias: float | None) -> None:
    """Nine intervals of 95 %: more than two misses have a probability of 0.8 %."""
    cases = [case for seed in range(3) for case in followed(make, bias, seed)]
    assert len(cases) == 9
    assert sum(not least <= cosine <= most for cosine, (least, most) in cases) <= 2


def test_small_biases_widen_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own biases behind inputs of variance one are a fortieth of the units' variance."""
    least, most = followed(nn.ReLU, None, 0)[0][1]
    monkeypatch.setattr(BiasShape, "of", lambda call, square: None)
    narrow, wide = followed(nn.ReLU, None, 0)[0][1]
    assert 1 <= (most - least) / (wide - narrow) < 1.1
