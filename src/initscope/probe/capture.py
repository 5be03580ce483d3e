"""What theory needs of the measured values of a step: pairs at equal positions, and how their channels spread."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.stats import t as student
from torch import Tensor

from initscope.geometry import Side, State, excess_of
from initscope.networks.prediction import geometry
from initscope.probe.measure import CLOSE

PAIRS = 8  # pairs of samples that the theory follows
LEVEL = 0.95  # of the intervals
FEWEST_CHANNELS = 4  # from which on their spread is a number
UNKNOWN = 1e3  # a variance that says nothing
TAILS = (
    5.0  # kurtosis of what single channels add: squares of Gaussians have heavier tails than Gaussians, which have 3
)


@dataclass(frozen=True)
class Noise:
    """Variance of z, Fisher's transform of the mean defect; `wobble` = Σ v²/ν over its independent parts: how uncertain it is.

    A variance of N values of kurtosis κ has ν = 2(N - 1)/(κ - 1) degrees of freedom; sums have variance²/wobble
    (Satterthwaite).
    """

    variance: float = 0.0
    wobble: float = 0.0

    def __add__(self, other: Noise) -> Noise:
        return Noise(self.variance + other.variance, self.wobble + other.wobble)

    def stretched(self, slope: float) -> Noise:
        return Noise(self.variance * slope**2, self.wobble * slope**4)

    @property
    def reach(self) -> float:
        """The factor between the odds defect / (2 - defect) in the middle of the interval and at either end."""
        if self.variance == 0:
            return 1.0
        freedom = max(1.0, self.variance**2 / self.wobble) if 0 < self.wobble < math.inf else 1.0
        return math.exp(min(float(student.ppf(0.5 + LEVEL / 2, freedom)) * math.sqrt(self.variance), 700.0))


@dataclass(frozen=True, eq=False)
class Capture:
    """What the theory needs of the measured values of one step: pairs at equal positions, and the spread over channels."""

    values: Tensor  # of the samples that are in pairs
    pairs: tuple[Tensor, Tensor]
    defect: Tensor  # (pairs,)
    noise: Noise  # of the mean defect over draws of N channels

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape[1:])

    def state(self) -> State:
        """The measured second moments, as the start of what follows."""
        channels, *positions = self.shape
        first, second = (i.to(self.values.device) for i in self.pairs)
        mean, norm, distance = (m.double().reshape(len(m), *positions) for m in self._moments(first, second))
        return State(
            Side(norm[first][None], mean[first][None]), Side(norm[second][None], mean[second][None]),
            excess_of(norm[first], norm[second], distance)[None], ((norm[first] + norm[second] - distance) / 2)[None],
            norm.new_ones(1), channels, tuple(positions),
            zipped=True, all_positions=False, law="data", independent_units=False, alike=False,
        )  # fmt: skip

    def _moments(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Means over channels of x and x² of every sample and of |x - y|² of every pair, (n or pairs, positions).

        Sums along the channels are products with a row of equal numbers: they run at the speed of memory.
        """
        few = self.values.numel() < 1 << 20
        values = (self.values.double() if few else self.values.float()).reshape(*self.values.shape[:2], -1)
        average = values.new_full((values.shape[1],), 1 / values.shape[1])
        if few:
            return average @ values, average @ values.square(), average @ (values[first] - values[second]).square_()
        room = torch.empty_like(values[0])  # one sample, one pair at a time: they stay in cache
        norm = [average @ torch.mul(x, x, out=room) for x in values]
        pairs = zip(first.tolist(), second.tolist(), strict=True)
        distance = [average @ torch.sub(values[i], values[j], out=room).square_() for i, j in pairs]
        return average @ values, torch.stack(norm), torch.stack(distance)


def pairs_of(samples: int) -> tuple[Tensor, Tensor]:
    """Which samples form the pairs: neighbours around the circle, then second neighbours, at most `PAIRS`."""
    first: list[int] = []
    second: list[int] = []
    for gap in range(1, samples):
        for i in range(samples):
            j = (i + gap) % samples
            if len(first) < PAIRS and not (gap * 2 == samples and j < i) and gap * 2 <= samples:
                first.append(i)
                second.append(j)
    return torch.tensor(first), torch.tensor(second)


def capture(values: Tensor, pairs: tuple[Tensor, Tensor], grams: Tensor | None = None) -> Capture | None:
    """From values (n, d) or (n, c, ...) with any positions, and their `gram_by_channel` if there is one."""
    if not 2 <= values.ndim <= 5 or not values.is_floating_point():
        return None
    used = values.detach()[: int(max(pairs[0].max(), pairs[1].max())) + 1]
    x, y, apart = _parts_in_channels(used, pairs, grams)
    own_x, own_y = x.sum(1), y.sum(1)
    defect = geometry(own_x, own_y, excess_of(own_x, own_y, apart.sum(1)))["defect"]
    return Capture(used, pairs, defect, _spread(x, y, apart))


def _parts_in_channels(
    values: Tensor, pairs: tuple[Tensor, Tensor], grams: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """|x_c|², |y_c|² and |x_c - y_c|² of every pair and channel, (pairs, c) in float64.

    From the Gram matrices of the channels, if they are given; where samples have come close, from differences.
    """
    first, second = (i.to(values.device) for i in pairs)
    if grams is not None and values.numel() >= 1 << 16:
        own = grams.diagonal(dim1=1, dim2=2).T  # (n, c)
        x, y = own[first], own[second]
        apart = x + y - 2 * grams[:, first, second].T
        if bool((apart.sum(1) > CLOSE * (x + y).sum(1)).all()):
            return x, y, apart
    values = values.double() if values.numel() < 1 << 20 else values.float()
    square, apart = values.square(), (values[first] - values[second]).square_()
    own, apart = (t.double() if t.ndim == 2 else t.flatten(2).sum(2).double() for t in (square, apart))
    return own[first], own[second], apart


def _spread(x: Tensor, y: Tensor, apart: Tensor) -> Noise:
    """Variance of z of the mean defect by the jackknife: (N-1)/N Σ (z_c - z̄)², z_c without channel c.

    Given are the squared parts of the vectors of each pair and of their difference in each channel, (pairs, c). Leaving
    channels out keeps the curvature of a ratio of sums, which counts where there are few of them.
    """
    count = x.shape[1]
    a, b, between = ((t.sum(1, keepdim=True) - t).clamp_min(0) for t in (x, y, apart))
    left = geometry(a, b, excess_of(a, b, between))["defect"].nanmean(0)  # (c,)
    left = (left / (2 - left)).log()
    if bool((apart == 0).all()):
        return Noise()
    if count < FEWEST_CHANNELS or not bool(left.isfinite().all()):
        return Noise(UNKNOWN, UNKNOWN**2)
    centred = left - left.mean()
    variance = (count - 1) / count * float(centred.square().sum())
    return Noise(variance, variance**2 * (_kurtosis(centred) - 1) / (2 * (count - 1)))


def _kurtosis(centred: Tensor) -> float:
    """Fisher's G2 + 3, unbiased for Gaussians, but at least `TAILS`: a few values do not show their tails."""
    n, square = len(centred), float(centred.square().mean())
    excess = float(centred.pow(4).mean()) / square**2 - 3 if square > 0 else 0.0
    return max(TAILS, 3 + (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * excess + 6))
