"""What leaving out orders of a Hermite series costs.

Of the orders that are left out only g_k = a_k - p_k is neglected, p_k those of the rectified powers that are taken out (0
without a kink at 0), so that by Cauchy and Schwarz, with G² = Σ g_k², P² = Σ p_k² over the left-out orders,

    |error of E f(u) f(v)| <= 2 G P + G²    (even and odd orders apart, each relative to E f²),

and the same with the weights k for E f'(u) f'(v). Beyond the last order that was integrated the sums
are extrapolated from their last two octaves of k, and what is then missing in Σ a_k² = E f² is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from initscope.activations.arcs import arcs_of
from initscope.activations.hermite import HIGHEST, LOWEST, Expansion, Panel
from initscope.activations.rectified_series import half_moment

_EPSILON = 3e-16
_ROUNDING = 2e-13  # of integrals of f², beside them: a miss of this size says nothing
_STEPS = 8  # to an octave, to which ranges are rounded outwards


@dataclass(frozen=True)
class Span:
    """Standard deviations from 2^(first/8) to 2^(last/8)."""

    first: int
    last: int

    @classmethod
    def of(cls, low: float, high: float) -> Span:
        """The smallest span that holds low and high; an empty one where there are no panels."""
        if not 0 < low <= high < math.inf:
            return cls(0, 0)
        first, last = math.floor(_STEPS * math.log2(low)), math.ceil(_STEPS * math.log2(high))
        return cls(first, max(last, first + 1))

    def rounded(self, steps: tuple[int, int]) -> Span:
        """The smallest span around it that begins and ends at multiples of so many steps."""
        below, above = steps
        return Span(self.first // below * below, -(-self.last // above) * above)

    @property
    def octaves(self) -> range:
        """The octaves [2^n, 2^(n+1)] that cover it; empty if there are none."""
        covered = range(self.first // _STEPS, -(-self.last // _STEPS))
        return covered if covered.start >= LOWEST and covered.stop <= HIGHEST else range(0)

    def among(self, logs: Tensor) -> Tensor:
        """Which of the rising numbers log s lie in it, with one neighbor on each side."""
        steps = logs / math.log(2) * _STEPS
        inside = (steps >= self.first) & (steps <= self.last)
        chosen = inside.clone()
        chosen[1:] |= inside[:-1]
        chosen[:-1] |= inside[1:]
        return chosen


@dataclass(frozen=True, eq=False)
class Losses:
    """What leaving out orders costs at all nodes of some panels."""

    expansion: Expansion
    panels: tuple[Panel, ...]
    span: Span
    level: int
    count: int

    @property
    def powers(self) -> tuple[float, ...]:
        return self.expansion.powers(self.count)

    @cached_property
    def _used(self) -> Tensor:
        """The nodes at which the loss counts."""
        return torch.nonzero(self.span.among(torch.cat([p.axis.nodes for p in self.panels]))).flatten()

    @cached_property
    def _s(self) -> Tensor:
        return torch.cat([p.deviations for p in self.panels])[self._used]

    @cached_property
    def _orders(self) -> Tensor:
        return torch.arange(self.level + 1)

    @cached_property
    def _energy(self) -> tuple[Tensor, Tensor]:
        """E f² and s² E f'²."""
        energy, slope = (torch.cat([getattr(p, name) for p in self.panels]) for name in ("energy", "slope_energy"))
        energy, slope = energy[self._used], slope[self._used]
        return energy, self._s.square() * slope

    @cached_property
    def _coefficients(self) -> tuple[Tensor, Tensor]:
        """a_k and p_k at the nodes, (nodes, orders)."""
        s = torch.where(self._orders == 0, 1.0, self._s.unsqueeze(-1))
        scaled = torch.cat([p.scaled for p in self.panels])[self._used]
        return scaled * s, self.expansion.taken_out(self._s, self._orders, self.count) * s

    def _left_out(self, parity: int, weighted: bool) -> Tensor:
        return self._losses[parity, weighted]

    @cached_property
    def _losses(self) -> dict[tuple[int, bool], Tensor]:
        return {(parity, w): self._loss(parity, w) for parity in (0, 1) for w in (False, True)}

    def _loss(self, parity: int, weighted: bool) -> Tensor:
        """The loss if only orders below k of this parity are kept, for every k up to level + 1, (nodes, level + 2)."""
        weight = (self._orders % 2 == parity) * (self._orders if weighted else torch.ones_like(self._orders))
        a, p = self._coefficients
        energy = self._energy[weighted].unsqueeze(-1)
        rest, taken = weight * (a - p).square(), weight * p.square()
        G = _suffix(rest, _extrapolated(rest)) / energy
        P = _suffix(taken, self._taken_beyond(parity, weighted).unsqueeze(-1)) / energy
        return 2 * (G * P).sqrt() + G

    def _taken_beyond(self, parity: int, weighted: bool) -> Tensor:
        """Σ_(k > level) p_k² (or k p_k²) over one parity."""
        if not self.powers:
            return torch.zeros_like(self._s)
        shares = torch.stack([c * self._s**j for j, c in enumerate(self.powers, 1)])
        form = _beyond(self.level, self.count, parity, weighted)
        return (shares * (form @ shares)).sum(0).clamp(min=0)

    def _unexplained(self, weighted: bool) -> float:
        """The part of E f² (or s² E f'²) that Σ a_k² misses and the decay of the a_k does not explain."""
        a, p = self._coefficients
        weight = self._orders if weighted else torch.ones_like(self._orders)
        energy = self._energy[weighted]
        beyond = sum((self._taken_beyond(parity, weighted) for parity in (0, 1)), torch.zeros_like(energy))
        missing = (energy - (weight * a.square()).sum(-1) - beyond).abs() / energy
        rounding = _ROUNDING * (1 + (weight * p.square()).sum(-1) / energy)
        explained = sum((self._left_out(parity, weighted)[:, -1] for parity in (0, 1)), rounding)
        return float((missing - explained).max().clamp(min=0))

    def _missed(self, kept: Tensor, weighted: bool) -> float:
        """What the interpolation between the nodes adds, with twice its largest miss: 2ε + ε²."""
        worst = 0.0
        weight = self._orders[kept] if weighted else torch.ones_like(self._orders[kept])
        for panel in self.panels:
            s = panel.deviations.min() if weighted else panel.deviations.max()
            scale = torch.where(self._orders[kept] == 0, 1.0, panel.deviations.max())
            least = (panel.slope_energy * s.square() if weighted else panel.energy).min()
            miss = (weight * (panel.misses[:, kept] * scale).square()).sum(-1).max() / least
            worst = max(worst, 2 * float(miss.sqrt()))
        return 2 * worst + worst * worst

    @property
    def least(self) -> float:
        """The loss with all orders kept, the larger one of the product's and the slopes'."""
        return sum(max(float(self._left_out(parity, w)[:, -1].max()) for w in (False, True)) for parity in (0, 1))

    def _cancelled(self) -> float:
        """What rounding may leave of powers that are larger than f itself: E (Σ c_j relu^j)² / E f² times it."""
        if not self.powers:
            return 0.0
        exponents = range(1, len(self.powers) + 1)
        form = torch.tensor([[half_moment(i + j) for j in exponents] for i in exponents], dtype=torch.float64)
        shares = torch.stack([c * self._s**j for j, c in zip(exponents, self.powers, strict=True)])
        total = (shares * (form @ shares)).sum(0)
        return _EPSILON * float((total / self._energy[0]).max())

    def shortest(self, tolerances: tuple[float, float]) -> tuple[tuple[int, ...], float, float] | None:
        """The fewest orders that meet the tolerances of product and slopes, and the bounds of both."""
        if self.expansion.jumps and tolerances[1] < math.inf:
            return None
        losses = {(parity, w): self._left_out(parity, w).amax(0) for parity in (0, 1) for w in (False, True)}
        orders, bounds = [], [0.0, 0.0]
        for parity in (0, 1):
            allowed = torch.stack([losses[parity, w] <= 0.4 * tolerances[w] for w in (False, True)]).all(0)
            if not bool(allowed[-1]):
                return None
            first = int(allowed.int().argmax())
            if self.powers:
                first = max(first, self.count + 1)
            orders += [k for k in range(parity, first, 2)]
            bounds = [bound + float(losses[parity, w][first]) for bound, w in zip(bounds, (False, True), strict=True)]
        kept = torch.tensor(sorted(orders), dtype=torch.long)
        for w in (False, True):
            bounds[w] += self._unexplained(w) + self._missed(kept, w) + self._cancelled()
        if self.expansion.jumps:
            bounds[1] = math.inf
        if not all(bound <= tolerance for bound, tolerance in zip(bounds, tolerances, strict=True)):
            return None
        return tuple(kept.tolist()), bounds[0], bounds[1]


@cache
def _beyond(level: int, count: int, parity: int, weighted: bool) -> Tensor:
    """Σ_(k > level) r_k^(i) r_k^(j) (or k times that) over the orders of one parity, (count, count).

    Those orders belong to the powers of the other parity, of which the sum over all orders is known.
    """
    powers = tuple(range(1, count + 1))
    number = torch.tensor(powers, dtype=torch.float64)
    whole = arcs_of(powers).whole
    if weighted:
        whole = torch.outer(number, number) * arcs_of(tuple(range(count))).whole
    orders = torch.arange(level + 1, dtype=torch.float64)
    inside = arcs_of(powers).constants(range(level + 1))
    rest = whole - (inside * (orders if weighted else 1)) @ inside.T
    other = (number % 2 != parity).double()
    return rest * torch.outer(other, other)


def _extrapolated(terms: Tensor) -> Tensor:
    """About Σ_(k > N) terms for terms of the orders 0 to N, (nodes, 1): twice what the last two octaves of k lead on to.

    A power of k makes the sums over octaves a geometric series; what decays faster stays below it.
    """
    last = terms.shape[-1] - 1
    before = terms[:, last // 4 + 1 : last // 2 + 1].sum(-1, keepdim=True)
    now = terms[:, last // 2 + 1 :].sum(-1, keepdim=True)
    ratio = (now / before.clamp(min=1e-300)).clamp(max=0.9)
    return 2 * now * ratio / (1 - ratio)


def _suffix(terms: Tensor, beyond: Tensor) -> Tensor:
    """Σ_(m >= k) terms + beyond for k = 0 ... orders, (nodes, orders + 1)."""
    whole = torch.cat([terms, beyond], -1)
    return whole.flip(-1).cumsum(-1).flip(-1)
