"""What `check` found, as plain data."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from initscope.errors import InitscopeError
from initscope.probe.findings import SEVERITY, Finding, Kind, Note, Status, Verdict, verdict_of
from initscope.probe.score import Score
from initscope.probe.theory import Predicted
from initscope.probe.weights import WeightFacts
from initscope.results import jsonable, shown

SCHEMA = "initscope.check/2"


class Unhealthy(InitscopeError, AssertionError):
    """A check that was asserted to be healthy is not."""


@dataclass(frozen=True)
class SeedSpread:
    """The values of a quantity over the draws, that of the given weights first: is it luck, or does it always happen?"""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: list[float]) -> SeedSpread:
        return cls(tuple(values))

    @property
    def stdev(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Draw:
    """How another draw of the weights would be judged; it never changes the verdict on the given ones."""

    seed: int
    verdict: Verdict
    score: float
    step: str | None


@dataclass(frozen=True)
class LayerReport:
    """One step of the forward pass. What could not be measured or predicted is None.

    norm_ratio: root mean square of the units (rms) against the data's; grad_norm_ratio: norm of the loss's gradient by the
    activations against the one at the last step; cosine_mean, angle_deg: over all pairs of samples; contraction: the share of
    log(angle of the data / angle of the output) that this step owns, in nats; carriers: those of its inputs that carry the
    samples on (all, if None); output: the model returns what this step made; marks: which of its numbers are beyond a limit.
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
    inputs: tuple[int, ...]
    parameters: tuple[str, ...]
    rms: float | None = None
    sensitivity_ratio: float | None = None  # Σ |g||x| over positions, against the one at the last step
    broken: str = ""  # "NaN" or "infinite" values in it
    gradient_broken: bool = False
    followed: bool = True  # its rows are the samples of the batch
    has_gradient: bool = True
    drop_rate: float = 0.0
    over_samples: bool = False  # a softmax along the axis of the samples
    recurrent_gain: float = 0.0  # n Var(w) of the weights that a recurrent layer applies again and again
    fit: float | None = None  # of running statistics, 1 where they fit the batch
    carriers: tuple[int, ...] | None = None
    output: bool = False
    marks: tuple[tuple[Kind, Status], ...] = ()

    @property
    def finite(self) -> bool:
        return not self.broken

    @property
    def length(self) -> float:
        """Norm of a sample's values against the root mean square of the data; 0 where it is not known."""
        ratio = self.norm_ratio
        return math.sqrt(math.prod(self.shape)) * ratio if ratio is not None and math.isfinite(ratio) else 0.0

    @property
    def cosine_predicted(self) -> float | None:
        return None if self.predicted is None else self.predicted.cosine

    @property
    def cosine_followed(self) -> float | None:
        """The measured mean cosine over the pairs that theory follows: what `cosine_predicted` is to be compared with."""
        return None if self.predicted is None else 1 - self.predicted.measured

    @property
    def status(self) -> Verdict:
        """The worst of its marks."""
        worst = max((SEVERITY[status] for _, status in self.marks), default=0)
        return ("healthy", "warn", "fail")[worst]

    @property
    def reason(self) -> str:
        """What is beyond a limit here, in words."""
        words: str = shown("wording", "layer_reason", self)
        return words

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists; what is not a number is null."""
        theory = self.predicted
        found: dict[str, Any] = {
            "name": self.name,
            "op": self.op,
            "kind": self.kind,
            "shape": self.shape,
            **{key: getattr(self, key) for key in _NUMBERS},
            "cosine_interval": None if theory is None else theory.interval,
            "predicted_given": None if theory is None else theory.given or "data",
            "within_finite_width": None if theory is None else theory.explained,
            "cosine_by_seed": self.cosine_seeds.values,
            "finite": self.finite,
            "followed": self.followed,
            "status": self.status,
            "marks": [kind for kind, _ in self.marks],
            "reason": self.reason,
        }
        plain: dict[str, Any] = jsonable(found)
        return plain


_NUMBERS = (
    "rms", "norm_ratio", "grad_norm_ratio", "sensitivity_ratio", "cosine_mean", "cosine_std", "cosine_followed",
    "cosine_predicted", "angle_deg", "defect", "centred_cosine", "effective_rank", "grad_cosine", "dead_fraction",
    "saturated_fraction", "weight_norm", "weight_grad_norm", "norm_ratio_predicted", "contraction",
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """The answer of `check`: what was found, the layers in execution order, and what contracts the angles.

    Everything is about the weights that were given; `draws` says how other draws of them would be judged.
    """

    findings: tuple[Finding, ...]  # the worst first, causes before what they cause
    layers: tuple[LayerReport, ...]
    blame: dict[str, float]
    remedies: tuple[Any, ...]
    seeds: int
    seconds: float
    notes: tuple[Note, ...]
    failure: str | None
    loss: str
    samples: int
    parameters: int
    resolution: dict[str, str | None]
    chance: Score
    weights: tuple[WeightFacts, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    draws: tuple[Draw, ...] = ()
    initial_loss: dict[str, Any] | None = None

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.findings)

    @property
    def leading(self) -> Finding | None:
        """The finding that decides the verdict: the worst, and among equals the one that causes the others."""
        return next((f for f in self.findings if f.status != "note"), None)

    @property
    def first_bad_layer(self) -> str | None:
        """The step where the leading finding happens; None for what concerns the whole network or the batch."""
        return None if self.leading is None else self.leading.step

    @property
    def score(self) -> float:
        """The chance that the network trains as it is; NaN where nothing could be measured."""
        return self.chance.value

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, as `initscope check --json` prints them; what is not a number is null."""
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "first_bad_layer": self.first_bad_layer,
            "score": self.score,
            "score_parts": self.chance.to_dict(),
            "findings": [
                {
                    **f.to_dict(),
                    "text": shown("wording", "finding_text", f),
                    "advice": shown("wording", "advice_text", f),
                }
                for f in self.findings
            ],
            "failure": self.failure,
            "layers": [layer.to_dict() for layer in self.layers],
            "blame": self.blame,
            "resolution": self.resolution,
            "remedies": [asdict(r) for r in self.remedies],
            "seeds": self.seeds,
            "draws": [asdict(d) for d in self.draws],
            "samples": self.samples,
            "parameters": self.parameters,
            "loss": self.loss,
            "initial_loss": self.initial_loss,
            "seconds": self.seconds,
            "notes": shown("wording", "note_texts", self.notes),
        }
        plain: dict[str, Any] = jsonable(found)
        return plain

    def assert_healthy(self, *, allow_warnings: bool = True) -> None:
        """Raises `Unhealthy`, with what was found and where, unless the verdict is good enough."""
        if self.verdict == "healthy" or (allow_warnings and self.verdict == "warn"):
            return
        raise Unhealthy("check", self.summary(), "see report.findings, or call fix")

    def summary(self) -> str:
        """The verdict, the score and each finding with its advice, in plain sentences."""
        text: str = shown("wording", "summary_text", self)
        return text

    def to_html(self, path: str | Path) -> Path:
        """One page that needs nothing else."""
        written: Path = shown("page", "write_check_page", self, path)
        return written

    def __str__(self) -> str:
        text: str = shown("check_views", "check_text", self)
        return text

    def __repr__(self) -> str:
        line: str = shown("wording", "report_line", self)
        return line

    def _repr_html_(self) -> str:
        """What Jupyter and marimo show: the first screen of the page."""
        page: str = shown("check_views", "check_html", self)
        return page
