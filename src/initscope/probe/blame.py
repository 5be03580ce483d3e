"""Which operands carry the samples through a step, and which steps shrink the angles.

The account is exact: its lines sum to log(angle at the data) - log(angle at the output).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from initscope.probe.trace import INPUT, OTHER_INPUT

_ATTENTION = ("scaled_dot_product_attention", "multi_head_attention_forward")
_PRODUCTS = ("matmul", "mm", "bmm", "baddbmm")
_JOINS = ("cat", "concat", "stack", "hstack", "vstack", "setitem")


def carriers(
    function: str, inputs: Sequence[int], units: Callable[[int], int], apart: Callable[[int], bool]
) -> tuple[int, ...]:
    """Those operands of a step that carry the samples on; `apart(i)`: the samples differ there.

    Attention carries its values, queries and keys only weigh them. What is stretched over the others (a gate per channel, the
    mean in a normalization), and what is the same for all samples (positions), carries nothing where something else does.
    """
    if function in _ATTENTION and len(inputs) > 2:
        return (inputs[2],)
    if function in _PRODUCTS and len(inputs) > 1:
        return (inputs[-1],)
    different = [i for i in dict.fromkeys(inputs) if apart(i)] or list(dict.fromkeys(inputs))
    most = max(map(units, different), default=0)
    return tuple(i for i in different if units(i) == most) if function not in _JOINS else tuple(different)


@dataclass(frozen=True)
class Place:
    """What the account needs of one step: the calls it takes, its kind, the norm and the log of the angle there."""

    inputs: tuple[int, ...]
    kind: str
    norm: float
    log_angle: float


def contributions(data: Place, steps: Sequence[Place], output: int | None = None) -> list[float]:
    """For each step, how much of the contraction is its own, in nats; negative where it spreads the angles.

    The output, the last step if it is not named, has weight 1. A step hands its weight to its operands in proportion to their
    squared norms, and owns its weight times (weighted mean of the operands' log angles - its own). The sum over all steps is
    log angle of the data minus log angle of the output.

    >>> data = Place((), "input", 1.0, 0.0)
    >>> contributions(data, [Place((-1,), "conv", 1.0, -0.5), Place((0, -1), "residual", 1.0, -0.4)])
    [0.25, 0.15000000000000002]
    """
    weight = [0.0] * len(steps)
    own = [0.0] * len(steps)
    last = len(steps) - 1 if output is None else output
    while last >= 0 and not math.isfinite(steps[last].log_angle):
        last = max((i for i in steps[last].inputs if i < last), default=INPUT)
    if last < 0:
        return own
    weight[last] = 1.0
    for i in range(last, -1, -1):
        if weight[i] == 0:
            continue
        operands = [j for j in dict.fromkeys(steps[i].inputs) if math.isfinite(_at(data, steps, j).log_angle)]
        squares = [_at(data, steps, j).norm ** 2 for j in operands]
        total = sum(squares)
        if not operands or total == 0 or not math.isfinite(total) or not math.isfinite(steps[i].log_angle):
            continue
        before = sum(q / total * _at(data, steps, j).log_angle for j, q in zip(operands, squares, strict=True))
        own[i] = weight[i] * (before - steps[i].log_angle)
        for j, q in zip(operands, squares, strict=True):
            if j >= 0:
                weight[j] += weight[i] * q / total
    return own


def shares(kinds: Sequence[str], own: Sequence[float]) -> dict[str, float]:
    """The share of each kind of operation in all contraction, largest first; kinds that spread angles overall have none.

    >>> shares(["conv", "activation", "norm"], [1.0, 3.0, -2.0])
    {'activation': 0.75, 'conv': 0.25}
    """
    sums: dict[str, float] = {}
    for kind, value in zip(kinds, own, strict=True):
        sums[kind] = sums.get(kind, 0.0) + value
    positive = {kind: value for kind, value in sums.items() if value > 1e-12}
    total = sum(positive.values())
    return {kind: value / total for kind, value in sorted(positive.items(), key=lambda item: -item[1])}


def _at(data: Place, steps: Sequence[Place], index: int) -> Place:
    if index == OTHER_INPUT:
        return Place((), "input", math.nan, math.nan)
    return data if index == INPUT else steps[index]
