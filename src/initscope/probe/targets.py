"""Do the targets fit the output: can it take their values, and does each sample meet its own target?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from torch.overrides import TorchFunctionMode

from initscope.errors import InitscopeError
from initscope.probe.losses import main_output
from initscope.probe.operations import range_of
from initscope.probe.trace import tensors_in

_ROUNDING = 1e-6  # by which a target may lie outside


@dataclass(frozen=True)
class TargetFacts:
    """What the targets are, beside the output.

    unreachable: share of the targets that lie outside of `limits`, the range of the function that makes the output.
    output, target: their shapes. outer: the loss pairs every output with every target, because their shapes broadcast.
    """

    output: tuple[int, ...]
    target: tuple[int, ...]
    unreachable: float = 0.0
    limits: tuple[float, float] = (-math.inf, math.inf)
    outer: bool = False


def target_facts(output: Any, target: Any, function: str | None, outer: bool) -> TargetFacts | None:
    """None where targets are not numbers, one for each output; `function` made the output."""
    try:
        values = main_output(output).detach()
    except InitscopeError:
        return None
    if not isinstance(target, Tensor) or not target.is_floating_point() or target.numel() != values.numel():
        return None
    low, high = (-math.inf, math.inf) if function is None else range_of(function)
    wanted = target.detach()
    outside = (wanted < low - _ROUNDING) | (wanted > high + _ROUNDING)
    share = float(outside.double().mean()) if wanted.numel() else 0.0
    return TargetFacts(tuple(values.shape), tuple(target.shape), share, (low, high), outer)


class Pairing(TorchFunctionMode):
    """Watches a loss: `outer` becomes true where (n,) meets (n, 1) and gives n x n, one of them the output, one the target."""

    def __init__(self, output: Any, target: Any) -> None:
        super().__init__()
        self.outer = False
        self._outputs = {id(t) for t in tensors_in(output)}
        self._targets = {id(t) for t in tensors_in(target)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tensors_in((args, kwargs or {}))
        outputs = [t for t in given if id(t) in self._outputs]
        targets = [t for t in given if id(t) in self._targets]
        if len(outputs) == len(targets) == 1:
            self.outer |= _crosses(tuple(outputs[0].shape), tuple(targets[0].shape))
        return func(*args, **(kwargs or {}))


def _crosses(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether as many numbers here as there are broadcast to more.

    >>> _crosses((8, 1), (8,)), _crosses((8, 1), (8, 1)), _crosses((8, 3), (3,))
    (True, False, False)
    """
    if math.prod(a) != math.prod(b) or a == b:
        return False
    try:
        return math.prod(np.broadcast_shapes(a, b)) > math.prod(a)
    except ValueError:
        return False
