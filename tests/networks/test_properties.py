"""Kernels and tangent kernels of random networks over the whole language: symmetric, positive semidefinite, continuous.

`python benchmarks/properties.py` examines thousands.
"""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from laws.properties import examine
from laws.random_networks import networks


def _violations(count: int, seed: int, integrated: float) -> tuple[list[str], Counter[str]]:
    found, asked = [], Counter[str]()
    for text, net, x in networks(count, seed, integrated):
        result = examine(net, x)
        found += [f"{text} on {tuple(x.shape[1:])}: {problem}" for problem in result.violated]
        asked.update(result.asked)
    return found, asked


def test_a_few_networks() -> None:
    found, asked = _violations(25, seed=1, integrated=0.0)
    assert not found
    assert asked["kernel, symmetry"] > 15
    assert asked["tangent, continuity"] > 5


@pytest.mark.slow
def test_some_hundred_networks() -> None:
    found, asked = _violations(200, seed=2, integrated=0.05)
    assert not found
    assert asked["kernel, continuity"] > 150
    assert asked["tangent, continuity"] > 100


def test_violations_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix with a wrong sign, one without symmetry, and two that forget near inputs: all of them, and those not too near."""
    _, net, x = next(networks(1, seed=3, integrated=0.0))

    def forgetful(net: object, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        whole = torch.eye(len(x), dtype=torch.float64)
        return whole if y is None or torch.equal(x, y) else whole * (torch.dist(x, y) > 1e-6)

    def partly(net: object, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        whole = torch.eye(len(x), dtype=torch.float64)
        return whole if y is None else whole * (1 - 1e-5 * (1e-13 < torch.dist(x, y) < 1e-6))

    ones = torch.ones(6, 6, dtype=torch.float64)
    wrong = {
        "eigenvalue": lambda *_: 1.5 * torch.eye(6, dtype=torch.float64) - 0.5 * ones,
        "not symmetric": lambda *_: torch.eye(6, dtype=torch.float64) + 0.1 * ones.triu(1),
        "NaN": lambda *_: torch.eye(6, dtype=torch.float64).index_fill(0, torch.tensor([1]), torch.nan),
        "rounding alone makes": forgetful,
        "is off by": partly,
    }
    for words, function in wrong.items():
        monkeypatch.setattr("laws.properties.kernel", function)
        assert any(words in problem for problem in examine(net, x).violated if problem.startswith("kernel")), words
