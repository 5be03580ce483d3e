"""How a call uses a weight: which tensor it multiplies the data by, and how that lies in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from initscope.probe.trace import Call
from initscope.probe.translation import Arguments

Layout = Literal["out-in", "in-out", "transposed"]


@dataclass(frozen=True, eq=False)
class Use:
    """The weight of a dense or convolution call.

    `rows` picks a block of output units where several weights lie in one tensor, as queries, keys and values do. `last`:
    what the call returns is what this weight makes, so its size can be read off there.
    """

    weight: Tensor
    bias: Tensor | None
    layout: Layout
    groups: int = 1
    stride: int = 1
    rows: tuple[int, int] | None = None
    last: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """(out, in/groups, *kernel), whatever the layout."""
        first, second, *kernel = self.weight.shape
        if self.layout == "in-out":
            return second, first
        if self.layout == "transposed":
            return second * self.groups, first // self.groups, *kernel
        return first if self.rows is None else self.rows[1] - self.rows[0], second, *kernel

    def by_output(self) -> Tensor:
        """The weight as (out, everything that a unit sees)."""
        weight = self.weight.detach()
        if self.layout == "in-out":
            return weight.T
        if self.layout == "transposed":
            grouped = weight.reshape(self.groups, -1, *weight.shape[1:]).transpose(1, 2)
            return grouped.flatten(0, 1).flatten(1)
        weight = weight if self.rows is None else weight[self.rows[0] : self.rows[1]]
        return weight.flatten(1)

    def by_input(self) -> Tensor:
        """The weight as (in/groups, everything that an input feeds)."""
        if self.layout == "in-out":
            return self.weight.detach()
        return self.weight.detach().transpose(0, 1).flatten(1) if self.layout == "out-in" else self.weight.flatten(1)


def weights_of(call: Call) -> list[Use]:
    """All weights that a call multiplies the data by: one for dense layers and convolutions, several for fused functions."""
    if call.function == "multi_head_attention_forward":
        return _attention(Arguments(call))
    if call.function in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        given = call.arguments[2] if len(call.arguments) > 2 else ()
        matrices = (
            [w for w in given if isinstance(w, Tensor) and w.ndim == 2] if isinstance(given, list | tuple) else []
        )
        return [Use(w, None, "out-in", last=False) for w in matrices]
    used = weight_of(call) if call.kind in ("dense", "conv") else None
    return [] if used is None else [used]


def _attention(a: Arguments) -> list[Use]:
    """Queries, keys and values in one matrix or in three, then the projection of what they give."""
    found = []
    fused, bias = a.get(5, "in_proj_weight"), a.get(6, "in_proj_bias")
    if isinstance(fused, Tensor):
        size = len(fused) // 3
        blocks = [(i * size, (i + 1) * size) for i in range(3)]
        found += [Use(fused, bias if isinstance(bias, Tensor) else None, "out-in", rows=b, last=False) for b in blocks]
    for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
        single = a.get(99, name)
        found += [Use(single, None, "out-in", last=False)] if isinstance(single, Tensor) else []
    out, shift = a.get(11, "out_proj_weight"), a.get(12, "out_proj_bias")
    if isinstance(out, Tensor):
        found.append(Use(out, shift if isinstance(shift, Tensor) else None, "out-in"))
    return found


def weight_of(call: Call) -> Use | None:
    """What a dense or convolution call multiplies the data by; None if it is not one of the known ones."""
    argument = Arguments(call).get

    def tensor(position: int, name: str) -> Tensor | None:
        value = argument(position, name)
        return value if isinstance(value, Tensor) else None

    weight, bias = tensor(1, "weight"), tensor(2, "bias")
    if call.function == "linear" and weight is not None:
        return Use(weight, bias, "out-in")
    if call.function.startswith("conv_transpose") and weight is not None:
        stride = _product(argument(3, "stride", 1), weight.ndim - 2)
        return Use(weight, bias, "transposed", int(argument(6, "groups", 1)), stride)
    if call.function.startswith("conv") and weight is not None:
        return Use(weight, bias, "out-in", int(argument(6, "groups", 1)))
    if call.function == "addmm":
        return _matrix(tensor(1, "mat1"), tensor(2, "mat2"), tensor(0, "input"))
    if call.function in ("matmul", "mm"):
        return _matrix(tensor(0, "input"), tensor(1, "other" if call.function == "matmul" else "mat2"), None)
    return None


def _matrix(left: Tensor | None, right: Tensor | None, bias: Tensor | None) -> Use | None:
    """x @ W holds its inputs in rows, W @ x in columns; stacks of matrices are not known."""
    weight, layout = (right, "in-out") if right is not None else (left, "out-in")
    if weight is None or weight.ndim != 2:
        return None
    return Use(weight, bias, layout)  # type: ignore[arg-type]


def _product(value: int | Sequence[int], count: int) -> int:
    return math.prod([value] * count if isinstance(value, int) else value)
