"""Theorem 4.4: global average pooling of Gaussian images, with the constant C computed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.data import Pairs
from initscope.figures import Line, Panel, Picture, Points, curves_and_points
from initscope.finite import Estimate
from initscope.geometry import similarity
from initscope.layers import Conv, ReLU
from initscope.networks import Sequential, kernel, predict
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim
from initscope.papers.pooling.gaussian_images import excess_sum, pooled_defect
from initscope.papers.pooling.measures import all_agree, conv_net, mean_over_pairs

SIDES = (9, 16, 25, 36, 49, 64, 100, 144, 196, 256)


def root_kernel(side: int) -> int:
    """The proof's k = √d, as a whole number."""
    return round(math.sqrt(side))


@dataclass(frozen=True)
class Drawn:
    """Pairs of images of one size: 1 - C with its error, and the cosines before pooling."""

    side: int
    kernel: int
    defect: Sampled
    before: Sampled
    relu: Sampled


def draw(desk: Desk, side: int, size: int, pairs: int) -> Drawn:
    """C from random images, the mean over filters being exact for each; its error by the jackknife over pairs."""
    found: Pairs = desk.pairs("gaussian:0", pairs=pairs, size=side, channels=1)
    net = conv_net("average", 1, size)
    products = torch.stack([kernel(net, torch.stack(p).double()) for p in zip(found.x, found.y, strict=True)])
    own, other = (products[:, 0, 0] + products[:, 1, 1]) / 2, products[:, 0, 1]
    inputs = similarity(found.x.flatten(1), found.y.flatten(1)).double()
    layer = predict(Sequential(Conv(1, size), ReLU()), found.x, found.y).layers[-1]
    inner = layer.cosine * layer.norm_x * layer.norm_y
    return Drawn(
        side, size, _ratio(own - other, own), mean_over_pairs(inputs),
        _ratio(inner, (layer.norm_x.square() + layer.norm_y.square()) / 2),
    )  # fmt: skip


def _ratio(top: Tensor, bottom: Tensor) -> Sampled:
    """A ratio of means with the jackknife's error."""
    pairs = len(top)
    without = (top.sum() - top) / (bottom.sum() - bottom)
    error = ((pairs - 1) / pairs * (without - without.mean()).square().sum()).sqrt()
    return Sampled(float(top.sum() / bottom.sum()), float(error), pairs)


def run(desk: Desk) -> Outcome:
    """The exact C over a range of sizes, against images drawn at random, the printed bound and a repaired one."""
    # Odd filters: the compiled kernels have them, even ones take minutes.
    cases = desk.pick(((9, 3), (16, 3)), ((9, 3), (25, 5), (32, 3)), ((9, 3), (25, 5), (32, 3), (49, 7)))
    drawn = []
    for place, (side, size) in enumerate(cases):
        drawn.append(draw(desk, side, size, desk.pick(100, 200, 1000)))
        desk.progress(place + 1, len(cases))
    exact = [pooled_defect(side, root_kernel(side)) for side in SIDES]
    data = {
        "side": list(SIDES),
        "kernel": [root_kernel(side) for side in SIDES],
        "one_minus_C": exact,
        "sampled": [
            {"side": d.side, "kernel": d.kernel, "value": d.defect.value, "stderr": d.defect.stderr} for d in drawn
        ],
        "limit_of_d2_one_minus_C": {size: excess_sum(size) for size in (1, 2, 3, 5, 8, 12)},
    }
    notes = ("on the torus, for images of one channel; C is exact for every size, see the series in gaussian_images",)
    return Outcome((*_statements(exact, drawn), *_proof()), data, _picture(exact, drawn), notes)


def _statements(exact: list[float], drawn: list[Drawn]) -> tuple[Check, ...]:
    last = drawn[-1]
    times_side = [side * value for side, value in zip(SIDES, exact, strict=True)]
    times_area = [side**2 * value for side, value in zip(SIDES, exact, strict=True)]
    together = Estimate(
        torch.tensor([d.defect.value for d in drawn]), torch.tensor([d.defect.stderr for d in drawn]), last.defect.draws
    )
    low, high = last.before.interval()
    relu_low, relu_high = last.relu.interval()
    return (
        claim("the cosine of two Gaussian images is about 0 (mean over pairs)", low <= 0 <= high, exact=0.0, sampled=last.before),
        claim(
            "the cosine of their ReLU features is about 1/π (ratio of means)", relu_low <= 1 / math.pi <= relu_high,
            exact=1 / math.pi, sampled=last.relu, published="1/π",
        ),
        all_agree(
            "images drawn at random agree with the exact 1 - C", together,
            torch.tensor([pooled_defect(d.side, d.kernel) for d in drawn]),
        ),
        claim(
            "1 - C = O(1/d) with k = √d: d (1 - C) does not grow from d = 9 to 256 (largest)", times_side[0] == max(times_side),
            exact=max(times_side), published="C = 1 - O(d)",
        ),
        claim(
            f"true order: d² (1 - C) stays between 2 and π - 1/2 = {math.pi - 0.5:.4f}, so 1 - C falls like 1/d² (largest)",
            min(times_area) > 2 and max(times_area) < math.pi - 0.5, exact=max(times_area),
        ),
    )  # fmt: skip


def _proof() -> tuple[Check, ...]:
    """Eq. 29 and 31, with E s² Λ = k²/π exactly: numerator and windows apart have mean product k²/(2π) given the filter."""
    counts = {k: (2 * k - 1) ** 2 / (2 * k**2) for k in range(1, 13)}
    printed, repaired = [], []
    for side in SIDES:
        k = root_kernel(side)
        printed.append(1 / (1 + (2 * math.pi - 9) * k**2 / side**2))
        value = 1 / (1 + (math.pi - 1) * (2 * k - 1) ** 2 / side**2)
        repaired.append((1 - pooled_defect(side, k)) - value)
    return (
        claim(
            "proof, eq. 29: (2k-1)² k² <= 2k⁴ (largest ratio for k up to 12)", max(counts.values()) <= 1,
            exact=max(counts.values()), why="false from k = 2 on; the factor 2 should be 4",
        ),
        claim(
            "proof, eq. 31 is a lower bound of C (its value at d = 9, k = 3)", all(value <= 1 for value in printed),
            exact=printed[0], why="it exceeds 1, which C never does: 9k² dependent windows are taken off, only (2k-1)² are there",
        ),
        claim(
            "repaired: C >= 1 / (1 + (π-1)(2k-1)²/d²) (smallest margin)", min(repaired) >= 0, exact=min(repaired),
        ),
    )  # fmt: skip


def _picture(exact: list[float], drawn: list[Drawn]) -> Picture:
    repaired = [1 - 1 / (1 + (math.pi - 1) * (2 * root_kernel(s) - 1) ** 2 / s**2) for s in SIDES]
    small = [s for s in SIDES if s >= 5]
    marks: list[Line | Points] = [
        Line("exact, k = √d", SIDES, exact, 0),
        Line("exact, k = 3", small, [pooled_defect(s, 3) for s in small], 1),
        Line("bound by the repaired proof, k = √d", SIDES, repaired, 2),
        Line("1/d", SIDES, [1 / s for s in SIDES], 6, dash=3),
    ]
    by_root = [d for d in drawn if d.kernel == root_kernel(d.side)]
    for hue, chosen in ((0, by_root), (1, [d for d in drawn if d not in by_root])):
        reach = [d.defect.interval()[1] - d.defect.value for d in chosen]
        values = [d.defect.value for d in chosen]
        marks.append(
            Points(
                f"sampled images, 95 %, {'k = √d' if hue == 0 else 'k = 3'}",
                [d.side for d in chosen],
                values,
                hue,
                reach,
            )
        )
    panel = Panel(marks, "side of the image d, pixels", "1 - C", scale_across="log", scale_up="log")
    title = "Gaussian images after a convolution and global average: 1 - C falls like 2.6/d², not only like 1/d"
    words = f"1 - C against image side: exact from {exact[0]:.3g} at 9 to {exact[-1]:.2g} at 256, sampled points on it."
    return curves_and_points([panel], title, words, size=(8.0, 4.8), legend_columns=3)


ITEMS = (
    Item(
        "pooling/thm4-4",
        "Theorem 4.4: average pooling of Gaussian images",
        "For two independent Gaussian images the mean cosine C after a convolution and global average pooling is 1 - O(1/d).",
        run,
        full_minutes=5,
    ),
)
