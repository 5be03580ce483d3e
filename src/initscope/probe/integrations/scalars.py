"""A report as scalars under stable names, for the tools that draw them."""

from __future__ import annotations

import math
from typing import Any

from initscope.probe.report import Report

_VERDICTS = {"healthy": 0.0, "warn": 1.0, "fail": 2.0}
_PER_LAYER = (
    "angle_deg", "cosine_mean", "cosine_predicted", "norm_ratio", "grad_norm_ratio", "effective_rank", "dead_fraction",
)  # fmt: skip


def scalars(report: Report, prefix: str = "initscope") -> dict[str, float]:
    """`prefix/verdict` (0 healthy, 1 warn, 2 fail), `prefix/blame/<kind>`, `prefix/layers/<number>/<quantity>`.

    Layers are numbered in execution order, three digits, so that names sort and survive a renamed module; what was not
    measured has no scalar.
    """
    values = {f"{prefix}/verdict": _VERDICTS[report.verdict]}
    values |= {f"{prefix}/blame/{kind}": share for kind, share in report.blame.items()}
    for number, layer in enumerate(report.layers):
        for quantity in _PER_LAYER:
            value = getattr(layer, quantity)
            if value is not None and math.isfinite(value):
                values[f"{prefix}/layers/{number:03d}/{quantity}"] = float(value)
    return values


def log_to_tensorboard(report: Report, writer: Any, step: int = 0, prefix: str = "initscope") -> None:
    """Into a `torch.utils.tensorboard.SummaryWriter`, or anything else that has `add_scalar(name, value, step)`."""
    for name, value in scalars(report, prefix).items():
        writer.add_scalar(name, value, step)


def log_to_wandb(report: Report, run: Any, step: int | None = None, prefix: str = "initscope") -> None:
    """Into a Weights & Biases run (`wandb.init()`): one `log` call."""
    run.log(scalars(report, prefix), step=step)
