"""The trunk of a network: the way from the data to the output along which samples travel.

A branch that is scaled down, or a step whose effect a normalization undoes, does not decide over a network. So norms and
gradients are followed along the trunk: the way back from the output, at every step over the operand that carries the samples
(`probe.blame`) and that the loss is most sensitive to. Norms are compared with the last normalization on it. The trunk ends
before probabilities are made.
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
WEIGHTS = ("dense", "conv", "attention", "embedding", "recurrent")


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
            if ratio is None or self.rows[index].broken:  # a mask that a later step takes; what stays broken is found
                continue
            if self.rows[index].kind == "norm" and ratio > 0:
                reference = ratio
            found[index] = ratio / reference
        return found

    @cached_property
    def gradients(self) -> dict[int, float]:
        """For each measured step how the gradient there compares with the one at the output.

        There are two readings: |g| alone, and Σ|g||x|, the change of the loss for a relative change of the activations, which
        no rescaling alters. A small stream in front of a normalization has a large |g|, a network without normalization
        whose activations shrink has a small one, and both are as good as the second reading says. So the milder reading
        counts, and where the two point in different directions, neither does.
        """
        found: dict[int, float] = {}
        seen: set[str] = set()  # weights up to here
        parts = False  # from here on, not all that they make
        for index in self.way:
            ratio = _gradient(self.rows[index])
            parts |= self.rows[index].kind == "select"
            seen.update(name for name in self.rows[index].parameters if name in self._uses)
            if ratio is None:
                continue
            found[index] = ratio
            # A loop over time uses weights again, and takes one slice at a time: what they get counts, not what passes here.
            if ratio < 1 and seen and (parts or any(max(self._uses[name]) > index for name in seen)):
                found[index] = max(ratio, min(max(self._uses[name].values()) for name in seen))
        return found

    @cached_property
    def _uses(self) -> dict[str, dict[int, float]]:
        """For each weight the steps that use it, and their gradients: it gets the sum of what comes from all of them."""
        found: dict[str, dict[int, float]] = {}
        for index, row in enumerate(self.rows):
            ratio = _gradient(row)
            for name in row.parameters if ratio is not None else ():
                found.setdefault(name, {})[index] = ratio or 0.0
        return found

    @cached_property
    def squared(self) -> set[int]:
        """Steps between a square and its root: what they are is the size of something, squared."""
        found: set[int] = set()
        waiting: list[int] | None = None
        for index in self.way:
            row = self.rows[index]
            if row.op in ("pow", "square"):
                waiting = [index]
            elif waiting is not None and row.op in ("sqrt", "rsqrt", "pow"):
                found.update(waiting)
                waiting = None
            elif waiting is not None:
                waiting = [*waiting, index] if row.kind in ("pooling", "shift", "scale", "select") else None
        return found

    @property
    def depth(self) -> int:
        """Weight layers on the way; one that is used again, as in a loop over time, counts once."""
        return len({self.rows[i].parameters or (str(i),) for i in self.way if self.rows[i].kind in WEIGHTS})

    @cached_property
    def angles(self) -> dict[int, float]:
        """Degrees, where they were measured, without what the `readout` takes away; NaN where samples are zero."""
        found: dict[int, float] = {}
        refund, before = 1.0, math.nan
        for index in self.way:
            angle = self.rows[index].angle_deg
            if angle is None or self.rows[index].broken:
                continue
            if index in self.readout and angle < before:
                refund *= before / angle if angle > 0 else 1.0
            before = angle
            found[index] = angle * refund
        return found

    @cached_property
    def readout(self) -> set[int]:
        """The last weights and averages in front of them: what they merge, the last weights part again as they learn."""
        weights = [i for i in self.way if self.rows[i].kind in WEIGHTS and self.rows[i].parameters]
        if len(weights) < 2:
            return set()
        return {i for i in self.way if i > weights[-2] and (self.rows[i].kind == "pooling" or i == weights[-1])}

    def weights_after(self, index: int) -> bool:
        """Whether a step with weights follows on the trunk."""
        return any(self.rows[i].kind in WEIGHTS and self.rows[i].parameters for i in self.way if i > index)


def _gradient(row: LayerReport) -> float | None:
    """The milder of the two readings; None where there is none."""
    if row.grad_norm_ratio is None or row.gradient_broken:
        return None
    other = row.grad_norm_ratio if row.sensitivity_ratio is None else row.sensitivity_ratio
    return _milder(row.grad_norm_ratio, other)


def _milder(a: float, b: float) -> float:
    """The one nearer to 1; 1 where they lie on different sides of it. What is zero or not finite stays.

    >>> _milder(0.01, 0.1), _milder(100.0, 0.5), _milder(0.0, 1.0)
    (0.1, 1.0, 0.0)
    """
    if not (math.isfinite(a) and a > 0 and math.isfinite(b) and b > 0):
        return a
    if (a > 1) != (b > 1):
        return 1.0
    return min(a, b) if a > 1 else max(a, b)


def trunk(rows: Sequence[LayerReport]) -> list[int]:
    """Numbers of the steps from the data to the output, over the operand that the loss is most sensitive to at every step.

    Where no gradient tells, over the one of the largest norm.
    """

    def size(index: int) -> tuple[float, float]:
        if index < 0:
            return 0.0, 0.0
        weight = rows[index].sensitivity_ratio
        return weight if weight is not None and math.isfinite(weight) else 0.0, rows[index].length

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
