"""What the nodes of a rule may have missed where u and v are close, from a fine grid along one Gaussian."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from initscope.activations.dual import Function
from initscope.activations.rules import CAUTION, slices
from initscope.activations.triangle import opposite

_GRID, _REACH = 4001, 10.0
_HALVINGS = 30  # of an interval of the grid: what is left of a difference is a jump
_FIRST_ORDER = 1e-6  # up to which D / E m² the first order is good to three digits, even at a kink


def overlooked(
    fn: Function, slope: Function, kinks: tuple[float, ...], value: Tensor, A: Tensor, B: Tensor, D: Tensor
) -> Tensor:
    """How far `value`, an integral E (f(u)-f(v))², may be off although two orders agree on it; vectors of n states.

    Where f bends between the nodes, the first order, E (f'(m) (u-v))² with m = (u+v)/2, disagrees with the value at a
    tiny D. Where f jumps and nobody said so, the increments of f are not those of f': a jump J at k adds at most
    J² E|u-v| times the density at k.
    """
    # Denser around 0, where most functions bend, however wide the Gaussian is.
    z = _REACH * torch.sinh(torch.linspace(-8, 8, _GRID, dtype=A.dtype, device=A.device)) / math.sinh(8)
    density = torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    mass = density * torch.gradient(z)[0]
    M = (opposite(A, B, D) / 4).clamp(min=0)
    tiny = (D < _FIRST_ORDER * M) & (M > 0)
    width = torch.maximum(A, B).sqrt()
    doubt = torch.zeros_like(value)
    for part in slices(len(A), _GRID):
        spread = torch.where(tiny[part], M[part].sqrt(), width[part]).unsqueeze(-1)
        f, rate = fn(spread * z), slope(spread * z)
        tilt = torch.where(tiny[part], (A[part] - B[part]) / 2 / M[part], 0)  # E [u-v | m] = tilt · m
        along = tilt.square() * ((spread * z * rate).square() @ mass)
        first = along + (D[part] - tilt.square() * M[part]).clamp(min=0) * (rate.square() @ mass)
        missed = (value[part] - first).abs()
        doubt[part] = torch.where(tiny[part] & (missed > 1e-3 * first), missed, 0)
        jumps = _jumps(fn, kinks, spread * z, f, rate).square() @ density[1:]
        crossing = (2 / math.pi * D[part]).sqrt() / spread.flatten().clamp(min=1e-300)  # E|u-v| in units of the spread
        doubt[part] += CAUTION * crossing * jumps
    return doubt


def _jumps(fn: Function, kinks: tuple[float, ...], z: Tensor, f: Tensor, rate: Tensor) -> Tensor:
    """By how much f jumps between neighbors with no declared kink in between; 0 where it is merely steep."""
    rise = f.diff(dim=-1)
    missing = (rise - z.diff(dim=-1) * (rate[..., 1:] + rate[..., :-1]) / 2).abs()
    where = torch.bucketize(z, torch.tensor(kinks, dtype=z.dtype, device=z.device))
    hidden = (where[..., 1:] == where[..., :-1]) & (missing > rise.abs() / 4)
    hidden &= missing > 1e-9 * f.abs().amax(-1, keepdim=True)
    jumps = torch.zeros_like(missing)
    low, high = z[..., :-1][hidden], z[..., 1:][hidden]
    for _ in range(_HALVINGS if len(low) else 0):
        middle = (low + high) / 2
        left = (fn(middle) - fn(low)).abs() > (fn(high) - fn(middle)).abs()
        low, high = torch.where(left, low, middle), torch.where(left, middle, high)
    steep = (fn(high) - fn(low)).abs()
    jumps[hidden] = torch.where(steep > missing[hidden] / 100, steep, 0)
    return jumps
