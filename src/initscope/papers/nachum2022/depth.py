"""Section 4.2: what many layers do, to raw and centred images, with other filters, and with batch norm."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from initscope.activations import RELU
from initscope.data import Pairs
from initscope.finite import simulate
from initscope.finite.estimate import student_quantile
from initscope.layers import Activate, BatchNorm, Conv, Dense, Layer
from initscope.networks import Sequential, predict
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim
from initscope.papers.nachum2022.drawing import LAYER, Line, Points, Words, curves, panels, relu_curve
from initscope.papers.nachum2022.sampling import all_agree, plain, title_of
from initscope.weights import Gaussian, Orthogonal, WeightLaw

DEPTH = 50
SHOWN = (1, 2, 3, 5, 8, 12, 17, 23, 30, 40, 50)
CHANNELS = 128
SIDE = 12  # of the images


def stack(depth: int, weights: WeightLaw, *, norm: bool = False, channels: int = CHANNELS) -> Sequential:
    layers: list[Layer] = []
    for _ in range(depth):
        layers += [Conv(channels, 3, weights=weights), *([BatchNorm()] if norm else []), Activate(RELU)]
    return Sequential(*layers)


class Followed:
    """Cosines of zipped pairs by layer, exact and sampled: after the convolution (or the norm behind it), and after ReLU."""

    def __init__(self, net: Sequential, pairs: Pairs, step: int, draws: int, seed: int) -> None:
        exact = predict(net, pairs.x, pairs.y).layers
        drawn = simulate(net, pairs.x, pairs.y, draws=draws, seed=seed, average="networks").layers
        self.input = exact[0].cosine
        self.before = torch.stack([layer.cosine for layer in exact[step - 1 :: step]])  # pre-activations, (depth, n)
        self.after = torch.stack([layer.cosine for layer in exact[step::step]])
        self.angles = torch.stack([layer.angle for layer in exact[0::step]]).rad2deg()  # input first
        self.sampled = [layer.cosine for layer in drawn[step - 1 :: step]]
        self.sampled_angles = [layer.angle for layer in drawn[0::step]]
        self.draws = draws
        self.channels = exact[1].shape[0]

    def angle_line(self, label: str) -> Line:
        places = [0, *(d for d in SHOWN if d < len(self.angles))]
        values = [float(self.sampled_angles[d].value.rad2deg().mean()) for d in places]
        reach = [_reach(self.sampled_angles[d].stderr.rad2deg(), self.draws) for d in places]
        return Line(label, [*range(len(self.angles))], plain(self.angles.mean(1)), Points(places, values, reach))

    def cosine_line(self, label: str) -> Line:
        """Pre-activations, layer 1 first."""
        depth = len(self.before)
        places = [d for d in SHOWN if d <= depth]
        values = [float(self.sampled[d - 1].value.mean()) for d in places]
        reach = [_reach(self.sampled[d - 1].stderr, self.draws) for d in places]
        return Line(label, [*range(1, depth + 1)], plain(self.before.mean(1)), Points(places, values, reach))

    def last(self) -> Sampled:
        """Mean pre-activation cosine over the pairs in the last layer of the sampled networks."""
        found = self.sampled[-1]
        return Sampled(float(found.value.mean()), float(found.stderr.mean()), self.draws)


def _reach(stderr: Tensor, draws: int) -> float:
    """Pairs share the networks, so that their errors may add up: the mean of the errors bounds the error of the mean."""
    return student_quantile(draws, 0.95) * float(stderr.mean())


def _sets(desk: Desk, count: int) -> list[tuple[str, str, dict[str, Pairs]]]:
    found = []
    for name, title in (("fashion_mnist", "Fashion-MNIST"), ("cifar10", "CIFAR-10")):
        ways: dict[str, dict[str, bool]] = {
            "raw": {},
            "centred": {"centre": True},
            "standardised": {"standardise": True},
        }
        pairs = {way: desk.pairs(name, pairs=count, size=SIDE, **options) for way, options in ways.items()}
        found.append((name, title_of(name, title, pairs["raw"]), pairs))
    return found


def depth(desk: Desk) -> Outcome:
    """Layer by layer for raw, centred and standardised images of two sets."""
    layers, draws = desk.pick(6, DEPTH), desk.pick(3, 6)
    checks: list[Check] = []
    data: dict[str, object] = {}
    shown = []
    for _, title, sets in _sets(desk, desk.pick(3, 5)):
        ways = [*sets] if not desk.quick else ["raw", "centred"]
        net = stack(layers, Gaussian())
        found = {way: Followed(net, sets[way], 2, draws, desk.seed) for way in ways}
        for way, one in found.items():
            fall = float((one.angles[:-1] - one.angles[1:]).min())
            checks.append(
                claim(
                    f"{title}, {way}: every one of {layers} layers contracts every pair (smallest loss of angle, "
                    "degrees)",
                    fall > 0,
                    exact=fall,
                )
            )
            data[f"{title}, {way}"] = {
                "angle": plain(one.angles.mean(1)),
                "sampled": plain(torch.stack([a.value.rad2deg().mean() for a in one.sampled_angles])),
            }
        checks += [_sharper(title, found["raw"], found["centred"], at) for at in (1, layers)]
        shown.append((title, [one.angle_line(way) for way, one in found.items()]))
    words = Words(
        "Every ReLU layer contracts; centred images contract faster",
        LAYER,
        "mean angle between images (degrees)",
        "Mean angle between pairs of images by layer for raw, centred and standardised images: all fall towards 0.",
    )
    notes = (
        f"Sampled networks have {CHANNELS} channels, images {SIDE}x{SIDE}; the exact curves are for many "
        "channels, and narrow networks contract less.",
    )
    return Outcome(tuple(checks), data, panels(shown, words), notes)


def _sharper(title: str, raw: Followed, centred: Followed, at: int) -> Check:
    """Which share of its angle a pair keeps; the pairs are the same images, so that the difference has a small error."""
    kept = [one.angles[at] / one.angles[0] for one in (raw, centred)]
    off = kept[0] - kept[1]
    found = Sampled(float(off.mean()), float(off.std()) / math.sqrt(len(off)), len(off))
    holds = found.interval()[0] > 0
    return claim(
        f"{title}: centring sharpens the contraction; share of the angle kept after {at} "
        f"layer{'s' if at > 1 else ''}, raw minus centred",
        holds,
        exact=found.value,
        sampled=found,
        why="" if holds else "the interval over the pairs reaches 0",
    )


def orthogonal(desk: Desk) -> Outcome:
    """Orthogonal weights: the same dual at every input dimension, and the same collapse."""
    rho = torch.tensor([-0.9, -0.5, 0.0, 0.5, 0.9], dtype=torch.float64)
    draws = desk.pick(200, 2000)
    rows = []
    sizes = desk.pick((2, 8), (2, 3, 8, 32))
    named = ", ".join(str(size) for size in sizes)
    for size in sizes:
        x, y = torch.zeros(2, len(rho), size, dtype=torch.float64)
        x[:, 0], y[:, 0], y[:, 1] = 1.0, rho, (1 - rho.square()).sqrt()
        found = simulate(
            Sequential(Dense(size, Orthogonal()), Activate(RELU)), x, y, draws=draws, seed=desk.seed + size
        ).layers[-1]
        rows.append((found.cosine.value, found.cosine.stderr))
    value, stderr = (torch.stack(side) for side in zip(*rows, strict=True))
    pairs = desk.pairs("cifar10", pairs=desk.pick(2, 5), size=SIDE)
    layers = desk.pick(5, DEPTH)
    laws = (Gaussian(), Orthogonal())
    gaussian, other = (Followed(stack(layers, law), pairs, 2, desk.pick(3, 6), desk.seed) for law in laws)
    same = float((gaussian.after - other.after).abs().max())
    falls = float((other.angles[:-1] - other.angles[1:]).min())
    checks = (
        all_agree(
            f"one dense layer of orthogonal weights follows eq. 2 at input dimensions {named}",
            value,
            stderr,
            relu_curve(rho).expand_as(value),
            draws,
        ),
        claim(
            "orthogonal and Gaussian filters have the same exact means in every layer: largest difference",
            same < 1e-12,
            exact=same,
        ),
        claim(
            f"orthogonal filters do not prevent the collapse: every one of {layers} layers contracts (smallest loss "
            "of angle, degrees)",
            falls > 0,
            exact=falls,
        ),
    )
    notes = (
        "A row of a random orthogonal matrix is a Gaussian row without its length, and ReLU only scales with the "
        "length: for activations "
        "of degree one the two duals agree at every input dimension, not only in the limit of large ones.",
        f"Sampled networks have {CHANNELS} channels, images {SIDE}x{SIDE}.",
    )
    words = Words(
        "Orthogonal filters collapse images as Gaussian ones do",
        LAYER,
        "mean angle between images (degrees)",
        "Mean angle by layer for Gaussian and orthogonal filters: one exact curve, sampled points of both on it.",
    )
    lines = [gaussian.angle_line("Gaussian filters"), other.angle_line("orthogonal filters")]
    data = {line.label: {"exact": list(line.y), "sampled": list(line.points.y)} for line in lines if line.points}
    return Outcome(
        checks, {**data, "one_layer": {"rho": plain(rho), "sampled": value.tolist()}}, curves(lines, words), notes
    )


ITEMS = (
    Item(
        "nachum2022/depth",
        "Section 4.2: contraction by depth",
        "Each layer contracts further, and mean removal and normalisation sharpen the contraction.",
        depth,
        sets=("fashion_mnist", "cifar10"),
    ),
    Item(
        "nachum2022/orthogonal",
        "Section 4.2: orthogonal weights",
        "Orthogonal initialization has the same dual as Gaussian in the limit of large dimensions and does not "
        "prevent the collapse.",
        orthogonal,
        sets=("cifar10",),
    ),
)
