"""What goes into the model and what is compared at its end: batches as users have them, outputs, losses."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from initscope.errors import BadInput
from initscope.geometry import ordinary
from initscope.probe.losses import (
    RANDOM_DIRECTION,
    check_labels,
    check_length,
    class_axis,
    loss_function,
    random_direction,
    users_loss,
)
from initscope.probe.losses import Loss as Loss
from initscope.probe.losses import main_output as main_output
from initscope.probe.safekeeping import check_trackable, same_randomness
from initscope.probe.trace import tensors_in


@dataclass(frozen=True)
class Batch:
    """Arguments of one forward call, the targets if there are any, and what was made of the user's batch, in words."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    target: Any
    note: str = ""

    def run(self, model: nn.Module) -> Any:
        """The model's answer; a model may write to its input, so give it a `copy`."""
        return model(*self.arguments, **self.keywords)

    def copy(self) -> Batch:
        with torch.inference_mode(False):  # tensors made in inference mode cannot be part of a backward pass
            arguments, keywords = tree_map_only(Tensor, lambda t: t.detach().clone(), (self.arguments, self.keywords))
        return replace(self, arguments=arguments, keywords=keywords)

    @property
    def data(self) -> Tensor:
        """The first tensor that goes in: floating point with features if there is one, else with features, else any."""
        tensors = [t for t in tensors_in((self.arguments, self.keywords)) if t.ndim > 0]
        return max(tensors, key=lambda t: (t.ndim > 1 and t.is_floating_point(), t.ndim > 1, t.is_floating_point()))

    @property
    def samples(self) -> int:
        return len(self.data)


def as_batch(batch: Any, model: nn.Module, target: Any = None) -> Batch:
    """A tensor, positional arguments in a tuple, keyword arguments in a dict, `(inputs, targets)`, or a loader of these."""
    check_trackable(model)
    if isinstance(batch, Iterable) and not isinstance(batch, Tensor | Mapping | tuple | list):
        with same_randomness(batch):
            batch = next(iter(batch), None)
    note = ""
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    if isinstance(batch, Mapping):
        keywords = dict(batch)
    elif isinstance(batch, tuple | list):
        arguments = tuple(batch)
        if target is None and len(arguments) == 2 and _takes_one(model):
            arguments, target = (batch[0],), batch[1]
            note = "a pair was taken as (inputs, targets); pass a dict to give the model both"
    elif isinstance(batch, Tensor):
        arguments = (batch,)
    else:
        raise BadInput(
            "batch",
            f"got a {type(batch).__name__}",
            "pass a tensor, a tuple, a dict of keyword arguments or a DataLoader",
        )
    arguments, keywords, target = tree_map_only(Tensor, ordinary, (arguments, keywords, target))
    tensors = tensors_in((arguments, keywords))
    if not tensors:
        raise BadInput("batch", "holds no tensor", "pass at least one tensor with samples on its first axis")
    for t in tensors:
        _check_values(t)
    made = Batch(arguments, keywords, target, note)
    made = replace(made, note="; ".join(filter(None, (note, _sequence_first(made)))))
    got = tuple(made.data.shape) if any(t.ndim > 0 for t in tensors) else ()
    if not got or got[0] < 2:
        raise BadInput("batch", f"got shape {got}, expected at least 2 samples on the first axis", "angles need pairs")
    return made


def _sequence_first(batch: Batch) -> str:
    """Words about inputs (time, samples, ...), where the targets show that it is the second axis that holds the samples."""
    target, shape = batch.target, tuple(batch.data.shape)
    if not isinstance(target, Tensor) or target.ndim == 0 or len(shape) < 2:
        return ""
    if len(target) == shape[0] or len(target) != shape[1]:
        return ""
    return (
        f"there are {len(target)} targets, as many as the second axis of the inputs {shape} has entries, but samples are "
        "taken from the first axis; give inputs with the samples first to judge them"
    )


def _check_values(tensor: Tensor) -> None:
    """Samples are compared entry by entry: each has all its entries, and they are finite."""
    if tensor.is_nested:
        remedy = "pad it: torch.nested.to_padded_tensor(batch, 0.0), or pass samples of one length"
        raise BadInput("batch", "holds a nested tensor, expected samples of one shape", remedy)
    if tensor.layout != torch.strided:
        kind = str(tensor.layout).removeprefix("torch.")
        raise BadInput("batch", f"holds a tensor of layout {kind}, expected a dense one", "pass tensor.to_dense()")
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise BadInput("batch", "holds NaN or infinite values", "clean the data first")


def _takes_one(model: nn.Module) -> bool:
    """Whether the model's forward needs one argument, so that a pair is (inputs, targets)."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return True
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(needed) <= 1


def total_loss(output: Any, batch: Batch, loss: Loss | None, seed: int) -> tuple[Tensor, str]:
    """A scalar to differentiate, and its name: the user's, the model's own, or what the target suggests.

    Without a target it is a random direction per sample, so that gradients do not depend on the outputs' scale.
    """
    if loss is not None:
        return users_loss(loss_function(loss, seed), output, batch.target, batch.samples)
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(output, Tensor) and output.ndim == 0:
        own = output  # a model that returns its loss
    if isinstance(own, Tensor) and own.ndim == 0:
        return own * batch.samples, "the model's own"
    values = main_output(output)
    target = batch.target
    check_length(values, target, batch.samples)
    if isinstance(target, Tensor) and target.ndim > 0 and len(target) == len(values):
        classes = class_axis(values, target)
        if classes is not None and values.shape[classes] > 1:
            check_labels(target, values.shape[classes])
            each = F.cross_entropy(values.movedim(classes, 1), target.long(), reduction="sum")
            return each / max(target[0].numel(), 1), "cross-entropy"
        if classes is not None and bool(((target == 0) | (target == 1)).all()):  # one score for two classes
            wanted = target.unsqueeze(classes).to(values)
            return F.binary_cross_entropy_with_logits(values, wanted, reduction="sum"), "binary cross-entropy"
        alike = target.is_floating_point() and target.numel() == values.numel()  # (n,) for outputs (n, 1)
        if alike or target.shape == values.shape or classes is not None:
            return (values - target.reshape(values.shape)).square().sum() / 2, "squared error"
    return random_direction(values, seed), RANDOM_DIRECTION
