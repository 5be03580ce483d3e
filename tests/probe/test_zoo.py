"""`check` runs on real architectures, sees their operations and leaves them alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from initscope.probe import check
from probe.zoo import ZOO

pytest.importorskip("transformers", reason="the models come from transformers' configurations")
pytest.importorskip("pytorchcv", reason="DenseNet comes from pytorchcv")

# What must be among the kinds of steps, and how many weight layers there are.
SEEN = {
    "VGG16": ({"conv", "activation", "pooling", "dense"}, 15),
    "AlexNet": ({"conv", "activation", "pooling", "dense"}, 7),
    "ResNet": ({"conv", "norm", "activation", "residual", "pooling", "dense"}, 16),
    "DenseNet": ({"conv", "norm", "activation", "concat", "pooling", "dense"}, 40),
    "ConvNeXt": ({"conv", "norm", "activation", "residual", "dense", "scale"}, 0),
    "ViT": ({"conv", "norm", "activation", "residual", "dense", "attention"}, 0),
    "Swin": ({"conv", "norm", "activation", "residual", "dense", "attention", "concat"}, 0),
    "BERT": ({"embedding", "norm", "activation", "residual", "dense", "attention"}, 0),
    "GPT-2": ({"embedding", "norm", "activation", "residual", "dense", "attention"}, 0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ZOO)
def test_every_architecture_is_checked(name: str) -> None:
    make, batch = ZOO[name]
    torch.manual_seed(0)
    model = make().train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    report = check(model, batch, seeds=2)
    kinds, weights = SEEN[name]
    assert report.failure is None
    assert kinds <= {r.kind for r in report.layers}
    if weights:
        assert sum(r.kind in ("conv", "dense") for r in report.layers) == weights
    measured = [r for r in report.layers if r.cosine_mean is not None and math.isfinite(r.cosine_mean)]
    assert len(measured) >= 0.9 * len(report.layers)
    assert sum(r.grad_norm_ratio is not None for r in report.layers) >= 0.9 * len(report.layers)
    assert math.isclose(sum(report.blame.values()), 1.0)
    json.dumps(report.to_dict(), allow_nan=False)
    after = model.state_dict()
    assert all(torch.equal(v, after[k]) for k, v in before.items())


def _theory_share(make: Callable[[], nn.Module], batch: Any) -> float:
    torch.manual_seed(0)
    layers = check(make(), batch, seeds=1, theory_seconds=30).layers  # what theory can do, not how fast it is today
    return sum(r.cosine_predicted is not None for r in layers) / len(layers)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "share"), [("VGG16", 0.8), ("AlexNet", 0.75), ("ResNet", 0.6), ("DenseNet", 0.6)])
def test_convolutional_networks_have_a_theory_beside_most_steps(name: str, share: float) -> None:
    assert _theory_share(*ZOO[name]) >= share
