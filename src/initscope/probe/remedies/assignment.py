"""Where a weight is written: into a parameter, into a part of one, or through what computes it (weight and spectral norm)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from initscope.probe.uses import Use


@dataclass(frozen=True)
class View:
    """Which entries of a parameter a weight is, by their places in memory."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # from the first entry of the parameter
    outputs: int  # how many of the axes, the first ones, are of output units

    def input_axes(self, parameter: Tensor) -> tuple[int, ...]:
        """The axes of the whole parameter over which a unit sums."""
        inner = self.stride[self.outputs :]
        return tuple(d for d in range(parameter.ndim) if parameter.shape[d] > 1 and parameter.stride(d) in inner)

    def of(self, parameter: Tensor) -> Tensor:
        """The same entries of another copy of that parameter."""
        return parameter.as_strided(self.size, self.stride, parameter.storage_offset() + self.offset)


def view_of(used: Use) -> View | None:
    """None for a whole parameter as it lies."""
    weight, whole = used.weight, used.parameter
    if weight is whole:
        return None
    return View(
        tuple(weight.shape), weight.stride(), int(weight.storage_offset() - whole.storage_offset()), used.outputs
    )


def is_computed(model: nn.Module, name: str) -> bool:
    """Whether a module computes the weight of this name from other parameters, and it can be assigned to all the same."""
    owner, _, key = name.rpartition(".")
    try:
        module = model.get_submodule(owner)
    except AttributeError:
        return False
    return parametrize.is_parametrized(module, key) or any(hasattr(module, f"{key}_{end}") for end in ("g", "orig"))


def assign(model: nn.Module, name: str, value: Tensor) -> None:
    """Sets what such a weight is computed from, so that it becomes the value, up to what a norm fixes."""
    owner, _, key = name.rpartition(".")
    module = model.get_submodule(owner)
    if parametrize.is_parametrized(module, key):
        setattr(module, key, value.to(getattr(module, key)))
        return
    with torch.no_grad():
        if hasattr(module, f"{key}_g"):  # weight norm by hooks: g v / |v|
            direction, size = getattr(module, f"{key}_v"), getattr(module, f"{key}_g")
            direction.copy_(value)
            axes = [d for d in range(value.ndim) if size.shape[d] == 1 and value.shape[d] > 1]
            size.copy_(torch.linalg.vector_norm(direction, dim=axes, keepdim=True) if axes else direction.abs())
        else:
            getattr(module, f"{key}_orig").copy_(value)
