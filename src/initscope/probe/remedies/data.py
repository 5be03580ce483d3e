"""Remedies that change the data: taking away what all samples have in common."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor
from torch.utils._pytree import tree_map_only

from initscope.probe.batches import Batch
from initscope.probe.remedies.remedy import Candidate


def candidates(batch: Batch) -> list[Candidate]:
    """Centring of each channel, and of each pixel; nothing where the data are indices."""
    data = batch.data
    if not data.is_floating_point() or data.ndim < 2:
        return []
    found = []
    if data.ndim > 2:
        channel = 1 if data.ndim > 3 else data.ndim - 1  # images have channels first, tokens last
        axes = tuple(d for d in range(data.ndim) if d != channel)
        found.append(_candidate("centre-channels", "channel", axes))
    found.append(
        _candidate(
            "centre-pixels" if data.ndim > 2 else "centre-features", "pixel" if data.ndim > 2 else "feature", (0,)
        )
    )
    return found


def _candidate(name: str, what: str, axes: tuple[int, ...]) -> Candidate:
    return Candidate(
        name,
        "data",
        f"Subtract from each {what} of the data its mean over the training set; measured with the mean of this batch.",
        command=f"x = x - x.mean({axes}, keepdim=True)",
        code=f"x = x - x.mean({axes}, keepdim=True)",
        alter=partial(centred, axes=axes),
    )


def centred(batch: Batch, *, axes: tuple[int, ...]) -> Batch:
    """The batch with its data minus their mean over `axes`; other arguments stay."""
    data = batch.data
    middle = data - data.mean(axes, keepdim=True)

    def swap(tensor: Tensor) -> Tensor:
        return middle if tensor is data else tensor

    arguments, keywords = tree_map_only(Tensor, swap, (batch.arguments, batch.keywords))
    return replace(batch, arguments=arguments, keywords=keywords)
