"""The stored results, and how well a number tells the networks that train from those that do not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from training import TRAINS

HERE = Path(__file__).parent
Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Outcomes:
    """Of the networks `numbers`, in this order."""

    numbers: list[int]
    trains: Flags
    accuracy: Numbers
    measures: list[dict[str, Any]]
    designs: list[dict[str, Any]]

    @property
    def score(self) -> Numbers:
        return np.array([m["score"] for m in self.measures])

    def signs(self, names: list[str]) -> Numbers:
        return np.array([[m["signs"][name] for name in names] for m in self.measures])

    def baseline(self, name: str) -> Numbers:
        """Where a baseline gave nothing, the network gets the middle of the others."""
        values = np.array([m["baselines"][name] for m in self.measures], dtype=np.float64)
        return np.where(np.isnan(values), np.nanmedian(values), values)


def outcomes(numbers: list[int], optimizer: str, folder: Path = HERE) -> Outcomes:
    trained = {r["number"]: r for r in _rows(folder / "training.jsonl") if r["optimizer"] == optimizer}
    measured = {r["number"]: r for r in _rows(folder / "measures.jsonl")}
    known = [n for n in numbers if n in trained and n in measured]
    accuracy = np.array([trained[n]["accuracy"] for n in known])
    return Outcomes(
        known, accuracy >= TRAINS, accuracy, [measured[n] for n in known], [trained[n]["design"] for n in known]
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def area(values: Numbers, trains: Flags) -> float:
    """Area under the ROC curve: how often a network that trains has the larger value than one that does not; ties half."""
    good, bad = values[trains][:, None], values[~trains][None]
    return float(((good > bad) + 0.5 * (good == bad)).mean())


def turned(values: Numbers, trains: Flags) -> Numbers:
    """In the direction that tells more on these very networks: a favour to the baselines."""
    return values if area(values, trains) >= 0.5 else -values


def curve(values: Numbers, trains: Flags) -> tuple[Numbers, Numbers]:
    """False and true positive rates, from (0, 0) to (1, 1)."""
    cuts = np.concatenate([[np.inf], np.unique(values)[::-1]])
    passed = values[None] >= cuts[:, None]
    return (passed & ~trains).sum(1) / (~trains).sum(), (passed & trains).sum(1) / trains.sum()


def resamples(trains: Flags, count: int = 4000, seed: int = 0) -> list[NDArray[np.int64]]:
    """Bootstrap draws of networks that hold both kinds."""
    dice = np.random.default_rng(seed)
    draws = (dice.integers(len(trains), size=len(trains)) for _ in range(count))
    return [d for d in draws if 0 < trains[d].sum() < len(d)]


def interval(values: list[float]) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
