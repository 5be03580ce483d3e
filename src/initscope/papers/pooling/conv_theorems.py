"""Corollary 4.3 (max pooling after a convolution) and appendix D (the variance of an average-pooled feature)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from initscope.figures import Line, Panel, Picture, Points, curves_and_points
from initscope.networks import kernel
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim
from initscope.papers.pooling.dense_theorems import RELU_VARIANCE, defects
from initscope.papers.pooling.measures import (
    CHANNELS,
    KERNEL,
    KERNEL_NOTE,
    allowed,
    conv_net,
    difference,
    mean_over_pairs,
    plain,
    sampled_defect,
    title_of,
)


@dataclass(frozen=True)
class Growing:
    """One kind of images at several sizes: 1 - cosine after global max pooling, mean over pairs and networks."""

    title: str
    sides: list[int]
    found: list[Sampled]

    def times_log(self, place: int) -> Sampled:
        """(1 - cosine) log n at one size, n = d² positions."""
        scale = math.log(self.sides[place] ** 2)
        each = self.found[place]
        return Sampled(each.value * scale, each.stderr * scale, each.draws)


def corollary(desk: Desk) -> Outcome:
    """Three kinds of images from 4x4 to 64x64: white noise obeys the corollary, photographs and constant ones do not."""
    sides, draws = desk.pick([4, 8, 16, 32], [4, 8, 16, 32, 64], [4, 8, 16, 32, 64, 128]), desk.pick(8, 16, 40)
    pairs = desk.pick(8, 24, 60)
    rows = []
    for index, (source, channels) in enumerate((("gaussian:0", 1), ("cifar10", None))):
        found, title = [], "white noise"
        for place, side in enumerate(sides):
            given = desk.pairs(source, pairs=pairs, size=side, channels=channels, centre=True)
            title = f"{title_of(source, given)}, centred" if source == "cifar10" else title
            found.append(_pooled(given.x, given.y, draws, desk.seed))
            desk.progress(index * len(sides) + place + 1, 2 * len(sides))
        rows.append(Growing(title, sides, found))
    flat = [torch.ones(1, 1, side, side) for side in sides]
    rows.append(Growing("constant, 1 and -1", sides, [_pooled(one, -one, draws, desk.seed) for one in flat]))
    dense = defects("max", [side**2 for side in sides], (0.0,))[:, 0]
    data = {
        "side": sides,
        "dense_exact": plain(dense),
        **{row.title: [[s.value, s.stderr] for s in row.found] for row in rows},
    }
    notes = (
        KERNEL_NOTE,
        "n is read as the number of positions d²; no closed form, so everything but the dense curve is sampled",
    )
    return Outcome(_corollary_checks(rows, dense), data, _corollary_picture(rows, dense), notes)


def _pooled(x: Tensor, y: Tensor, draws: int, seed: int) -> Sampled:
    found = sampled_defect(conv_net("max"), x, y, draws, seed)
    common = float(found.stderr.mean())
    return mean_over_pairs(found.value, common) if len(x) > 1 else Sampled(float(found.value), common, draws)


def _corollary_checks(rows: list[Growing], dense: Tensor) -> tuple[Check, ...]:
    noise, natural, flat = rows
    checks = []
    for row in (noise, natural):
        first, last = row.times_log(0), row.times_log(-1)
        says = (
            f"{row.title}: (1 - cosine) log n does not grow from n = {row.sides[0] ** 2} to {row.sides[-1] ** 2} "
            f"(at the end; {first.value:.3f} ± {first.stderr:.3f} at the start)"
        )
        grows = difference(last, first).interval()[0] > 0
        checks.append(
            claim(
                says,
                not grows,
                sampled=last,
                why="it grows beyond the 95 % interval of the difference" if grows else "",
            )
        )
    worst = flat.found[-1]
    checks.append(
        claim(
            "any pair: 1 - cosine goes to zero (images 1 and -1 everywhere, largest size)", worst.value < 0.5, exact=1.0,
            sampled=worst, why="all patches of a constant image are one patch: max pooling has nothing to choose from, "
            "r(s) and r(-s) are orthogonal for every n",
        )
    )  # fmt: skip
    return (*checks, _as_dense(noise, dense))


def _as_dense(noise: Growing, dense: Tensor) -> Check:
    """The sentence before the corollary, at every size: the size furthest off, by the joint interval of all."""
    ratios = [
        Sampled(found.value / exact, found.stderr / exact, found.draws)
        for found, exact in zip(noise.found, dense.tolist(), strict=True)
    ]
    off = [abs(ratio.value - 1) / ratio.stderr for ratio in ratios]
    worst = off.index(max(off))
    holds = off[worst] <= allowed(len(off), ratios[worst].draws)
    says = (
        "max pooling contracts almost as in the dense network, at every size (1 - cosine for white noise over the exact dense "
        f"value, furthest off at n = {noise.sides[worst] ** 2})"
    )
    listed = ", ".join(f"{ratio.value:.2f} at n = {side**2}" for ratio, side in zip(ratios, noise.sides, strict=True))
    why = "" if holds else f"near, not the same: {listed}; overlapping patches may be the reason, which was not tested"
    return claim(says, holds, sampled=ratios[worst], published="almost identical", why=why)


def _corollary_picture(rows: list[Growing], dense: Tensor) -> Picture:
    n = [side**2 for side in rows[0].sides]
    marks: list[Line | Points] = [
        Line("dense layer, orthogonal inputs, exact", n, plain(dense), 6, dash=0),
        Line("1/log n", n, [1 / math.log(v) for v in n], 5, dash=3),
    ]
    for hue, row in enumerate(rows):
        reach = [s.interval()[1] - s.value for s in row.found]
        marks.append(Points(f"{row.title}, sampled, 95 %", n, [s.value for s in row.found], hue, reach))
    panel = Panel(marks, "positions n = d²", "1 - cosine after global max pooling", scale_across="log", scale_up="log")
    title = "Max pooling after a convolution: white noise as in a dense layer, photographs less, constant images never"
    ends = ", ".join(f"{row.title} from {row.found[0].value:.3g} to {row.found[-1].value:.3g}" for row in rows)
    words = f"1 - cosine after {CHANNELS} filters and global max pooling against the number of positions: {ends}."
    return curves_and_points([panel], title, words, size=(8.4, 4.8), legend_columns=3)


def variance(desk: Desk) -> Outcome:
    """Mean, second moment and variance of one average-pooled feature, exact, with standard normal filters."""
    count = desk.pick(20, 80, 300)
    raw = desk.images("cifar10", count=count)
    name = title_of("cifar10", raw)
    sets = {f"{name}, pixels 0 to 255": 255 * raw.images}
    sets[f"{name}, centred"] = desk.images("cifar10", count=count, centre=True).images
    sets["white noise"] = desk.images("gaussian", count=count, size=32).images
    rows = {}
    for place, (title, images) in enumerate(sets.items()):
        rows[title] = _moments(images.double())
        desk.progress(place + 1, len(sets))
    norms = torch.cat([row[0] for row in rows.values()])
    second = torch.cat([row[1] for row in rows.values()])
    spread = second - norms.square() / (2 * math.pi)
    share = spread / norms.square()
    broken = spread > norms
    order = norms.square() / second
    checks = (
        claim(
            "printed: the variance is at most the mean patch norm (share of all images that break it)", not bool(broken.any()),
            exact=float(broken.double().mean()), why="Poincaré's inequality gives the square of the Lipschitz constant; "
            "as printed the two sides scale differently with the pixels",
        ),
        claim(
            "repaired: the variance is at most the squared mean patch norm (largest ratio)", float(share.max()) <= 1,
            exact=float(share.max()),
        ),
        claim(
            "the bound has the order of the second moment: their ratio is between 2 and 2π for every image (largest)",
            float(order.min()) >= 2 - 1e-9 and float(order.max()) <= 2 * math.pi, exact=float(order.max()),
        ),
        claim(
            "the bound is tight up to a constant: some image comes to 0.9 of the sharp bound, "
            "(1/2 - 1/(2π)) (mean patch norm)², and none beyond it (largest ratio to the sharp bound)",
            0.9 * RELU_VARIANCE < float(share.max()) <= RELU_VARIANCE, exact=float(share.max()) / RELU_VARIANCE,
            why="" if float(share.max()) > 0.9 * RELU_VARIANCE else "no image of the set is nearly constant",
        ),
    )  # fmt: skip
    data = {
        title: {"patch_norm": plain(norm), "second_moment": plain(square)} for title, (norm, square) in rows.items()
    }
    return Outcome(checks, data, _variance_picture(rows), (KERNEL_NOTE,))


def _moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean patch norm and E (A r(w * x))² for standard normal w, (n,) each."""
    edge = KERNEL // 2
    padded = F.pad(images, (edge, edge, edge, edge), mode="circular")
    norms = F.unfold(padded, KERNEL).norm(dim=1).mean(1)
    taps = images.shape[1] * KERNEL**2
    net = conv_net("average", 1)
    own = torch.stack([kernel(net, image[None])[0, 0] for image in images])
    return norms, own * taps / 2  # the network's weights have variance 2 / taps


def _variance_picture(rows: dict[str, tuple[Tensor, Tensor]]) -> Picture:
    marks: list[Line | Points] = []
    most = max(len(norm) for norm, _ in rows.values())
    for hue, (title, (norm, second)) in enumerate(rows.items()):
        share = (second / norm.square() - 1 / (2 * math.pi)).sort().values
        marks.append(Line(title, list(range(1, len(share) + 1)), plain(share), hue))
    marks.append(Line("sharp bound, 1/2 - 1/(2π)", [1, most], [RELU_VARIANCE] * 2, 5, dash=0))
    marks.append(Line("appendix D with its square", [1, most], [1.0] * 2, 6, dash=3))
    panel = Panel(marks, "images, sorted", "variance / (mean patch norm)²", scale_up="log")
    title = (
        "The variance of an average-pooled feature: nearly none for white noise, most of the bound for some photographs"
    )
    words = "Exact variance over the squared mean patch norm for sorted images of three sets; all lie below 0.341."
    return curves_and_points([panel], title, words, size=(8.0, 4.4), legend_columns=3)


ITEMS = (
    Item(
        "pooling/cor4-3",
        "Corollary 4.3: max pooling in a convolutional network",
        "1 - cosine after global max pooling of a ReLU convolution is O(1/log n) for any two inputs.",
        corollary,
        sets=("cifar10",),
        full_minutes=10,
    ),
    Item(
        "pooling/appendix-d",
        "Appendix D: the variance of an average-pooled feature",
        "The variance of an average-pooled feature is bounded by the mean patch norm and has the order of its second moment.",
        variance,
        sets=("cifar10",),
    ),
)
