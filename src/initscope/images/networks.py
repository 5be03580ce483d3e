"""Encoder and decoder of Conv[k]-DeConv[k] as plain modules (DC 3.1, A.1.1, Definition 1)."""

from __future__ import annotations

import math
from typing import Literal, get_args

from torch import Tensor, nn

from initscope.errors import BadInput
from initscope.images.architectures import ConvPlan, Depth, Layout, Size, StagePlan, Widths, layout
from initscope.images.laws import Law, Source, holds_width, read_law
from initscope.images.modules import Filters, Pool, Pooling, Unpool, Upsampling
from initscope.weights import WeightLaw

Variant = Literal["paper", "average"]
_ENCODER, _DECODER = 0, 1  # parts of the seed


class Stage(nn.Module):
    """Conv[k] by itself: the pooling before it, then convolutions and activations."""

    def __init__(self, pool: Pool | None, convs: list[Filters]) -> None:
        super().__init__()
        self.pool = pool
        self.convs = nn.ModuleList(convs)

    def forward(self, x: Tensor) -> Tensor:
        if self.pool is not None:
            x = self.pool(x)
        for conv in self.convs:
            x = conv(x)
        return x


class Encoder(nn.Module):
    """Conv[depth]: images (n, inputs, h, w) to features; `stages[k-1]` turns the feature of Conv[k-1] into that of Conv[k].

    `arch` is a name, with the numbers that follow it, or a layout that holds them all. Filters are drawn from `law` and need no
    gradient. `normalise` divides every layer by √N (DC Definition 1), which a law with a fan has done already. `keep=False`
    draws the filters again in every call instead of holding them.

    >>> import torch
    >>> encoder = Encoder("vgg16", depth=2, channels=(4, 8), seed=1)
    >>> [tuple(f.shape[1:]) for f in encoder.features(torch.rand(1, 3, 9, 16))]
    [(4, 9, 16), (8, 5, 8)]
    """

    def __init__(
        self,
        arch: str | Layout = "vgg16",
        depth: Depth = 5,
        *,
        inputs: int = 3,
        channels: Widths | None = None,
        kernel: int | None = None,
        law: Law = "he",
        pooling: Pooling = "max",
        slope: float = 0.0,
        bias: bool = False,
        normalise: bool = False,
        seed: int = 0,
        keep: bool = True,
    ) -> None:
        super().__init__()
        self.layout = as_layout(arch, depth, inputs=inputs, channels=channels, kernel=kernel)
        self.law, self.pooling, self.slope = read_law(law), pooling, slope
        sources = iter(encoder_sources(self.layout, self.law, seed, normalise))

        def stage(plan: StagePlan) -> Stage:
            pool = None if plan.pool is None else Pool(plan.pool, pooling)
            return Stage(pool, [Filters(next(sources), slope, bias=bias, keep=keep) for _ in plan.convs])

        self.stages = nn.ModuleList(stage(plan) for plan in self.layout.stages)
        self.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        for stage in self.stages:
            images = stage(images)
        return images

    def features(self, images: Tensor) -> tuple[Tensor, ...]:
        """The features of Conv1, Conv2, ..., Conv[depth]."""
        found: list[Tensor] = []
        for stage in self.stages:
            found.append(stage(found[-1] if found else images))
        return tuple(found)


class Decoder(nn.Module):
    """DeConv[depth]: the encoder's convolutions in the opposite order, upsampling for pooling, a crop at the end.

    variant "paper": the last convolution gives `outputs` channels and has no activation; "average": the mean over the
    channels of the layer before it takes its place, and gives one channel (DC Definition 1). `number` tells several decoders
    of one seed apart.

    >>> import torch
    >>> encoder, decoder = Encoder(depth=2, channels=4), Decoder(depth=2, channels=4)
    >>> decoder(encoder(torch.rand(1, 3, 9, 15)), (9, 15)).shape
    torch.Size([1, 3, 9, 15])
    """

    def __init__(
        self,
        arch: str | Layout = "vgg16",
        depth: Depth = 5,
        *,
        outputs: int = 3,
        channels: Widths | None = None,
        kernel: int | None = None,
        law: Law = "he",
        upsampling: Upsampling = "zeros",
        slope: float = 0.0,
        bias: bool = False,
        variant: Variant = "paper",
        normalise: bool = False,
        seed: int = 0,
        number: int = 0,
        keep: bool = True,
    ) -> None:
        super().__init__()
        check_variant(variant)
        self.layout = as_layout(arch, depth, inputs=outputs, channels=channels, kernel=kernel)
        self.law, self.upsampling, self.slope, self.variant = read_law(law), upsampling, slope, variant
        sources = iter(decoder_sources(self.layout, self.law, seed, normalise, variant, number))
        self.steps = nn.ModuleList()
        self._targets: list[int] = []  # for each upsampling, which of the encoder's sizes it has to reach
        last = len(self.layout.steps) - 1
        for back, step in enumerate(reversed(self.layout.steps)):
            if step.stride > 1:
                self.steps.append(Unpool(step, upsampling))
                self._targets.append(last - back)
            if isinstance(step, ConvPlan) and back < last:
                self.steps.append(Filters(next(sources), slope, bias=bias, keep=keep))
        self.last = nn.Identity() if variant == "average" else Filters(next(sources), None, bias=bias, keep=keep)

    def forward(self, features: Tensor, size: Size) -> Tensor:
        """Features of images of `size` (h, w) to images (n, outputs, h, w)."""
        x = self.hidden(features, size)
        x = x.mean(1, keepdim=True) if self.variant == "average" else self.last(x)  # DC Definition 1, 2)
        return x[..., : size[0], : size[1]]

    def hidden(self, features: Tensor, size: Size) -> Tensor:
        """What the last layer sees, not cropped yet."""
        sizes, targets = self.layout.sizes(size), iter(self._targets)
        x = features
        for step in self.steps:
            x = step(x, sizes[next(targets)]) if isinstance(step, Unpool) else step(x)
        return x


def encoder_sources(plan: Layout, law: WeightLaw, seed: int, normalise: bool) -> list[Source]:
    """Where the encoder's filters come from, in order."""
    return [
        Source(conv, law, seed, (_ENCODER, number), _factor(law, conv.outputs, normalise))
        for number, conv in enumerate(plan.convs)
    ]


def decoder_sources(
    plan: Layout, law: WeightLaw, seed: int, normalise: bool, variant: Variant, decoder: int = 0
) -> list[Source]:
    """Where the decoder's filters come from, in order; the averaging variant has no last layer."""
    mirrored = [conv.mirrored(conv.inputs) for conv in reversed(plan.convs)]
    if variant == "average":
        mirrored = mirrored[:-1]
    found = []
    for number, conv in enumerate(mirrored):
        hidden = number < len(mirrored) - 1  # DC Definition 1, 3): all but the layer before the mean
        found.append(
            Source(conv, law, seed, (_DECODER + decoder, number), _factor(law, conv.outputs, normalise and hidden))
        )
    return found


def as_layout(arch: str | Layout, depth: Depth, *, inputs: int, channels: Widths | None, kernel: int | None) -> Layout:
    """A layout as it is, or the one that the name and the numbers describe."""
    if isinstance(arch, Layout):
        return arch
    return layout(arch, depth, inputs=inputs, channels=channels, kernel=kernel)


def check_variant(variant: str) -> None:
    if variant not in get_args(Variant):
        raise BadInput("variant", f"got {variant!r}", f"choose from {', '.join(get_args(Variant))}")


def _factor(law: WeightLaw, channels: int, normalise: bool) -> float:
    return 1 / math.sqrt(channels) if normalise and not holds_width(law) else 1.0
