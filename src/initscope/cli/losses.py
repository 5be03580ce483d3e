"""Losses by name, for data that come without targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from initscope.cli.models import find_object
from initscope.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

    from initscope.probe.batches import Loss

LOSSES = ("random-direction", "cross-entropy", "squared-error")
LOSS_HELP = (
    "random-direction, cross-entropy (with random labels), squared-error (to normal targets), or package.module:function "
    "or file.py:function of the output and the targets, which are None."
)


def find_loss(name: str, seed: int) -> Loss | None:
    """The loss that `name` stands for; None for the library's own choice, a random direction.

    Labels and targets are drawn from `seed`, and are the same at every call: they can be learnt.
    """
    if name == LOSSES[0]:
        return None
    if name in LOSSES:
        return _made_up(name, seed)
    if ":" not in name:
        raise BadInput("--loss", f"got '{name}'", f"write one of {', '.join(LOSSES)}, or package.module:function")
    found = find_object(name, "--loss")
    if not callable(found):
        raise BadInput("--loss", f"{name} is a {type(found).__name__}, expected a function", "name a function")
    loss: Loss = found
    return loss


def _made_up(name: str, seed: int) -> Loss:
    import torch
    import torch.nn.functional as F

    def loss(output: Any, target: Any) -> Tensor:
        values = _main(output)
        generator = torch.Generator().manual_seed(seed)
        if name == "squared-error":
            wanted = torch.randn(values.shape, generator=generator).to(values)
            return F.mse_loss(values, wanted)
        rows = values.reshape(-1, values.shape[-1])
        labels = torch.randint(rows.shape[1], (len(rows),), generator=generator).to(values.device)
        return F.cross_entropy(rows, labels)

    loss.__name__ = name
    return loss


def _main(output: Any) -> Tensor:
    """The tensor that is compared: the logits where they are named, else the first of floating point."""
    from initscope.probe.trace import tensors_in

    named = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", None)
    for tensor in tensors_in([named] if named is not None else output):
        if tensor.is_floating_point() and tensor.ndim > 1:
            return tensor
    raise BadInput("--loss", "the model's output holds no matrix of floating point numbers", "use random-direction")
