"""A number from a simulation never travels without its standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from scipy.stats import t as student
from torch import Tensor


@dataclass(frozen=True)
class Estimate:
    """The mean over independent draws, its standard error, and how many draws there were; tensors of shape (n,)."""

    value: Tensor
    stderr: Tensor
    draws: int

    @classmethod
    def from_draws(cls, samples: Tensor) -> Estimate:
        """From samples (draws, n).

        >>> Estimate.from_draws(torch.tensor([[1.0], [3.0]])).value
        tensor([2.])
        """
        draws = len(samples)
        spread = samples.std(0) if draws > 1 else torch.full_like(samples[0], math.inf)
        return cls(samples.mean(0), spread / math.sqrt(draws), draws)

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """A two-sided confidence interval for the mean (Student's t)."""
        reach = float(student.ppf(0.5 + level / 2, max(self.draws - 1, 1))) * self.stderr
        return self.value - reach, self.value + reach

    def to_dict(self) -> dict[str, Any]:
        return {"value": self.value.tolist(), "stderr": self.stderr.tolist(), "draws": self.draws}
