"""How the slope of figure 1's linear fit depends on the size of the filters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from initscope.figures import Picture
from initscope.geometry import similarity
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim, compare
from initscope.papers.nachum2022.drawing import Line, Points, Words, curves
from initscope.papers.nachum2022.figure1 import CIFAR, FASHION, FILTERS, GAUSSIAN, IMAGENET, Panel
from initscope.papers.nachum2022.sampling import (
    exact_mean,
    one_layer,
    plain,
    sampled_slope,
    slope,
    slope_error,
    title_of,
)

PANELS = (FASHION, CIFAR, IMAGENET, GAUSSIAN)


@dataclass(frozen=True)
class Slopes:
    """Slopes of one set by filter size, each over the same pairs; `change` is that from the smallest to the largest size."""

    title: str
    kernels: tuple[int, ...]
    exact: tuple[Sampled, ...]
    sampled: dict[int, Sampled]
    change: Sampled


def run(desk: Desk) -> Outcome:
    kernels = desk.pick((1, 3, 7, 11), (1, 3, 5, 7, 9, 11, 15, 21))
    found = []
    for place, panel in enumerate(PANELS):
        desk.progress(place, len(PANELS))
        found.append(_measure(desk, panel, kernels))
    natural = found[:3]
    printed = desk.published["slope"]
    checks = [_printed(slopes, kernel, printed) for slopes in natural for kernel in (3, 11)]
    checks += [_falls(slopes) for slopes in natural]
    notes = (
        "Intervals of exact slopes are over the choice of the pairs; those of sampled ones over pairs and filters.",
        "On ImageNet filters are drawn for 20 of the pairs only.",
        "The paper prints one slope for three panels, filter sizes 11x11 for Gaussian images and ImageNet, none for "
        "the others.",
    )
    return Outcome(tuple(checks), {s.title: _plain(s) for s in found}, _picture(found, printed), notes)


def _measure(desk: Desk, panel: Panel, kernels: tuple[int, ...]) -> Slopes:
    large = panel is IMAGENET
    kernels = tuple(k for k in kernels if k in (1, 3, 7, 11, 21)) if large else kernels
    size = desk.pick(64, panel.size) if large else panel.size
    pairs = desk.pairs(panel.source, pairs=desk.pick(40, 80 if large else 200, 200), size=size, channels=panel.channels)
    x, y = pairs.x, pairs.y
    before = similarity(x.double(), y.double())
    exact = {k: exact_mean(x, y, k) for k in kernels}
    slopes = [Sampled(float(slope(before, exact[k])), slope_error(before, exact[k]), len(x)) for k in kernels]
    some = desk.pick((3,), (3, 11) if large else (3, 5, 7, 11))
    few = slice(0, 20 if large else None)  # drawing filters on large images is slow; the exact slope has them all
    sampled = {k: sampled_slope(one_layer(x[few], y[few], k, FILTERS, desk.seed)) for k in some}
    move = exact[kernels[-1]] - exact[kernels[1]]
    change = Sampled(float(slope(before, move)), slope_error(before, move), len(x))
    return Slopes(title_of(panel.source, panel.title, pairs), kernels, tuple(slopes), sampled, change)


def _printed(slopes: Slopes, kernel: int, printed: str) -> Check:
    """The exact slope of these pairs is held against the print as an estimate for all pairs of the set."""
    found = slopes.exact[slopes.kernels.index(kernel)]
    made = compare(f"slope on {slopes.title}, {kernel}x{kernel} filters", printed, exact=found.value, sampled=found)
    if made.agrees:
        return made
    near = [
        k
        for k, s in zip(slopes.kernels, slopes.exact, strict=True)
        if s.interval()[0] <= 0.975 and s.interval()[1] >= 0.965
    ]
    fits = f"{', '.join(f'{k}x{k}' for k in near)} would" if near else "none of the sizes tried does"
    return replace(
        made, why=f"the slope depends on the filter size, and this size does not give the printed one; {fits}"
    )


def _falls(slopes: Slopes) -> Check:
    holds = slopes.change.interval()[1] < 0
    first, last = slopes.kernels[1], slopes.kernels[-1]
    return claim(
        f"{slopes.title}: larger filters see fewer patches of one colour, so the slope falls from {first}x{first} to "
        f"{last}x{last}",
        holds,
        exact=slopes.change.value,
        sampled=slopes.change,
        why="" if holds else "the interval of the change over the pairs reaches 0",
    )


def _plain(slopes: Slopes) -> dict[str, object]:
    return {
        "kernels": list(slopes.kernels),
        "slope": plain(torch.tensor([s.value for s in slopes.exact])),
        "error_over_pairs": plain(torch.tensor([s.stderr for s in slopes.exact])),
        "sampled": {str(k): [s.value, s.stderr] for k, s in slopes.sampled.items()},
    }


def _picture(found: list[Slopes], printed: str) -> Picture:
    middle = float(printed)
    lines = []
    for place, slopes in enumerate(found):
        points = Points(
            [k + 0.12 * (place - 1.5) for k in slopes.sampled],
            [s.value for s in slopes.sampled.values()],
            [s.interval()[1] - s.value for s in slopes.sampled.values()],
        )
        lines.append(Line(slopes.title, slopes.kernels, [s.value for s in slopes.exact], points))
    words = Words(
        "The slope of figure 1 depends on the filter size",
        "filter side r (pixels)",
        "slope of output against input similarity",
        "Slope of the linear fit by filter side: "
        + "; ".join(f"{s.title} from {s.exact[0].value:.3f} to {s.exact[-1].value:.3f}" for s in found)
        + f". The printed slope is {printed}.",
    )
    return curves(lines, words, level=(middle - 0.005, middle + 0.005, f"printed: {printed}"), ticks=found[0].kernels)


ITEMS = (
    Item(
        "nachum2022/slope",
        "Slope of the linear fit by filter size (Remark 3, section 4.2)",
        "The linear fit of output against input similarity has slope 0.97 on natural images.",
        run,
        sets=("fashion_mnist", "cifar10", "imagenet224"),
        full_minutes=2.0,
    ),
)
