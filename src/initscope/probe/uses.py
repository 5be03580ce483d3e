"""How a call uses a weight: which tensor it multiplies the data by, and which of its axes are inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from initscope.probe.arguments import Arguments
from initscope.probe.trace import Call, Seen

Layout = Literal["dense", "filters", "transposed"]


@dataclass(frozen=True, eq=False)
class Use:
    """The weight of a dense or convolution call: a parameter, or a view of one.

    Dense weights are turned so that the axes of output units come first, `outputs` of them, and those of inputs last; a
    stack of matrices, one for each head or expert, is so many `groups`, and their axes lead. Filters lie as convolutions
    take them. `last`: what the call returns is what this weight makes, so its size can be read off there.
    """

    weight: Tensor
    bias: Tensor | None
    layout: Layout
    groups: int = 1
    stride: int = 1
    last: bool = True
    outputs: int = 1

    @property
    def parameter(self) -> Tensor:
        """What the weight is a view of."""
        return self.weight if self.weight._base is None else self.weight._base

    @property
    def shape(self) -> tuple[int, ...]:
        """(out, in/groups, *kernel), whatever the layout."""
        sizes = tuple(self.weight.shape)
        if self.layout == "dense":
            return math.prod(sizes[: self.outputs]), math.prod(sizes[self.outputs :])
        if self.layout == "transposed":
            return sizes[1] * self.groups, sizes[0] // self.groups, *sizes[2:]
        return sizes

    def by_output(self) -> Tensor:
        """The weight as (out, everything that a unit sees)."""
        weight = self.weight.detach()
        if self.layout == "transposed":
            grouped = weight.reshape(self.groups, -1, *weight.shape[1:]).transpose(1, 2)
            return grouped.flatten(0, 1).flatten(1)
        return weight.reshape(self.shape[0], -1)

    def by_input(self) -> Tensor:
        """The weight as (in/groups, everything that an input feeds)."""
        if self.layout == "transposed":
            return self.weight.detach().flatten(1)
        return self.weight.detach().reshape(self.shape).transpose(0, 1).flatten(1)


def weights_of(call: Call) -> list[Use]:
    """All weights that a call multiplies the data by: one for dense layers and convolutions, several for fused functions."""
    if call.function == "multi_head_attention_forward":
        return _attention(Arguments(call))
    if call.function in _RECURRENT:
        return _recurrent(call)
    used = weight_of(call) if call.kind in ("dense", "conv") else None
    return [] if used is None else [used]


_RECURRENT = tuple(f"{name}{end}" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu") for end in ("", "_cell"))


def _recurrent(call: Call) -> list[Use]:
    """The matrices of a recurrent module or cell, each with a bias if there are as many."""
    given = (
        call.arguments[2:] if call.function.endswith("_cell") else call.arguments[2] if len(call.arguments) > 2 else ()
    )
    tensors = [w for w in given if isinstance(w, Tensor)] if isinstance(given, list | tuple) else []
    matrices, biases = ([w for w in tensors if w.ndim == ndim] for ndim in (2, 1))
    shifts = biases if len(biases) == len(matrices) else [None] * len(matrices)
    return [Use(w, b, "dense", last=False) for w, b in zip(matrices, shifts, strict=True)]


def _attention(a: Arguments) -> list[Use]:
    """Queries, keys and values in one matrix or in three, then the projection of what they give."""
    found = []
    fused, bias = a.get(5, "in_proj_weight"), a.get(6, "in_proj_bias")
    if isinstance(fused, Tensor):
        shift = bias if isinstance(bias, Tensor) else None
        found += [Use(block, shift, "dense", last=False) for block in fused.tensor_split(3)]
    for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
        single = a.get(99, name)
        found += [Use(single, None, "dense", last=False)] if isinstance(single, Tensor) else []
    out, shift = a.get(11, "out_proj_weight"), a.get(12, "out_proj_bias")
    if isinstance(out, Tensor):
        found.append(Use(out, shift if isinstance(shift, Tensor) else None, "dense"))
    return found


def weight_of(call: Call) -> Use | None:
    """What a dense or convolution call multiplies the data by; None if it is not one of the known ones."""
    argument = Arguments(call).get

    def tensor(position: int, name: str) -> Tensor | None:
        value = argument(position, name)
        return value if isinstance(value, Tensor) else None

    weight, bias = tensor(1, "weight"), tensor(2, "bias")
    if call.function == "linear" and weight is not None:
        return Use(weight, bias, "dense")
    if call.function.startswith("conv_transpose") and weight is not None:
        stride = _product(argument(3, "stride", 1), weight.ndim - 2)
        return Use(weight, bias, "transposed", int(argument(6, "groups", 1)), stride)
    if call.function.startswith("conv") and weight is not None:
        return Use(weight, bias, "filters", int(argument(6, "groups", 1)))
    if call.function == "addmm":
        return _matrix(tensor(1, "mat1"), tensor(2, "mat2"), tensor(0, "input"))
    if call.function == "baddbmm":
        return _matrix(tensor(1, "batch1"), tensor(2, "batch2"), None)
    if call.function in ("matmul", "mm", "bmm"):
        return _matrix(tensor(0, "input"), tensor(1, "other" if call.function == "matmul" else "mat2"), None)
    if call.function == "einsum":
        return _einsum(call)
    return None


def _matrix(left: Tensor | None, right: Tensor | None, bias: Tensor | None) -> Use | None:
    """x @ W holds its inputs in rows, W @ x in columns; a vector is one output unit; matrices may be stacked."""
    if right is not None:
        weight = right.unsqueeze(0) if right.ndim == 1 else right.mT
    elif left is not None and left.ndim > 1:
        weight = left
    else:
        return None
    return Use(weight, bias, "dense", groups=math.prod(weight.shape[:-2]), outputs=weight.ndim - 1)


def _einsum(call: Call) -> Use | None:
    """One operand is a weight: what it shares with the data is summed over (inputs) or kept (groups), the rest is new."""
    equation, *operands = call.arguments
    operands = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    if not isinstance(equation, str) or len(operands) != 2:
        return None
    terms, _, result = equation.replace(" ", "").partition("->")
    left, _, right = terms.partition(",")
    pairs = ((operands[0], left, right), (operands[1], right, left))
    found = [(weight, own, data) for weight, own, data in pairs if isinstance(weight, Tensor)]
    if len(found) != 1 or not any(isinstance(operand, Seen) for operand in operands) or not result:
        return None
    weight, own, data = found[0]
    groups = [c for c in own if c in data and c in result]
    outputs = [c for c in own if c not in data and c in result]
    inputs = [c for c in own if c in data and c not in result]
    order = [*groups, *outputs, *inputs]
    if len(set(own)) != len(own) or len(order) != len(own) or not inputs or len(own) != weight.ndim:
        return None  # a diagonal, a sum of the weight alone, or a factor
    turned = weight.permute([own.index(c) for c in order])
    stacked = math.prod(turned.shape[: len(groups)])
    return Use(turned, None, "dense", groups=stacked, outputs=len(groups) + len(outputs))


def _product(value: int | Sequence[int], count: int) -> int:
    return math.prod([value] * count if isinstance(value, int) else value)
