"""What theory needs of the measured values of a step: pairs at equal positions, and how their channels spread."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from scipy.special import stdtrit
from torch import Tensor

from initscope.geometry import Side, State, excess_of
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
        return math.exp(min(float(stdtrit(freedom, 0.5 + LEVEL / 2)) * math.sqrt(self.variance), 700.0))


@dataclass(frozen=True, eq=False)
class Capture:
    """What the theory needs of the measured values of one step: pairs at equal positions, and the spread over channels."""

    shape: tuple[int, ...]  # of one sample: channels, then positions
    pairs: tuple[Tensor, Tensor]
    own: Tensor  # |x_c|² of every sample that is in a pair, (n, c) in float64
    apart: Tensor  # |x_c - y_c|² of every pair, (pairs, c)
    moments: tuple[Tensor, Tensor, Tensor] | None  # means over channels of x, x² and |x - y|², (n or pairs, positions)

    @cached_property
    def defect(self) -> Tensor:
        """Of each pair."""
        first, second = self.pairs
        own = self.own.sum(1)
        x, y = own[first], own[second]
        return defects(x, y, excess_of(x, y, self.apart.sum(1)))

    @cached_property
    def noise(self) -> Noise:
        """Of the mean defect over draws of N channels."""
        first, second = self.pairs
        return _spread(self.own[first], self.own[second], self.apart)

    def of(self, chosen: Tensor) -> Capture:
        """The same with some of the pairs."""
        chosen = chosen.to(self.own.device)
        first, second = (i[chosen] for i in self.pairs)
        mean, norm, distance = self.moments or (None, None, None)
        kept = None if mean is None or norm is None or distance is None else (mean, norm, distance[chosen])
        return Capture(self.shape, (first, second), self.own, self.apart[chosen], kept)

    def state(self) -> State | None:
        """The measured second moments, as the start of what follows; None if they were not kept."""
        if self.moments is None:
            return None
        channels, *positions = self.shape
        first, second = self.pairs
        mean, norm, distance = (m.double().reshape(len(m), *positions) for m in self.moments)
        return State(
            Side(norm[first][None], mean[first][None]), Side(norm[second][None], mean[second][None]),
            excess_of(norm[first], norm[second], distance)[None], ((norm[first] + norm[second] - distance) / 2)[None],
            norm.new_ones(1), channels, tuple(positions),
            zipped=True, all_positions=False, law="data", independent_units=False, alike=False,
        )  # fmt: skip


def _moments(values: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Means over channels of x and x² of every sample and of |x - y|² of every pair, (n or pairs, positions).

    Sums along the channels are products with a row of equal numbers: they run at the speed of memory.
    """
    few = values.numel() < 1 << 20
    values = (values.double() if few else values.float()).reshape(*values.shape[:2], -1)
    average = values.new_full((values.shape[1],), 1 / values.shape[1])
    if few:
        return average @ values, average @ values.square(), average @ (values[first] - values[second]).square_()
    room = torch.empty_like(values[0])  # one sample, one pair at a time: they stay in cache
    norm = [average @ torch.mul(x, x, out=room) for x in values]
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    distance = [average @ torch.sub(values[i], values[j], out=room).square_() for i, j in pairs]
    return average @ values, torch.stack(norm), torch.stack(distance)


def defects(a: Tensor, b: Tensor, excess: Tensor) -> Tensor:
    """1 - cosine of pairs from their squared norms and excesses; NaN beside a norm of zero."""
    product = 2 * a.sqrt() * b.sqrt()
    return torch.where(product > 0, (excess / product).clamp(0, 2), torch.nan)


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


def capture(
    values: Tensor, pairs: tuple[Tensor, Tensor], grams: Tensor | None = None, *, start: bool = True
) -> Capture | None:
    """From values (n, d) or (n, c, ...) with any positions, and their `gram_by_channel` if there is one.

    start: whether what follows may have to start from these values; otherwise they are not read again for that.
    """
    if not 2 <= values.ndim <= 5 or not values.is_floating_point() or not values.numel():
        return None
    used = values.detach()[: int(max(pairs[0].max(), pairs[1].max())) + 1]
    first, second = (i.to(values.device) for i in pairs)
    own, apart = _parts_in_channels(used, first, second, grams)
    moments = _moments(used, first, second) if start else None
    return Capture(tuple(values.shape[1:]), (first, second), own, apart, moments)


def _parts_in_channels(values: Tensor, first: Tensor, second: Tensor, grams: Tensor | None) -> tuple[Tensor, Tensor]:
    """|x_c|² of every sample and |x_c - y_c|² of every pair and channel, (n or pairs, c) in float64.

    From the Gram matrices of the channels, if they are given; where samples have come close, from differences.
    """
    if grams is not None and values.numel() >= 1 << 16:
        own = grams.diagonal(dim1=1, dim2=2).T[: len(values)].clone()  # (n, c), without all the rest
        both = own[first] + own[second]
        apart = both - 2 * grams[:, first, second].T
        if bool((apart.sum(1) > CLOSE * both.sum(1)).all()):
            return own, apart
    values = values.double() if values.numel() < 1 << 20 else values.float()
    square, apart = values.square(), (values[first] - values[second]).square_()
    own, apart = (t.double() if t.ndim == 2 else t.flatten(2).sum(2).double() for t in (square, apart))
    return own, apart


def _spread(x: Tensor, y: Tensor, apart: Tensor) -> Noise:
    """Variance of z of the mean defect by the jackknife: (N-1)/N Σ (z_c - z̄)², z_c without channel c.

    Given are the squared parts of the vectors of each pair and of their difference in each channel, (pairs, c). Leaving
    channels out keeps the curvature of a ratio of sums, which counts where there are few of them.
    """
    count = x.shape[1]
    a, b, between = ((t.sum(1, keepdim=True) - t).clamp_min(0) for t in (x, y, apart))
    left = defects(a, b, excess_of(a, b, between)).nanmean(0)  # (c,)
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
