"""What the items of DC share: networks drawn by seed, their similarity to the input, their angle to the limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from initscope.geometry import angle
from initscope.images import Decoder, Encoder, compare_pictures, layout, to_pictures
from initscope.papers.item import Check, Sampled, claim
from initscope.weights import Gaussian

# DC 4.1: "random in N(0, 0.1)". Whether 0.1 is a variance or a deviation changes no picture: the networks are homogeneous.
LAW = Gaussian.of_deviation(0.1)
VARIANTS = ("paper", "average")
_BATCH = 2**25  # numbers in the widest feature map of one batch of images
Depth = int | str
Upsampling = Literal["zeros", "nearest"]


@dataclass(frozen=True)
class Similarities:
    """SSIM of each network (rows) and each image (columns), for the network as it is and for its averaging variant."""

    paper: Tensor
    average: Tensor

    def of(self, variant: str) -> Tensor:
        return self.paper if variant == "paper" else self.average


@torch.no_grad()
def outputs(
    images: Tensor,
    *,
    depth: Depth = 1,
    channels: int | None = None,
    kernel: int | None = None,
    upsampling: Upsampling = "zeros",
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """One network's output (n, c, h, w), and that of its averaging variant (n, 1, h, w): only the last layer differs (DC 4.2)."""
    plan = layout("vgg16", depth, inputs=images.shape[1], channels=channels, kernel=kernel)
    encoder = Encoder(plan, law=LAW, normalise=True, seed=seed)  # DC Definition 1, 3); no picture depends on it
    decoder = Decoder(plan, law=LAW, upsampling=upsampling, normalise=True, seed=seed)
    size = (images.shape[-2], images.shape[-1])
    widest = max(conv.outputs for conv in plan.convs) * math.prod(size)
    found = []
    for some in torch.split(images, max(1, _BATCH // widest)):
        hidden = decoder.hidden(encoder(some), size)
        both = decoder.last(hidden), hidden.mean(1, keepdim=True)
        found.append([t[..., : size[0], : size[1]] for t in both])
    paper, average = (torch.cat(parts) for parts in zip(*found, strict=True))
    return paper, average


def similarities(
    images: Tensor, networks: int, seed: int, told: Callable[[], None] = lambda: None, **options: Any
) -> Similarities:
    """SSIM in DC's convention over `networks` networks, each its own draw."""
    rows: list[list[Tensor]] = [[], []]
    for number in range(networks):
        both = outputs(images, seed=seed + 7919 * number, **options)
        for row, output in zip(rows, both, strict=True):
            row.append(compare_pictures(to_pictures(output, "range"), images).ssim)
        told()
    return Similarities(torch.stack(rows[0]), torch.stack(rows[1]))


def over_networks(values: Tensor) -> Sampled:
    """The mean over networks, as DC 4.2 takes it: (networks, images), images averaged first."""
    means = values.double().mean(1) if values.ndim == 2 else values.double()
    count = len(means)
    return Sampled(float(means.mean()), float(means.std()) / math.sqrt(count), count)


def difference(one: Tensor, other: Tensor) -> Sampled:
    """Mean of `one` minus that of `other`, each (networks, images) of networks of their own."""
    a, b = over_networks(one), over_networks(other)
    return Sampled(a.value - b.value, math.hypot(a.stderr, b.stderr), min(a.draws, b.draws))


def trend(values: Mapping[int, Tensor]) -> Sampled:
    """Slope of the mean against log2 of the key, (networks, images) for each: what one doubling adds, over all networks."""
    x = torch.tensor([math.log2(n) for n in values], dtype=torch.float64)
    weights = ((x - x.mean()) / (x - x.mean()).square().sum()).tolist()
    found = [over_networks(v) for v in values.values()]
    value = sum(w * f.value for w, f in zip(weights, found, strict=True))
    error = math.sqrt(sum((w * f.stderr) ** 2 for w, f in zip(weights, found, strict=True)))
    return Sampled(value, error, sum(f.draws for f in found) - len(found))


def turned(found: Sampled) -> Sampled:
    """The same with the opposite sign."""
    return Sampled(-found.value, found.stderr, found.draws)


def grows(says: str, found: Sampled, why: str = "", published: str | None = None) -> Check:
    """A difference that should be positive: decided by its 95 % interval, open where the interval holds zero."""
    low, high = found.interval()
    if low <= 0 <= high:
        return Check(
            says, None, published, None, found, f"the interval of the difference, {low:.4f} to {high:.4f}, holds zero"
        )
    return claim(says, low > 0, sampled=found, published=published, why="" if low > 0 else why)


def slope(values: Tensor, across: Sequence[int]) -> Sampled:
    """Slope of log(value) against log(across), (networks, points): each row has its own line, the rows are independent."""
    x = torch.tensor([math.log(n) for n in across], dtype=torch.float64)
    x = x - x.mean()
    rows = (values.double().log() * x).sum(1) / x.square().sum()
    return Sampled(float(rows.mean()), float(rows.std()) / math.sqrt(len(rows)), len(rows))


def angles(module_outputs: Tensor, limit: Tensor) -> Tensor:
    """Angle of outputs (n, h, w) to their limits; a right angle where nothing came out."""
    alive = (module_outputs != 0).flatten(1).any(1)
    found = torch.full((len(limit),), math.pi / 2, dtype=torch.float64)
    if bool(alive.any()):
        found[alive] = angle(module_outputs[alive].double(), limit[alive])
    return found


def rate_check(says: str, found: Sampled) -> Check:
    """Slope -1/2 inside the sampled interval."""
    low, high = found.interval()
    why = "" if low <= -0.5 <= high else f"the interval is {low:.3f} to {high:.3f}"
    return claim(says, low <= -0.5 <= high, exact=-0.5, sampled=found, why=why)
