"""Losses by name, or any function of outputs and targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from initscope.errors import BadInput
from initscope.geometry import generator

LossName = Literal["cross-entropy", "mse"]
LossFunction = Callable[[Tensor, Tensor | None], Tensor]


def make_loss(
    loss: LossName | LossFunction, targets: Tensor | None, shape: tuple[int, ...], inputs: Tensor, seed: int
) -> tuple[LossFunction, Tensor | None]:
    """The function of (outputs, targets) and its targets, for outputs (n, *shape).

    >>> function, targets = make_loss("mse", torch.zeros(1, 2), (2,), torch.ones(1, 3), seed=0)
    >>> function(torch.tensor([[1.0, 2.0]]), targets)
    tensor([2.5000])
    """
    if callable(loss):
        return loss, _moved(targets, inputs)
    if loss not in get_args(LossName):
        raise BadInput(
            "loss",
            f"got {loss!r}",
            f"use {' or '.join(map(repr, get_args(LossName)))}, or a function of outputs and targets",
        )
    if loss == "mse":
        return _squared_error, _values(targets, shape, inputs, seed)
    if len(shape) != 1 or shape[0] < 2:
        raise BadInput("loss", f"cross-entropy needs two or more classes, outputs have shape {shape}", "add head=10")
    return _cross_entropy, _classes(targets, shape[0], inputs, seed)


def _cross_entropy(outputs: Tensor, targets: Tensor | None) -> Tensor:
    assert targets is not None
    return F.cross_entropy(outputs, targets, reduction="none")


def _squared_error(outputs: Tensor, targets: Tensor | None) -> Tensor:
    assert targets is not None
    return (outputs - targets).flatten(1).square().mean(1)


def _classes(targets: Tensor | None, classes: int, inputs: Tensor, seed: int) -> Tensor:
    if targets is None:
        targets = torch.randint(classes, (len(inputs),), generator=generator(seed))
    whole = isinstance(targets, Tensor) and not (targets.is_floating_point() or targets.is_complex())
    if not whole or tuple(targets.shape) != (len(inputs),) or targets.dtype == torch.bool:
        raise BadInput(
            "targets", f"got {_described(targets)}, expected {len(inputs)} whole numbers", "pass class numbers"
        )
    if int(targets.min()) < 0 or int(targets.max()) >= classes:
        raise BadInput(
            "targets",
            f"classes reach from {int(targets.min())} to {int(targets.max())}, expected 0 to {classes - 1}",
            f"number them from 0, or use head={int(targets.max()) + 1}",
        )
    return targets.to(inputs.device, torch.int64)


def _values(targets: Tensor | None, shape: tuple[int, ...], inputs: Tensor, seed: int) -> Tensor:
    if targets is None:
        targets = torch.randn(len(inputs), *shape, generator=generator(seed), dtype=inputs.dtype)
    expected = (len(inputs), *shape)
    if not isinstance(targets, Tensor) or tuple(targets.shape) != expected or targets.is_complex():
        raise BadInput(
            "targets", f"got {_described(targets)}, expected shape {expected}", "shape them like the outputs"
        )
    if not bool(torch.isfinite(targets).all()):
        raise BadInput("targets", "hold NaN or infinite values", "clean the data first")
    return targets.to(inputs)


def _moved(targets: Tensor | None, inputs: Tensor) -> Tensor | None:
    if targets is None:
        return None
    if not isinstance(targets, Tensor) or targets.ndim < 1 or len(targets) != len(inputs):
        raise BadInput("targets", f"got {_described(targets)}, expected one per input", f"pass {len(inputs)} targets")
    return targets.to(inputs.device)


def _described(targets: object) -> str:
    if not isinstance(targets, Tensor):
        return f"a {type(targets).__name__}"
    return f"shape {tuple(targets.shape)} of {str(targets.dtype).removeprefix('torch.')}"
