"""Hermite coefficients of an activation as functions of the standard deviation, with what the neglected ones may amount to.

With a_k(s) = E f(s z) h_k(z), h_k the normalized Hermite polynomials and z standard normal (Mehler 1866),

    E f(u) f(v) = Σ_k a_k(√A) a_k(√B) ρ^k,    Σ_k a_k² = E f²,    Σ_k k a_k² = s² E f'²,

and a_k = s/√k E f'(sz) h_(k-1)(z), which keeps its relative accuracy at a small s. A panel covers one octave of s: the
coefficients are integrated at its Chebyshev points in log s and interpolated in between.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.activations.dual import Function
from initscope.activations.interpolant import Axis
from initscope.activations.plane import integrate_line
from initscope.activations.rectified_series import rectified_constants
from initscope.activations.rules import panels

LOWEST, HIGHEST = -48, 16  # octaves of the standard deviation that have panels
_NODES = 24  # Chebyshev points in an octave
_CHECKS = (0.0313, 0.2087, 0.4519, 0.7301, 0.9706)  # places in an octave where the interpolant is compared
_ORDER, _WIDTH, _REACH = 16, 0.5, 13.0  # Gauss points per piece of z, its width, and where z ends
_NEAR, _FIT = 1.0, 32  # how far from 0, and at how many points, f' is fitted for its one-sided derivatives
MOST_POWERS = 9


@dataclass(frozen=True, eq=False)
class Panel:
    """One octave: a_0 and a_k/s at the nodes, the second moments of f and of f', and the interpolant's misses."""

    axis: Axis
    scaled: Tensor  # (nodes, orders)
    energy: Tensor  # (nodes,) E f²
    slope_energy: Tensor  # (nodes,) E f'²
    misses: Tensor  # (checks, orders) interpolated minus integrated a_0, a_k/s

    @property
    def deviations(self) -> Tensor:
        return self.axis.nodes.exp()

    def up_to(self, order: int) -> Panel:
        """The same without the orders above this one."""
        scaled, misses = self.scaled[:, : order + 1], self.misses[:, : order + 1]
        return Panel(self.axis, scaled, self.energy, self.slope_energy, misses)

    @cached_property
    def _waves(self) -> Tensor:
        """The Chebyshev coefficients of every order, (orders, nodes)."""
        waves: Tensor = torch.linalg.solve(_chebyshev(self.axis, self.axis.nodes).T, self.scaled)
        return waves.T.contiguous()

    def at(self, logs: Tensor, orders: Tensor) -> Tensor:
        """a_0 and a_k/s for these orders at log s, (orders, n)."""
        return self._waves[orders] @ _chebyshev(self.axis, logs)


def _chebyshev(axis: Axis, logs: Tensor) -> Tensor:
    """T_n at log s, (nodes, n)."""
    x = (2 * logs - axis.low - axis.high) / (axis.high - axis.low)
    rows = torch.empty(axis.count, len(x), dtype=torch.float64)
    rows[0], rows[1] = 1.0, x
    for n in range(2, axis.count):
        torch.addcmul(rows[n - 2].neg(), rows[n - 1], x, value=2, out=rows[n])
    return rows


@dataclass(frozen=True, eq=False)
class Expansion:
    """The Hermite coefficients of f, panel by panel as they are asked for."""

    fn: Function
    slope: Function
    kinks: tuple[float, ...] = ()
    jumps: bool = False
    tables: dict[tuple[float, ...], Any] = field(default_factory=dict, repr=False)  # what was made of it, by question
    latest: dict[str, Any] = field(default_factory=dict, repr=False)  # the last question and its answer
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _panels: dict[tuple[int, int], Panel | None] = field(default_factory=dict, repr=False)

    @cached_property
    def _rises(self) -> tuple[float, ...]:
        """By how much the derivatives f', f'', ... over j! jump at 0; () without a kink there."""
        if 0.0 not in self.kinks or self.jumps:
            return ()
        reach = min([_NEAR, *(abs(k) / 2 for k in self.kinks if k)])
        right, left = self._one_sided(reach), self._one_sided(-reach)
        rises = tuple((r - l) / j for j, (r, l) in enumerate(zip(right, left, strict=True), 1))
        least = 1e-13 * max(abs(x) for x in (*right, *left))
        rises = tuple(c if abs(c) > least else 0.0 for c in rises)
        return rises if any(rises) else ()

    def powers(self, count: int) -> tuple[float, ...]:
        """c_1, c_2, ... for which f - Σ c_j relu^j has `count` continuous derivatives at 0; () without a kink there.

        Any numbers would be right: they only decide how many orders the rest needs.
        """
        return self._rises[:count]

    def _one_sided(self, reach: float) -> tuple[float, ...]:
        """The power series of f' at 0 from one side: its Chebyshev series over `reach`, cut where only rounding is left."""
        axis = Axis(0.0, 1.0, _FIT)
        waves: Tensor = torch.linalg.solve(_chebyshev(axis, axis.nodes).T, self.slope(_inside(reach, axis.nodes)))
        size = waves.abs()
        kept = int(torch.nonzero(size > 1e-15 * size.max()).max()) + 1 if bool(size.max() > 0) else 1
        chosen = np.polynomial.Chebyshev(waves[: max(kept, 1)].numpy(), domain=[0.0, 1.0])
        series = chosen.convert(kind=np.polynomial.Polynomial, domain=[-1.0, 1.0]).coef.tolist()
        series = [*series, *[0.0] * MOST_POWERS][:MOST_POWERS]
        return tuple(c / reach**n for n, c in enumerate(series))

    def panel(self, octave: int, most: int) -> Panel | None:
        """The coefficients of orders 0 to `most` for s from 2^octave to twice that; None if f has no finite moments."""
        with self.lock:
            key = (octave, most)
            if key not in self._panels:
                self._panels[key] = self._build(octave, most)
            return self._panels[key]

    def _build(self, octave: int, most: int) -> Panel | None:
        low = octave * math.log(2)
        axis = Axis(low, low + math.log(2), _NODES)
        checks = low + math.log(2) * torch.tensor(_CHECKS, dtype=torch.float64)
        logs = torch.cat([axis.nodes, checks])
        scaled = self._integrate(logs.exp(), octave, most)
        variance = (2 * axis.nodes).exp()
        energy = integrate_line(lambda u, v, _: self.fn(u) ** 2, variance, variance, self.kinks)[0]
        slope_energy = torch.full_like(energy, math.inf)
        if not self.jumps:
            slope_energy = integrate_line(lambda u, v, _: self.slope(u) ** 2, variance, variance, self.kinks)[0]
        if not bool(scaled.isfinite().all() and energy.isfinite().all() and (energy > 0).all()):
            return None
        misses = axis.cardinal(checks) @ scaled[:_NODES] - scaled[_NODES:]
        return Panel(axis, scaled[:_NODES], energy, slope_energy, misses)

    def _integrate(self, s: Tensor, octave: int, most: int) -> Tensor:
        """a_0 and a_k/s by Gauss-Legendre rules split at the kinks, (len(s), most + 1)."""
        lift = 0 if self.jumps else 1  # of f' the coefficients are those of f, one order lower
        away = tuple(k for k in self.kinks if k)
        if away:
            z, weight = panels(_edges(octave, torch.tensor(away, dtype=torch.float64) / s.unsqueeze(-1)), _ORDER)
            root = _root(z)
        else:
            z, weight, root, waves = _shared_waves(max(octave, 0), most)
        values = self.fn(s.unsqueeze(-1) * z) * weight * root
        first = (values * root).sum(-1, keepdim=True)
        values = values / s.unsqueeze(-1) if self.jumps else self.slope(s.unsqueeze(-1) * z) * weight * root
        if away:
            found = torch.stack([(values * wave).sum(-1) for wave in _waves(z, root, most - lift)], -1)
        else:
            found = values @ waves[: most + 1 - lift].T
        orders = torch.arange(1, most + 1, dtype=torch.float64)
        return torch.cat([first, found[:, 1:] if self.jumps else found / orders.sqrt()], -1)

    def taken_out(self, s: Tensor, orders: Tensor, count: int) -> Tensor:
        """p_k/s (p_0 at k = 0), the coefficients of Σ c_j relu^j, (len(s), orders)."""
        total = torch.zeros(len(s), len(orders), dtype=torch.float64)
        for j, c in enumerate(self.powers(count), 1):
            total += c * s.pow(j - 1).unsqueeze(-1) * rectified_constants(j, tuple(orders.tolist()))
        total[:, orders == 0] *= s.unsqueeze(-1)
        return total


def _edges(octave: int, kinks: Tensor | None = None) -> Tensor:
    """Pieces of equal width, finer towards 0, where f bends on the scale 1/s, and cut at the kinks (n, kinks)."""
    widest = 2.0 ** (octave + 1)
    reach = _REACH + 2 * min(widest, 2.0)
    count = math.ceil(reach / _WIDTH)
    grades = [2.0**j / widest for j in range(64) if 2.0**j / widest < _WIDTH]
    half = torch.tensor([*grades, *(reach * j / count for j in range(1, count + 1))], dtype=torch.float64)
    edges = torch.cat([-half, torch.zeros(1, dtype=torch.float64), half])
    if kinks is not None:
        edges = torch.cat([edges.expand(len(kinks), -1), kinks.clamp(-reach, reach)], -1)
    return edges.sort(-1).values


def _root(z: Tensor) -> Tensor:
    """Of the density."""
    root: Tensor = torch.exp(-z * z / 4) / math.pow(2 * math.pi, 0.25)
    return root


def _waves(z: Tensor, root: Tensor, most: int) -> Iterator[Tensor]:
    """h_0(z) to h_most(z), each times the root of the density, which keeps it bounded."""
    before, now = torch.zeros_like(z), root
    yield now
    for n in range(most):
        before, now = now, (z * now - math.sqrt(n) * before) / math.sqrt(n + 1)
        yield now


@lru_cache(maxsize=6)
def _shared_waves(octave: int, most: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Nodes, weights, roots of the density there and the waves, (most + 1, nodes): the same for every function.

    Numpy, because a thousand steps over a thousand numbers are mostly calls.
    """
    z, weight = (t[0] for t in panels(_edges(octave)[None], _ORDER))
    nodes, root = z.numpy(), _root(z)
    waves = np.empty((most + 1, len(nodes)))
    waves[0], before = root.numpy(), np.zeros_like(nodes)
    for n in range(most):
        np.multiply(nodes, waves[n], out=waves[n + 1])
        waves[n + 1] -= math.sqrt(n) * before
        waves[n + 1] /= math.sqrt(n + 1)
        before = waves[n]
    return z, weight, root, torch.from_numpy(waves)


def _inside(reach: float, share: Tensor) -> Tensor:
    """The points 0 to reach, with 0 itself on the side of reach."""
    return torch.where(share > 0, reach * share, math.copysign(1e-290, reach))
