"""The loss before training beside that of an output which knows nothing: ln C, or the best constant's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from initscope.errors import InitscopeError
from initscope.probe.batches import Batch
from initscope.probe.losses import RANDOM_DIRECTION, class_axis, main_output


@dataclass(frozen=True)
class InitialLoss:
    """The loss per prediction, and what chance gives; `kind` says of which loss they are.

    Without a target, "logits" is the cross-entropy that the outputs would have on average over all labels.
    """

    kind: Literal["cross-entropy", "squared error", "logits"]
    value: float
    chance: float
    output_rms: float
    classes: int | None = None


def initial_loss(output: Any, batch: Batch, value: Tensor, name: str) -> InitialLoss | None:
    """From what the model returned; None where neither the loss nor the output's meaning is known."""
    try:
        logits = main_output(output).detach()
    except InitscopeError:
        return None
    if not bool(torch.isfinite(logits).all()) or logits.numel() == 0:
        return None
    rms = float(logits.double().square().mean().sqrt())
    target = batch.target if isinstance(batch.target, Tensor) else _labels(batch)
    if isinstance(target, Tensor) and target.ndim > 0 and len(target) == len(logits):
        axis = class_axis(logits, target)
        if axis is not None and logits.shape[axis] > 1:
            own = float(value.detach()) / batch.samples if name == "the model's own" else None
            return _cross_entropy(logits.movedim(axis, 1), target, own, rms)
        alike = target.is_floating_point() and target.numel() == logits.numel()
        if alike and name in ("squared error", "squared-error"):
            target = target.reshape(logits.shape)
            error = float((logits - target).double().square().mean())
            best = float((target - target.mean(0)).double().square().mean())
            return InitialLoss("squared error", error, best, rms) if best > 0 else None
        return None
    drawn = name.startswith("cross-entropy") and logits.ndim > 1
    if logits.shape[-1] > 1 and (drawn or (name == RANDOM_DIRECTION and logits.ndim == 2)):
        rows = logits.double().movedim(1 if logits.ndim > 3 else -1, -1)
        expected = float((rows.logsumexp(-1) - rows.mean(-1)).mean())  # over all labels alike
        classes = rows.shape[-1]
        return InitialLoss("cross-entropy" if drawn else "logits", expected, math.log(classes), rms, classes)
    return None


def _cross_entropy(logits: Tensor, target: Tensor, own: float | None, rms: float) -> InitialLoss | None:
    """`own`: the model's own loss, which may shift the labels, counts if it is there."""
    classes = logits.shape[1]
    known = (target >= 0) & (target < classes)  # -100 marks what does not count
    if not bool(known.any()) or not bool(((target == -100) | known).all()):
        return None
    found = float(F.cross_entropy(logits.double(), target.long().masked_fill(~known, -100))) if own is None else own
    return InitialLoss("cross-entropy", found, math.log(classes), rms, classes)


def _labels(batch: Batch) -> Tensor | None:
    """The labels that a model takes for its own loss."""
    keywords: Mapping[str, Any] = batch.keywords
    found = keywords.get("labels")
    return found if isinstance(found, Tensor) else None
