"""Section 4.1: colour images, whose channels are nearly alike, and two images whose channels are not."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from initscope.data import Images
from initscope.geometry import channel_statistics
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim, compare
from initscope.papers.nachum2022.drawing import Line, Words, curves
from initscope.papers.nachum2022.sampling import all_agree, exact_mean, filter_sums, jackknife, plain, ratio, title_of

ROUNDING = 1e-12


def channels(desk: Desk) -> Outcome:
    """Angles and norms of the channels of natural images, and the two extreme images Red and Green."""
    imagenet = desk.images("imagenet224", count=desk.pick(60, 400), size=desk.pick(64, None))
    cifar = desk.images("cifar10", count=desk.pick(200, 2000))
    names = title_of("imagenet224", "ImageNet", imagenet), title_of("cifar10", "CIFAR-10", cifar)
    checks: list[Check] = []
    data: dict[str, object] = {}
    lines = []
    for name, images in zip(names, (imagenet, cifar), strict=True):
        found = _statistics(images)
        data[name] = {key: [s.value, s.stderr] for key, s in found.items()}
        if images is imagenet:
            checks += _printed(desk, name, found)
        angle = channel_statistics(images.images).angle.double()
        order = angle[angle.isfinite()].sort().values
        lines.append(
            Line(
                name,
                plain(order)[:: max(1, len(order) // 200)],
                plain(torch.linspace(0, 1, len(order)))[:: max(1, len(order) // 200)],
            )
        )
    checks += _red_green(desk)
    words = Words(
        "Colour channels of natural images are nearly parallel",
        "mean angle between two channels of an image (degrees)",
        "share of images with a smaller angle",
        "Distribution over images of the mean angle between colour channels; most images stay below 20 degrees.",
    )
    mean = float(desk.published["angle"])
    lines.append(Line(f"printed mean for ImageNet: {desk.published['angle']}", [mean, mean], [0.0, 1.0]))
    return Outcome(tuple(checks), data, curves(lines, words))


def _statistics(images: Images) -> dict[str, Sampled]:
    """Means over images with their errors: the angle in degrees, and four readings of "relative difference" in percent."""
    found = channel_statistics(images.images)
    norms = images.images.double().square().sum((2, 3)).sqrt()
    mean = norms.mean(1)
    readings = {
        "angle": found.angle.double(),
        "deviation from the mean norm": 100 * found.norm_deviation.double(),
        "difference within pairs of channels": 100 * found.norm_difference.double(),
        "standard deviation over the mean": 100 * norms.std(1, correction=0) / mean,
        "range over the mean": 100 * (norms.amax(1) - norms.amin(1)) / mean,
    }
    return {name: _mean(values) for name, values in readings.items()}


def _mean(values: Tensor) -> Sampled:
    kept = values[values.isfinite()]
    return Sampled(float(kept.mean()), float(kept.std()) / math.sqrt(len(kept)), len(kept))


def _printed(desk: Desk, name: str, found: dict[str, Sampled]) -> list[Check]:
    angle = compare(
        f"{name}: mean angle between two channels, degrees", desk.published["angle"], sampled=found["angle"]
    )
    why = (
        ""
        if angle.agrees
        else (f"{found['angle'].draws} images, where the paper drew 10^4 at random; how it resized them is not said")
    )
    checks = [Check(angle.says, angle.agrees, angle.published, None, angle.sampled, why)]
    for reading, value in found.items():
        if reading != "angle":
            inside = (
                "its interval holds the printed figure"
                if compare("", desk.published["norms"], sampled=value).agrees
                else "off the printed figure"
            )
            checks.append(
                Check(
                    f"{name}: relative difference of the channel norms, percent, read as {reading}",
                    None,
                    desk.published["norms"],
                    None,
                    value,
                    f"the paper does not define it; {inside}, which decides nothing among four readings",
                )
            )
    return checks


def _red_green(desk: Desk) -> list[Check]:
    red, green = torch.zeros(2, 1, 3, 8, 8)
    red[:, 0], green[:, 1] = 1 / 8, 1 / 8
    exact = float(exact_mean(red, green, 3))
    sums = filter_sums(red, green, 3, desk.pick(2000, 20_000), desk.seed)
    total = sums.sum(1, keepdim=True)
    error = jackknife(ratio(total - sums))
    return [
        claim(
            "Red and Green, orthogonal, have the mean output similarity R̂(0) = 1/π",
            abs(exact - 1 / math.pi) < ROUNDING,
            exact=exact,
        ),
        all_agree("Red and Green, sampled", ratio(total)[0], error, torch.tensor([1 / math.pi]), sums.shape[1]),
    ]


ITEMS = (
    Item(
        "nachum2022/channels",
        "Section 4.1: colour channels, Red and Green",
        "Channels of natural images are nearly parallel and of nearly equal norm; Red and Green behave as in a dense "
        "layer.",
        channels,
        sets=("imagenet224", "cifar10"),
    ),
)
