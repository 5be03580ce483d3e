"""What is not the network's signal: the batch, the loss, dropout, running statistics, samples that cannot be followed."""

from __future__ import annotations

import math
from typing import Any

from initscope.probe.diagnosis.case import Case, Judgement, above, limit_for, ratio_beyond
from initscope.probe.findings import Finding, Kind, Status

# Functions that bound what follows them, or cut off its gradient: raw scores have no use for them.
_SQUEEZES = ("softmax", "sigmoid", "hardsigmoid", "relu", "relu6", "tanh", "hardtanh", "softsign")
_SCORED = ("cross_entropy", "binary_cross_entropy_with_logits")
# Losses that compare each output with its target, by name; others may use targets in any way.
_BY_VALUE = ("squarederror", "mseloss", "l1loss", "smoothl1loss", "huberloss", "binarycrossentropy", "bceloss")
_LINEAR = ("dense", "conv", "scale", "shift", "select", "concat", "residual", "dropout", "pooling")
_SHIFT = 2.0  # nats above chance that an initial loss may have in any case
_TINY_EMBEDDING = 1000.0  # embeddings may be this much smaller than 1
_TINY_INPUT = 10.0  # data may be this much smaller than they may be large


def batch(case: Case, found: Judgement) -> None:
    """Samples that do not differ say nothing about what a network does to them."""
    angle, limit = case.data.angle_deg, case.limits.data_angle[0]
    if angle is None or angle >= limit:
        return
    zero = math.isnan(angle) or case.data.rms == 0
    evidence = {"zero": zero, "rms": case.data.rms}
    found.add(Finding("batch-degenerate", "warn", None, 0.0 if zero else angle, limit, evidence))


def input_scale(case: Case, found: Judgement) -> None:
    """Data far from unit size, unless the model normalizes them first."""
    data, limits = case.data, case.limits.input
    if not data.numbers:
        _embedding_scale(case, found)
        return
    if data.rms == 0 or not math.isfinite(data.rms):
        return
    large = above(data.rms, limits)
    small = above(1 / data.rms, (limits[0] * _TINY_INPUT, limits[1]))
    status = large or small
    if status is None:
        return
    status = "note" if _normalized_first(case) else status
    limit = limits[0] if large else 1 / (limits[0] * _TINY_INPUT)
    evidence = {"mean": data.mean, "deviation": data.deviation}
    found.add(Finding("input-scale", status, None, data.rms, limit, evidence))


def _embedding_scale(case: Case, found: Judgement) -> None:
    """Indices have no size; what is first made of them has."""
    row = case.rows[0]
    if not row.rms or _normalized_first(case):
        return
    if row.rms < 1 / _TINY_EMBEDDING:
        _blame_embedding(case, found)
    status = above(row.rms, case.limits.input)
    if status is not None:
        limit, evidence = limit_for(status, case.limits.input), {"since": None, "shape": "jump", "factor": row.rms}
        found.add(Finding("activation-scale", status, row.name, row.rms, limit, evidence), 0)


def _blame_embedding(case: Case, found: Judgement) -> None:
    """Embeddings so small that the first bias outweighs them grow as they learn; what happens behind them is their doing."""
    row = case.rows[0]
    behind = next((i for i in case.way.way if i > 0 and case.rows[i].parameters), None)
    kinds: tuple[Kind, ...] = ("collapse", "activation-scale")
    caused = [f for f in found.findings if f.kind in kinds and case.index_of(f.step) == behind and behind is not None]
    for finding in caused:
        found.findings.remove(finding)
        found.soften(finding.kind)
    evidence = {"since": None, "shape": "jump", "factor": row.rms, "kind": row.kind}
    found.add(Finding("activation-scale", "warn", row.name, row.rms, 1 / _TINY_EMBEDDING, evidence), 0)


def _normalized_first(case: Case) -> bool:
    """A normalization comes before the first activation on the trunk."""
    kinds = [case.rows[i].kind for i in case.way.way]
    first = next((k for k in kinds if k in ("norm", "activation", "attention")), "")
    return first == "norm"


def initial_loss(case: Case, found: Judgement) -> None:
    """A first loss far above chance: the network is sure of what it cannot know."""
    start = case.initial
    if start is None or case.broken_loss:
        return
    evidence = {"loss": start.kind, "chance": start.chance, "output_rms": start.output_rms, "classes": start.classes}
    if start.kind != "squared error":
        status = above(start.output_rms, case.limits.output)
        if status is not None:
            limit = limit_for(status, case.limits.output)
            found.add(Finding("output-scale", status, _output(case), start.output_rms, limit, evidence))
    if start.kind == "logits":
        return
    factor = case.limits.loss[0]
    limit = max(factor * start.chance, start.chance + _SHIFT) if start.kind == "cross-entropy" else 10 * start.chance
    if start.value > limit:
        hopeless = case.limits.loss[1] * start.chance
        status = "fail" if start.value > hopeless and not found.has("input-scale") else "warn"
        limit = hopeless if status == "fail" else limit
        found.add(Finding("initial-loss", status, _output(case), start.value, limit, evidence))


def _output(case: Case) -> str | None:
    """The last step with weights: its scale is the scale of the output."""
    users = [case.rows[i].name for i in case.way.way if case.rows[i].parameters]
    return users[-1] if users else None


def output_activation(case: Case, found: Judgement) -> None:
    """Cross-entropy takes scores: probabilities in front of it flatten its gradient. And no softmax runs over the samples."""
    scored = _takes_scores(case)
    for index, row in enumerate(case.rows):
        mixing = row.over_samples and not _mixes_pairs(case, index)
        squeezed = row.output and bool(scored) and row.op in _SQUEEZES
        if mixing or squeezed:
            evidence = {"op": row.op, "over_samples": mixing, "loss": scored or case.loss}
            found.add(Finding("output-activation", "warn", row.name, None, None, evidence), index)
            return
    if case.unnormalized:
        output = next((i for i in reversed(range(len(case.rows))) if case.rows[i].output), None)
        step = None if output is None else case.rows[output].name
        evidence = {"op": "" if output is None else case.rows[output].op, "over_samples": False, "loss": "nll_loss"}
        found.add(Finding("output-activation", "fail", step, None, None, evidence), output)


def _takes_scores(case: Case) -> str:
    """The loss that wants raw scores, by name; "" if it is another one."""
    if case.loss.startswith(("cross-entropy", "binary cross-entropy")):
        return case.loss
    return next((name for name in case.loss_functions if name in _SCORED), "")


def _mixes_pairs(case: Case, index: int) -> bool:
    """A square matrix of samples against samples, as contrastive losses have it."""
    return len(case.rows[index].shape) == 1 and case.rows[index].shape[0] == case.samples


def linear(case: Case, found: Judgement) -> None:
    """Several weight layers and nothing that is not linear between them are no more than one layer."""
    steps = [i for i in case.way.way if case.rows[i].kind in ("dense", "conv") and case.rows[i].parameters]
    inner = [row for row in case.rows if not row.output]
    if len(steps) < 2 or any(row.kind not in _LINEAR or "max" in row.op for row in inner):
        return
    if all(f.trainable for f in case.weights):
        found.add(Finding("no-nonlinearity", "note", None, float(len(steps)), None, {}))


def targets(case: Case, found: Judgement) -> None:
    """Targets that the output can never take, and a loss in which every sample meets the targets of all."""
    facts = case.targets
    if facts is None:
        return
    ours = case.loss in ("squared error", "squared-error")  # which takes them entry by entry
    if facts.outer or (ours and facts.output != facts.target):
        status: Status = "fail" if facts.outer else "note"
        evidence: dict[str, Any] = {"output": list(facts.output), "target": list(facts.target), "loss": case.loss}
        found.add(Finding("target-shape", status, None, None, None, evidence))
    by_value = _plain(case.loss) in _BY_VALUE or any(_plain(name) in _BY_VALUE for name in case.loss_functions)
    large = above(facts.size, case.limits.target) if by_value else None
    if large is not None:
        evidence = {"mean": facts.mean, "loss": case.loss}
        found.findings = [f for f in found.findings if f.kind != "initial-loss"]  # which only says the same
        found.add(Finding("target-scale", large, None, facts.size, limit_for(large, case.limits.target), evidence))
    limits = case.limits.unreachable
    beyond = above(facts.unreachable, limits)
    if beyond is not None:
        index = next(i for i in reversed(range(len(case.rows))) if case.rows[i].output)
        row = case.rows[index]
        beyond = beyond if by_value else "warn"
        evidence = {"op": row.op, "low": facts.limits[0], "high": facts.limits[1], "loss": case.loss}
        limit = limit_for(beyond, limits)
        found.add(Finding("output-range", beyond, row.name, facts.unreachable, limit, evidence), index)


def _plain(name: str) -> str:
    """ "MSELoss", "mse_loss" and "mse-loss" are one name."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def statistics(case: Case, found: Judgement) -> None:
    """Batch norms that normalize with running statistics which are not those of this batch."""
    for index, row in enumerate(case.rows):
        status = None if row.fit is None else ratio_beyond(row.fit, case.limits.statistics)
        if status is None:
            continue
        found.mark(index, "norm-statistics", status)
        if not any(f.kind == "norm-statistics" and f.status == status for f in found.findings):
            limit = limit_for(status, case.limits.statistics)
            found.add(Finding("norm-statistics", status, row.name, row.fit, limit, {"module": row.name}), index)


def dropout(case: Case, found: Judgement) -> None:
    """Shares of dropped units that leave next to nothing."""
    if not case.train:
        return
    for index, row in enumerate(case.rows):
        status: Status | None = above(row.drop_rate, case.limits.dropout)
        if status is None:
            continue
        found.mark(index, "dropout-rate", status)
        if not any(f.kind == "dropout-rate" and f.status == status for f in found.findings):
            limit = limit_for(status, case.limits.dropout)
            found.add(Finding("dropout-rate", status, row.name, row.drop_rate, limit, {}), index)


def followed(case: Case, found: Judgement) -> None:
    """What was not measured is never called healthy: steps of the trunk behind which samples cannot be followed."""
    lost = next((i for i in case.way.way if not case.rows[i].followed), None)
    if lost is not None:
        rows = case.rows[lost]
        evidence = {"op": rows.op, "measured": rows.norm_ratio is not None}
        found.add(Finding("not-followed", "warn", rows.name, None, None, evidence), lost)
    elif not case.way.way or not any(row.output for row in case.rows):
        found.add(Finding("not-followed", "warn", None, None, None, {"op": "output", "measured": False}))
