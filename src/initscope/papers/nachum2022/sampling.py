"""Filters drawn and counted one by one, and the errors of what is computed from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.stats import beta
from scipy.stats import t as student
from torch import Tensor

from initscope.activations import RELU, Activation
from initscope.data import Images, Pairs
from initscope.geometry import generator, similarity
from initscope.layers import Activate, Conv
from initscope.networks import Sequential, predict
from initscope.papers.item import Check, Sampled, claim
from initscope.weights import Gaussian, WeightLaw

_TILE = 1 << 24  # numbers in the outputs of one side held at once


@torch.no_grad()
def filter_sums(
    x: Tensor,
    y: Tensor,
    kernel: int,
    filters: int,
    seed: int,
    *,
    activation: Activation = RELU,
    weights: WeightLaw | None = None,
) -> Tensor:
    """<σ(F*x), σ(F*y)>, |σ(F*x)|² and |σ(F*y)|² of each of `filters` filters and each zipped pair, (3, filters, n).

    The filters are the same for all pairs, as in one layer of a network; cyclic convolution (JL eq. 4).

    >>> x = torch.ones(2, 1, 4, 4)
    >>> filter_sums(x, x, 3, 5, seed=0).shape
    torch.Size([3, 5, 2])
    """
    layer = Conv(filters, kernel, weights=weights or Gaussian())
    module = layer.sample(tuple(x.shape[1:]), generator=generator(seed), dtype=x.dtype)
    step = max(1, _TILE // (filters * x.shape[-2] * x.shape[-1]))
    parts = []
    for first in range(0, len(x), step):
        a, b = (activation(module(side[first : first + step])).flatten(2) for side in (x, y))
        rows = [torch.linalg.vecdot(u, v).double().T for u, v in ((a, b), (a, a), (b, b))]
        parts.append(torch.stack(rows))
    return torch.cat(parts, 2)


def many_filter_sums(
    x: Tensor,
    y: Tensor,
    kernel: int,
    filters: int,
    seed: int,
    *,
    activation: Activation = RELU,
    weights: WeightLaw | None = None,
) -> Tensor:
    """`filter_sums` of so many filters that they are drawn in portions."""
    portion = max(1, _TILE // (x.shape[-2] * x.shape[-1] * len(x)))
    counts = [min(portion, filters - first) for first in range(0, filters, portion)]
    source = generator(seed)
    seeds = torch.randint(2**31, (len(counts),), generator=source).tolist()
    parts = [
        filter_sums(x, y, kernel, count, each, activation=activation, weights=weights)
        for count, each in zip(counts, seeds, strict=True)
    ]
    return torch.cat(parts, 1)


def ratio(sums: Tensor) -> Tensor:
    """ρ_out of JL eq. 12 from sums over filters, (3, ..., n) -> (..., n)."""
    return sums[0] / (sums[1] * sums[2]).sqrt()


def exact_mean(x: Tensor, y: Tensor, kernel: int, activation: Activation = RELU) -> Tensor:
    """ρ̄_out of JL eq. 12, the mean similarity after one layer, (n,)."""
    return predict(Sequential(Conv(1, kernel), Activate(activation)), x, y).layers[-1].cosine


def exact_sums(x: Tensor, y: Tensor, kernel: int, activation: Activation = RELU) -> Tensor:
    """The expectations of `filter_sums` (JL Theorem 1): E<σ(F*x), σ(F*y)>, E|σ(F*x)|², E|σ(F*y)|², (3, n)."""
    last = predict(Sequential(Conv(1, kernel), Activate(activation)), x, y).layers[-1]
    return torch.stack([last.cosine * last.norm_x * last.norm_y, last.norm_x.square(), last.norm_y.square()])


@dataclass(frozen=True)
class Layered:
    """Pairs before and after one layer of filters: similarities (n,), and the outputs with one filter left out each time."""

    before: Tensor
    exact: Tensor
    after: Tensor
    without: Tensor  # (filters, n)

    @property
    def stderr(self) -> Tensor:
        """Of ρ_out over the choice of the filters, (n,), by the jackknife."""
        return jackknife(self.without)


def one_layer(x: Tensor, y: Tensor, kernel: int, filters: int, seed: int) -> Layered:
    """One ReLU layer of `filters` filters on zipped pairs, sampled and exact."""
    sums = filter_sums(x, y, kernel, filters, seed)
    total = sums.sum(1, keepdim=True)
    before = similarity(x.double(), y.double())
    return Layered(before, exact_mean(x, y, kernel), ratio(total)[0], ratio(total - sums))


def jackknife(without: Tensor) -> Tensor:
    """The standard error from the values with one draw left out each time, (draws, ...) -> (...).

    >>> values = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    >>> leave_one_out = (values.sum() - values) / 2
    >>> bool(torch.isclose(jackknife(leave_one_out), values.std() / 3**0.5))
    True
    """
    draws = len(without)
    return ((draws - 1) / draws * (without - without.mean(0)).square().sum(0)).sqrt()


def slope(before: Tensor, after: Tensor) -> Tensor:
    """Slope of the least-squares line with intercept, over the last axis."""
    x, y = before - before.mean(-1, keepdim=True), after - after.mean(-1, keepdim=True)
    return (x * y).sum(-1) / x.square().sum(-1)


def slope_error(before: Tensor, after: Tensor) -> float:
    """Standard error of the slope over the choice of the pairs, which are independent, by the jackknife."""
    keep = ~torch.eye(len(before), dtype=torch.bool)
    x, y = (side.expand(len(side), -1)[keep].view(len(side), -1) for side in (before, after))
    return float(jackknife(slope(x, y)))


def sampled_slope(layer: Layered) -> Sampled:
    """Of the sampled points; both the pairs and the filters were chosen at random, and both errors count."""
    over_pairs = slope_error(layer.before, layer.after)
    over_filters = float(jackknife(slope(layer.before.expand_as(layer.without), layer.without)))
    draws = min(len(layer.before), len(layer.without))
    return Sampled(float(slope(layer.before, layer.after)), math.hypot(over_pairs, over_filters), draws)


def mean_of(values: Tensor, without: Tensor) -> Sampled:
    """A mean over pairs (n,) with both errors; `without` (filters, n) are the values with one filter left out."""
    over_pairs = float(values.std()) / math.sqrt(len(values))
    return Sampled(
        float(values.mean()), math.hypot(over_pairs, float(jackknife(without.mean(1)))), min(len(values), len(without))
    )


def allowed(cases: int, draws: int, level: float = 0.95) -> float:
    """How many standard errors the largest of so many deviations may reach, so that all intervals together have `level`.

    >>> round(allowed(1, 10**6), 2), round(allowed(100, 10**6), 2), round(allowed(100, 10), 2)
    (1.96, 3.48, 5.29)
    """
    return float(student.isf((1 - level) / (2 * cases), draws - 1))


def all_agree(says: str, found: Tensor, stderr: Tensor, exact: Tensor, draws: int) -> Check:
    """Sampled means against exact ones in many cases: the worst of them, held against the interval for all together."""
    found, stderr, exact = (t.flatten().double() for t in (found, stderr, exact))
    off = (found - exact).abs() / stderr
    worst, limit = int(off.argmax()), allowed(len(off), draws)
    words = (
        f"{says} ({len(off)} cases; the worst is {off[worst]:.2f} standard errors off, {limit:.2f} are allowed "
        "for so many)"
    )
    holds = float(off[worst]) <= limit
    why = "" if holds else "outside the joint 95 % interval of all cases; one seed in twenty does that by chance"
    return claim(
        words,
        holds,
        exact=float(exact[worst]),
        sampled=Sampled(float(found[worst]), float(stderr[worst]), draws),
        why=why,
    )


def rarely(says: str, failed: int, sets: int, delta: float, why: str = "") -> Check:
    """A failure probability of at most δ: it holds if the upper 95 % limit of what was counted is at most δ."""
    rate = failed / sets
    upper = float(beta.ppf(0.95, failed + 1, sets - failed)) if failed < sets else 1.0
    words = f"{says} ({failed} of {sets} sets of filters fail; at most {100 * upper:.2g} % with 95 % confidence)"
    holds = upper <= delta
    return claim(
        words, holds, sampled=Sampled(rate, math.sqrt(rate * (1 - rate) / sets), sets), why="" if holds else why
    )


def title_of(name: str, title: str, given: Images | Pairs) -> str:
    """The title of a set, or where other images stand in for it, the name of those.

    >>> from initscope.data import load
    >>> title_of("cifar10", "CIFAR-10", load("photos", count=1, size=8))
    'photos'
    """
    return title if name in given.source else given.source.partition("/")[0]


def plain(values: Tensor, digits: int = 6) -> list[float]:
    """Numbers for JSON."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
