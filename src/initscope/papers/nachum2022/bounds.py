"""Theorem 3 and the remarks on it: how far one ReLU layer can move a similarity."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.bounds import relu_conv_similarity_bounds
from initscope.data import Pairs
from initscope.geometry import similarity
from initscope.papers.item import Check, Desk, Item, Outcome, claim
from initscope.papers.nachum2022.drawing import Line, Points, Words, curves, relu_curve
from initscope.papers.nachum2022.sampling import exact_mean, exact_sums, plain, title_of

ROUNDING = 1e-12
GROUPS = ("natural images, raw", "natural images, centred", "Gaussian images", "binary bodies, dead leaves")
SETS = (("fashion_mnist", "Fashion-MNIST", None), ("cifar10", "CIFAR-10", None), ("imagenet224", "ImageNet", 32))


@dataclass(frozen=True)
class Found:
    """Similarities before and after a layer, with the bounds of Theorem 3."""

    name: str
    before: Tensor
    after: Tensor

    @property
    def margin(self) -> float:
        bounds = relu_conv_similarity_bounds(self.before.clamp(-1, 1)).value
        return float((self.after - bounds.low).minimum(bounds.high - self.after).min())


def cosines(pairs: Pairs) -> Tensor:
    """Input similarities, (n,)."""
    return similarity(pairs.x.double(), pairs.y.double())


def _collected(desk: Desk, count: int) -> list[tuple[str, Pairs]]:
    """Images of many kinds, natural, Gaussian, binary, and centred, which have negative similarities too."""
    found = []
    for name, title, size in SETS:
        for centre in (False, True):
            pairs = desk.pairs(name, pairs=count, size=size, centre=centre)
            found.append((title_of(name, title, pairs) + (", centred" if centre else ""), pairs))
    found += [(name, desk.pairs(name, pairs=count, size=16)) for name in ("gaussian", "shapes", "dead-leaves")]
    return found


def theorem3(desk: Desk) -> Outcome:
    """The bounds over many kinds of images and filter sizes, with the variance as it must be and as it is printed."""
    found, printed = [], 0
    cases = [*itertools.product(_collected(desk, desk.pick(20, 150)), desk.pick((3, 11), (1, 3, 5, 11)))]
    for place, ((name, pairs), kernel) in enumerate(cases):
        desk.progress(place, len(cases))
        found.append(Found(name, cosines(pairs), exact_mean(pairs.x, pairs.y, kernel)))
        if kernel == 3:
            inner, norm_x, norm_y = exact_sums(pairs.x, pairs.y, kernel) * pairs.x.shape[1]  # the paper's ν has no d
            scaled = inner * 2 / kernel**2  # (2/r²)² in place of 2/r²
            printed += int((scaled < (found[-1].before * (norm_x * norm_y).sqrt()).clamp_min(0) - ROUNDING).sum())
    total = sum(len(f.before) for f in found)
    worst = min(f.margin for f in found)
    checks = (
        claim(
            f"max(ρ, 0) ≤ ρ̄_out ≤ (1 + ρ)/2 in {total} cases, ν² = 2/r² (smallest margin)",
            worst >= -ROUNDING,
            exact=worst,
        ),
        claim(
            "eq. 13 with ν = 2/r², as printed: cases with 3x3 filters below the lower bound",
            printed == 0,
            exact=float(printed),
            why="ν is the standard deviation; norms are kept by ν² = 2/r², and with ν = 2/r² inner products are 2/r² "
            "times too small",
        ),
    )
    grid = torch.linspace(-1, 1, 101, dtype=torch.float64)
    bounds = relu_conv_similarity_bounds(grid).value
    shown = {f"{f.name}": f for f, (_, kernel) in zip(found, cases, strict=True) if kernel == 3}
    groups: dict[str, list[Found]] = {name: [] for name in GROUPS}
    for name, entry in shown.items():
        key = "natural images, centred" if "centred" in name else "natural images, raw"
        key = {
            "gaussian": "Gaussian images",
            "shapes": "binary bodies, dead leaves",
            "dead-leaves": "binary bodies, dead leaves",
        }.get(name, key)
        groups[key].append(entry)
    lines = [
        Line(
            "bounds of Theorem 3",
            [*plain(grid), *plain(grid.flip(0))],
            [*plain(bounds.low), *plain(bounds.high.flip(0))],
        ),
        Line("eq. 2", plain(grid), plain(relu_curve(grid))),
    ]
    lines += [
        Line(
            name, points=Points([v for f in group for v in plain(f.before)], [v for f in group for v in plain(f.after)])
        )
        for name, group in groups.items()
    ]
    words = Words(
        "Theorem 3: every mean similarity lies within the bounds",
        "cosine similarity of the inputs",
        "mean cosine similarity of the outputs",
        f"{total} pairs of many kinds of images, 3x3 filters shown: all lie within the bounds of Theorem 3.",
    )
    data = {
        "cases": [
            {"name": f.name, "kernel": k, "pairs": len(f.before), "margin": f.margin}
            for f, (_, k) in zip(found, cases, strict=True)
        ]
    }
    return Outcome(checks, data, curves(lines, words, size=(7.2, 5.6)))


def _row(*values: Tensor, spacing: int) -> Tensor:
    """Numbers along a line of an image, `spacing` pixels apart, so that no filter of that side sees two: (n, 1, s, k s)."""
    image = torch.zeros(len(values[0]), 1, spacing, spacing * len(values), dtype=torch.float64)
    for place, value in enumerate(values):
        image[:, 0, 0, place * spacing] = value
    return image


def remark2(desk: Desk) -> Outcome:
    """The three examples that meet the bounds, at r = 1 and spread out for larger filters."""
    rho = torch.linspace(0, 1, 101, dtype=torch.float64)
    signed = torch.linspace(-1, 1, 101, dtype=torch.float64)
    plus, minus = ((1 + signed) / 2).sqrt(), ((1 - signed) / 2).sqrt()
    root, rest, zero = rho.sqrt(), (1 - rho).sqrt(), torch.zeros_like(rho)
    off: dict[str, float] = {}
    curve: dict[str, tuple[Tensor, Tensor]] = {}
    for r in (1, 2, 3, 5):
        examples = {
            "upper bound (1 + ρ)/2": (
                _row(plus, minus, spacing=r),
                _row(plus, -minus, spacing=r),
                signed,
                (1 + signed) / 2,
            ),
            "lower bound 0": (_row(rest, root, zero, spacing=r), _row(zero, -root, rest, spacing=r), -rho, zero),
            "lower bound ρ": (_row(rest, root, zero, spacing=r), _row(zero, root, rest, spacing=r), rho, rho),
        }
        for name, (x, y, before, expected) in examples.items():
            after = exact_mean(x, y, r)
            off[name] = max(off.get(name, 0.0), float((after - expected).abs().max()))
            curve[name] = (before, after)
    checks = tuple(
        claim(f"{name} is met, r = 1, 2, 3 and 5: largest difference", value < ROUNDING, exact=value)
        for name, value in off.items()
    )
    grid = torch.linspace(-1, 1, 101, dtype=torch.float64)
    bounds = relu_conv_similarity_bounds(grid).value
    lines = [
        Line(
            "bounds of Theorem 3",
            [*plain(grid), *plain(grid.flip(0))],
            [*plain(bounds.low), *plain(bounds.high.flip(0))],
        )
    ]
    lines += [Line(name, points=Points(plain(b)[::10], plain(a)[::10])) for name, (b, a) in curve.items()]
    words = Words(
        "Remark 2: every end of Theorem 3's interval is reached",
        "cosine similarity of the inputs",
        "mean cosine similarity of the outputs",
        "The three examples of Remark 2 lie on the upper bound and on both parts of the lower bound.",
    )
    return Outcome(checks, {"differences": off}, curves(lines, words))


def remark3(desk: Desk) -> Outcome:
    """On real images the lower bound is never met; and where it is met."""
    checks: list[Check] = []
    data: dict[str, object] = {}
    lines = []
    for name, title, size in SETS:
        pairs = desk.pairs(
            name, pairs=desk.pick(60, 190, 190), size=size if desk.quick or name != "imagenet224" else 64
        )
        shown = title_of(name, title, pairs)
        before = cosines(pairs)
        gap = exact_mean(pairs.x, pairs.y, 3) - before
        checks.append(
            claim(
                f"{shown}, 3x3 filters: every pair is contracted (smallest ρ̄_out - ρ)",
                bool((gap > ROUNDING).all()),
                exact=float(gap.min()),
            )
        )
        data[shown] = {"before": plain(before), "gap": plain(gap)}
        lines.append(Line(shown, points=Points(plain(before), plain(gap))))
    rho = torch.tensor([0.5], dtype=torch.float64)
    root, rest, zero = rho.sqrt(), (1 - rho).sqrt(), torch.zeros(1, dtype=torch.float64)
    kept = float(exact_mean(_row(rest, root, zero, spacing=3), _row(zero, root, rest, spacing=3), 3))
    checks.append(
        claim(
            "section 1.1: 'for ρ ≠ 1 each ReLU CNN layer is contracting': ρ̄_out of Remark 2's third example at ρ = 1/2",
            kept > 0.5 + ROUNDING,
            exact=kept,
            why="it never expands, but where patches are parallel or zero it keeps the similarity, as Remarks 2 and "
            "3 themselves say",
        )
    )
    words = Words(
        "Remark 3: every pair of natural images is contracted a little",
        "cosine similarity of the inputs",
        "mean similarity after one layer minus before",
        "Gain of similarity by one layer of 3x3 filters for pairs of three sets: small, and above zero for every pair.",
    )
    return Outcome(
        tuple(checks), data, curves(lines, words, log="y"), ("Remark 3 points to (22c); the inequality is (24b).",)
    )


ITEMS = (
    Item(
        "nachum2022/thm3",
        "Theorem 3: bounds for ReLU layers",
        "The mean similarity after a ReLU convolution is at least max(ρ, 0) and at most (1 + ρ)/2.",
        theorem3,
        sets=("fashion_mnist", "cifar10", "imagenet224"),
    ),
    Item(
        "nachum2022/remark2",
        "Remark 2: the bounds of Theorem 3 are tight",
        "All bounds of Theorem 3 are met by examples.",
        remark2,
    ),
    Item(
        "nachum2022/remark3",
        "Remark 3: real images are contracted",
        "On real images the lower bound of Theorem 3 is strict: every layer contracts.",
        remark3,
        sets=("fashion_mnist", "cifar10", "imagenet224"),
    ),
)
