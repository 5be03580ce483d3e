"""DC Figure 7: SSIM against the number of channels (a: as it is, b: averaging variant) and against the kernel size (c)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.bounds import convergence_image
from initscope.figures import Line, Panel, Picture, Points, curves_and_points
from initscope.images import compare_pictures, layout, limit_network, to_pictures
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled
from initscope.papers.random_cnn.sampling import (
    LAW,
    Similarities,
    angles,
    difference,
    grows,
    outputs,
    over_networks,
    rate_check,
    similarities,
    slope,
    trend,
    turned,
)

SET = "imagenet224"
CHANNELS = (4, 8, 16, 32, 64, 128, 256)
FULL_CHANNELS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
KERNELS = (1, 3, 5, 7, 11, 15)
WIDTH = 64  # channels of Conv1, which Figure 7(c) does not name otherwise
RATE_CHANNELS = (64, 128, 256, 512)
MEANING = {"paper": "original network", "average": "averaging variant"}


@dataclass(frozen=True)
class Scale:
    """How much of DC's experiment is run."""

    side: int
    images: int
    networks: int
    channels: tuple[int, ...]
    kernels: tuple[int, ...]

    def words(self) -> str:
        return f"{self.networks} networks, {self.images} images of {self.side}x{self.side}"


def scale_of(desk: Desk) -> Scale:
    found: Scale = desk.pick(
        Scale(32, 12, 16, (4, 16, 64), (1, 5, 11)),
        Scale(32, 50, 30, CHANNELS, KERNELS),
        Scale(224, 50, 30, FULL_CHANNELS, KERNELS),
    )
    return found


_last: dict[tuple[object, ...], dict[int, Similarities]] = {}  # (a) and (b) are two views of the same networks


def by_channels(desk: Desk, scale: Scale, images: Tensor) -> dict[int, Similarities]:
    """SSIM of CD1 for every number of channels."""
    key = (desk.seed, scale, images.shape, float(images.double().sum()))
    if key not in _last:
        total, done = scale.networks * sum(n + 16 for n in scale.channels), 0
        found = {}
        for n in scale.channels:

            def told(n: int = n) -> None:
                nonlocal done
                done += n + 16
                desk.progress(done, total)

            found[n] = similarities(images, scale.networks, desk.seed + n, told, channels=n)
        _last.clear()
        _last[key] = found
    return _last[key]


def run_channels(desk: Desk, variant: str) -> Outcome:
    scale = scale_of(desk)
    images = desk.images(SET, count=scale.images, size=scale.side, channels=3).images
    by = by_channels(desk, scale, images)
    values = {n: found.of(variant) for n, found in by.items()}
    first, last = scale.channels[0], scale.channels[-1]
    why = "a random last layer has no limit: the output tends to a Gaussian field, whose SSIM does not depend on the width"
    checks = [
        grows(
            f"SSIM is higher at {last} than at {first} channels: difference",
            difference(values[last], values[first]),
            why,
        ),
        _trend_check(variant, values),
    ]
    means = {n: over_networks(v) for n, v in values.items()}
    data: dict[str, object] = {
        "size": scale.words(),
        "channels": list(values),
        "ssim": [m.value for m in means.values()],
        "stderr": [m.stderr for m in means.values()],
        "deviation": [float(v.mean(1).std()) for v in values.values()],
    }
    limit = None
    if variant == "average":
        limit = float(compare_pictures(to_pictures(_limits(images)[:, None].float(), "range"), images).ssim.mean())
        data["limit"] = limit
        checks.append(
            Check("SSIM of the widest networks is near that of the limit image", None, None, limit, means[last],
                  "DC names no rate for SSIM; the angle's rate is checked in random-cnn/rate")
        )  # fmt: skip
    picture = _draw_channels(scale, variant, means, limit, trend(values))
    notes = [scale.words()]
    if variant == "paper":
        notes += [
            "networks of one width differ far more than widths do; at 64x64 and 4 to 128 channels the difference of the ends was "
            "0.008 with a standard error of 0.031",
            "DC does not say how outputs become pictures; here the smallest and the largest value become black and white",
        ]
    return Outcome(tuple(checks), data, picture, tuple(notes))


def _trend_check(variant: str, values: dict[int, Tensor]) -> Check:
    """What a doubling adds, over all widths; for the original network no test, since it was added with the data in view."""
    says, found = "SSIM rises with channels: gain of a doubling, all networks", trend(values)
    if variant == "average":
        return grows(says, found)
    low, high = found.interval()
    why = f"{low:.4f} to {high:.4f}; added after the difference of the ends had left the question open: it confirms nothing"
    return Check(says, None, sampled=found, why=why)


def _limits(images: Tensor) -> Tensor:
    """f* of CD1's averaging variant, (n, h, w)."""
    return convergence_image(limit_network(layout("vgg16", 1, inputs=images.shape[1]), LAW), images).image


def _error(found: Sampled) -> float:
    low, high = found.interval()
    return (high - low) / 2


def _draw_channels(
    scale: Scale, variant: str, means: dict[int, Sampled], limit: float | None, gain: Sampled
) -> Picture:
    across = list(means)
    label, hue = MEANING[variant], 0 if variant == "paper" else 1
    y, error = [m.value for m in means.values()], [_error(m) for m in means.values()]
    marks: list[Line | Points] = [Points(f"{label}, mean and 95 % interval", across, y, hue=hue, error=error)]
    if limit is not None:
        marks.insert(0, Line("limit image f* (Theorem 1)", across, [limit] * len(across), hue=2, dash=1))
    panel = Panel(marks, "channels in every layer", "SSIM, grey", scale_across="log", limits_up=(0, 1))
    low, high = gain.interval()
    found = f"twice the channels change SSIM by {gain.value:+.3f} (95 %: {low:+.3f} to {high:+.3f})"
    title = f"Twice the channels, SSIM {gain.value:+.3f}: {label} ({scale.words()})"
    said = ", ".join(f"{n}: {m.value:.3f}" for n, m in means.items())
    return curves_and_points([panel], title, f"{title}. CD1: {found}. Mean SSIM by channels: {said}.", size=(6.4, 3.6))


def run_kernels(desk: Desk) -> Outcome:
    scale = scale_of(desk)
    images = desk.images(SET, count=scale.images, size=scale.side, channels=3).images
    total, done = scale.networks * sum(k * k + 3 for k in scale.kernels), 0
    found = {}
    for k in scale.kernels:

        def told(k: int = k) -> None:
            nonlocal done
            done += k * k + 3
            desk.progress(done, total)

        found[k] = similarities(images, scale.networks, desk.seed + k, told, depth="1_1", channels=WIDTH, kernel=k)
    checks = []
    small, large = scale.kernels[0], scale.kernels[-1]
    for variant, name in MEANING.items():
        values = {k: row.of(variant) for k, row in found.items()}
        checks += [
            grows(f"{name}: SSIM falls with the kernel, {small} to {large}: loss of a doubling", turned(trend(values))),
            grows(f"{name}: SSIM is lower at {large}x{large} than at {small}x{small}: difference",
                  difference(values[small], values[large])),
        ]  # fmt: skip
    means = {v: {k: over_networks(found[k].of(v)) for k in found} for v in ("paper", "average")}
    data = {"size": scale.words(), "kernels": list(found)} | {
        f"{v}_{name}": [getattr(m, name) for m in row.values()]
        for v, row in means.items()
        for name in ("value", "stderr")
    }
    marks = [
        Points(
            f"{MEANING[v]}, mean and 95 % interval", list(row), [m.value for m in row.values()], hue=hue,
            error=[_error(m) for m in row.values()],
        )
        for hue, (v, row) in enumerate(means.items())
    ]  # fmt: skip
    title = f"Conv1_1-DeConv1_1, {WIDTH} channels: larger kernels, worse pictures ({scale.words()})"
    panel = Panel(marks, "side of the kernel, pixels", "SSIM, grey", limits_up=(0, 1), counts=True)
    said = ", ".join(f"{k}: {m.value:.3f}" for k, m in means["paper"].items())
    picture = curves_and_points(
        [panel], title, f"{title}. Mean SSIM of the original network by side: {said}.", size=(6.4, 3.6)
    )
    notes = (scale.words(), f"DC does not say how many channels Figure 7(c) has; {WIDTH} is the width of Conv1")
    return Outcome(tuple(checks), data, picture, notes)


def run_rate(desk: Desk) -> Outcome:
    """The averaging variant and its limit: log-log slope of the angle against the number of channels."""
    side, count = 24, desk.pick(3, 8)
    networks, widths = desk.pick(12, 40, 100), desk.pick((32, 64, 128), RATE_CHANNELS, (*RATE_CHANNELS, 1024))
    images = desk.images(SET, count=count, size=side, channels=3).images
    limit = _limits(images)
    rows: dict[str, list[list[float]]] = {"1_1": [], "1": []}
    limits = {"1": limit, "1_1": convergence_image(limit_network(layout("vgg16", "1_1"), LAW), images).image}
    for number in range(networks):
        desk.progress(number, networks)
        for depth, row in rows.items():
            row.append([])
            for n in widths:
                seed = desk.seed + 104729 * number + n
                _, average = outputs(images, depth=depth, channels=n, seed=seed)
                row[-1].append(float(angles(average[:, 0], limits[depth]).sin().mean()))
    tables = {depth: torch.tensor(row, dtype=torch.float64) for depth, row in rows.items()}
    names = {"1_1": "one layer of filters (Theorem 6)", "1": "CD1, three layers (Theorem 2)"}
    checks = [rate_check(f"{names[d]}: sin Θ falls as N^(-1/2)", slope(table, widths)) for d, table in tables.items()]
    marks: list[Line | Points] = []
    data: dict[str, object] = {"channels": list(widths), "networks": networks, "images": count, "side": side}
    for hue, (d, table) in enumerate(tables.items()):
        means = [over_networks(table[:, i]) for i in range(len(widths))]
        data[f"sine_{d}"], data[f"stderr_{d}"] = [m.value for m in means], [m.stderr for m in means]
        start = means[-1].value * widths[-1] ** 0.5
        marks.append(Line(f"{names[d]}: N^(-1/2)", list(widths), [start / n**0.5 for n in widths], hue=hue))
        marks.append(
            Points(
                f"{names[d]}: sampled",
                list(widths),
                [m.value for m in means],
                hue=hue,
                error=[_error(m) for m in means],
            )
        )
    title = f"The output nears its limit as one over the root of the width ({networks} networks, {count} images of {side}x{side})"
    panel = Panel(marks, "channels in every layer, N", "sin Θ, mean over images", scale_across="log", scale_up="log")
    said = "; ".join(f"{names[d]}: slope {slope(t, widths).value:.3f}" for d, t in tables.items())
    picture = curves_and_points([panel], title, f"{title}. {said}.", size=(6.4, 3.8), legend_columns=2)
    return Outcome(tuple(checks), data, picture)


ITEMS = (
    Item(
        "random-cnn/fig7a", "SSIM against channels, original network",
        "An increasing number of random channels promotes the reconstruction quality.",
        lambda desk: run_channels(desk, "paper"), (SET,), 2500,
    ),
    Item(
        "random-cnn/fig7b", "SSIM against channels, averaging variant",
        "The same holds where the last layer is replaced by the mean over channels.",
        lambda desk: run_channels(desk, "average"), (SET,), 2500,
    ),
    Item(
        "random-cnn/fig7c", "SSIM against kernel size",
        "The reconstruction quality decays with larger kernels.", run_kernels, (SET,), 60,
    ),
    Item(
        "random-cnn/rate", "Angle to the limit against channels",
        "The angle between output and limit falls as one over the root of the number of channels.",
        run_rate, (SET,), 10,
    ),
)  # fmt: skip
