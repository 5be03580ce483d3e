"""Reports made by hand, so that tests of tables and pages know every number in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from initscope.probe import Effect, Health, LayerReport, Remedy, Report
from initscope.probe.findings import Finding, Note, verdict_of
from initscope.probe.report import SeedSpread
from initscope.probe.score import Signs, score
from initscope.probe.theory import Predicted

HEALTH = Health(angle_deg=0.5, norm_ratio=0.01, grad_norm_ratio=1e-6, verdict="fail", decades=10.0)


def layer(name: str = "conv", **changes: Any) -> LayerReport:
    """A healthy convolution at 60 degrees, with theory that explains it."""
    theory = Predicted(defect=0.5, most=0.6, least=0.4, measured=0.52, rms=1.0, given="")
    made = LayerReport(
        name=name, op="conv2d", kind="conv", shape=(8, 4, 4), norm_ratio=1.25, grad_norm_ratio=0.5, cosine_mean=0.5,
        cosine_std=0.1, cosine_seeds=SeedSpread((0.49, 0.51)), angle_deg=60.0, defect=0.5, centred_cosine=0.0,
        effective_rank=3.5, grad_cosine=0.1, dead_fraction=None, saturated_fraction=None, weight_norm=1.0,
        weight_grad_norm=1.0, predicted=theory, norm_ratio_predicted=1.2, contraction=0.1, inputs=(-1,), parameters=(),
    )  # fmt: skip
    return replace(made, **changes)


def relu(name: str, **changes: Any) -> LayerReport:
    return layer(name, **{"op": "relu", "kind": "activation", "dead_fraction": 0.25, **changes})


def bad(name: str, angle: float = 0.5, **changes: Any) -> LayerReport:
    """Samples have merged here, beyond the limit of a failure."""
    return layer(name, **{"angle_deg": angle, "marks": (("collapse", "fail"),), **changes})


def merged(row: LayerReport) -> Finding:
    """What is found where samples merge at one step."""
    evidence = {"data_angle_deg": 70.0, "readout_angle_deg": row.angle_deg, "shape": "jump", "factor": 0.01}
    return Finding("collapse", "fail", row.name, row.angle_deg, 0.3, evidence)


def report(layers: list[LayerReport], **changes: Any) -> Report:
    """The first layer that fails is the one that is named."""
    worst = next((row for row in layers if row.status == "fail"), None)
    findings = changes.pop("findings", () if worst is None else (merged(worst),))
    verdict = verdict_of(findings)
    signs = Signs(angle=0.2, gradient=0.3, norm=0.1, depth=0.5)
    made = Report(
        findings=tuple(findings), layers=tuple(layers), blame={"conv": 0.75, "activation": 0.25}, remedies=(), seeds=2,
        seconds=1.5, notes=(Note("draws", "drawn again by reset_parameters"),), failure=None, loss="random direction",
        samples=4, parameters=1234, resolution={"bfloat16": None, "float16": None, "float32": None},
        chance=score(signs, verdict, findings[0].kind if findings else ""), data={"angle_deg": 70.0},
    )  # fmt: skip
    return replace(made, **changes)


def remedy(name: str = "he-fan-in", **changes: Any) -> Remedy:
    after = Health(angle_deg=40.0, norm_ratio=1.5, grad_norm_ratio=0.8, verdict="healthy", decades=0.5)
    made = Remedy(
        name, "weights", "Draw the weights anew.", f"initscope fix mlp --remedy {name}", Effect(HEALTH, after)
    )
    return replace(made, **changes)
