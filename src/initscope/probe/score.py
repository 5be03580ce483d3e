"""Will it train? One number from what `check` measured, which agrees with what it found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from initscope.probe.findings import Verdict
from initscope.probe.trunk import Trunk

MOST = 4.0  # decades; ten thousand times too small or too large is as bad as can be
# Logistic regression on the networks of benchmarks/trainability: `python benchmarks/trainability/fit.py`.
INTERCEPT = 3.76
WEIGHTS = {"angle": -1.14, "gradient": -0.92, "norm": -0.51, "depth": -1.24}
FAILS, TRAINS = 0.2, 0.6  # a network that fails scores at most the first, a healthy one at least the second
BANDS: dict[Verdict, tuple[float, float]] = {"fail": (0.0, FAILS), "warn": (0.21, 0.59), "healthy": (TRAINS, 1.0)}
WIDE_ANGLE = 60.0  # degrees between samples of the data from which on angles count as they are


@dataclass(frozen=True)
class Signs:
    """How many powers of ten (decades) a network is away from ideal, each at most `MOST`.

    angle: the mean angle between samples in front of the readout, below 90 degrees; gradient: that at the worst step of the
    trunk against the one at the output; norm: the worst step's against the last normalization, or the data; depth: log10 of
    the number of weight layers on the trunk.
    """

    angle: float
    gradient: float
    norm: float
    depth: float = 0.0


@dataclass(frozen=True)
class Score:
    """`value` is the chance by the geometry alone, 1/(1 + exp(-log odds)), held inside the band of the verdict.

    terms: what the log odds are made of. held_by: the kind of the finding that holds it in its band, "" where none does.
    """

    value: float
    geometry: float
    terms: dict[str, float]
    signs: Signs
    held_by: str = ""

    def to_dict(self) -> dict[str, Any]:
        known = math.isfinite(self.geometry)
        return {
            "geometry": self.geometry if known else None,
            "terms": self.terms if known else {},
            "held_by": self.held_by or None,
        }


def score(found: Signs | None, verdict: Verdict = "healthy", held_by: str = "") -> Score:
    """The score of a network with these signs and this verdict; NaN where nothing was measured.

    >>> round(score(Signs(angle=0.1, gradient=0.2, norm=0.0)).value, 2), score(Signs(0.1, 0.2, 0.0), "fail", "frozen").value
    (0.97, 0.2)
    """
    if found is None:
        return Score(0.0 if verdict == "fail" else math.nan, math.nan, {}, Signs(0.0, 0.0, 0.0), held_by)
    terms = log_odds_terms(found)
    chance = 1 / (1 + math.exp(-sum(terms.values())))
    low, high = BANDS[verdict]
    value = min(max(chance, low), high)
    return Score(value, chance, terms, found, held_by if value != chance else "")


def log_odds_terms(found: Signs) -> dict[str, float]:
    """intercept, and weight · sign for each sign."""
    return {"intercept": INTERCEPT, **{name: weight * getattr(found, name) for name, weight in WEIGHTS.items()}}


def log_odds(found: Signs) -> float:
    return sum(log_odds_terms(found).values())


def signs(way: Trunk, data_angle: float | None = None, end: int | None = None) -> Signs | None:
    """Read off the steps of the trunk, up to `end` if it is given; None where nothing was measured."""
    angles = [a for i, a in way.angles.items() if end is None or i < end]
    if not angles and (data_angle is None or not any(way.rows[i].followed for i in way.way)):
        return None
    angle = angles[-1] if angles else min(data_angle or 90.0, 90.0)
    wide = widened(angle, data_angle)
    skipped = way.undone | way.squared
    return Signs(
        angle=0.0 if wide >= 90 else decades(wide / 90),
        gradient=max(map(decades, way.gradients.values()), default=0.0),
        norm=max((decades(d) for i, d in way.drifts.items() if i not in skipped and _before(i, end)), default=0.0),
        depth=math.log10(max(1, way.depth)),
    )


def _before(index: int, end: int | None) -> bool:
    return end is None or index < end


def widened(angle: float, data_angle: float | None) -> float:
    """An angle as it would be for data whose samples are 60 degrees apart: close data are not the network's fault.

    >>> widened(10.0, 20.0), widened(10.0, 80.0), widened(10.0, None)
    (30.0, 10.0, 10.0)
    """
    if data_angle is None or not 0 < data_angle < WIDE_ANGLE:
        return angle
    return angle * WIDE_ANGLE / data_angle


def decades(ratio: float, most: float = MOST) -> float:
    """|log10 ratio|, at most `most`; so are zero and what is not a number.

    >>> decades(0.01), decades(100.0), decades(float("nan"))
    (2.0, 2.0, 4.0)
    """
    return min(abs(math.log10(ratio)), most) if math.isfinite(ratio) and ratio > 0 else most


def worst(values: Sequence[float]) -> float | None:
    """The value that is farthest from 1, in decades."""
    return max(values, key=decades, default=None)
