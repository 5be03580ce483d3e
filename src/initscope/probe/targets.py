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
from initscope.probe.operations import operation_of, range_of, short_name
from initscope.probe.trace import tensors_in

_NORMALIZED = 0.05  # by which the logarithm of a sum of probabilities may be off in half precision
_ROUNDING = 1e-6  # by which a target may lie outside


@dataclass(frozen=True)
class TargetFacts:
    """What the targets are, beside the output.

    unreachable: share of the targets that lie outside of `limits`, the range of the function that makes the output.
    output, target: their shapes. outer: the loss pairs every output with every target, because their shapes broadcast.
    """

    output: tuple[int, ...]
    target: tuple[int, ...]
    size: float = 1.0  # root mean square of the targets
    mean: float = 0.0
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
    size, mean = float(wanted.double().square().mean().sqrt()), float(wanted.double().mean())
    return TargetFacts(tuple(values.shape), tuple(target.shape), size, mean, share, (low, high), outer)


class Pairing(TorchFunctionMode):
    """Watches a loss.

    functions: what is called on the output itself, or a view of it. outer: (n,) meets (n, 1) and gives n x n, one of them
    the output, one the target. unnormalized: `nll_loss` takes something that is no logarithm of probabilities.
    """

    def __init__(self, output: Any, target: Any) -> None:
        super().__init__()
        self.functions: list[str] = []
        self.outer = self.unnormalized = False
        self._kept: list[Tensor] = []
        self._outputs = {id(t) for t in tensors_in(output)}
        self._targets = {id(t) for t in tensors_in(target)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tensors_in((args, kwargs or {}))
        outputs = [t for t in given if id(t) in self._outputs]
        targets = [t for t in given if id(t) in self._targets]
        name = short_name(func)
        if outputs:
            self.functions.append(name)
        if len(outputs) == len(targets) == 1:
            self.outer |= _crosses(tuple(outputs[0].shape), tuple(targets[0].shape))
        if outputs and name == "nll_loss":
            self.unnormalized |= _unnormalized(outputs[0])
        found = func(*args, **(kwargs or {}))
        if outputs and operation_of(func).same_values:
            for tensor in tensors_in(found):
                self._outputs.add(id(tensor))
                self._kept.append(tensor)  # or its identity could be another tensor's
        return found


def _unnormalized(values: Tensor) -> bool:
    """Whether the exponentials do not add up to 1 over the classes."""
    total = values.detach().double().logsumexp(1 if values.ndim > 1 else 0)
    return bool((total.abs() > _NORMALIZED).any())


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
