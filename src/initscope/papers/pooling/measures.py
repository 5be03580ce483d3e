"""Pairs, pooled similarities and their errors: what several items of this paper share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.activations import RELU
from initscope.data import Images, Pairs
from initscope.finite import Estimate, simulate
from initscope.finite.estimate import student_quantile
from initscope.layers import AveragePool, Conv, Dense, GlobalAveragePool, GlobalMaxPool, Layer, MaxPool, ReLU
from initscope.networks import Sequential, kernel, predict
from initscope.papers.item import Check, Desk, Sampled, claim

WIDTH, GROUP, CHANNELS = 1000, 50, 640  # §3: hidden width and pooling kernel of the FCN, channels of the CNN
KERNEL = 3  # the paper does not print the filter size
KERNEL_NOTE = "the paper prints no filter size and no padding: 3x3 filters on the torus are taken"
TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "mnist": "MNIST", "gaussian": "Gaussian"}


@dataclass(frozen=True)
class PairSet:
    """Zipped pairs of one set, centred, with the name that figures show."""

    title: str
    x: Tensor
    y: Tensor


def title_of(name: str, given: Images | Pairs) -> str:
    """The title of a set, or where other images stand in for it, the name of those as well.

    >>> from initscope.data import load
    >>> title_of("mnist", load("photos", count=1, size=8))
    'photos for MNIST'
    """
    return TITLES[name] if name in given.source else f"{given.source.partition(':')[0]} for {TITLES[name]}"


def centred_pairs(desk: Desk, name: str, pairs: int, *, flat: bool = False) -> PairSet:
    """Pairs of a set with the mean of every channel taken off; Gaussian ones with correlations spread over [-1, 1].

    `flat`: as vectors, between whose entries a dense layer relates no positions.
    """
    size = 32 if name == "gaussian" else None
    found: Pairs = desk.pairs(name, pairs=pairs, size=size, centre=True)
    title = title_of(name, found)
    return PairSet(title, found.x.flatten(1), found.y.flatten(1)) if flat else PairSet(title, found.x, found.y)


def dense_net(pool: str, width: int = WIDTH, group: int = GROUP) -> Sequential:
    """PC eq. 1-5: a dense ReLU layer, then the mean or the maximum over groups of units."""
    last: Layer = AveragePool(group) if pool == "average" else MaxPool(group)
    return Sequential(Dense(width), ReLU(), last)


def conv_net(pool: str, channels: int = CHANNELS, size: int = KERNEL) -> Sequential:
    """PC eq. 7-9: a ReLU convolution, then the global mean or maximum."""
    last: Layer = GlobalAveragePool() if pool == "average" else GlobalMaxPool()
    return Sequential(Conv(channels, size), ReLU(), last)


def arc_cosine(rho: Tensor) -> Tensor:
    """r̂(rho), the similarity after a dense ReLU layer (PC §1).

    >>> round(float(arc_cosine(torch.tensor(0.0, dtype=torch.float64))) * math.pi, 12)
    1.0
    """
    return 1 - RELU.defect(1 - rho)


def plane_pairs(rho: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Unit vectors of the plane with these cosines, (n, 2) each."""
    angle = torch.tensor(rho, dtype=torch.float64).acos()
    return torch.tensor([[1.0, 0.0]], dtype=torch.float64).repeat(len(rho), 1), torch.stack(
        [angle.cos(), angle.sin()], 1
    )


def relu_defect(pairs: PairSet, first: Layer) -> Tensor:
    """1 - cosine of the ReLU features, exact, (n,)."""
    return predict(Sequential(first, ReLU()), pairs.x, pairs.y).layers[-1].defect


def global_average_defect(
    x: Tensor, y: Tensor, tick: Callable[[], None] = lambda: None, *, size: int = KERNEL
) -> Tensor:
    """1 - cosine after a ReLU convolution and a global mean, exact, (n,): the sum over all pairs of positions (PC eq. 18)."""
    net = conv_net("average", 1, size)
    found = []
    for pair in zip(x, y, strict=True):
        found.append(kernel(net, torch.stack(pair).double(), quantity="defect")[0, 1])
        tick()
    return torch.stack(found)


def sampled_defect(net: Sequential, x: Tensor, y: Tensor, draws: int, seed: int) -> Estimate:
    """1 - cosine after the last layer of finite networks, the ratio of mean products, (n,)."""
    return simulate(net, x.float(), y.float(), draws=draws, seed=seed).layers[-1].defect


def allowed(cases: int, draws: int, level: float = 0.95) -> float:
    """How many standard errors the largest of so many deviations may reach, all intervals together having `level`.

    >>> round(allowed(1, 10**6), 2)
    1.96
    """
    return student_quantile(draws, 1 - (1 - level) / cases)


def all_agree(says: str, found: Estimate, exact: Tensor) -> Check:
    """Sampled against exact in many cases: the worst of them, held against the joint interval of all."""
    moves = found.stderr > 0
    off = torch.where(moves, (found.value - exact).abs() / found.stderr, 0.0)
    worst, limit = int(off.argmax()), allowed(int(moves.sum()), found.draws)
    words = f"{says} ({int(moves.sum())} cases; worst {float(off[worst]):.2f} standard errors off, {limit:.2f} allowed)"
    holds = float(off[worst]) <= limit
    why = "" if holds else "outside the joint 95 % interval of all cases; one seed in twenty does that by chance"
    sample = Sampled(float(found.value[worst]), float(found.stderr[worst]), found.draws)
    return claim(words, holds, exact=float(exact[worst]), sampled=sample, why=why)


def mean_over_pairs(values: Tensor, common: float = 0.0) -> Sampled:
    """The mean over pairs; `common` is the part of the error that all pairs share, the networks being the same for all.

    >>> mean_over_pairs(torch.tensor([1.0, 3.0])).value
    2.0
    """
    spread = float(values.std()) / math.sqrt(len(values))
    return Sampled(float(values.mean()), math.hypot(spread, common), len(values))


def difference(first: Sampled, second: Sampled | float) -> Sampled:
    """The difference of two means found independently."""
    other = second if isinstance(second, Sampled) else Sampled(second, 0.0, first.draws)
    return Sampled(first.value - other.value, math.hypot(first.stderr, other.stderr), min(first.draws, other.draws))


def larger(says: str, first: Sampled, second: Sampled | float, *, why: str, show: Sampled | None = None) -> Check:
    """Whether a mean is larger than another, or than a number, judged by the 95 % interval of the difference.

    Where the interval holds zero nothing is decided; `why` is said where the mean is smaller. `show` is what the table gets.

    >>> larger("up", Sampled(1.0, 0.1, 50), 2.0, why="down").why
    'down'
    """
    low, high = difference(first, second).interval()
    shown = show or first
    if low <= 0 <= high:
        return Check(
            says, None, sampled=shown, why="no difference beyond the 95 % interval; more pairs might decide it"
        )
    return claim(says, low > 0, sampled=shown, why="" if low > 0 else why)


def plain(values: Tensor, digits: int = 6) -> list[float]:
    """Numbers for JSON."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
