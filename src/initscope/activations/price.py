"""Piecewise polynomials: the dual by a single integral over the angle, from Price's theorem taken repeatedly.

With f_n = f^(n) away from the kinks and J_n,i its jump at the kink k_i, ∂E f_n(u) f_n(v) / ∂E uv is E f_(n+1)(u)
f_(n+1)(v) plus what the jumps add: their delta functions against each other, of elementary value, and against f_(n+1),
a Gaussian mean over the other variable. The chain ends above the degree of f. From angle 0 to t, where E uv = ab cos r,

    distance = E (f(az)-f(bz))² + 2 Σ_n (-1)^(n-1) [L_n (ab T)^n / n! - ∫_0^t (ab (cos r - cos t))^n / n! M_n(r) dr],

L_n = E f_n(az) f_n(bz), T = 1 - cos t, and M_n(r) the share of the jumps times ab sin r, which no angle makes infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.activations.pieces import Pieces
from initscope.activations.rules import climb, panels, slices
from initscope.activations.triangle import Triangle

_ORDERS = (10, 15, 22, 32)
_RATIO, _DEEPEST = 3.0, 36


@dataclass(frozen=True, eq=False)
class AngleIntegral:
    """The sums above for n states (a, b, t); `drop` = 0 gives half the turning part of the distance, 1 its slope K.

    `start` holds L_1, ..., L_degree, each of shape (n,).
    """

    pieces: Pieces
    shape: Triangle
    start: list[Tensor]
    drop: int

    def solve(self) -> tuple[Tensor, Tensor]:
        """The value and an estimate of its error, infinite where no reasonable number of panels is fine enough."""
        a = self.shape.a
        value, error = torch.full_like(a, math.nan), torch.full_like(a, math.inf)
        low, high = self._depths()
        chosen = torch.argsort(64 * low + high)  # neighbours need much the same panels
        chosen = chosen[torch.maximum(low, high)[chosen] <= _DEEPEST]
        climb(lambda part, n: self._sum(part, n, low[part], high[part]), _ORDERS, chosen, value, error)
        return value, error

    def _ends(self) -> tuple[Tensor, Tensor]:
        """The kinks in units of each norm, (n, kinks)."""
        kinks = torch.tensor(self.pieces.kinks, dtype=self.shape.a.dtype, device=self.shape.a.device)
        return kinks / self.shape.a.unsqueeze(-1), kinks / self.shape.b.unsqueeze(-1)

    def _depths(self) -> tuple[Tensor, Tensor]:
        """How many panels, each a third of the one before, lead down to where the integrand is flat near 0 and π.

        There it is e^(-(α∓β)² / 2r²), for kinks at α and β in units of the norms, r the distance from 0 or π.
        """
        first, second = (x.unsqueeze(dim) for x, dim in zip(self._ends(), (-1, -2), strict=True))
        t, rest = self.shape.angle, self.shape.supplement
        depths = []
        rounding = 1e-14 * (first.abs() + second.abs())
        for gaps, wide, floor in (
            (first - second, t.clamp(max=math.pi / 2), torch.zeros_like(t)),
            (first + second, torch.full_like(t, math.pi / 2), rest),
        ):
            least = torch.where(gaps.abs() > rounding, gaps.abs(), math.inf).flatten(1).amin(-1)
            steps = torch.log(wide / torch.maximum(least / 8, floor).clamp(min=1e-300)) / math.log(_RATIO)
            depths.append(torch.ceil(steps).clamp(0, _DEEPEST + 1).int())
        return depths[0], torch.where(rest < math.pi / 2, depths[1], 0)

    def _sum(self, chosen: Tensor, order: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        values, sizes = [], []
        deepest = int(low.max()) + int(high.max()) + 3
        for part in slices(len(chosen), deepest * order):
            cell = self._at(chosen[part])
            r, weight = panels(cell._edges(int(low[part].max()), int(high[part].max())), order)
            value, size = cell._fixed()
            t = cell.shape.angle.unsqueeze(-1)
            fall = torch.sin((t + r) / 2) * torch.sin((t - r) / 2)  # (cos r - cos t) / 2
            fall = fall * (2 * cell.shape.a * cell.shape.b).unsqueeze(-1)
            for n, share in enumerate(cell._jump_shares(r), 1):
                f = fall ** (n - self.drop) / math.factorial(n - self.drop) * share
                value = value - (-1) ** (n - 1) * (f * weight).sum(-1)
                size = size + (f.abs() * weight).sum(-1)
            values.append(value)
            sizes.append(size)
        return torch.cat(values), torch.cat(sizes)

    def _at(self, index: Tensor) -> AngleIntegral:
        fields = (self.shape.a, self.shape.b, self.shape.gap, self.shape.q, self.shape.p)
        return AngleIntegral(
            self.pieces, Triangle(*(x[index] for x in fields)), [x[index] for x in self.start], self.drop
        )

    def _edges(self, low: int, high: int) -> Tensor:
        t = self.shape.angle
        first = t.clamp(max=math.pi / 2)
        edges = [torch.zeros_like(t)] + [first * _RATIO**-j for j in range(low, -1, -1)]
        edges += [t.clamp(max=math.pi - math.pi / 2 * _RATIO**-j) for j in range(1, high + 1)]
        return torch.stack([*edges, t], -1)

    def _fixed(self) -> tuple[Tensor, Tensor]:
        value, size = torch.zeros_like(self.shape.a), torch.zeros_like(self.shape.a)
        area = self.shape.a * self.shape.b
        for n, L in enumerate(self.start, 1):
            power = n - self.drop
            term = L * area**power * (2 * self.shape.q) ** power / math.factorial(power)  # T = 1 - cos t = 2q
            value, size = value + (-1) ** (n - 1) * term, size + term.abs()
        return value, size

    def _jump_shares(self, r: Tensor) -> list[Tensor]:
        """M_n(r) = ab sin r times the delta functions of f_n' against each other and against f_(n+1), for every n."""
        degree = self.pieces.degree
        jumps = [self.pieces.jumps(n) for n in range(1, degree + 1)]
        half = torch.sin(r / 2), torch.cos(r / 2)
        near, far = (1 / (8 * x.square().clamp(min=1e-300)) for x in half)
        sine, cosine = (2 * half[0] * half[1]).clamp(min=1e-300), 1 - 2 * half[0] ** 2
        first, second = (1 / x.unsqueeze(-1) for x in (self.shape.a, self.shape.b))
        shares = [torch.zeros_like(r) for _ in jumps]
        for (k, m), weights in _pairs(self.pieces.kinks, jumps).items():
            alpha, beta = k * first, m * second
            # ab sin r times the density of (u, v) at (k, m)
            density = torch.exp(-((alpha - beta) ** 2 * near) - (alpha + beta) ** 2 * far)
            shares = [share + weight / (2 * math.pi) * density for share, weight in zip(shares, weights, strict=True)]
        for n in range(1, degree):
            for i, jump in enumerate(jumps[n - 1]):
                if jump != 0:
                    shares[n - 1] = shares[n - 1] + jump * self._cross(n, i, sine, cosine)
        return shares

    def _cross(self, n: int, i: int, sine: Tensor, cosine: Tensor) -> Tensor:
        """ab sin r E [δ(u-k) f_(n+1)(v) + f_(n+1)(u) δ(v-k)]: given u = k, v has mean b α cos r and spread b sin r."""
        total = torch.zeros_like(sine)
        for ends, norm in zip(self._ends(), (self.shape.b, self.shape.a), strict=True):
            place, side = ends[:, i, None], norm.unsqueeze(-1)
            mean = self.pieces.gaussian_mean(n + 1, side * place * cosine, side * sine)
            density = torch.exp(-place * place / 2) / math.sqrt(2 * math.pi)
            total = total + density * side * mean
        return total * sine


def _pairs(kinks: tuple[float, ...], jumps: list[tuple[float, ...]]) -> dict[tuple[float, float], list[float]]:
    """The products of jumps for every two kinks, (k, m) and (-k, -m) taken together since (u, v) is symmetric."""
    pairs: dict[tuple[float, float], list[float]] = {}
    for i, k in enumerate(kinks):
        for j, m in enumerate(kinks):
            weights = pairs.setdefault(max((k, m), (-k, -m)), [0.0] * len(jumps))
            for n, jump in enumerate(jumps):
                weights[n] += jump[i] * jump[j]
    return pairs
