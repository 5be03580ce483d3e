"""From feature vectors back to a picture: DeConv[k] of the style transfer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from initscope.errors import BadInput
from initscope.images.architectures import Layout, Size
from initscope.images.decoding import Matched, fit_least_squares
from initscope.images.networks import Decoder, Encoder
from initscope.images.style.spaces import encode
from initscope.weights import WeightLaw

StyleDecoder = Literal["least-squares", "matched", "random"]


@torch.no_grad()
def fit_decoder(
    kind: StyleDecoder,
    encoder: Encoder,
    plan: Layout,
    pictures: Sequence[Tensor],
    *,
    law: WeightLaw | None,
    seed: int,
    allowed: int,
) -> Callable[[Tensor, Size], Tensor]:
    """A decoder for the features after the stages of `plan`; `law` is None where the filters are not random.

    "least-squares" is fitted on the pictures (content and styles). "random" is DC's: its three channels have neither
    sign nor scale of their own, so each gets the factor and the constant that are best for the pictures.
    """
    if kind not in get_args(StyleDecoder):
        raise BadInput("decoder", f"got {kind!r}", f"choose from {', '.join(get_args(StyleDecoder))}")
    head = first_stages(encoder, plan)
    if kind == "least-squares":
        return fit_least_squares(head, list(pictures), allowed)
    if kind == "matched":
        if law is None:
            problem = "'matched' transposes random filters, and these are trained"
            raise BadInput("decoder", problem, "use decoder='least-squares'")
        return Matched(head)
    random = Decoder(plan, outputs=plan.inputs, law=law or "he", upsampling="nearest", seed=seed).to(pictures[0].device)
    random.requires_grad_(False)
    return _scaled(random, head, plan, pictures)


def first_stages(encoder: Encoder, plan: Layout) -> Encoder:
    """The stages of `plan` as an encoder that shares its filters with the whole one."""
    head = Encoder.__new__(Encoder)
    nn.Module.__init__(head)
    head.layout, head.law, head.pooling, head.slope = plan, encoder.law, encoder.pooling, encoder.slope
    head.stages = nn.ModuleList(list(encoder.stages)[: len(plan.stages)])
    return head


def _scaled(
    decoder: Decoder, head: Encoder, plan: Layout, pictures: Sequence[Tensor]
) -> Callable[[Tensor, Size], Tensor]:
    outputs, wanted = [], []
    for picture in pictures:
        size = (picture.shape[-2], picture.shape[-1])
        outputs.append(decoder(encode(head, plan, picture), size)[0].flatten(1))
        wanted.append(picture[0].flatten(1))
    x, y = torch.cat(outputs, 1).double(), torch.cat(wanted, 1).double()
    mean_x, mean_y = x.mean(1, keepdim=True), y.mean(1, keepdim=True)
    spread = (x - mean_x).square().sum(1, keepdim=True)
    # Regression would fade colours that fit badly: the deviation is kept, and only the sign taken from the fit.
    ratio = ((y - mean_y).square().sum(1, keepdim=True) / torch.where(spread > 0, spread, 1.0)).sqrt()
    sign = torch.where(((x - mean_x) * (y - mean_y)).sum(1, keepdim=True) < 0, -1.0, 1.0)
    factor = (ratio * sign)[None, :, :, None].float()
    constant = (mean_y - ratio * sign * mean_x)[None, :, :, None].float()

    def decode(features: Tensor, size: Size) -> Tensor:
        found: Tensor = decoder(features, size) * factor + constant
        return found

    return decode
