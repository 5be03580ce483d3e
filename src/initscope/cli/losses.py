"""Losses by name, or a user's own function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from initscope.cli.models import find_object
from initscope.errors import BadInput

if TYPE_CHECKING:
    from initscope.probe.losses import LossFunction

LOSSES = ("random-direction", "cross-entropy", "squared-error")  # of `probe.losses`, which needs torch
LOSS_HELP = (
    "random-direction, cross-entropy or squared-error (to the targets of --batch, or else to random ones), or "
    "package.module:function or file.py:function of the output and the targets, which are None without --batch."
)


def find_loss(name: str, seed: int) -> LossFunction:
    """The loss that `name` stands for.

    Where there are no targets, labels and values are drawn from `seed`, the same at every call: they can be learned.
    """
    if name in LOSSES:
        from initscope.probe.losses import named_loss

        return named_loss(name, seed)
    if ":" not in name:
        raise BadInput("--loss", f"got '{name}'", f"write one of {', '.join(LOSSES)}, or package.module:function")
    found = find_object(name, "--loss")
    if not callable(found):
        raise BadInput("--loss", f"{name} is a {type(found).__name__}, expected a function", "name a function")
    loss: LossFunction = found
    return loss
