"""DC Figures 5, 6 and 8: the pictures that come back, by depth, by width and by number of channels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from initscope.data.pixels import with_channels
from initscope.images import Cell, compare_pictures, picture_grid, to_pictures
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, compare
from initscope.papers.random_cnn.sampling import difference, grows, outputs, over_networks, similarities

SET = "imagenet224"
DEPTHS = (1, 2, 3, 4, 5)
WIDTHS = (64, 128, 256, 512)  # of Conv1 to Conv5, the last one twice
SHOWN = 3


def _shown(output: Tensor, original: Tensor) -> tuple[Tensor, float]:
    """One output (c, h, w) as a picture, turned if its SSIM is negative, and its SSIM."""
    picture = to_pictures(output[None], "range")
    quality = compare_pictures(picture, original[None])
    turned = 1 - picture if bool(quality.inverted[0]) else picture
    return turned[0], float(quality.ssim[0])


def _ratio(one: Tensor, other: Tensor) -> Sampled:
    """Mean of `one` over that of `other`, by the delta method."""
    a, b = over_networks(one), over_networks(other)
    value = a.value / b.value
    error = value * ((a.stderr / a.value) ** 2 + (b.stderr / b.value) ** 2) ** 0.5
    return Sampled(value, error, min(a.draws, b.draws))


def run_depth(desk: Desk) -> Outcome:
    side, count, networks = desk.pick((48, 4, 6), (64, 8, 12), (224, 50, 30))
    images = desk.images(SET, count=count, size=side, channels=3).images
    depths = desk.pick((1, 2, 3), DEPTHS)
    done = 0

    def told() -> None:
        nonlocal done
        done += 1
        desk.progress(done, (len(depths) + 1) * networks)

    found = {k: similarities(images, networks, desk.seed + 31 * k, told, depth=k).paper for k in depths}
    first, last = depths[0], depths[-1]
    checks: list[Check] = [grows(f"SSIM falls from CD{first} to CD{last}", difference(found[first], found[last]))]
    checks += [
        grows(f"SSIM falls from CD{a} to CD{b}", difference(found[a], found[b])) for a, b in itertools.pairwise(depths)
    ]
    repeated = similarities(images, networks, desk.seed + 62, told, depth=2, upsampling="nearest").paper
    for name, values in (("zeros between upsampled pixels", found[2]), ("upsampled pixels repeated", repeated)):
        checks.append(
            compare(f"SSIM of CD2 over that of CD1, {name}", desk.published["cd2_over_cd1"],
                    sampled=_ratio(values, found[1]),
                    why="DC says \"about a half\", without a figure, and not how outputs become pictures")
        )  # fmt: skip
    title = "Random VGG16, random decoder, by depth of the feature"
    return _sheet(images, "depth", "CD", found, checks, title, desk.seed)


def run_width(desk: Desk) -> Outcome:
    side, count, networks = desk.pick((32, 6, 10), (32, 6, 20), (224, 50, 30))
    widths = desk.pick((16, 64, 128), WIDTHS)
    images = desk.images(SET, count=count, size=side, channels=3).images
    done = 0

    def told() -> None:
        nonlocal done
        done += 1
        desk.progress(done, len(widths) * networks)

    found = {n: similarities(images, networks, desk.seed + n, told, channels=n).paper for n in widths}
    checks = [
        grows(f"SSIM rises from {a} to {b} channels", difference(found[b], found[a]))
        for a, b in itertools.pairwise(widths)
    ]
    title = "CD1 with the widths of Conv1 to Conv5 in all layers, one network each"
    return _sheet(images, "channels", "", found, checks, title, desk.seed)


def _sheet(
    images: Tensor,
    option: str,
    prefix: str,
    found: Mapping[int, Tensor],
    checks: Sequence[Check],
    title: str,
    seed: int,
) -> Outcome:
    """One row of pictures for each of the first images, one column for each value of the option, and the means over networks."""
    rows = []
    for image in images[:SHOWN]:
        cells = [Cell(image, "original")]
        for value in found:
            setting: dict[str, Any] = {option: value}
            picture, ssim = _shown(outputs(image[None], seed=seed, **setting)[0][0], image)
            cells.append(Cell(picture, f"{prefix}{value}: SSIM {ssim:.2f}"))
        rows.append(cells)
    means = [over_networks(values) for values in found.values()]
    data = {option: list(found), "ssim": [m.value for m in means], "stderr": [m.stderr for m in means]}
    height, width = images.shape[2:]
    networks = len(next(iter(found.values())))
    note = f"{networks} networks, {len(images)} images of {height}x{width}"
    return Outcome(tuple(checks), data, picture_grid(rows, title), (note,))


def run_closest(desk: Desk) -> Outcome:
    """Of several networks, the one whose SSIM is closest to their mean, for each image and number of channels."""
    side, networks = desk.pick((48, 5), (64, 16), (224, 30))
    widths = desk.pick((4, 32), (4, 16, 64, 128), (4, 16, 64, 256, 1024))
    images = desk.images(SET, count=SHOWN, size=side, channels=3).images
    rows: list[list[Cell]] = [[Cell(with_channels("fig8", images[i : i + 1], 1)[0], "original")] for i in range(SHOWN)]
    table: dict[int, Tensor] = {}
    for number, n in enumerate(widths):
        desk.progress(number, len(widths))
        drawn = [outputs(images, channels=n, seed=desk.seed + n + 7919 * j)[0] for j in range(networks)]
        each = [[_shown(output[i], images[i]) for i in range(SHOWN)] for output in drawn]
        table[n] = torch.tensor([[ssim for _, ssim in row] for row in each])
        for i, mean in enumerate(table[n].mean(0).tolist()):
            picture, ssim = min((row[i] for row in each), key=lambda one, mean=mean: abs(one[1] - mean))  # type: ignore[misc]
            rows[i].append(Cell(with_channels("fig8", picture[None], 1)[0], f"{n}: SSIM {ssim:.3f}"))
    first, last = widths[0], widths[-1]
    says = f"mean SSIM of the {SHOWN} images rises from {first} to {last} channels: difference"
    title = "CD1 in grey: for each number of channels the network closest to the mean SSIM"
    data = {"channels": list(widths), "mean_ssim": [table[n].mean(0).tolist() for n in widths]}
    check = grows(says, difference(table[last], table[first]))
    return Outcome((check,), data, picture_grid(rows, title), (f"{networks} networks, images of {side}x{side}",))


ITEMS = (
    Item(
        "random-cnn/fig5", "Reconstructions by depth",
        "The deeper the random representations are, the coarser the reconstructed image is.", run_depth, (SET,), 90,
    ),
    Item(
        "random-cnn/fig6", "Reconstructions of CD1 by width",
        "The smaller the width is, the coarser the image is.", run_width, (SET,), 200,
    ),
    Item(
        "random-cnn/fig8", "Reconstructions by number of channels",
        "The increasing number of channels promotes the random reconstruction quality.", run_closest, (SET,), 60,
    ),
)  # fmt: skip
