"""One judgement of one case: every family of mistakes is looked for, causes first."""

from __future__ import annotations

import math

from initscope.probe.diagnosis import mixing, numbers, registration, signal, surroundings, units, weighing
from initscope.probe.diagnosis.case import Case, Judgement
from initscope.probe.findings import Finding, ordered, verdict_of
from initscope.probe.score import TRAINS, Score, score, signs


def judge(case: Case) -> tuple[Judgement, Score]:
    """The findings, the worst first, and the score that agrees with them."""
    found = Judgement()
    surroundings.batch(case, found)
    numbers.non_finite(case, found)
    registration.unregistered(case, found)
    mixing.samples_mixed(case, found)
    weighing.zero_weights(case, found)
    weighing.symmetric_units(case, found)
    weighing.reached(case, found)
    surroundings.statistics(case, found)
    surroundings.dropout(case, found)
    if case.data.angle_deg is None or not math.isnan(
        case.data.angle_deg
    ):  # a batch of zeros says nothing about signals
        _signals(case, found)
    surroundings.followed(case, found)
    surroundings.input_scale(case, found)
    surroundings.initial_loss(case, found)
    surroundings.output_activation(case, found)
    surroundings.targets(case, found)
    surroundings.linear(case, found)
    made = None if found.has("batch-degenerate") else signs(case.way, case.data.angle_deg, case.zero_end)
    chance = score(made).geometry
    if chance < TRAINS and verdict_of(found.findings) == "healthy":
        found.add(Finding("low-score", "warn", None, chance, TRAINS, {"terms": score(made).terms}))
    found.findings = ordered(found.findings, case.index_of)
    leading = found.findings[0].kind if found.findings else ""
    return found, score(made, verdict_of(found.findings), leading)


def _signals(case: Case, found: Judgement) -> None:
    units.dead(case, found)
    units.saturated(case, found)
    units.recurrent(case, found)
    signal.collapse(case, found)
    signal.activations(case, found)
    signal.gradients(case, found)
    signal.with_dropout(case, found)
    signal.post_norm(case, found)
    weighing.zero_gradients(case, found)
