"""What goes into the model and what is compared at its end: batches as users have them, outputs, losses."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from initscope.errors import BadInput
from initscope.probe.trace import tensors_in

Loss = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class Batch:
    """Arguments of one forward call, the targets if there are any, and the number of samples."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    target: Any
    samples: int

    def run(self, model: nn.Module) -> Any:
        return model(*self.arguments, **self.keywords)

    @property
    def data(self) -> Tensor:
        """The first tensor that goes in, floating point if there is one."""
        tensors = tensors_in((self.arguments, self.keywords))
        return next((t for t in tensors if t.is_floating_point()), tensors[0])


def as_batch(batch: Any, model: nn.Module, target: Any = None) -> Batch:
    """A tensor, positional arguments in a tuple, keyword arguments in a dict, `(inputs, targets)`, or a loader of these."""
    if isinstance(batch, Iterable) and not isinstance(batch, Tensor | Mapping | tuple | list):
        batch = next(iter(batch), None)
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    if isinstance(batch, Mapping):
        keywords = dict(batch)
    elif isinstance(batch, tuple | list):
        arguments = tuple(batch)
        if target is None and len(arguments) == 2 and _takes_one(model):
            arguments, target = (batch[0],), batch[1]
    elif isinstance(batch, Tensor):
        arguments = (batch,)
    else:
        raise BadInput(
            "batch",
            f"got a {type(batch).__name__}",
            "pass a tensor, a tuple, a dict of keyword arguments or a DataLoader",
        )
    tensors = tensors_in((arguments, keywords))
    if not tensors:
        raise BadInput("batch", "holds no tensor", "pass at least one tensor with samples on its first axis")
    _check(tensors)
    with torch.inference_mode(False):  # tensors made in inference mode cannot be part of a backward pass
        arguments, keywords = tree_map_only(Tensor, _recordable, (arguments, keywords))
    return Batch(arguments, keywords, target, next(len(t) for t in tensors if t.ndim > 0))


def _recordable(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.is_inference() else tensor


def _check(tensors: list[Tensor]) -> None:
    for t in tensors:
        if t.is_floating_point() and not bool(torch.isfinite(t).all()):
            raise BadInput("batch", "holds NaN or infinite values", "clean the data first")
    sized = [t for t in tensors if t.ndim > 0]
    if not sized or len(sized[0]) < 2:
        got = tuple(sized[0].shape) if sized else ()
        raise BadInput("batch", f"got shape {got}, expected at least 2 samples on the first axis", "angles need pairs")


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
        value = loss(output, batch.target)
        if not isinstance(value, Tensor):
            raise BadInput(
                "loss", f"returned a {type(value).__name__}, expected a tensor", "return losses or their sum"
            )
        return value.sum(), getattr(loss, "__name__", type(loss).__name__)
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, Tensor) and own.ndim == 0:
        return own * batch.samples, "the model's own"
    values = _main_output(output)
    target = batch.target
    if isinstance(target, Tensor) and len(target) == len(values):
        if not target.is_floating_point() and target.shape == values.shape[:1] and values.ndim == 2:
            return F.cross_entropy(values, target, reduction="sum"), "cross-entropy"
        if target.shape == values.shape:
            return (values - target).square().sum() / 2, "squared error"
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(values.shape, generator=generator).to(values)
    return (values * direction).sum() / math.sqrt(max(values[0].numel(), 1)), "random direction"


def _main_output(output: Any) -> Tensor:
    for name in ("logits", "last_hidden_state"):
        found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(found, Tensor):
            return found
    tensors = [t for t in tensors_in(output) if t.is_floating_point() and t.ndim > 0]
    if not tensors:
        raise BadInput(
            "model", "its output holds no floating point tensor", "pass loss=... to say what is differentiated"
        )
    return tensors[0]
