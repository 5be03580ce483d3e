"""From arguments to pictures of one size, an encoder and a plan; what is wrong is said before any work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from initscope.data.pixels import resize, with_channels
from initscope.errors import BadInput
from initscope.geometry import generator
from initscope.images.architectures import Layout, Widths, find, layout
from initscope.images.files import read_picture
from initscope.images.laws import Law, read_law
from initscope.images.modules import Filters, Pooling
from initscope.images.networks import Encoder, Stage
from initscope.images.style.recipe import fit_size
from initscope.weights import Fans, WeightLaw

EncoderKind = Literal["random", "pretrained"]
Picture = str | Path | Tensor
INITS = ("content", "style", "noise")
_WIDEST = 128  # channels of a random stage, where none are given: wider ones cost more time than they add style
_MOST_STYLES = 16


def read_pictures(
    content: Picture, styles: Picture | Sequence[Picture], blend: Sequence[float] | None, device: str | torch.device
) -> tuple[Tensor, list[Tensor], list[float]]:
    """Content and styles, each (1, 3, h, w) of its own size, and the shares of those styles that have one."""
    listed = [styles] if isinstance(styles, str | Path | Tensor) else list(styles)
    if not 1 <= len(listed) <= _MOST_STYLES:
        raise BadInput("styles", f"{len(listed)} pictures", f"give 1 to {_MOST_STYLES}")
    weights = blend_weights(blend, len(listed))
    first, *rest = (with_channels("picture", read_picture(one), 3).to(device) for one in (content, *listed))
    used = [(picture, weight) for picture, weight in zip(rest, weights, strict=True) if weight > 0]
    return first, [picture for picture, _ in used], [weight for _, weight in used]


def scaled(picture: Tensor, longest: int | None) -> Tensor:
    """The picture with its longer side at `longest`."""
    wanted = fit_size((picture.shape[-2], picture.shape[-1]), longest)
    return resize(picture, wanted).contiguous(memory_format=torch.channels_last)


def blend_weights(blend: Sequence[float] | None, count: int) -> list[float]:
    """The weights of the styles as shares of their sum.

    >>> blend_weights([1, 3], 2)
    [0.25, 0.75]
    """
    if blend is None:
        return [1 / count] * count
    if len(blend) != count:
        raise BadInput("blend", f"{len(blend)} weights for {count} styles", "give one weight for each style")
    total = math.fsum(blend)
    if not (all(0 <= weight < math.inf for weight in blend) and 0 < total < math.inf):
        raise BadInput("blend", f"got {', '.join(map(str, blend))}", "give weights from 0 on, not all of them 0")
    return [weight / total for weight in blend]


def first_picture(init: Picture, content: Tensor, style: Tensor, seed: int) -> Tensor:
    """Where the search begins, of the content's size."""
    size = (content.shape[-2], content.shape[-1])
    if isinstance(init, str) and init in INITS:
        if init == "content":
            return content
        if init == "style":
            return resize(style, size).contiguous(memory_format=torch.channels_last)
        drawn = torch.rand(content.shape, generator=generator(seed, 2)).to(content)
        return drawn.contiguous(memory_format=torch.channels_last)
    if isinstance(init, str) and not Path(init).expanduser().exists():
        raise BadInput("init", f"got {init!r}", f"choose from {', '.join(INITS)}, or name a picture")
    found = resize(with_channels("init", read_picture(init), 3).to(content.device), size)
    return found.contiguous(memory_format=torch.channels_last)


def plan_layers(encoder: EncoderKind | Encoder, arch: str, channels: Widths | None, kernel: int | None) -> Layout:
    """All stages of the network; random ones no wider than they need be."""
    if isinstance(encoder, Encoder):
        if encoder.layout.inputs != 3:
            raise BadInput("encoder", f"takes {encoder.layout.inputs} channels", "give one for colour pictures")
        return encoder.layout
    choose("encoder", encoder, EncoderKind)
    if encoder == "pretrained":
        if channels is not None or kernel is not None:
            raise BadInput(
                "channels", "trained filters have their own number and size", "leave channels= and kernel= out"
            )
        return layout("alexnet2014" if arch == "alexnet" else arch, 5)
    if channels is None:
        channels = [min(_WIDEST, block.filters[-1].channels) for block in find(arch).blocks]
    return layout(arch, len(find(arch).blocks), channels=channels, kernel=kernel)


def make_encoder(
    encoder: EncoderKind | Encoder,
    plan: Layout,
    *,
    law: Law,
    pooling: Pooling | None,
    seed: int,
    device: str | torch.device,
) -> tuple[Encoder, WeightLaw | None]:
    """The network, and the law of its filters where they are random."""
    if isinstance(encoder, Encoder):
        return encoder.to(device), None
    if encoder == "pretrained":
        from initscope.images.pretrained import pretrained_encoder

        return _last(pretrained_encoder(plan.arch, 5, pooling=pooling or "average"), device), None
    drawn = read_law(law)
    net = Encoder(plan, law=drawn, pooling=pooling or "l2", seed=seed)
    _rescale(net, drawn)
    return _last(net, device), drawn


def _rescale(encoder: Encoder, drawn: WeightLaw) -> None:
    """Bring all filters to the variance of He's law.

    With ReLU and no biases a factor changes no picture, but products of thirteen small ones leave the range of numbers.
    """
    standard = read_law("he")
    for stage in encoder.stages:
        assert isinstance(stage, Stage)
        for conv in stage.convs:
            assert isinstance(conv, Filters)
            assert conv.weight is not None
            fans = Fans(conv.plan.inputs, conv.plan.outputs, conv.plan.kernel**2)
            conv.weight.mul_(math.sqrt(standard.variance(fans) / drawn.variance(fans)))
    encoder.law = standard


def _last(encoder: Encoder, device: str | torch.device) -> Encoder:
    """Filters with the channels last in memory, which convolutions on the CPU are faster with."""
    found: Encoder = encoder.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return found.requires_grad_(False)


def head_of(plan: Layout, depth: int) -> Layout:
    """The first stages, up to Conv[depth]; at least one stage must come after them."""
    most = len(plan.stages) - 1
    if isinstance(depth, bool) or not isinstance(depth, int) or not 1 <= depth <= most:
        raise BadInput(
            "depth", f"got {depth!r}", f"pass 1 to {most}: the features of Conv[depth] are optimised over the rest"
        )
    return Layout(plan.arch, depth, plan.stages[:depth])


def with_hues(picture: Tensor, content: Tensor) -> Tensor:
    """The brightness of one picture and the colour differences of another."""
    change = with_channels("picture", picture, 1) - with_channels("content", content, 1)
    return (content + change).clamp(0, 1)


def choose(name: str, value: object, kinds: Any) -> None:
    """Refuse what is not among the values of a Literal."""
    if value not in get_args(kinds):
        raise BadInput(name, f"got {value!r}", f"choose from {', '.join(get_args(kinds))}")


def check_numbers(steps: int, every: int, **weights: float | None) -> None:
    """Refuse counts and weights that mean nothing."""
    for name, count, least in (("steps", steps, 1), ("every", every, 0)):
        if isinstance(count, bool) or not isinstance(count, int) or count < least:
            raise BadInput(
                name, f"got {count!r}, expected a whole number from {least} on", f"pass for example {name}=50"
            )
    for name, weight in weights.items():
        if weight is not None and not (0 <= weight < math.inf and (name != "rate" or weight > 0)):
            words = "above 0" if name == "rate" else "from 0 on"
            raise BadInput(name, f"got {weight!r}, expected a finite number {words}", "pass for example 1")
    if weights["style_weight"] == weights["content_weight"] == 0:
        raise BadInput("style_weight", "content and style both count for nothing", "give one of them a weight above 0")
