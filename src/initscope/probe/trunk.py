"""The trunk of a network: the way from the data to the output along which samples travel.

A branch that is scaled down, or a step whose effect a normalization undoes, does not decide over a network. So norms and
gradients are followed along the trunk, the way back from the output over the largest of the operands that carry the samples
(`probe.blame`), and norms are compared with the last normalization on it. The trunk ends before probabilities are made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from initscope.probe.report import LayerReport

_PROBABILITIES = ("softmax", "log_softmax", "logsoftmax", "sigmoid", "logsigmoid")
_SCALES = ("dense", "conv", "scale", "shift", "dropout", "select", "pooling", "concat", "residual", "norm", "other")
WEIGHTS = ("dense", "conv", "attention", "embedding")


@dataclass(frozen=True, eq=False)
class Trunk:
    """The steps of a pass and the numbers of those on the trunk, from the data to the output."""

    rows: Sequence[LayerReport]
    way: tuple[int, ...]

    @classmethod
    def of(cls, rows: Sequence[LayerReport]) -> Trunk:
        return cls(rows, tuple(trunk(rows)))

    @cached_property
    def previous(self) -> dict[int, int]:
        """For each step of the trunk the one before it, -1 for the data."""
        return dict(zip(self.way, (-1, *self.way), strict=False))

    @cached_property
    def segment(self) -> dict[int, int]:
        """For each step the number of the segment it is in: a segment ends with a normalization."""
        found, number = {}, 0
        for index in self.way:
            found[index] = number
            number += self.rows[index].kind == "norm"
        return found

    @cached_property
    def undone(self) -> set[int]:
        """Steps whose scale a later normalization undoes: nothing but linear steps and ReLUs lies between."""
        found: set[int] = set()
        waiting: list[int] = []
        for index in self.way:
            row = self.rows[index]
            if row.kind == "norm":
                found.update(waiting)
                waiting = []
            elif row.kind in _SCALES or row.op in ("relu", "leaky_relu", "prelu"):
                waiting.append(index)
            else:
                waiting = []
        return found

    @cached_property
    def drifts(self) -> dict[int, float]:
        """For each measured step its norm_ratio over that of the last normalization before it, or of the data."""
        found: dict[int, float] = {}
        reference = 1.0
        for index in self.way:
            ratio = self.rows[index].norm_ratio
            if ratio is None:
                continue
            if self.rows[index].kind == "norm" and ratio > 0:
                reference = ratio
            found[index] = ratio / reference
        return found

    @cached_property
    def gradients(self) -> dict[int, float]:
        """For each measured step its grad_norm_ratio; where a normalization undoes the scale, as if it had not changed."""
        found: dict[int, float] = {}
        reference = 1.0
        for index in self.way:
            row = self.rows[index]
            ratio = row.norm_ratio
            if row.grad_norm_ratio is not None:
                scale = 1.0
                if index in self.undone and ratio is not None and math.isfinite(ratio) and ratio > 0 and reference > 0:
                    scale = ratio / reference
                found[index] = row.grad_norm_ratio * scale
            if ratio is not None and math.isfinite(ratio) and (row.kind == "norm" or index not in self.undone):
                reference = ratio
        return found

    @cached_property
    def angles(self) -> dict[int, float]:
        """Degrees, where they were measured, without what `last_pools` take away; NaN where samples are zero."""
        found: dict[int, float] = {}
        refund, before = 1.0, math.nan
        for index in self.way:
            angle = self.rows[index].angle_deg
            if angle is None:
                continue
            if index in self.last_pools and angle < before:
                refund *= before / angle if angle > 0 else 1.0
            before = angle
            found[index] = angle * refund
        return found

    @cached_property
    def last_pools(self) -> set[int]:
        """Averages in front of the last weights: they merge samples, and the last weights part them again as they learn."""
        weights = [i for i in self.way if self.rows[i].kind in WEIGHTS and self.rows[i].parameters]
        start = weights[-2] if len(weights) > 1 else -1
        return {i for i in self.way if i > start and self.rows[i].kind == "pooling"}

    def weights_after(self, index: int) -> bool:
        """Whether a step with weights follows on the trunk."""
        return any(self.rows[i].kind in WEIGHTS and self.rows[i].parameters for i in self.way if i > index)


def trunk(rows: Sequence[LayerReport]) -> list[int]:
    """Numbers of the steps from the data to the output, over the operand of the largest norm at every step."""

    def size(index: int) -> float:
        ratio = rows[index].norm_ratio if index >= 0 else None
        return math.sqrt(math.prod(rows[index].shape)) * ratio if ratio is not None and math.isfinite(ratio) else 0.0

    def before(index: int) -> int:
        row = rows[index]
        operands = row.inputs if row.carriers is None else row.carriers
        return max((j for j in operands if j < index), key=size, default=-1)

    way: list[int] = []
    index = next((i for i in reversed(range(len(rows))) if rows[i].output), len(rows) - 1)
    while index >= 0 and rows[index].op in _PROBABILITIES and before(index) >= 0:
        index = before(index)
    while index >= 0:
        way.append(index)
        index = before(index)
    return way[::-1]
