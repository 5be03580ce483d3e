"""Layers of a report made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from initscope.probe.report import LayerReport, SeedSpread

PLAIN = LayerReport(
    name="", op="linear", kind="dense", shape=(10,), norm_ratio=1.0, grad_norm_ratio=1.0, cosine_mean=0.5, cosine_std=0.1,
    cosine_seeds=SeedSpread((0.5,)), angle_deg=60.0, defect=0.5, centred_cosine=0.0, effective_rank=4.0, grad_cosine=0.5,
    dead_fraction=None, saturated_fraction=None, weight_norm=1.0, weight_grad_norm=1.0, predicted=None,
    norm_ratio_predicted=None, contraction=0.0, inputs=(-1,), parameters=(),
)  # fmt: skip


def chain(*changes: dict[str, Any]) -> list[LayerReport]:
    """One healthy layer after the other, each with what is different about it."""
    return [replace(PLAIN, **{"name": f"l{i}", "inputs": (i - 1,), **change}) for i, change in enumerate(changes)]
