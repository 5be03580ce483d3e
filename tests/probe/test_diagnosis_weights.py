"""What is wrong with numbers, units, weights and their surroundings, from rows made by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from initscope.probe.chance import InitialLoss
from initscope.probe.diagnosis import Case, DataFacts, judge
from initscope.probe.trunk import Trunk
from probe.rows import case, chain, fact, found, marks, told

RELU = {"kind": "activation", "op": "relu"}
NORM = {"kind": "norm", "op": "layer_norm", "rms": 1.0}


def weights(*names: str) -> dict[str, Any]:
    return {"parameters": names}


def test_nan_is_named_where_it_is_born() -> None:
    rows: list[dict[str, Any]] = [{}, {"op": "sqrt", "broken": "NaN"}, {"broken": "NaN"}, {"broken": "NaN"}]
    (finding,) = found(*rows)
    assert (finding.kind, finding.status, finding.step) == ("non-finite", "fail", "l1")
    assert finding.evidence == {"pass": "forward", "what": "NaN", "op": "sqrt"}
    assert marks(*rows) == {i: {"non-finite": "fail"} for i in (1, 2, 3)}


def test_an_infinity_that_becomes_nan_came_first() -> None:
    (finding,) = found({}, {"op": "exp", "broken": "infinite"}, {"op": "sub", "broken": "NaN"}, {"broken": "NaN"})
    assert (finding.step, finding.evidence["what"]) == ("l1", "infinite")


@pytest.mark.parametrize("op", ["softmax", "logsumexp", "max", "amax", "exp"])
def test_a_mask_that_is_consumed_is_no_defect(op: str) -> None:
    assert found({}, {"op": "masked_fill", "broken": "infinite"}, {"op": op}, {}) == []


def test_a_softmax_over_nothing_but_masks_makes_nan() -> None:
    (finding,) = found(
        {}, {"op": "masked_fill", "broken": "infinite"}, {"op": "softmax", "broken": "NaN"}, {"broken": "NaN"}
    )
    assert finding.step == "l2"


def test_nan_that_never_reaches_the_output_is_no_defect() -> None:
    assert found({}, {"broken": "NaN", "inputs": (0,), "norm_ratio": None}, {"inputs": (0,)}) == []


def test_a_loss_that_is_not_finite() -> None:
    (finding,) = found({}, broken_loss=True)
    assert (finding.kind, finding.status, finding.step) == ("non-finite", "fail", "loss")


def test_a_gradient_is_broken_by_the_step_behind_the_last_broken_one() -> None:
    rows: list[dict[str, Any]] = [
        {**weights("w"), "gradient_broken": True},
        {"gradient_broken": True},
        {"op": "sqrt"},
        {},
    ]
    (finding,) = found(*rows, weights=[fact("w", gradient=math.nan)])
    assert (finding.step, finding.status) == ("l2", "fail")
    assert finding.evidence == {"pass": "backward", "what": "NaN or infinite", "op": "sqrt"}
    assert set(marks(*rows, weights=[fact("w", gradient=math.nan)])) == {0, 1, 2}


def test_of_several_takers_the_one_with_a_pole_breaks_it() -> None:
    rows: list[dict[str, Any]] = [
        {**weights("w"), "gradient_broken": True},
        {"op": "mul"},
        {"op": "norm", "inputs": (0,)},
    ]
    last = {"op": "add", "inputs": (1, 2)}
    assert told(found(*rows, last, weights=[fact("w", gradient=math.inf)])) == [("non-finite", "fail", "l2")]


def test_a_gradient_broken_in_the_loss_or_in_a_weight_alone() -> None:
    broken = {**weights("w"), "gradient_broken": True}
    assert told(found(broken, weights=[fact("w", gradient=math.nan)])) == [("non-finite", "fail", "loss")]
    assert told(found({}, weights("w"), weights=[fact("w", gradient=math.nan)])) == [("non-finite", "fail", "l1")]


def test_a_pole_whose_gradient_never_reaches_a_weight_is_none() -> None:
    rows: list[dict[str, Any]] = [weights("w"), {"gradient_broken": True, "grad_norm_ratio": None}, {"op": "sqrt"}]
    assert found(*rows, weights=[fact("w")]) == []


@pytest.mark.parametrize("between", [[], [{"kind": "dropout"}], [{"kind": "shift"}, {"kind": "scale"}]])
def test_dead_units_name_the_layer_that_feeds_them(between: list[dict[str, Any]]) -> None:
    dead = {**RELU, "dead_fraction": 1.0, "norm_ratio": 0.0, "angle_deg": math.nan}
    rows = [{}, weights("w", "b"), *between, dead, {"norm_ratio": 0.0, "angle_deg": math.nan}]
    findings = found(*rows)
    last = len(rows) - 2
    assert told(findings)[0] == ("dead-units", "fail", "l1")
    assert findings[0].evidence == {"activation": f"l{last}", "op": "relu", "kind": "dense"}
    assert "dead-units" in marks(*rows)[1]
    assert "dead-units" in marks(*rows)[last]


def test_dead_units_explain_what_follows() -> None:
    silent = {"norm_ratio": 0.0, "angle_deg": math.nan}
    dead = {**RELU, **silent, "dead_fraction": 1.0}
    rows: list[dict[str, Any]] = [weights("w"), dead, {**weights("v"), **silent}, dead]
    assert told(found(*rows)) == [("dead-units", "fail", "l0")]
    assert marks(*rows)[3]["dead-units"] == "fail"


def test_dead_units_off_the_trunk_warn_and_gates_do_not() -> None:
    dead = {**RELU, "norm_ratio": 0.0, "inputs": (0,), "dead_fraction": 1.0}
    assert told(found({}, dead, {"inputs": (0, 1)})) == [("dead-units", "warn", "l1")]
    gate = [{**weights("v"), "norm_ratio": 0.1}, {"op": "sigmoid", "kind": "activation", "norm_ratio": 0.1}]
    assert found({}, dead, *gate, {"inputs": (0, 3), "kind": "scale", "op": "mul"}) == []


def test_an_exponential_may_be_small() -> None:
    assert found({**RELU, "op": "exp", "dead_fraction": 1.0}, {}) == []


def test_zero_weights_in_the_middle_fail() -> None:
    silent = {"norm_ratio": 0.0, "angle_deg": math.nan}
    rows: list[dict[str, Any]] = [weights("a.weight"), {**weights("b.weight"), **silent}, {**RELU, **silent},
                                  {**weights("c.weight"), **silent}]  # fmt: skip
    facts = [fact("a.weight"), fact("b.weight", weight=0.0), fact("c.weight")]
    findings = found(*rows, weights=facts)
    assert told(findings) == [("zero-weights", "fail", "l1")]
    assert findings[0].evidence == {"parameters": ["b.weight"], "last": False, "kind": "dense"}
    assert all(marks(*rows, weights=facts)[i]["zero-weights"] == "fail" for i in (1, 2, 3))
    assert judge(case(*rows, weights=facts))[1].value <= 0.2


def test_zero_weights_at_the_end_are_a_note() -> None:
    head = {**weights("b.weight", "b.bias"), "norm_ratio": 0.0, "angle_deg": math.nan}
    facts = [fact("a.weight"), fact("b.weight", weight=0.0), fact("b.bias", shape=(10,))]
    judgement, chance = judge(case(weights("a.weight"), RELU, head, weights=facts))
    assert told(judgement.findings) == [("zero-weights", "note", "l2")]
    assert judgement.marks == {}
    assert chance.value >= 0.6


@pytest.mark.parametrize(
    ("units", "taken", "expected"),
    [(0.9, 0.9, "fail"), (0.9, 0.0, "warn"), (0.5, 0.5, "fail"), (0.49, 0.9, None)],
)
def test_symmetric_units_are_stuck_or_not(units: float, taken: float, expected: str | None) -> None:
    facts = [fact("a.weight", duplicates=units), fact("b.weight", repeated_inputs=taken)]
    findings = found(weights("a.weight"), RELU, weights("b.weight"), weights=facts)
    assert told(findings) == ([] if expected is None else [("symmetric-units", expected, "l0")])
    if expected:
        assert findings[0].evidence == {"parameter": "a.weight", "stuck": expected == "fail"}


def test_the_units_of_the_last_layer_are_told_apart_by_the_loss() -> None:
    assert found(weights("a.weight"), weights=[fact("a.weight", duplicates=0.9)]) == []


def test_frozen_weights() -> None:
    frozen = [fact("a.weight", trainable=False, gradient=None), fact("b.weight", trainable=False, gradient=None)]
    assert told(found({}, weights=frozen)) == [("frozen", "fail", None)]
    (finding,) = found({}, weights=[frozen[0], fact("b.weight", size=300)])
    assert (finding.kind, finding.status, finding.value) == ("frozen", "note", 0.25)


def test_unused_weights() -> None:
    lost = fact("side.weight", used=False, gradient=None)
    (finding,) = found({}, weights=[fact("a.weight", size=300), lost])
    assert (finding.kind, finding.status, finding.step, finding.value) == ("unused", "warn", "side", 0.25)
    assert finding.evidence == {"parameters": ["side.weight"], "count": 1}
    token = fact("mask_token", shape=(1, 1, 10), used=False, gradient=None)
    assert told(found({}, weights=[fact("a.weight"), token])) == [("unused", "note", "mask_token")]
    skipped = found({}, weights=[fact("a.weight"), lost], used_elsewhere=frozenset({"side.weight"}))
    assert [(f.kind, f.status, f.evidence["skipped"]) for f in skipped] == [("unused", "note", True)]
    assert found({}, weights=[fact("a.weight"), fact("o.weight", used=False, gradient=None, elsewhere=True)]) == []


def test_weights_that_no_gradient_reaches() -> None:
    away = fact("a.weight", gradient=None)
    rows: list[dict[str, Any]] = [weights("a.weight"), RELU, weights("b.weight")]
    assert told(found(*rows, weights=[away, fact("b.weight")], cuts=[1])) == [("no-gradient", "warn", "l1")]
    assert told(found(*rows, weights=[away, fact("b.weight")])) == [("no-gradient", "warn", "l0")]
    assert told(found(*rows, weights=[away], differentiable=False))[0][:2] == ("no-gradient", "fail")
    aside: list[dict[str, Any]] = [{}, {**weights("a.weight"), "inputs": (0,)}, {"inputs": (0,)}]
    assert told(found(*aside, weights=[away, fact("b.weight")])) == [("no-gradient", "note", "l1")]


def test_gradients_of_exactly_zero() -> None:
    rows: list[dict[str, Any]] = [weights("a.weight"), RELU, weights("b.weight")]
    still = fact("a.weight", gradient=0.0)
    assert told(found(*rows, weights=[still, fact("b.weight")])) == [("zero-gradient", "warn", "l0")]
    assert found(*rows, weights=[still, fact("b.weight")], awake={"a.weight": 1e-3}) == []
    aside = [fact("b.weight"), fact("c.weight", gradient=0.0)]
    assert [f.status for f in found(weights("b.weight"), weights=aside)] == ["note"]
    stuck = [fact("b.weight"), fact("c.weight", gradient=0.0, weight=0.0)]
    (finding,) = found(weights("b.weight"), weights=stuck)
    assert (finding.status, finding.evidence["stuck"]) == ("warn", True)


def test_where_nothing_learns_it_fails_off_the_trunk_too() -> None:
    branch = [{**weights("a.weight"), "inputs": (0,), "norm_ratio": 0.1, "grad_norm_ratio": 0.0},
              {"op": "tanh", "kind": "activation", "norm_ratio": 0.1}]  # fmt: skip
    judgement, chance = judge(case({}, *branch, {"inputs": (0, 2)}, weights=[fact("a.weight", gradient=0.0)]))
    assert told(judgement.findings) == [("zero-gradient", "fail", "l2")]
    assert judgement.findings[0].evidence == {"parameters": ["a.weight"], "count": 1, "op": "tanh"}
    assert chance.value <= 0.2


def test_dropout_counts_while_training() -> None:
    rows: list[dict[str, Any]] = [
        {},
        {"kind": "dropout", "drop_rate": 0.98},
        {"kind": "dropout", "drop_rate": 0.99},
        {},
    ]
    assert told(found(*rows)) == [("dropout-rate", "fail", "l1")]
    assert set(marks(*rows)) == {1, 2}
    assert found(*rows, train=False) == []


def post_norm(sums: int, branch: float, around: bool = False) -> list[dict[str, Any]]:
    """x <- norm(x + f(x)); where the sum also goes around the normalization, the network is a pre-norm one."""
    rows: list[dict[str, Any]] = [{}]
    for _ in range(sums):
        stream = len(rows) - 1
        rows += [{"norm_ratio": branch, "inputs": (stream,)}, {"kind": "residual", "inputs": (stream, stream + 1)}]
        rows += [{**NORM, "inputs": (stream + 2,)}]
        if around:
            rows += [{"kind": "residual", "inputs": (stream + 2, stream + 3)}]
    return rows


@pytest.mark.parametrize(
    ("sums", "kept", "expected"),
    [(16, 0.051, None), (16, 0.049, "warn"), (16, 0.0049, "fail"), (60, 0.0049, "fail"), (15, 0.001, None)],
)
def test_deep_post_norm_has_its_two_limits(sums: int, kept: float, expected: str | None) -> None:
    share = kept ** (1 / sums)
    findings = [f for f in found(*post_norm(sums, math.sqrt((1 - share) / share))) if f.kind == "deep-post-norm"]
    assert [f.status for f in findings] == ([] if expected is None else [expected])
    for finding in findings:
        assert finding.value == pytest.approx(kept)
        assert finding.evidence == {"sums": sums, "kept_per_sum": pytest.approx(share)}


def test_pre_norm_is_not_post_norm() -> None:
    assert "deep-post-norm" not in [f.kind for f in found(*post_norm(20, 1.0, around=True))]


@pytest.mark.parametrize(("value", "expected"), [(4.6, None), (4.7, "warn"), (2302.0, "warn"), (2303.0, "fail")])
def test_the_initial_loss_of_ten_classes(value: float, expected: str | None) -> None:
    start = InitialLoss("cross-entropy", value, math.log(10), 1.0, 10)
    rows: list[dict[str, Any]] = [weights("a.weight"), RELU]
    assert told(found(*rows, initial=start)) == ([] if expected is None else [("initial-loss", expected, "l0")])
    assert found(*rows, initial=start, broken_loss=True)[0].kind == "non-finite"


def test_few_classes_may_start_two_nats_above_chance() -> None:
    limit = math.log(2) + 2
    for value, count in ((limit - 0.01, 0), (limit + 0.01, 1)):
        assert len(found({}, initial=InitialLoss("cross-entropy", value, math.log(2), 1.0, 2))) == count


def test_large_data_are_blamed_for_a_large_loss() -> None:
    start = InitialLoss("cross-entropy", 1e4, math.log(10), 1.0, 10)
    statuses = {f.kind: f.status for f in found({}, initial=start, data=DataFacts(60.0, rms=150.0))}
    assert statuses == {"input-scale": "warn", "initial-loss": "warn"}


def test_squared_errors_and_outputs_without_a_loss() -> None:
    for value, count in ((9.9, 0), (10.1, 1)):
        assert len(found({}, initial=InitialLoss("squared error", value, 1.0, 100.0))) == count
    logits = InitialLoss("logits", 1e6, 2.3, 31.0, 10)
    assert told(found(weights("a.weight"), initial=logits)) == [("output-scale", "warn", "l0")]
    assert found({}, initial=InitialLoss("logits", 1e6, 2.3, 30.0, 10)) == []


@pytest.mark.parametrize(("rms", "expected"), [(30.0, None), (31.0, "warn"), (1 / 299, None), (1 / 301, "warn")])
def test_the_size_of_the_data(rms: float, expected: str | None) -> None:
    data = DataFacts(60.0, rms=rms, mean=0.5, deviation=2.0)
    findings = found({}, RELU, NORM, data=data)
    assert told(findings) == ([] if expected is None else [("input-scale", expected, None)])
    assert [f.status for f in found({}, NORM, RELU, data=data)] == ([] if expected is None else ["note"])


def test_indices_have_the_size_of_their_embedding() -> None:
    words = DataFacts(60.0, numbers=False)
    assert told(found({"rms": 31.0}, {}, data=words)) == [("activation-scale", "warn", "l0")]
    assert found({"rms": 31.0}, NORM, {}, data=words) == []
    assert found({"rms": 30.0}, {}, data=words) == []


def test_a_batch_that_does_not_differ_is_not_blamed_on_the_model() -> None:
    judgement, chance = judge(case({"angle_deg": 0.01}, data=DataFacts(0.5)))
    assert told(judgement.findings) == [("batch-degenerate", "warn", None)]
    assert judgement.findings[0].evidence["zero"] is False
    assert math.isnan(chance.value)
    (zeros,) = found({"angle_deg": math.nan, "norm_ratio": None}, data=DataFacts(math.nan, rms=0.0))
    assert (zeros.kind, zeros.evidence["zero"]) == ("batch-degenerate", True)
    assert found({}, data=DataFacts(1.0)) == []


def test_what_could_not_be_followed_is_never_healthy() -> None:
    lost = {"op": "scatter_add", "followed": False}
    assert told(found({}, lost, {})) == [("not-followed", "warn", "l1")]
    assert told(judge(Case(Trunk.of(chain({}))))[0].findings) == [("not-followed", "warn", None)]  # no output was seen
