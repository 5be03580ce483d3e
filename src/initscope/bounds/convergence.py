"""The image that a random CNN's output tends to as its layers widen (DC Theorems 1, 4 and 10)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from initscope.bounds.random_cnn import RandomCNN, check_images, read_random_cnn
from initscope.errors import BadInput, NoExactForm
from initscope.geometry import Inputs
from initscope.layers import L2Pool, Layer, Shape
from initscope.networks import Sequential
from initscope.networks.planning import budget, entry_bytes, require_memory


@dataclass(frozen=True)
class Convergence:
    """The limit f* = k z* of the output image, the mean over channels of the last ReLU.

    Without average pooling z*_i = sqrt(Σ_l n_(l,i) |X_l|²), with |X_l| the norm over the channels of input pixel l and
    n_(l,i) the number of routes from it to output pixel i. With average pooling z* follows from all pairs of positions.
    """

    image: Tensor  # f*, (n, h', w')
    z: Tensor  # z*, (n, h', w')
    scale: float  # k
    source: str
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        parts = {"image": self.image.tolist(), "z": self.z.tolist(), "scale": self.scale}
        return {**parts, "source": self.source, "note": self.note}


def convergence_image(net: Layer, images: Tensor, *, memory: int | None = None) -> Convergence:
    """The limit of the output image of a random CNN, `f* = k z*` with `k = k1 sqrt(Π N k2)` (DC Theorems 1 and 10).

    `net`: Conv and ReLU (or leaky ReLU), L2Pool or AveragePool, Upsample, Scale, ending in Conv, ReLU; the last step, the mean
    over channels, is implied. `images`: (n, c, h, w). Average pooling behind filters relates all pairs of positions, within
    `memory` bytes (default: a quarter of what is free). Filters must be isotropic: Gaussian, or orthogonal.

    >>> from initscope.layers import Conv, ReLU
    >>> spot = torch.zeros(1, 1, 5, 5)
    >>> spot[..., 2, 2] = 1.0
    >>> convergence_image(Sequential(Conv(8), ReLU(), Conv(8), ReLU()), spot).z[0, 0, :3]  # roots of 1, 2, 3 routes
    tensor([1.0000, 1.4142, 1.7321], dtype=torch.float64)
    """
    place = "convergence_image"
    pixels = check_images(place, images)
    return limit(read_random_cnn(place, net, tuple(pixels.shape[1:])), pixels, place, memory)


def limit(cnn: RandomCNN, pixels: Tensor, place: str, memory: int | None) -> Convergence:
    """The convergence image of a network that was read already."""
    z = cnn.squares(head_squares(cnn, pixels, place, memory)).sqrt()
    if not bool(torch.isfinite(z).all()):
        raise BadInput(
            place, "there are more routes than floating point can count", "use fewer layers or smaller filters"
        )
    constants = math.prod(step.constant for step in cnn.steps[:-1])
    scale = cnn.last.mean * math.sqrt(constants)  # k = k1 sqrt(Π N k2): the N belong to filters without 1/sqrt(N)
    notes = ["k holds the root of the product of the k2; the appendix prints it without the root"]
    if not all(filters.independent for filters in cnn.filters):
        notes.append(
            "filters of one layer depend on each other: f* is the limit, but DC's variance bounds do not apply"
        )
    theorem = "Theorem 10" if cnn.averages_features else "Theorems 1 and 4"
    return Convergence(scale * z, z, scale, f"Randomness in Deconvolutional Networks (DC), {theorem}", "; ".join(notes))


def head_squares(cnn: RandomCNN, pixels: Tensor, place: str, memory: int | None) -> Tensor:
    """Squared norms over channels (n, h, w) after the last average pooling, the constants of the filters taken out."""
    if cnn.head == 0:
        return pixels.square().sum(1)
    net, shape = Sequential(*cnn.head_layers()), tuple(pixels.shape[1:])
    constants = math.prod(step.constant for step in cnn.steps[: cnn.head])
    if not cnn.averages_features:
        data: Tensor = net.sample(shape, generator=torch.Generator(), dtype=pixels.dtype).to(pixels.device)(pixels)
        return data.square().sum(1) / constants
    _require_pairs(place, cnn, net, shape, budget(memory, pixels.device))
    found = []
    for i in range(len(pixels)):
        image = pixels[i : i + 1]
        state = net.propagate(Inputs(image, image, zipped=False, all_positions=True, joint=True))
        assert not isinstance(state, Inputs)
        found.append(state.channels * state.x.norm[0])
    return torch.cat(found) / constants


def _require_pairs(place: str, cnn: RandomCNN, net: Sequential, shape: Shape, allowed: int) -> None:
    """The pairs of positions that average pooling looks at must have a closed form, and fit."""
    random = False
    for step in cnn.steps[: cnn.head]:
        if random and isinstance(step.layer, L2Pool):
            raise NoExactForm(
                place,
                "average pooling after l2 pooling needs angles between l2-pooled positions, which have no closed form",
                "use one kind of pooling throughout, or l2 pooling behind the average pooling",
            )
        random = random or step.filters is not None
    fits = [side for side in range(1, min(shape[1:])) if _fits(net, (shape[0], side, side), allowed)]
    size = f"use images of at most {fits[-1]}x{fits[-1]}, " if fits else "use smaller images, "
    remedy = f"average pooling relates all pairs of positions: {size}or L2Pool, or raise memory"
    require_memory(place, entry_bytes(net, shape, torch.float64), allowed, remedy)


def _fits(net: Sequential, shape: Shape, allowed: int) -> bool:
    try:
        return entry_bytes(net, shape, torch.float64) <= allowed
    except BadInput:
        return False  # a layer does not fit on images of this size
