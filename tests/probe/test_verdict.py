"""What makes a layer bad, and what does not: the trunk, recovered angles, norms before normalizations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from initscope.probe import check
from initscope.probe.thresholds import DEFAULT, Thresholds
from initscope.probe.verdict import judge_all, overall
from probe.rows import chain

LIMITS = Thresholds(
    angle=(10.0, 2.0), norm=(30.0, 1000.0), gradient=(20.0, 500.0), dead=(0.5, 0.9), saturated=(0.6, 0.8)
)


def statuses(*changes: dict[str, Any]) -> list[str]:
    return [row.status for row in judge_all(chain(*changes), LIMITS)]


@pytest.mark.parametrize(
    ("name", "healthy", "warn", "fail"),
    [
        ("angle_deg", 10.0, 9.9, 1.9),
        ("norm_ratio", 30.0, 31.0, 1001.0),
        ("norm_ratio", 1 / 29.9, 1 / 31, 0.0),
        ("norm_ratio", 1.0, 0.02, math.inf),
        ("grad_norm_ratio", 20.0, 21.0, 501.0),
        ("grad_norm_ratio", 1 / 19.9, 1 / 21, 0.0),
        ("dead_fraction", 0.5, 0.51, 0.91),
        ("saturated_fraction", 0.6, 0.61, 0.81),
    ],
)
def test_each_quantity_has_its_two_limits(name: str, healthy: float, warn: float, fail: float) -> None:
    assert [statuses({name: value})[0] for value in (healthy, warn, fail)] == ["healthy", "warn", "fail"]


def test_an_angle_that_is_nan_fails() -> None:
    """All samples are zero: there is no angle."""
    assert statuses({"angle_deg": math.nan}) == ["fail"]


def test_an_angle_that_opens_again_is_no_collapse() -> None:
    assert statuses({"angle_deg": 1.0}, {"angle_deg": 40.0}) == ["healthy", "healthy"]
    assert statuses({"angle_deg": 40.0}, {"angle_deg": 1.0}, {"angle_deg": 0.5}) == ["healthy", "fail", "fail"]


def test_what_float32_cannot_tell_apart_is_lost_for_good() -> None:
    rows = judge_all(chain({"angle_deg": 1e-6}, {"angle_deg": 40.0}), LIMITS)
    assert [r.status for r in rows] == ["fail", "healthy"]
    assert "float32" in rows[0].reason


def test_a_small_branch_beside_the_trunk_does_not_count() -> None:
    stem: dict[str, Any] = {}
    branch = {"norm_ratio": 1e-6, "grad_norm_ratio": 1e-6, "angle_deg": 0.1, "inputs": (0,)}
    assert statuses(stem, branch, {"inputs": (0, 1)}) == ["healthy"] * 3
    large = {**branch, "norm_ratio": 1e6}
    assert statuses(stem, large, {"inputs": (0, 1)}) == ["healthy", "fail", "healthy"]


def test_dead_units_and_nan_count_off_the_trunk_too() -> None:
    assert statuses({}, {"norm_ratio": 0.0, "inputs": (0,), "dead_fraction": 1.0}, {"inputs": (0, 1)})[1] == "fail"
    rows = judge_all(chain({}, {"finite": False, "norm_ratio": math.nan, "inputs": (0,)}, {"inputs": (0, 1)}), LIMITS)
    assert rows[1].reason == "values are NaN or infinite"


def test_norms_count_from_the_last_normalization() -> None:
    rows = judge_all(chain({"norm_ratio": 0.02}, {"kind": "norm", "norm_ratio": 50.0}, {"norm_ratio": 2000.0}), LIMITS)
    assert [r.status for r in rows] == ["warn", "healthy", "warn"]
    assert "50 times against the data" in rows[0].reason
    assert "40 times since l1" in rows[2].reason


def test_the_worst_finding_comes_first_and_judging_again_changes_nothing() -> None:
    rows = judge_all(chain({"angle_deg": 5.0, "norm_ratio": 1e9}), LIMITS)
    assert rows[0].reason.split("; ")[0].startswith("activations grew")
    assert rows[0].reason.split("; ")[1].startswith("samples are 5 degrees")
    assert judge_all(rows, LIMITS) == rows
    assert judge_all(rows, Thresholds(angle=(1, 0.5), norm=(1e12, 1e13)))[0].status == "healthy"


def test_the_first_of_the_worst_layers_is_named() -> None:
    rows = judge_all(chain({"dead_fraction": 0.6}, {"dead_fraction": 1.0}, {"dead_fraction": 1.0}), LIMITS)
    assert overall(rows, None) == ("fail", "l1")
    assert overall(rows[:1], "stopped") == ("fail", "l0")
    assert overall(judge_all(chain({}), LIMITS), None) == ("healthy", None)


class _Tokens(nn.Module):
    """Small embeddings that a layer norm brings to size, as in most language models."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.embed, self.norm, self.read = nn.Embedding(50, 64), nn.LayerNorm(64), nn.Linear(64, 64)
        nn.init.normal_(self.embed.weight, std=scale)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.read(self.norm(self.embed(x)))
        return out


def test_small_embeddings_before_a_layer_norm_are_healthy() -> None:
    torch.manual_seed(0)
    ids = torch.randint(50, (8, 12), generator=torch.Generator().manual_seed(0))
    report = check(_Tokens(0.02), ids, seeds=1)
    assert report.layers[1].norm_ratio == pytest.approx(50, rel=0.05)
    assert report.layers[1].status == "healthy"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["ResNet", "ConvNeXt", "ViT", "Swin", "BERT", "GPT-2", "DenseNet"])
def test_architectures_that_are_known_to_train_do_not_fail(name: str) -> None:
    pytest.importorskip("transformers", reason="the models come from transformers' configurations")
    pytest.importorskip("pytorchcv", reason="DenseNet comes from pytorchcv")
    from probe.zoo import ZOO

    make, batch = ZOO[name]
    torch.manual_seed(0)
    report = check(make(), batch, seeds=1, theory=False)
    assert report.verdict != "fail", [(r.name, r.reason) for r in report.layers if r.status == "fail"]
    assert report.score > 0.5


def test_limits_are_in_order() -> None:
    assert DEFAULT.angle[0] > DEFAULT.angle[1]
    for warn, fail in (DEFAULT.norm, DEFAULT.gradient, DEFAULT.dead, DEFAULT.saturated):
        assert warn < fail
