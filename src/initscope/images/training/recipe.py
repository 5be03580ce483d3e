"""How a decoder is trained: the settings of DC 3.2."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from initscope.errors import BadInput


@dataclass(frozen=True)
class Recipe:
    """The settings of a training; the defaults are DC's (3.2), but for the number of steps, which was 200,000.

    Adam with `rate` and `betas`; `decay` times the weights is added to the gradient. At each of the `milestones`, shares of
    all steps, the rate is multiplied by `drop`: DC names the method ("multistep") and not its numbers, these are ours.

    `crop`: train on windows of that side, drawn anew in every step, instead of whole images. `scale_features` divides the
    features by their root mean square over the training images, so that encoders are compared and not their scales.

    The loss is DC's equation (1), Σ (Φ(x) - x)² over an image, averaged over the batch; it is reported per pixel and channel.

    >>> [Recipe(steps=8).rate_at(step) for step in (0, 4, 6)]
    [0.0001, 5e-05, 2.5e-05]
    """

    steps: int = 300
    batch: int = 32
    rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    decay: float = 4e-4
    milestones: tuple[float, ...] = (0.5, 0.75)
    drop: float = 0.5
    crop: int | None = None
    scale_features: bool = False
    evaluate_every: int = 50
    save_every: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "evaluate_every", "save_every"):
            _check(name, _whole(getattr(self, name), 1), getattr(self, name), "a whole number from 1 on")
        _check("crop", self.crop is None or _whole(self.crop, 1), self.crop, "a whole number from 1 on, or None")
        _check("rate", _between(self.rate, 0, 10, open_left=True), self.rate, "a number above 0")
        _check("decay", _between(self.decay, 0, 10), self.decay, "a number from 0 on")
        _check("drop", _between(self.drop, 0, 1, open_left=True), self.drop, "a number from 0 to 1")
        betas = len(self.betas) == 2 and all(_between(beta, 0, 1) and beta < 1 for beta in self.betas)
        _check("betas", betas, self.betas, "two numbers from 0 to below 1")
        _check("milestones", all(_between(m, 0, 1) for m in self.milestones), self.milestones, "shares from 0 to 1")

    def rate_at(self, step: int) -> float:
        """The rate of Adam in that step, counted from 0."""
        passed = sum(step >= round(share * self.steps) for share in self.milestones)
        return self.rate * self.drop**passed

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _between(value: object, low: float, high: float, *, open_left: bool = False) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return number and low <= value <= high and not (open_left and value == low)  # type: ignore[operator]


def _check(name: str, holds: bool, value: object, expected: str) -> None:
    if not holds:
        raise BadInput(
            name, f"got {value!r}, expected {expected}", f"pass for example {name}={getattr(Recipe, name)!r}"
        )
