"""How well a random CNN rebuilds its input: the angle between the limit image and the input (DC Theorems 3 and 9), and the
angle of finite networks to the limit, measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from initscope.bounds.convergence import limit
from initscope.bounds.random_cnn import RandomCNN, check_images, check_not_zero, read_random_cnn
from initscope.bounds.result import Bound
from initscope.bounds.variance import adjoint
from initscope.errors import BadInput
from initscope.finite import Estimate
from initscope.geometry import angle, generator, similarity
from initscope.layers import Layer
from initscope.networks.progress import Progress


@dataclass(frozen=True)
class AngleToInput:
    """The angle Φ between the input image and the limit f* of the output; tensors of shape (n,).

    cosine: cos Φ, exact; theorem: the lower bound on it that DC Theorems 3 and 9 guarantee (None where an average pooling leaves
    no count of routes); both for the image of channel norms, which is the image itself where it has one channel.
    """

    cosine: Bound[Tensor]
    theorem: Bound[Tensor] | None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        return {"cosine": self.cosine.to_dict(), "theorem": None if self.theorem is None else self.theorem.to_dict()}


def angle_to_input(net: Layer, images: Tensor, *, memory: int | None = None) -> AngleToInput:
    """How near the limit image is to the input, exactly, and DC's bound `cos Φ >= 1 - (1/M) Σ ε_t X_t`, M = Σ X_t².

    ε_t = X_t - X̄_t, where X̄_t is the mean of the pixels that output t sees, weighted by the number of routes from them; pixels of
    a zero padding count as zeros. `net` as in `convergence_image`, its output as large as its input; `images`: (n, c, h, w), not
    negative. Colour: X is the image of channel norms, all that the limit sees.

    >>> from initscope.layers import Conv, ReLU
    >>> from initscope.networks import Sequential
    >>> ramp = (torch.arange(8.0) + 1).expand(1, 1, 8, 8)
    >>> found = angle_to_input(Sequential(Conv(9, padding="zero"), ReLU()), ramp)
    >>> round(float(found.cosine.value), 4), round(float(found.theorem.value), 4)
    (0.9888, 0.8088)
    """
    place = "angle_to_input"
    pixels = check_images(place, images)
    cnn = read_random_cnn(place, net, tuple(pixels.shape[1:]))
    _check_pixels(place, pixels)
    found = limit(cnn, pixels, place, memory)
    grey = pixels.square().sum(1).sqrt()
    if found.z.shape != grey.shape:
        sizes = [f"{h}x{w}" for h, w in (grey.shape[1:], found.z.shape[1:])]
        problem = f"the input is {sizes[0]} and the output {sizes[1]}, so they have no angle"
        raise BadInput(place, problem, "use padding='zero', and upsampling for each pooling")
    check_not_zero(place, found.z)
    note = "X is the image of channel norms: the limit depends on nothing else" if pixels.shape[1] > 1 else ""
    exact = Bound(
        similarity(grey, found.z), kind="exact", assumes=("filters isotropic",), source=found.source, note=note
    )  # fmt: skip
    return AngleToInput(exact, None if cnn.head else _theorem(cnn, grey, note))


def measure_angle(
    net: Layer,
    images: Tensor,
    *,
    draws: int = 20,
    seed: int = 0,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Estimate:
    """The angle Θ (radians) between the output of finite networks and the limit f*, each draw with filters of its own.

    `net` as in `convergence_image`; `images`: (n, c, h, w); the estimate has shape (n,). A network whose output is zero counts as
    a right angle, as the bounds count it.

    >>> from initscope.layers import Conv, ReLU
    >>> from initscope.networks import Sequential
    >>> few, many = (measure_angle(Sequential(Conv(n), ReLU()), torch.rand(1, 3, 8, 8)).value for n in (4, 400))
    >>> bool(many < few / 5)
    True
    """
    place = "measure_angle"
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 2:
        raise BadInput(place, f"draws is {draws!r}, expected at least 2", "one draw has no standard error")
    pixels = check_images(place, images)
    shape = tuple(pixels.shape[1:])
    found = limit(read_random_cnn(place, net, shape), pixels, place, memory).image
    check_not_zero(place, found)
    angles = []
    for draw in range(draws):
        if progress is not None:
            progress(draw, draws)
        angles.append(_angle(_output(net, pixels, seed, draw), found))
    if progress is not None:
        progress(draws, draws)
    return Estimate.from_draws(torch.stack(angles))


@torch.no_grad()
def _output(net: Layer, pixels: Tensor, seed: int, draw: int) -> Tensor:
    """The mean over channels of one sampled network, (n, h', w')."""
    module = net.sample(tuple(pixels.shape[1:]), generator=generator(seed, draw), dtype=pixels.dtype)
    features: Tensor = module.to(pixels.device)(pixels)
    return features.mean(1)


def _angle(outputs: Tensor, found: Tensor) -> Tensor:
    alive = (outputs != 0).flatten(1).any(1)
    angles = torch.full((len(found),), math.pi / 2, dtype=found.dtype, device=found.device)
    if bool(alive.any()):
        angles[alive] = angle(outputs[alive], found[alive])
    return angles


def _check_pixels(place: str, pixels: Tensor) -> None:
    low = float(pixels.min())
    if low < 0:
        raise BadInput(
            place, f"pixels go down to {low:g}, and DC Theorem 3 asks for none below 0", "shift the images into [0, 1]"
        )
    check_not_zero(place, pixels)


def _theorem(cnn: RandomCNN, image: Tensor, note: str) -> Bound[Tensor]:
    """cos Φ >= Σ_t X_t X̄_t / M with X̄_t = Σ_l n_(l,t) X_l / sqrt(most routes into an output · most routes out of a pixel).

    Cauchy-Schwarz gives z_t sqrt(Σ_l n_(l,t)) >= Σ_l n_(l,t) X_l, and |z|² = Σ_l X_l² Σ_t n_(l,t). Where every output sees alike
    shifted windows (DC's hypothesis), both counts are the number of routes and X̄ is DC's weighted mean.
    """
    ones = torch.ones_like(image[:1])
    into, out_of = cnn.squares(ones), adjoint(cnn.squares, ones, ones)
    routes = math.sqrt(float(into.max()) * float(out_of.max()))
    nearby = cnn.squares(image) / routes  # X̄
    error = image - nearby  # ε
    value = 1 - (error * image).sum((1, 2)) / image.square().sum((1, 2))  # DC Theorem 9
    notes = [note] if note else []
    if float(into.max()) != float(out_of.max()):
        text = "routes in and out differ ({:g} and {:g}): X̄ is divided by the root of their product"
        notes.append(text.format(float(into.max()), float(out_of.max())))
    if bool((into < into.max()).any()):
        notes.append(
            "X̄ counts what is missing at the border as zeros; with the mean of the rest the bound would be false"
        )
    if bool((value <= 0).any()):
        notes.append("vacuous where it is not positive: neither image has negative entries")
    return Bound(
        value,
        assumes=("no negative pixel", "one channel, or the image of channel norms", "l2 pooling or none"),
        source="Randomness in Deconvolutional Networks (DC), Theorems 3 and 9",
        note="; ".join(notes),
    )
