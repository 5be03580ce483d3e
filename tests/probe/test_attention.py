"""How sharp attention is, against softmaxes written out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope.probe import check
from initscope.probe.attention import SURE, sharpness
from probe.models import noise


def written_out(scores: Tensor) -> float:
    """The share of queries that give more than 0.99 to one key."""
    return float((torch.softmax(scores.double(), -1).amax(-1) > SURE).double().mean())


@pytest.mark.parametrize("scale", [0.1, 3.0, 5.0, 100.0])
def test_a_softmax_over_keys(scale: float) -> None:
    scores = scale * noise(2, 3, 8, 8)
    assert sharpness("softmax", (scores, -1), {}) == pytest.approx(written_out(scores))
    assert sharpness("softmax", (scores,), {"dim": 3}) == pytest.approx(written_out(scores))


def test_other_softmaxes_are_no_attention() -> None:
    assert sharpness("softmax", (noise(4, 10), -1), {}) is None  # classes
    assert sharpness("softmax", (noise(2, 8, 8), 1), {}) is None  # over another axis
    assert sharpness("softmax", (noise(2, 8, 8),), {}) is None
    assert sharpness("relu", (noise(2, 8, 8),), {}) is None
    assert sharpness("softmax", (), {}) is None
    assert sharpness("softmax", (torch.ones(2, 8, 8, dtype=torch.long), -1), {}) is None


def test_only_queries_that_see_two_keys_count() -> None:
    """The first query of causal attention looks at itself, because it has to."""
    scores = torch.zeros(1, 4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), -math.inf)
    assert sharpness("softmax", (scores, -1), {}) == 0.0
    scores[0, 3, 0] = 100.0
    assert sharpness("softmax", (scores, -1), {}) == pytest.approx(1 / 3)
    assert sharpness("softmax", (scores[:, :1], -1), {}) is None


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 2.0])
def test_fused_attention_is_the_softmax_of_its_products(causal: bool, scale: float | None) -> None:
    query, key, value = (2 * noise(2, 3, 6, 4, seed=s) for s in range(3))
    scores = query @ key.transpose(-1, -2) * (0.5 if scale is None else scale)
    keywords: dict[str, Any] = {"is_causal": causal, "scale": scale}
    found = sharpness("scaled_dot_product_attention", (query, key, value), keywords)
    if causal:
        scores = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)[..., 1:, :]
    assert found == pytest.approx(written_out(scores))
    assert found
    assert sharpness("scaled_dot_product_attention", (query, key, value), {"attn_mask": torch.zeros(6, 6)}) is None
    assert sharpness("scaled_dot_product_attention", (query, key[:, :1], value[:, :1]), {}) is None  # shared keys


@pytest.mark.parametrize("bias", [True, False])
def test_multihead_attention_is_its_own_weights(bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 2, bias=bias, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.mul_(6)
        if bias:
            layer.in_proj_bias.normal_()
    x = noise(2, 7, 16)
    _, weights = layer(x, x, x, average_attn_weights=False)
    seen: list[float | None] = []
    original = F.multi_head_attention_forward

    def watched(*args: Any, **keywords: Any) -> Any:
        seen.append(sharpness("multi_head_attention_forward", args, keywords))
        return original(*args, **keywords)

    F.multi_head_attention_forward = watched
    try:
        layer(x, x, x)
    finally:
        F.multi_head_attention_forward = original
    assert seen == [pytest.approx(float((weights > SURE).any(-1).double().mean()))]
    assert 0 < (seen[0] or 0.0) < 1


class _Attends(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.enter, self.qkv, self.head = nn.Linear(16, 32), nn.Linear(32, 96), nn.Linear(32, 4)
        with torch.no_grad():
            self.qkv.weight.mul_(scale)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        q, k, v = self.qkv(x).chunk(3, -1)
        out: Tensor = self.head((x + F.scaled_dot_product_attention(q, k, v)).mean(1))
        return out


def test_attention_that_looks_at_one_key_is_found() -> None:
    torch.manual_seed(0)
    report = check(_Attends(100.0), noise(8, 12, 16), seeds=1)
    found = next(f for f in report.findings if f.kind == "saturated")
    assert found.status == "fail"
    assert found.evidence["attention"] is True
    torch.manual_seed(0)
    assert check(_Attends(1.0), noise(8, 12, 16), seeds=1).verdict == "healthy"
