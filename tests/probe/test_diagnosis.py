"""What happens to the signal, from rows made by hand: limits, jumps and drifts, the trunk, order, score."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from initscope.probe import check
from initscope.probe.diagnosis import DataFacts, judge
from initscope.probe.findings import KINDS, Finding, ordered, verdict_of
from initscope.probe.score import BANDS
from initscope.probe.thresholds import DEFAULT, Thresholds
from initscope.probe.trunk import Trunk
from probe.rows import case, chain, found, marks, told

LIMITS = Thresholds(
    angle=(10.0, 2.0), norm=(30.0, 1000.0), gradient=(20.0, 500.0), exploding=(50.0, 800.0), dead=(0.5, 0.9),
    saturated=(0.6, 0.8), dropout=(0.3, 0.6), statistics=(5.0, 50.0),
)  # fmt: skip
NORM = {"kind": "norm", "op": "batch_norm", "rms": 1.0}
RELU = {"kind": "activation", "op": "relu"}


def status(kind: str, *changes: dict[str, Any], **facts: Any) -> str | None:
    """Of the findings of this kind; None without any."""
    return next((f.status for f in found(*changes, limits=LIMITS, **facts) if f.kind == kind), None)


@pytest.mark.parametrize(
    ("kind", "name", "within", "warn", "fail"),
    [
        ("activation-scale", "norm_ratio", 30.0, 31.0, 1001.0),
        ("activation-scale", "norm_ratio", 1 / 29.9, 1 / 31, 0.0),
        ("activation-scale", "norm_ratio", 1.0, 0.02, math.inf),
        ("gradient-scale", "grad_norm_ratio", 20.0, 21.0, 501.0),
        ("gradient-scale", "grad_norm_ratio", 1 / 19.9, 1 / 21, 1 / 501),
        ("dead-units", "dead_fraction", 0.5, 0.51, 0.91),
        ("dropout-rate", "drop_rate", 0.3, 0.31, 0.61),
        ("norm-statistics", "fit", 5.0, 5.1, 51.0),
        ("norm-statistics", "fit", 1 / 4.9, 1 / 5.1, 0.0),
    ],
)
def test_each_quantity_has_its_two_limits(kind: str, name: str, within: float, warn: float, fail: float) -> None:
    base = RELU if name == "dead_fraction" else {}
    got = [status(kind, {**base, name: value}) for value in (within, warn, fail)]
    assert got == [None, "warn", "fail"]
    for value, word in ((warn, "warn"), (fail, "fail")):
        assert marks({**base, name: value}, limits=LIMITS)[0][kind] == word


@pytest.mark.parametrize(("share", "expected"), [(0.6, None), (0.61, "warn"), (0.81, "fail")])
def test_saturation_has_its_two_limits(share: float, expected: str | None) -> None:
    tanh = {"kind": "activation", "op": "tanh", "saturated_fraction": share}
    assert status("saturated", {"parameters": ("w",)}, tanh, {}) == expected
    at_the_end = "fail" if expected == "fail" else None  # the output may well be sure in part
    assert status("saturated", {"parameters": ("w",)}, {**tanh, "output": True}) == at_the_end
    if expected:
        assert told(found({"parameters": ("w",)}, tanh, {}, limits=LIMITS)) == [("saturated", expected, "l0")]


def test_an_angle_has_its_two_limits() -> None:
    deep = [{}] * 99
    got = [status("collapse", *deep, {"angle_deg": a}) for a in (10.0, 9.9, 1.9)]
    assert got == [None, "warn", "fail"]


def test_a_small_angle_in_a_shallow_network_is_no_warning() -> None:
    assert status("collapse", {"angle_deg": 3.0}) is None
    assert status("collapse", {"angle_deg": 1.9}) == "fail"


def test_close_data_move_the_limit_in_proportion() -> None:
    near = DataFacts(angle_deg=6.0)
    assert status("collapse", {"angle_deg": 0.21}, data=near) is None  # as 2.1 for data 60 degrees apart
    assert status("collapse", {"angle_deg": 0.19}, data=near) == "fail"
    assert found({"angle_deg": 0.19}, data=near, limits=LIMITS)[0].limit == pytest.approx(0.2)


def test_growing_gradients_may_be_larger_in_normalized_networks() -> None:
    assert status("gradient-scale", {"grad_norm_ratio": 49.0}, NORM) is None
    assert status("gradient-scale", {"grad_norm_ratio": 700.0}, NORM) == "warn"
    assert status("gradient-scale", {"grad_norm_ratio": 801.0}, NORM) == "fail"
    assert status("gradient-scale", {"grad_norm_ratio": 700.0}) == "fail"
    assert status("gradient-scale", {"grad_norm_ratio": 1 / 501}, NORM) == "fail"  # shrinking ones may not


def test_an_angle_that_is_nan_fails() -> None:
    """All samples are zero: there is no angle."""
    assert status("collapse", {}, {"angle_deg": math.nan}) == "fail"


def test_an_angle_that_opens_again_is_no_collapse() -> None:
    assert found({"angle_deg": 1.0}, {"angle_deg": 40.0}, limits=LIMITS) == []
    closed = [{"angle_deg": 40.0}, {"angle_deg": 1.0}, {"angle_deg": 0.5}]
    assert marks(*closed, limits=LIMITS) == {1: {"collapse": "fail"}, 2: {"collapse": "fail"}}


def test_what_float32_cannot_tell_apart_is_lost_for_good() -> None:
    assert told(found({}, {"angle_deg": 1e-6}, {"angle_deg": 40.0})) == [("collapse", "fail", "l1")]
    assert marks({}, {"angle_deg": 1e-6}, {"angle_deg": 40.0}) == {1: {"collapse": "fail"}}
    assert found({}, {"angle_deg": 1e-5}, {"angle_deg": 40.0}) == []


def test_a_small_branch_beside_the_trunk_does_not_count() -> None:
    branch = {"norm_ratio": 1e-6, "grad_norm_ratio": 1e-6, "angle_deg": 0.1, "inputs": (0,)}
    assert found({}, branch, {"inputs": (0, 1)}, limits=LIMITS) == []
    large = {**branch, "norm_ratio": 1e6}
    assert set(marks({}, large, {"inputs": (0, 1)}, limits=LIMITS)[1]) == {"activation-scale", "gradient-scale"}


def test_norms_count_from_the_last_normalization() -> None:
    rows: list[dict[str, Any]] = [{"norm_ratio": 0.001}, {**NORM, "norm_ratio": 50.0}, {"norm_ratio": 2000.0}]
    (finding,) = found(*rows, limits=LIMITS)
    assert (finding.kind, finding.status, finding.step, finding.value) == ("activation-scale", "warn", "l2", 40.0)
    assert finding.evidence["since"] == "l1"
    assert marks(*rows, limits=LIMITS) == {2: {"activation-scale": "warn"}}


@pytest.mark.parametrize("between", [{}, RELU, {"kind": "pooling", "op": "max_pool2d"}])
def test_what_a_later_normalization_undoes_does_not_count(between: dict[str, Any]) -> None:
    assert found({"norm_ratio": 1e9}, {**between, "norm_ratio": 1e9}, NORM) == []


def test_behind_other_activations_a_normalization_undoes_nothing() -> None:
    rows: list[dict[str, Any]] = [{"norm_ratio": 1e9}, {"kind": "activation", "op": "tanh"}, NORM]
    assert told(found(*rows)) == [("activation-scale", "fail", "l0")]


@pytest.mark.parametrize(("size", "expected"), [(1e5, "fail"), (1e-5, "warn"), (0.0, "fail")])
def test_a_normalization_owns_the_size_of_its_output(size: float, expected: str) -> None:
    """A small scale that is not zero grows as it learns."""
    norm = {"kind": "norm", "op": "layer_norm", "rms": size, "norm_ratio": size, "parameters": ("n.weight",)}
    findings = [f for f in found({}, norm, {"norm_ratio": size}) if f.kind == "activation-scale"]
    assert told(findings) == [("activation-scale", expected, "l1")]
    assert findings[0].value == size


def test_a_jump_of_activations_is_named_at_its_step() -> None:
    (finding,) = found({}, {"norm_ratio": 2.0}, {"norm_ratio": 2e4}, {"norm_ratio": 3e4})
    assert (finding.step, finding.status, finding.value) == ("l2", "fail", 3e4)
    assert finding.evidence == {"since": None, "shape": "jump", "factor": pytest.approx(1e4), "kind": "dense"}


def test_a_drift_of_activations_has_its_rate() -> None:
    (finding,) = found(*({"norm_ratio": 10.0**i} for i in range(1, 7)))
    assert (finding.step, finding.value) == ("l3", 1e6)  # the first beyond the limit
    assert finding.evidence["shape"] == "drift"
    assert finding.evidence["rate_per_layer"] == pytest.approx(10.0)
    assert finding.evidence["layers"] == 6


def test_one_small_layer_is_a_warning_and_a_small_constant_fails() -> None:
    small: list[dict[str, Any]] = [{}, {"norm_ratio": 1e-5, "parameters": ("w",)}, {"norm_ratio": 1e-5}]
    assert told(found(*small)) == [("activation-scale", "warn", "l1")]
    assert {m for row in marks(*small).values() for m in row.values()} == {"warn"}
    assert told(found({}, {"norm_ratio": 1e-5, "kind": "scale"}, {"norm_ratio": 1e-5}))[0][1:] == ("fail", "l1")


def test_a_jump_of_gradients_is_named_at_its_step() -> None:
    """The gradient that comes out of l3 is small, though the smallest is the first layer's."""
    (finding,) = found(*({"grad_norm_ratio": g} for g in (0.9e-5, 1e-5, 1e-5, 1.0, 1.0)))
    assert (finding.kind, finding.step, finding.status) == ("gradient-scale", "l3", "fail")
    assert finding.evidence == {"worst_step": "l0", "shape": "jump", "factor": pytest.approx(1e-5), "kind": "dense"}


def test_a_drift_of_gradients_has_its_rate() -> None:
    (finding,) = found(*({"grad_norm_ratio": 10.0**-i} for i in range(5, -1, -1)))
    assert finding.evidence["shape"] == "drift"
    assert finding.evidence["rate_per_layer"] == pytest.approx(10 ** (-5 / 6))
    assert finding.evidence["worst_step"] == "l0"
    assert finding.value == 1e-5


def test_a_gradient_that_becomes_exactly_zero_is_its_own_finding() -> None:
    assert told(found(*({"grad_norm_ratio": g} for g in (0.0, 0.0, 1.0, 1.0)))) == [("zero-gradient", "fail", "l2")]


def test_a_jump_of_angles_is_named_at_its_step() -> None:
    (finding,) = found(*({"angle_deg": a} for a in (60.0, 50.0, 0.2, 0.1)), data=DataFacts(70.0))
    assert (finding.step, finding.value, finding.limit) == ("l2", 0.1, 0.3)
    assert finding.evidence["shape"] == "jump"
    assert finding.evidence["factor"] == pytest.approx(0.2 / 50)
    assert finding.evidence["data_angle_deg"] == 70.0


def test_a_drift_of_angles_has_its_rate() -> None:
    (finding,) = found(*({"angle_deg": 80 * 0.5**i} for i in range(1, 11)), data=DataFacts(80.0))
    assert finding.evidence["shape"] == "drift"
    assert finding.evidence["rate_per_layer"] == pytest.approx(0.5)
    assert finding.step == "l8"  # from where it stays below 0.3 degrees


def test_the_given_limits_decide() -> None:
    row = {"angle_deg": 15.0, "norm_ratio": 1e9}
    assert told(found(row, limits=replace(LIMITS, norm=(1e12, 1e13)))) == []
    assert told(found({**row, "angle_deg": 1.0}, limits=LIMITS)) == [
        ("collapse", "fail", "l0"),
        ("activation-scale", "fail", "l0"),
    ]


def test_causes_come_first_and_early_jumps_before_late_ones() -> None:
    place = {f"l{i}": i for i in range(9)}
    jump, drift = {"shape": "jump"}, {"shape": "drift"}
    late = Finding("collapse", "fail", "l7", evidence=jump)
    early = Finding("gradient-scale", "fail", "l2", evidence=jump)
    whole = Finding("activation-scale", "fail", "l0", evidence=drift)
    cause = Finding("zero-weights", "fail", "l5")
    effect = Finding("initial-loss", "fail", "l8")
    warning, note = Finding("frozen", "warn"), Finding("stopped", "note")
    given = [note, effect, whole, warning, late, cause, early]
    assert ordered(given, lambda step: place.get(step or "")) == [cause, early, late, whole, effect, warning, note]
    assert verdict_of(given) == "fail"
    assert verdict_of([note]) == "healthy"
    assert len(set(KINDS)) == len(KINDS) == 29


def test_the_first_of_the_worst_layers_is_named() -> None:
    dead = [{**RELU, "dead_fraction": share} for share in (0.6, 1.0, 1.0)]
    assert told(found(*dead, limits=LIMITS)) == [("dead-units", "fail", "l1"), ("dead-units", "warn", "l0")]
    assert found({}) == []


def test_a_network_without_a_single_fault_may_still_score_low() -> None:
    rows = [{"grad_norm_ratio": 0.02}] * 60 + [{}]
    judgement, chance = judge(case(*rows))
    assert told(judgement.findings) == [("low-score", "warn", None)]
    assert judgement.findings[0].value == chance.geometry < 0.6
    assert 0.2 <= chance.value <= 0.6
    assert judgement.findings[0].evidence["terms"] == chance.terms
    assert judge(case(*([{}] * 61)))[0].findings == []


numbers = st.floats(-9, 9).map(lambda d: 10.0**d)
layers = st.fixed_dictionaries(
    {"norm_ratio": numbers, "grad_norm_ratio": numbers, "angle_deg": st.floats(-9, 2).map(lambda d: 10.0**d)}
)


@settings(max_examples=200, deadline=None)
@given(st.lists(layers, min_size=1, max_size=8))
def test_score_and_verdict_are_one_judgement(rows: list[dict[str, Any]]) -> None:
    judgement, chance = judge(case(*rows))
    verdict = verdict_of(judgement.findings)
    low, high = BANDS[verdict]
    assert low <= chance.value <= high
    worst = {m for i in range(len(rows)) for _, m in judgement.marks_of(i)}
    assert verdict == "fail" if "fail" in worst else "fail" not in {f.status for f in judgement.findings}
    assert all(f.step is None or f.step in {r.name for r in chain(*rows)} for f in judgement.findings)


def test_dropout_adds_up() -> None:
    """Judged by the steps with dropout on, where those without are fine."""
    rows = case({}, {"kind": "dropout", "drop_rate": 0.5}, {})
    loud = [replace(row, norm_ratio=10.0 ** (3 * i)) for i, row in enumerate(rows.rows)]
    (finding,) = judge(replace(rows, dropped=Trunk(loud, rows.way.way)))[0].findings
    assert (finding.kind, finding.status, finding.evidence["dropout"]) == ("activation-scale", "fail", True)
    broken = [*rows.rows[:1], replace(rows.rows[1], broken="NaN"), replace(rows.rows[2], broken="NaN")]
    (finding,) = judge(replace(rows, dropped=Trunk(broken, rows.way.way)))[0].findings
    assert (finding.kind, finding.step, finding.evidence["dropout"]) == ("non-finite", "l1", True)


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
    assert report.verdict == "healthy"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["ResNet", "ConvNeXt", "ViT", "Swin", "BERT", "GPT-2", "DenseNet"])
def test_architectures_that_are_known_to_train_do_not_fail(name: str) -> None:
    pytest.importorskip("transformers", reason="the models come from transformers' configurations")
    pytest.importorskip("pytorchcv", reason="DenseNet comes from pytorchcv")
    from probe.zoo import ZOO

    make, batch = ZOO[name]
    torch.manual_seed(0)
    report = check(make(), batch, seeds=1, theory=False)
    assert report.verdict != "fail", report.summary()
    assert report.score > 0.5


def test_limits_are_in_order() -> None:
    for warn, fail in (DEFAULT.angle, DEFAULT.kept, DEFAULT.data_angle):
        assert warn > fail
    for name in (
        "norm",
        "gradient",
        "exploding",
        "dead",
        "saturated",
        "loss",
        "output",
        "input",
        "dropout",
        "statistics",
    ):
        warn, fail = getattr(DEFAULT, name)
        assert warn < fail, name
