"""The argument after Theorem 5: images of higher resolution are kept better."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from initscope.data import Pairs
from initscope.geometry import shared_boundary_size
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim
from initscope.papers.nachum2022.bounds import cosines
from initscope.papers.nachum2022.drawing import Line, Points, Words, curves
from initscope.papers.nachum2022.sampling import exact_mean, filter_sums, jackknife, slope, title_of


def resolution(desk: Desk) -> Outcome:
    """The same images with every pixel repeated k times along both axes, 3x3 filters: k, 2k, 4k, ..."""
    factors = desk.pick((1, 2, 4), (1, 2, 4, 8, 16))
    count = desk.pick(4, 10)
    fashion, cifar = desk.pairs("fashion_mnist", pairs=count), desk.pairs("cifar10", pairs=count)
    names = title_of("fashion_mnist", "Fashion-MNIST", fashion), title_of("cifar10", "CIFAR-10", cifar)
    black = Pairs((fashion.x > 0.25).float(), (fashion.y > 0.25).float(), fashion.source, "")
    grey = Pairs(cifar.x.mean(1, keepdim=True), cifar.y.mean(1, keepdim=True), cifar.source, "")
    sets = {f"{names[0]}, black and white": black, f"{names[1]}, grey": grey, f"{names[1]}, colour": cifar}
    lines, checks = [], []
    data: dict[str, object] = {}
    for name, pairs in sets.items():
        before = cosines(pairs)
        gaps = [exact_mean(_enlarged(pairs.x, k), _enlarged(pairs.y, k), 3) - before for k in factors]
        found = [float(gap.mean()) for gap in gaps]
        points = _sampled_gap(desk, pairs, factors[:3], before)
        lines.append(Line(name, factors, found, points))
        data[name] = {"factors": list(factors), "gap": found}
        checks.append(
            _vanishes(name, factors, torch.stack(gaps))
            if pairs is not cifar
            else _colour_limit(name, pairs, gaps[-1], before)
        )
    bound = [_bound(black, k) for k in factors]
    lines.insert(1, Line("bound ∂_r/(|A||B|), black and white", factors, bound))
    data["bound"] = bound
    words = Words(
        "Black-and-white and grey images become isometric with resolution",
        "enlargement of the images (pixels per pixel)",
        "mean gain of similarity by one layer",
        "Mean gain of similarity by a layer of 3x3 filters against the enlargement: falling like 1/k for "
        "black-and-white and grey images, "
        "to a constant for colour images.",
    )
    return Outcome(tuple(checks), data, curves(lines, words, log="xy", ticks=factors))


def _bound(pairs: Pairs, factor: int) -> float:
    """∂_r/(|A||B|) with r = 1, the bound of Theorem 5 on the change of similarity, mean over the pairs."""
    size = shared_boundary_size(_enlarged(pairs.x, factor)[:, 0], _enlarged(pairs.y, factor)[:, 0], 1)
    x, y = (side.double().flatten(1).norm(dim=1) for side in (pairs.x, pairs.y))
    return float((size / (factor**2 * x * y)).mean())


def _enlarged(images: Tensor, factor: int) -> Tensor:
    return images.repeat_interleave(factor, 2).repeat_interleave(factor, 3)


def _sampled_gap(desk: Desk, pairs: Pairs, factors: tuple[int, ...], before: Tensor) -> Points:
    """Means over the pairs after one layer of filters drawn, with the error over the filters."""
    values, reach = [], []
    for k in factors:
        sums = filter_sums(_enlarged(pairs.x, k), _enlarged(pairs.y, k), 3, desk.pick(50, 200), desk.seed + k)
        total = sums.sum(1, keepdim=True)
        after, without = (t[0] / (t[1] * t[2]).sqrt() for t in (total, total - sums))
        values.append(float((after[0] - before).mean()))
        reach.append(1.97 * float(jackknife((without - before).mean(1))))
    return Points(list(factors), values, reach)


def _vanishes(name: str, factors: tuple[int, ...], gaps: Tensor) -> Check:
    """The gain of similarity goes to 0 like a power of 1/k; a boundary is a line, so the power is -1."""
    logs = torch.tensor(factors, dtype=torch.float64).log()
    powers = slope(logs[-3:].expand(gaps.shape[1], -1), gaps[-3:].T.log())
    found = Sampled(float(powers.mean()), float(powers.std()) / math.sqrt(len(powers)), len(powers))
    holds = found.interval()[1] < -0.5 and bool((gaps[1:] < gaps[:-1]).all())
    return claim(
        f"{name}: the gain of similarity falls at every doubling, like a power of the resolution (the boundary's "
        "power is -1)",
        holds,
        exact=float(powers.mean()),
        sampled=found,
        why="" if holds else "it does not fall at every doubling",
    )


def _colour_limit(name: str, pairs: Pairs, last: Tensor, before: Tensor) -> Check:
    """Enlarged without end, a filter sees one pixel: the limit is that of 1x1 filters, no isometry for colours."""
    limit = exact_mean(pairs.x, pairs.y, 1) - before
    share = float(limit.mean() / last.mean())
    return claim(
        f"{name}: the argument does not extend to colours (section 4.1); the gain tends to that of 1x1 filters, "
        "above 0",
        bool((limit > 0).all()) and float(limit.mean()) > 0,
        exact=float(limit.mean()),
        why="" if share > 0 else "the limit is an isometry here",
    )


ITEMS = (
    Item(
        "nachum2022/resolution",
        "Resolution (after Theorem 5)",
        "Any images become almost isometric when their resolution is raised and the filter stays.",
        resolution,
        sets=("fashion_mnist", "cifar10"),
    ),
)
