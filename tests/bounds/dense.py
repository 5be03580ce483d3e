"""Dense pairs at a given angle and what single units make of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from finite.triples import Triples
from initscope.activations import Activation
from initscope.bounds import FilterCount


def planar(*rhos: float) -> tuple[Tensor, Tensor]:
    rho = torch.tensor(rhos, dtype=torch.float64)
    x = torch.stack([torch.ones_like(rho), torch.zeros_like(rho)], 1)
    return x, torch.stack([rho, (1 - rho * rho).sqrt()], 1)


def dense_triples(activation: Activation, rho: float, count: int, seed: int) -> Triples:
    z = torch.randn(2, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    a, b = activation(z[0]), activation(rho * z[0] + math.sqrt(1 - rho * rho) * z[1])
    return Triples(a * b, a * a, b * b)


def value(count: FilterCount, name: str) -> float:
    return float(getattr(count, name).value[0])
