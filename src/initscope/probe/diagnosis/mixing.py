"""Outputs that do not belong to their own samples."""

from __future__ import annotations

from initscope.probe.diagnosis.case import Case, Judgement
from initscope.probe.findings import Finding, Status
from initscope.probe.mixing import AGGREGATES, MixingFacts


def samples_mixed(case: Case, found: Judgement) -> None:
    """A failure where a mistake is the only reading; a model may also look at the whole batch on purpose."""
    facts = case.mixing
    if facts is None:
        return
    evidence = {"cause": facts.cause, "op": facts.op, "own": facts.own, "sure": facts.sure, "taker": facts.taker}
    status = _status(facts)
    index = case.index_of(facts.taker or facts.step)
    found.add(Finding("samples-mixed", status, facts.step, facts.share, None, evidence), index)


def _status(facts: MixingFacts) -> Status:
    if facts.cause in ("view", "order"):
        return "fail"
    if facts.cause == "sequence":
        return "fail" if facts.sure else "warn" if facts.alone else "note"
    return "note" if facts.own or facts.op in AGGREGATES or not facts.op else "fail"
