"""What single random filters make of pairs of images, by PyTorch's own convolution: the independent route of these tests."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_TILE = 1 << 21


@dataclass(frozen=True, eq=False)
class Triples:
    """P, Q, S of `count` filters for one pair, (count,) each."""

    P: Tensor
    Q: Tensor
    S: Tensor

    def similarities(self, filters: int) -> Tensor:
        """Similarities of disjoint sets of that many filters."""
        sets = len(self.P) // filters
        P, Q, S = (t[: sets * filters].view(sets, filters).sum(1) for t in (self.P, self.Q, self.S))
        return P / (Q * S).sqrt()

    def failures(self, filters: int, mean: float, epsilon: float) -> tuple[int, int]:
        """How many of how many sets are off by epsilon or more; sets without an angle count as failures."""
        found = self.similarities(filters)
        return int((~((found - mean).abs() < epsilon)).sum()), len(found)


def sample_triples(
    x: Tensor,
    y: Tensor,
    count: int,
    seed: int,
    *,
    kernel: int = 3,
    stride: int = 1,
    padding: str = "circular",
    activation: torch.nn.Module | None = None,
) -> Triples:
    """For one pair (c, h, w), filters with independent standard normal entries times √(2/fan_in), ReLU unless told otherwise."""
    generator = torch.Generator().manual_seed(seed)
    f = activation if activation is not None else torch.nn.ReLU()
    before, after = (kernel - 1) // 2, kernel - 1 - (kernel - 1) // 2
    pads = (before, after, before, after)
    if padding == "circular":
        both = F.pad(torch.stack([x, y]).double(), pads, mode="circular")
    elif padding == "zero":
        both = F.pad(torch.stack([x, y]).double(), pads)
    else:
        both = torch.stack([x, y]).double()
    tile = max(1, _TILE // (x.shape[1] * x.shape[2]))
    scale = math.sqrt(2 / (len(x) * kernel * kernel))
    rows = []
    for start in range(0, count, tile):
        shape = (min(tile, count - start), len(x), kernel, kernel)
        weights = torch.randn(shape, generator=generator) * scale
        a, b = f(F.conv2d(both.float(), weights, stride=stride)).flatten(2).unbind(0)
        rows.append(torch.stack([(a * b).sum(1), (a * a).sum(1), (b * b).sum(1)]))
    P, Q, S = torch.cat(rows, 1).double()
    return Triples(P, Q, S)
