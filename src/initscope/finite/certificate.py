"""The error of a sketch, proved: what a projection leaves of an image is bounded from pairs of positions drawn at random.

A sketch takes <Φ_x, Φ_y> for K(x, y), Φ_x being the projection of the mean feature of x. What it leaves out are products
<R_x, R_y> of the residuals, so that by the Cauchy-Schwarz inequality |K(x, y) - <Φ_x, Φ_y>| ≤ |R_x||R_y|. |R_x|² is the mean of
<r_p, r_q> over pairs of positions of one image, and |r_p|² is known at all of them. With p and q drawn independently with
probabilities proportional to |r_p|,

    |R_x|² = s² E C,    s the mean of |r_p|,    C = <r_p, r_q> / |r_p||r_q| between -1 and 1,

and the empirical Bernstein inequality (Maurer & Pontil 2009, theorem 4) bounds E C from N independent C: with probability 1 - δ

    E C ≤ mean + √(2 V ln(2/δ) / N) + 7 · 2 ln(2/δ) / (3 (N - 1)),    V their sample variance.

It holds for any image and any N; E C ≤ 1 holds without drawing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from initscope.finite.estimate import Estimate, check_level

ONE_SIGMA = math.erf(math.sqrt(0.5))  # the level that a standard error has where errors are Gaussian


@dataclass(frozen=True)
class Residuals:
    """Of n images each: s, the sample mean and variance of C over `draws` pairs, and the rounding of the sums, as a root."""

    size: Tensor
    mean: Tensor
    variance: Tensor
    rounding: Tensor
    draws: int

    def bound(self, delta: float) -> Tensor:
        """|R|, exceeded with a probability of at most delta, (n,)."""
        many = math.log(2 / delta)
        upper = (
            self.mean + (2 * many / self.draws * self.variance).sqrt() + 14 * many / (3 * (self.draws - 1))
        )  # Maurer & Pontil 2009, theorem 4, for values in [-1, 1]
        return self.size * upper.clamp(0, 1).sqrt()

    def __getitem__(self, part: slice) -> Residuals:
        return Residuals(self.size[part], self.mean[part], self.variance[part], self.rounding[part], self.draws)


@dataclass(frozen=True, kw_only=True)
class CertifiedEstimate(Estimate):
    """A matrix (n, m) whose errors are bounds with a proof, for each entry at any level, not only for many draws.

    `stderr` is the bound at the level of one standard deviation, 68.3 %; `draws`: pairs of positions of each image.
    """

    rows: Residuals
    columns: Residuals
    gain: float = 1.0

    @classmethod
    def of(cls, value: Tensor, rows: Residuals, columns: Residuals, gain: float) -> CertifiedEstimate:
        found = cls(value, torch.empty(0), rows.draws, rows=rows, columns=columns, gain=gain)
        return replace(found, stderr=found.reach(ONE_SIGMA))

    def reach(self, level: float = 0.95) -> Tensor:
        """The bound: an entry is further off with a probability of at most 1 - level."""
        check_level(level)
        share = (1 - level) / 2  # an entry needs the bounds of two images
        left, right = (side.bound(share) for side in (self.rows, self.columns))
        rounding = torch.outer(self.rows.rounding, self.columns.rounding)
        return self.gain * (torch.outer(left, right) + rounding)
