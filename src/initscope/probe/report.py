"""What `check` found, as plain data."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from initscope.errors import InitscopeError
from initscope.probe.inspection import WeightGradient
from initscope.probe.theory import Predicted

SCHEMA = "initscope.check/1"
Status = Literal["healthy", "warn", "fail"]
SEVERITY: dict[Status, int] = {"healthy": 0, "warn": 1, "fail": 2}


class Unhealthy(InitscopeError, AssertionError):
    """A check that was asserted to be healthy is not."""


@dataclass(frozen=True)
class SeedSpread:
    """The values of a quantity over the seeds: is it luck, or does it always happen?"""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: list[float]) -> SeedSpread:
        return cls(tuple(values))

    @property
    def stdev(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class LayerReport:
    """One step of the forward pass. What could not be measured or predicted is None.

    norm_ratio: root mean square of the units against the data's; grad_norm_ratio: norm of the loss's gradient by the
    activations against the one at the last step; cosine_mean, angle_deg: over pairs of samples; contraction: the share of
    log(angle of the data / angle of the output) that this step owns, in nats; carriers: those of its inputs that carry the
    samples on (all, if None); output: the model returns what this step made.
    """

    name: str
    op: str
    kind: str
    shape: tuple[int, ...]
    norm_ratio: float | None
    grad_norm_ratio: float | None
    cosine_mean: float | None
    cosine_std: float | None
    cosine_seeds: SeedSpread
    angle_deg: float | None
    defect: float | None
    centred_cosine: float | None
    effective_rank: float | None
    grad_cosine: float | None
    dead_fraction: float | None
    saturated_fraction: float | None
    weight_norm: float | None
    weight_grad_norm: float | None
    predicted: Predicted | None
    norm_ratio_predicted: float | None
    contraction: float
    finite: bool
    inputs: tuple[int, ...]
    parameters: tuple[str, ...]
    status: Status = "healthy"
    reason: str = ""
    carriers: tuple[int, ...] | None = None
    output: bool = False

    @property
    def cosine_predicted(self) -> float | None:
        return None if self.predicted is None else self.predicted.cosine

    def to_dict(self) -> dict[str, Any]:
        theory = self.predicted
        return {
            "name": self.name,
            "op": self.op,
            "kind": self.kind,
            "shape": list(self.shape),
            **{
                key: _number(getattr(self, key))
                for key in (
                    "norm_ratio",
                    "grad_norm_ratio",
                    "cosine_mean",
                    "cosine_std",
                    "cosine_predicted",
                    "angle_deg",
                    "defect",
                    "centred_cosine",
                    "effective_rank",
                    "grad_cosine",
                    "dead_fraction",
                    "saturated_fraction",
                    "weight_norm",
                    "weight_grad_norm",
                    "norm_ratio_predicted",
                    "contraction",
                )
            },
            "cosine_interval": None if theory is None else list(theory.interval),
            "predicted_given": None if theory is None else theory.given or "data",
            "within_finite_width": None if theory is None else theory.explained,
            "cosine_by_seed": [_number(v) for v in self.cosine_seeds.values],
            "status": self.status,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Report:
    """The answer of `check`: verdict, layers in execution order, and what contracts the angles."""

    verdict: Status
    first_bad_layer: str | None
    layers: tuple[LayerReport, ...]
    blame: dict[str, float]
    remedies: tuple[Any, ...]
    seeds: int
    seconds: float
    notes: tuple[str, ...]
    failure: str | None
    loss: str
    samples: int
    parameters: int
    resolution: dict[str, str | None]
    weights: tuple[WeightGradient, ...] = field(repr=False)
    data: dict[str, Any] = field(repr=False)
    score: float = math.nan  # the chance that the network trains as it is, from `probe.score`

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, as `initscope check --json` prints them."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "first_bad_layer": self.first_bad_layer,
            "score": _number(self.score),
            "failure": self.failure,
            "layers": [layer.to_dict() for layer in self.layers],
            "blame": self.blame,
            "resolution": self.resolution,
            "remedies": [asdict(r) for r in self.remedies],
            "seeds": self.seeds,
            "samples": self.samples,
            "parameters": self.parameters,
            "loss": self.loss,
            "seconds": self.seconds,
            "notes": list(self.notes),
        }

    def assert_healthy(self, *, allow_warnings: bool = True) -> None:
        """Raises `Unhealthy`, with the first bad layer and its reason, unless the verdict is good enough."""
        if self.verdict == "healthy" or (allow_warnings and self.verdict == "warn"):
            return
        bad = next((layer for layer in self.layers if layer.name == self.first_bad_layer), None)
        reason = self.failure or (bad.reason if bad is not None else "")
        raise Unhealthy(
            "check", f"{self.verdict} at {self.first_bad_layer}: {reason}", "see report.layers, or call fix"
        )

    def to_html(self, path: str | Path) -> Path:
        """One page that needs nothing else."""
        written: Path = import_module("initscope.report").write_check_page(self, path)  # `report` stands on this room
        return written


def _number(value: float | None) -> float | None:
    """JSON has no NaN: what is not a number is null."""
    return None if value is None or not math.isfinite(value) else value
