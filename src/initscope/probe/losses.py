"""What is differentiated at the end of a model: losses by name, and checks that the targets fit the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope.errors import BadInput
from initscope.probe.trace import tensors_in

LossFunction = Callable[[Any, Any], Tensor]
LossName = Literal["random-direction", "cross-entropy", "squared-error"]
Loss = LossFunction | LossName
"""A function of the model's output and the targets, or one of the names."""

LOSSES: tuple[LossName, ...] = get_args(LossName)
IGNORED = -100  # torch's label for "do not count this one"


def named_loss(name: str, seed: int) -> NamedLoss:
    """The loss that `name` stands for; an unknown name raises BadInput with the known ones.

    It uses the targets that it is called with. Without any, labels or values are drawn from `seed`: the same at every call,
    so that they can be learned.

    >>> loss = named_loss("cross-entropy", seed=0)
    >>> loss(torch.zeros(2, 4), torch.tensor([3, 0]))
    tensor(1.3863)
    """
    if name not in LOSSES:
        known = ", ".join(f'"{known}"' for known in LOSSES)
        raise BadInput("loss", f"got {name!r}", f"use one of {known}, or a function of the output and the targets")
    return NamedLoss(name, seed)


@dataclass(frozen=True)
class NamedLoss:
    """A loss that has a name, the mean over samples (of the random direction, their sum)."""

    name: LossName
    seed: int

    def __call__(self, output: Any, target: Any) -> Tensor:
        values = main_output(output)
        if self.name == "random-direction":
            return random_direction(values, self.seed)
        if self.name == "squared-error":
            wanted = self._drawn_values(values) if target is None else check_values(values, target)
            return F.mse_loss(values, wanted)
        if target is None:
            axis, target = self._drawn_labels(values)
        else:
            axis = check_classes(values, target)
        wanted = target if target.is_floating_point() else target.long()
        return F.cross_entropy(values.movedim(axis, 1), wanted)

    def label(self, target: Any) -> str:
        """How reports call it."""
        if self.name == "random-direction":
            return RANDOM_DIRECTION
        return self.name if target is not None else f"{self.name} with random targets"

    def _drawn_values(self, values: Tensor) -> Tensor:
        return torch.randn(values.shape, generator=torch.Generator().manual_seed(self.seed)).to(values)

    def _drawn_labels(self, values: Tensor) -> tuple[int, Tensor]:
        """Where the classes are, and a random one for each place: images have channels first, sequences have them last."""
        if values.ndim < 2:
            problem = f"cross-entropy needs scores of classes, the output has shape {tuple(values.shape)}"
            raise BadInput("loss", problem, 'use loss="squared-error" or loss="random-direction"')
        axis = 1 if values.ndim > 3 else values.ndim - 1
        classes = _two_or_more(values, axis)
        shape = (*values.shape[:axis], *values.shape[axis + 1 :])
        drawn = torch.randint(classes, shape, generator=torch.Generator().manual_seed(self.seed))
        return axis, drawn.to(values.device)


RANDOM_DIRECTION = "random direction"


def random_direction(values: Tensor, seed: int) -> Tensor:
    """A random weighting of all values, the same size for outputs of any size."""
    direction = torch.randn(values.shape, generator=torch.Generator().manual_seed(seed)).to(values)
    return (values * direction).sum() / math.sqrt(max(values[0].numel(), 1))


def loss_function(loss: object, seed: int) -> LossFunction:
    """The function behind what the user passed as `loss`."""
    if isinstance(loss, str):
        return named_loss(loss, seed)
    if not callable(loss):
        known = ", ".join(f'"{name}"' for name in LOSSES)
        problem = f"got a {type(loss).__name__}, expected a name or a function of the output and the targets"
        raise BadInput("loss", problem, f"pass one of {known}, or a function")
    return loss


def users_loss(loss: LossFunction, output: Any, target: Any, samples: int) -> tuple[Tensor, str]:
    """The value of the user's loss and its name; outputs and targets that do not fit it give one clear error."""
    if isinstance(loss, NamedLoss):
        check_length(main_output(output), target, samples)
        return loss(output, target), loss.label(target)
    name = getattr(loss, "__name__", type(loss).__name__)
    if (isinstance(loss, nn.CrossEntropyLoss) or loss is F.cross_entropy) and isinstance(output, Tensor):
        check_length(output, target, samples)
        check_classes(output, target, getattr(loss, "ignore_index", IGNORED))
    try:
        value = loss(output, target)
    except BadInput:
        raise
    except (IndexError, RuntimeError, TypeError, ValueError) as error:  # what torch raises where shapes do not fit
        said = next(iter(str(error).strip().splitlines()), "")
        remedy = "call it by itself on the model's output and the targets"
        raise BadInput("loss", f"{name} raised {type(error).__name__}: {said}", remedy) from error
    if not isinstance(value, Tensor):
        raise BadInput("loss", f"returned a {type(value).__name__}, expected a tensor", "return losses or their sum")
    return value.sum(), name


def main_output(output: Any) -> Tensor:
    """What the loss is taken of: logits or the last hidden state where a model names them, else its first tensor."""
    for name in ("logits", "last_hidden_state"):
        found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(found, Tensor):
            return found
    numbers = [t for t in tensors_in(output) if t.is_floating_point()]
    tensors = [t for t in numbers if t.ndim > 0]
    if numbers and not tensors:
        raise BadInput(
            "model",
            "its output is a single number, expected an output for each sample",
            "leave out loss=... if the model returns its own loss, or pass a function of the output and the targets",
        )
    if not tensors:
        raise BadInput(
            "model", "its output holds no floating point tensor", "pass loss=... to say what is differentiated"
        )
    return tensors[0]


def class_axis(values: Tensor, target: Tensor) -> int | None:
    """Where the classes are if the target is their indices: axis 1, as torch has it, or the last, as language models do."""
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool or values.ndim < 2:
        return None
    if target.shape == (*values.shape[:1], *values.shape[2:]):
        return 1
    return values.ndim - 1 if target.shape == values.shape[:-1] else None


def check_length(values: Tensor, target: Any, samples: int) -> None:
    """As many targets as samples, where the target clearly has one entry for each sample."""
    if not isinstance(target, Tensor) or target.ndim == 0 or len(target) in (samples, len(values)):
        return
    if target.ndim == 1 or target.shape[1:] in (values.shape[1:], values.shape[2:], values.shape[1:-1]):
        raise BadInput(
            "target", f"has {len(target)} entries for a batch of {samples} samples", "pass one for each sample"
        )


def check_classes(values: Tensor, target: Any, ignored: int = IGNORED) -> int:
    """The axis of the classes of cross-entropy, or one clear error about the targets."""
    target = _tensor(target)
    if target.is_floating_point() and target.shape == values.shape:
        _two_or_more(values, 1)
        return 1  # probabilities of the classes
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        kind = str(target.dtype).removeprefix("torch.")
        problem = f"holds {kind} numbers of shape {tuple(target.shape)}, cross-entropy needs whole class numbers"
        raise BadInput("target", problem, 'pass target.long(), or loss="squared-error"')
    axis = class_axis(values, target)
    if axis is None:
        problem = f"has shape {tuple(target.shape)}, which does not fit an output of shape {tuple(values.shape)}"
        raise BadInput("target", problem, "pass one class number for each sample or position")
    check_labels(target, _two_or_more(values, axis), ignored)
    return axis


def check_labels(target: Tensor, classes: int, ignored: int = IGNORED) -> None:
    """Class numbers from 0 to classes - 1; `ignored` is not counted."""
    counted = target[target != ignored]
    if not counted.numel():
        raise BadInput("target", f"all labels are {ignored}, which is not counted", "pass labels of classes")
    low, high = int(counted.min()), int(counted.max())
    if low < 0 or high >= classes:
        problem = f"labels reach from {low} to {high}, the model has {classes} outputs: expected 0 to {classes - 1}"
        remedy = "number the classes from 0" if low >= 0 and high - low < classes else "check the labels"
        raise BadInput("target", problem, f"{remedy}, or give the model {high + 1} outputs" if low >= 0 else remedy)


def check_values(values: Tensor, target: Any) -> Tensor:
    """Targets of a squared error in the shape and the numbers of the output, or one clear error about them."""
    wanted = _tensor(target)
    if wanted.is_complex() or wanted.numel() != values.numel() or len(wanted) != len(values):
        problem = f"has shape {tuple(wanted.shape)}, the output has {tuple(values.shape)}"
        raise BadInput("target", problem, 'shape it like the output, or use loss="cross-entropy" for class numbers')
    return wanted.reshape(values.shape).to(values)


def _tensor(target: Any) -> Tensor:
    if not isinstance(target, Tensor) or target.ndim == 0:
        got = f"a {type(target).__name__}" if not isinstance(target, Tensor) else "a single number"
        raise BadInput(
            "target", f"got {got}, expected a tensor with an entry for each sample", "pass torch.tensor(...)"
        )
    return target


def _two_or_more(values: Tensor, axis: int) -> int:
    classes = values.shape[axis] if values.ndim > axis else 0
    if classes < 2:
        problem = f"cross-entropy needs two or more classes, the output has shape {tuple(values.shape)}"
        raise BadInput("loss", problem, 'use loss="squared-error", or pass a function such as binary_cross_entropy')
    return classes
