"""A number from a simulation never travels without its standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from scipy.stats import norm
from scipy.stats import t as student
from torch import Tensor

from initscope.errors import BadInput
from initscope.results import jsonable


@dataclass(frozen=True)
class Estimate:
    """The mean over independent draws, its standard error, and how many draws there were; tensors of shape (n,).

    `skewness`: of a single draw, where it is known to matter: few skewed draws need wider intervals.
    """

    value: Tensor
    stderr: Tensor
    draws: int
    skewness: Tensor | None = None

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
        """A two-sided confidence interval for the mean, value ± reach.

        >>> low, high = Estimate(torch.tensor([2.0]), torch.tensor([1.0]), draws=2).interval(0.5)
        >>> low, high
        (tensor([1.]), tensor([3.]))
        """
        reach = self.reach(level)
        return self.value - reach, self.value + reach

    def reach(self, level: float = 0.95) -> Tensor:
        """Half the width of the interval: Student's quantile with draws - 1 degrees of freedom, more where draws are skewed."""
        quantile = student_quantile(self.draws, level)
        if self.skewness is None:
            return quantile * self.stderr
        return (quantile + skewness_slope(level) / self.draws * self.skewness.square()) * self.stderr

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers; what is not a number is null."""
        values = jsonable({"value": self.value.tolist(), "stderr": self.stderr.tolist()})
        return {**values, "draws": self.draws}


def part(estimate: Estimate, index: int | tuple[int | slice, ...]) -> Estimate:
    """Some of the values of a simulation."""
    skewness = None if estimate.skewness is None else estimate.skewness[index]
    return Estimate(estimate.value[index], estimate.stderr[index], estimate.draws, skewness)


def student_quantile(draws: int, level: float) -> float:
    """How many standard errors of a mean of `draws` values reach to the ends of its interval.

    >>> round(student_quantile(100, 0.95), 3)
    1.984
    """
    check_level(level)
    return float(student.ppf(0.5 + level / 2, max(draws - 1, 1)))


def skewness_slope(level: float) -> float:
    """What skewness γ adds to Student's two-sided quantile, times draws/γ²: (z⁵ + 2z³ - 3z) / 18, z the normal quantile.

    The term of order 1/draws in the Edgeworth expansion of the studentized mean (Hall 1992, The Bootstrap and Edgeworth
    Expansion, section 2.6), solved for the quantile. The kurtosis would take a little off again and is left out.

    >>> round(skewness_slope(0.95), 3)
    2.117
    """
    check_level(level)
    z = float(norm.ppf(0.5 + level / 2))
    return max(0.0, (z**5 + 2 * z**3 - 3 * z) / 18)


def check_level(level: object) -> None:
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise BadInput("level", f"got {level!r}, expected a number between 0 and 1", "pass for example level=0.95")
