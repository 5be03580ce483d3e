"""Nodes and weights, and the climb through the orders of a rule until two of them agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

TOLERANCE = 3e-10
_CHUNK = 1 << 17
_HERMITE_UP_TO = 60
CAUTION = 5.0  # how many times a rough estimate of an error is taken

Rule = Callable[[Tensor, int], tuple[Tensor, Tensor]]
"""Indices of states and an order -> the integrals and the integrals of the absolute integrand, one for each index."""


def climb(
    rule: Rule, orders: Iterable[int], chosen: Tensor, value: Tensor, error: Tensor, *, impatient: bool = False
) -> Tensor:
    """Raise the order of the rule for the chosen states until two orders agree; fills `value` and `error` in place.

    Where no two agree, the error is several times the largest of the last differences: orders too coarse for f differ
    at random, and one small difference may be luck. A climb on equal steps (`impatient`), whose nodes a wave can
    meet in phase, wants three orders to agree, and gives up on states whose differences are small but hardly shrink, as
    at a kink that nobody declared. Returns the states that are left.
    """
    before: Tensor | None = None
    gaps: list[Tensor] = []
    unfinished = [chosen[:0]]
    for order in orders:
        if not len(chosen):
            break
        now, size = rule(chosen, order)
        if before is not None:
            gap = (now - before).abs() + 4e-16 * size
            gaps = [*gaps[-2:], gap]
            done = gap <= TOLERANCE * size
            if impatient:
                done &= gaps[-2] <= TOLERANCE * size if len(gaps) > 1 else False
            doubt = torch.where(done, gap, CAUTION * torch.stack(gaps).amax(0))
            value[chosen], error[chosen] = now, torch.where(now.isfinite(), doubt, math.inf)
            slow = torch.zeros_like(done)
            if impatient and len(gaps) > 1:
                slow = (gap > TOLERANCE * size) & (gap < 1e-3 * size) & (gap > gaps[-2] / 4)
            unfinished.append(chosen[slow])
            keep = ~(done | slow)
            chosen, now, gaps = chosen[keep], now[keep], [g[keep] for g in gaps]
        before = now
    return torch.cat([*unfinished, chosen])


def slices(count: int, each: int) -> Iterator[slice]:
    """Pieces of `count` states small enough for bounded memory, with `each` nodes to a state."""
    step = max(1, _CHUNK // each)
    for start in range(0, count, step):
        yield slice(start, start + step)


@cache
def gauss(kind: str, order: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of a Gauss rule: "legendre" on [-1, 1], "normal" for a standard normal variable,
    "radial" for its length in the plane, of density R e^(-R²/2) on R > 0.

    For "normal" Gauss-Hermite up to a moderate order; above it its nodes lie no denser than those of the trapezoidal
    rule, which converges geometrically as well and needs no roots of large polynomials.

    >>> nodes, weights = gauss("radial", 8)
    >>> round(float((nodes**2 * weights).sum()), 12)
    2.0
    """
    if kind == "legendre":
        nodes, weights = np.polynomial.legendre.leggauss(order)
    elif kind == "radial":
        nodes, weights = _radial(order)
    elif order <= _HERMITE_UP_TO:
        nodes, weights = np.polynomial.hermite_e.hermegauss(order)
        weights = weights / math.sqrt(2 * math.pi)
    else:
        nodes = np.linspace(-10.5, 10.5, order)
        weights = np.exp(-nodes * nodes / 2) * (nodes[1] - nodes[0]) / math.sqrt(2 * math.pi)
    return torch.from_numpy(nodes.copy()), torch.from_numpy(weights.copy())


def _radial(order: int) -> tuple[np.ndarray, np.ndarray]:
    """The Gauss rule from the three-term recursion that a fine composite rule finds (Gautschi 2004, Sec. 2.2)."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    R = (np.arange(20)[:, None] + (nodes + 1) / 2).flatten()
    density = np.tile(weights / 2, 20) * R * np.exp(-R * R / 2)
    basis = [np.sqrt(density)]
    centre, ties = [], []
    for _ in range(order):
        wave = R * basis[-1]
        centre.append(float(wave @ basis[-1]))
        for _ in range(2):  # once more, because the first pass leaves what rounding brought in
            for earlier in basis:
                wave = wave - (wave @ earlier) * earlier
        ties.append(float(np.sqrt(wave @ wave)))
        basis.append(wave / ties[-1])
    roots, vectors = np.linalg.eigh(np.diag(centre) + np.diag(ties[:-1], 1) + np.diag(ties[:-1], -1))
    return roots, vectors[0] ** 2


def panels(edges: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss-Legendre rules on every panel between sorted edges, (..., panels × order)."""
    nodes, weights = (t.to(edges.device) for t in gauss("legendre", order))
    width = edges.diff(dim=-1)
    used = torch.nonzero(width.flatten(0, -2).amax(0) > 0).flatten()  # two marks may coincide, or lie out of reach
    low, high = edges[..., used, None], edges[..., used + 1, None]
    half = (high - low) / 2
    return ((low + high) / 2 + half * nodes).flatten(-2), (half * weights).flatten(-2)
