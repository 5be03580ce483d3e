"""DC Theorems 1, 4 and 10 and Lemma 5: what the output of a random CNN tends to."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from initscope.bounds import convergence_image
from initscope.figures import Line, Panel, Points, curves_and_points
from initscope.geometry import generator
from initscope.images import limit_network
from initscope.images.architectures import layout
from initscope.layers import AveragePool, Conv, L2Pool, Layer, ReLU, Upsample
from initscope.networks import Sequential
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim
from initscope.papers.random_cnn.sampling import angles, grows, over_networks
from initscope.weights import Gaussian

SET = "imagenet224"
ROUNDING = 1e-10


def conv(width: int, kernel: int = 3) -> tuple[Layer, Layer]:
    return Conv(width, kernel, padding="zero"), ReLU()


def nets(width: int) -> dict[str, Sequential]:
    """Networks of Definition 1 with l2 pooling, each layer `width` channels wide."""
    return {
        "one layer, 3x3": Sequential(*conv(width)),
        "one layer, 5x5": Sequential(*conv(width, 5)),
        "CD1": limit_network(layout("vgg16", 1, channels=width), Gaussian(2.0)),
        "CD2, l2 pooling": limit_network(layout("vgg16", 2, channels=width), Gaussian(2.0), pooling="l2"),
    }


@torch.no_grad()
def draw(net: Sequential, images: Tensor, seed: int, number: int) -> Tensor:
    """The output of one network, the mean over channels, (n, h, w)."""
    module = net.sample(tuple(images.shape[1:]), generator=generator(seed, number), dtype=images.dtype)
    features: Tensor = module(images)
    return features.mean(1)


def routes(net: Sequential, images: Tensor) -> Tensor:
    """z* by counting: n_(l,i) from pushing every single pixel through the windows, then √(Σ n |X|²)."""
    height, width = images.shape[-2:]
    spots = torch.eye(height * width, dtype=torch.float64).view(-1, 1, height, width)
    for layer in net.layers:
        if isinstance(layer, Conv):
            (top, bottom), (left, right) = layer.window.margins(tuple(spots.shape[-2:]))
            kernel = torch.ones(1, 1, *layer.window.kernel, dtype=torch.float64)
            spots = F.conv2d(F.pad(spots, (left, right, top, bottom)), kernel)
        elif isinstance(layer, L2Pool):
            spots = F.avg_pool2d(spots, layer.window, divisor_override=1)
        elif isinstance(layer, Upsample):
            wide = spots.new_zeros(len(spots), 1, *(n * layer.factor for n in spots.shape[-2:]))
            wide[..., :: layer.factor, :: layer.factor] = spots
            spots = wide
    counts = spots.flatten(1)  # (input pixels, output pixels)
    squares = images.double().square().sum(1).flatten(1) @ counts
    return squares.sqrt().view(len(images), height, width)


def run_theorem1(desk: Desk) -> Outcome:
    images = desk.images(SET, count=desk.pick(3, 4), size=16, channels=3).images.double()
    widths, networks = (16, 64, 256), desk.pick(4, 12)
    checks: list[Check] = []
    marks: list[Points] = []
    data: dict[str, dict[str, list[float]]] = {}
    worst = 0.0
    for net in nets(8).values():
        z = convergence_image(net, images).z
        worst = max(worst, float(((routes(net, images) - z) / z.amax()).abs().max()))
    checks.append(
        claim(
            "f* = k z*, z* the root of the squared pixels weighted by routes: relative error",
            worst < ROUNDING,
            exact=worst,
        )
    )
    for hue, name in enumerate(nets(8)):
        rows = []
        for n in widths:
            net = nets(n)[name]
            limit = convergence_image(net, images).image
            found = [
                float(
                    (
                        (draw(net, images, desk.seed, number) - limit).flatten(1).norm(dim=1)
                        / limit.flatten(1).norm(dim=1)
                    ).mean()
                )
                for number in range(networks)
            ]
            rows.append(over_networks(torch.tensor(found, dtype=torch.float64)))
        desk.progress(hue + 1, len(nets(8)))
        data[name] = {"width": list(widths), "distance": [r.value for r in rows], "stderr": [r.stderr for r in rows]}
        marks.append(Points(name, list(widths), [r.value for r in rows], hue=hue, error=[_half(r) for r in rows]))
        gap = Sampled(rows[0].value - rows[-1].value, math.hypot(rows[0].stderr, rows[-1].stderr), networks)
        checks.append(grows(f"{name}: |f - f*|/|f*| falls from {widths[0]} to {widths[-1]} channels: difference", gap))
    checks.append(_printed_constant(desk, images[:1]))
    guide = [marks[0].y[0] * math.sqrt(widths[0] / n) for n in widths]
    panel = Panel(
        [Line("N^(-1/2)", list(widths), guide, hue=6, dash=1), *marks], "channels in every layer, N", "|f - f*| / |f*|",
        scale_across="log", scale_up="log",
    )  # fmt: skip
    title = "Outputs of random networks go to the limit that Theorem 1 computes"
    said = "; ".join(f"{name}: {row['distance'][-1]:.3f} at {widths[-1]} channels" for name, row in data.items())
    return Outcome(tuple(checks), data, curves_and_points([panel], title, f"{title}. {said}.", size=(6.4, 3.8)))


def _printed_constant(desk: Desk, image: Tensor) -> Check:
    """k = k1 Π k2 as the appendix has it, against the output of a wide network without factors of its own."""
    law, width, networks = Gaussian(0.25, "none"), 512, desk.pick(4, 16)
    net = Sequential(
        Conv(width, 3, padding="zero", weights=law), ReLU(), Conv(width, 3, padding="zero", weights=law), ReLU()
    )
    z = convergence_image(net, image).z
    ratios = []
    for number in range(networks):
        f = draw(net, image, desk.seed + 1, number) / math.sqrt(width)  # DC Definition 1, 3)
        ratios.append(float((f * z).sum() / z.square().sum()))
    found = over_networks(torch.tensor(ratios, dtype=torch.float64))
    k1, k2 = 0.5 * math.sqrt(0.25) * math.sqrt(2 / math.pi), 0.5 * 0.25
    printed, rooted = k1 * k2, k1 * math.sqrt(k2)
    low, high = found.interval()
    inside = low <= printed <= high
    away = abs(found.value - rooted) / found.stderr
    why = f"the root is missing: k1 √k2 = {rooted:.5f} is {away:.1f} standard errors away"
    return claim(
        "k = k1 Π k2, as printed in the proof (two layers, variance 0.25)",
        inside,
        exact=printed,
        sampled=found,
        why=why,
    )


def _half(found: Sampled) -> float:
    low, high = found.interval()
    return (high - low) / 2


def run_lemma5(desk: Desk) -> Outcome:
    """E g^m = k_m z^m and E g_i g_j, for Gaussian filters of several sizes, by drawing."""
    draws = desk.pick(100_000, 1_000_000)
    random = generator(desk.seed, 5)
    checks, data = [], {}
    for size in (2, 27):
        y = torch.randn(size, 2, generator=random, dtype=torch.float64)
        w = torch.randn(draws, size, generator=random, dtype=torch.float64) * 0.7
        g = (w @ y).relu()
        z = y.norm(dim=0)
        theta = float(torch.acos((y[:, 0] @ y[:, 1]) / (z[0] * z[1])))
        moments = {m: 0.5 * 0.7**m * e for m, e in ((1, math.sqrt(2 / math.pi)), (2, 1.0), (4, 3.0))}
        for m, k in moments.items():
            checks.append(_meets(f"E g^{m} = k_{m} z^{m}, {size} weights", k * float(z[0]) ** m, g[:, 0] ** m))
        cross = moments[2] / math.pi * ((math.pi - theta) * math.cos(theta) + math.sin(theta)) * float(z[0] * z[1])
        checks.append(_meets(f"E g_i g_j at {math.degrees(theta):.0f}°, {size} weights", cross, g[:, 0] * g[:, 1]))
        data[str(size)] = {"angle": theta, "draws": draws}
    return Outcome(tuple(checks), data)


def _meets(says: str, exact: float, samples: Tensor) -> Check:
    """Exact against sampled, 99.9 % interval: eight of them are looked at together."""
    found = Sampled(float(samples.mean()), float(samples.std()) / math.sqrt(len(samples)), len(samples))
    low, high = found.interval(0.999)
    return claim(says, low <= exact <= high, exact=exact, sampled=found)


def run_theorem10(desk: Desk) -> Outcome:
    side = 12
    images = desk.images(SET, count=desk.pick(2, 4), size=side, channels=3).images.double()
    widths, networks = (16, 64, 256), desk.pick(8, 20)
    checks: list[Check] = []
    marks: list[Points] = []
    data: dict[str, dict[str, list[float]]] = {}
    shapes: dict[str, Callable[[int], Sequential]] = {
        "conv, average pooling, conv": lambda n: Sequential(*conv(n), AveragePool(2), *conv(n)),
        "CD2, average pooling": lambda n: limit_network(
            layout("vgg16", 2, channels=n), Gaussian(2.0), pooling="average"
        ),
    }
    for hue, (name, make) in enumerate(shapes.items()):
        rows = []
        for n in widths:
            net = make(n)
            limit = convergence_image(net, images).image
            table = [angles(draw(net, images, desk.seed, number), limit).mean() for number in range(networks)]
            rows.append(over_networks(torch.stack(table)))
        desk.progress(hue + 1, len(shapes))
        gap = Sampled(rows[0].value - rows[-1].value, math.hypot(rows[0].stderr, rows[-1].stderr), networks)
        checks.append(grows(f"{name}: the angle to f* falls from {widths[0]} to {widths[-1]} channels: radians", gap))
        degrees = [math.degrees(r.value) for r in rows]
        data[name] = {"width": list(widths), "angle_deg": degrees}
        marks.append(Points(name, list(widths), degrees, hue=hue, error=[math.degrees(_half(r)) for r in rows]))
    checks.append(_not_theorem1(images))
    panel = Panel(marks, "channels in every layer", "angle to f*, degrees", scale_across="log", scale_up="log")
    title = "With average pooling too the output has a limit (Theorem 10)"
    said = "; ".join(f"{name}: {row['angle_deg'][-1]:.2f}° at {widths[-1]} channels" for name, row in data.items())
    return Outcome(tuple(checks), data, curves_and_points([panel], title, f"{title}. {said}.", size=(6.4, 3.6)))


def _not_theorem1(images: Tensor) -> Check:
    """DC 5.1: where neighbours are alike, l2 and average pooling should have similar outputs."""
    both = [
        convergence_image(limit_network(layout("vgg16", 2, channels=8), Gaussian(2.0), pooling=kind), images).image
        for kind in ("average", "l2")
    ]
    found = float(torch.rad2deg(angles(both[0], both[1])).max())
    return claim(
        "l2 and average pooling have similar limits: largest angle between them, degrees, below 10",
        found < 10,
        exact=found,
    )


ITEMS = (
    Item(
        "random-cnn/thm1", "Theorems 1 and 4: the convergence value",
        "With l2 pooling the output converges to k times the root of the squared pixels, weighted by routes.",
        run_theorem1, (SET,),
    ),
    Item("random-cnn/lemma5", "Lemma 5: moments of a random ReLU feature", "E g^m = k_m z^m.", run_lemma5),
    Item(
        "random-cnn/thm10", "Theorem 10: the convergence value with average pooling",
        "With average pooling the output converges to a fixed image too.", run_theorem10, (SET,),
    ),
)  # fmt: skip
