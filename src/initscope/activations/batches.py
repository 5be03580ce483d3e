"""Very many states, and slopes, of any elementwise function."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from initscope.activations.dual import Function

MANY = 3000  # from how many states on an interpolant of integrals pays

Direct = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
Batch = Callable[[Tensor, Tensor, Tensor], "tuple[Tensor, Tensor] | None"]


def flat(
    direct: Direct, A: Tensor, B: Tensor, D: Tensor, many: Batch | None, enough: int = MANY
) -> tuple[Tensor, Tensor]:
    """Answer for tensors of any shape: equal states once, `enough` states through the interpolant where it is safe.

    States that have left the range of the numbers have no value.
    """
    shape = A.shape
    states = torch.stack([x.detach().flatten() for x in (A, B, D)], -1)
    where: Tensor | None = None
    if _repeats(states):
        states, where = torch.unique(states, dim=0, return_inverse=True)
    known = states.isfinite().all(1)
    value, error = torch.full_like(states[:, 0], math.nan), torch.full_like(states[:, 0], math.inf)
    columns = [column.contiguous() for column in states[known].T]
    answer = many(*columns) if many is not None and len(columns[0]) >= enough else None
    value[known], error[known] = answer if answer is not None else direct(*columns)
    if where is not None:
        value, error = value[where], error[where]
    return value.view(shape), error.view(shape)


def _repeats(states: Tensor) -> bool:
    """Whether finding equal states is likely to save more than it costs, from a sample."""
    if len(states) < 2:
        return False
    sample = states[:: max(1, len(states) // 2048)]
    return len(states) <= MANY or 2 * len(torch.unique(sample, dim=0)) < len(sample)


def autograd_derivative(fn: Function) -> Function:
    """f' by automatic differentiation, 0 where f is piecewise constant.

    >>> float(autograd_derivative(torch.tanh)(torch.zeros(())))
    1.0
    """

    def slope(z: Tensor) -> Tensor:
        with torch.enable_grad():
            x = z.detach().requires_grad_(True)
            y = fn(x)
            if not y.requires_grad:
                return torch.zeros_like(z)
            (gradient,) = torch.autograd.grad(y.sum(), x, allow_unused=True, materialize_grads=True)
        return gradient

    return slope


def jumps(fn: Function, kinks: tuple[float, ...]) -> bool:
    """Whether f itself is discontinuous at a kink: its step across it does not shrink with the width of the step."""
    for k in kinks:
        scale = max(1.0, abs(k))
        wide, narrow = (
            float((fn(torch.tensor([k + h]).double()) - fn(torch.tensor([k - h]).double())).abs())
            for h in (1e-4 * scale, 1e-7 * scale)
        )
        if narrow > 0.5 * wide > 0:
            return True
    return False
