"""Layers of a report made by hand, and how they are judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from initscope.probe.diagnosis import Case, judge
from initscope.probe.findings import Finding
from initscope.probe.report import LayerReport, SeedSpread
from initscope.probe.trunk import Trunk
from initscope.probe.weights import WeightFacts

PLAIN = LayerReport(
    name="", op="linear", kind="dense", shape=(10,), norm_ratio=1.0, grad_norm_ratio=1.0, cosine_mean=0.5, cosine_std=0.1,
    cosine_seeds=SeedSpread((0.5,)), angle_deg=60.0, defect=0.5, centred_cosine=0.0, effective_rank=4.0, grad_cosine=0.5,
    dead_fraction=None, saturated_fraction=None, weight_norm=1.0, weight_grad_norm=1.0, predicted=None,
    norm_ratio_predicted=None, contraction=0.0, inputs=(-1,), parameters=(),
)  # fmt: skip


def chain(*changes: dict[str, Any]) -> list[LayerReport]:
    """One healthy layer after the other, each with what is different about it."""
    return [replace(PLAIN, **{"name": f"l{i}", "inputs": (i - 1,), **change}) for i, change in enumerate(changes)]


def case(*changes: dict[str, Any], **facts: Any) -> Case:
    """The same as something to judge; the last layer makes the output."""
    rows = chain(*changes)
    rows[-1] = replace(rows[-1], output=True)
    return Case(way=Trunk.of(rows), **facts)


def found(*changes: dict[str, Any], **facts: Any) -> list[Finding]:
    """What is found in it."""
    return judge(case(*changes, **facts))[0].findings


def told(findings: list[Finding]) -> list[tuple[str, str, str | None]]:
    """Kind, status and step of each."""
    return [(f.kind, f.status, f.step) for f in findings]


def marks(*changes: dict[str, Any], **facts: Any) -> dict[int, dict[str, str]]:
    """The marks of each layer that has any."""
    return {i: dict(m) for i, m in sorted(judge(case(*changes, **facts))[0].marks.items())}


def fact(name: str, **changes: Any) -> WeightFacts:
    """A weight that is trained, used and reached."""
    made = WeightFacts(
        name=name, shape=(10, 10), weight=1.0, gradient=1.0, trainable=True, used=True, elsewhere=False, size=100
    )  # fmt: skip
    return replace(made, **changes)
