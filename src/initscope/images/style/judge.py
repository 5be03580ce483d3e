"""An independent judge of stylised pictures: content and Gram distance as another network sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.images.networks import Encoder
from initscope.images.style.recipe import choose_scales
from initscope.images.style.setup import Picture, read_pictures, scaled
from initscope.images.style.statistics import ContentTerm, StyleTerm


@dataclass(frozen=True)
class Judgement:
    """content: squared distance at the last stage but one, 1 is what a flat map has. style: squared distance of the
    Gram matrices, mean over all stages, 1 is where the content stands, 0 the style itself.
    """

    content: float
    style: float


@torch.no_grad()
def judge_style(
    picture: Picture, content: Picture, styles: Picture | Sequence[Picture], *, encoder: Encoder | None = None
) -> Judgement:
    """How far a picture is from the content, and from the style, under `encoder`: VGG16 as trained on ImageNet where
    none is given.

    All are brought to the picture's size.

    >>> content, style = torch.rand(3, 32, 32), torch.eye(32).expand(3, 32, 32)
    >>> own, other = (judge_style(p, content, style, encoder=Encoder("vgg16", 5, channels=8)) for p in (content, style))
    >>> own.content, round(own.style, 6), other.content > 0, round(other.style, 6)
    (0.0, 1.0, True, 0.0)
    """
    if encoder is None:
        from initscope.images.pretrained import pretrained_encoder

        encoder = pretrained_encoder("vgg16", 5)
    device = next(encoder.parameters()).device
    read, others, _ = read_pictures(picture, [content, *_listed(styles)], None, device)
    shown, base, *paintings = (scaled(one, max(read.shape[-2:])) for one in (read, *others))
    if base.shape != shown.shape:
        problem = f"the content has another shape: {tuple(base.shape[-2:])}, the picture {tuple(shown.shape[-2:])}"
        raise BadInput("judge_style", problem, "judge pictures of the content's shape")
    scales = choose_scales(encoder.layout, (shown.shape[-2], shown.shape[-1]), 1, None, None)
    maps, original = encoder.features(shown), encoder.features(base)
    near = [float(ContentTerm(original[k - 1])(maps[k - 1])) for k in scales.content]
    far = []
    for painting in paintings:
        wanted = encoder.features(painting)
        far += [float(StyleTerm("gram", wanted[k - 1], original[k - 1], 1.0)(maps[k - 1])) for k in scales.style]
    return Judgement(sum(near) / len(near), sum(far) / len(far))


def _listed(styles: Picture | Sequence[Picture]) -> list[Picture]:
    return [styles] if isinstance(styles, str | Path | Tensor) else list(styles)
