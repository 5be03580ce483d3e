"""Very many states at once: a Chebyshev interpolant of smooth factors, used only after it has been checked.

In the angle t, Price's theorem reads ∂distance/∂D = E f'(u) f'(v) =: K(a, b, t) at fixed norms, hence

    distance = (a-b)² H(a, b) + (D - (a-b)²) G(a, b, t),   G = ∫_0^t K sin s ds / (1 - cos t),

with H and K smooth in (log a, log b, t) even where f has kinks. Interpolating H and G keeps the relative accuracy at
the smallest distances, which interpolating the distance would not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from initscope.activations.dual import Function
from initscope.activations.triangle import triangle

Slopes = Callable[[Tensor, Tensor, Tensor, int], "Tensor | None"]
"""Norms a, b and angles t -> E f'(u) f'(v) on their grid, (len(a) × len(b), len(t)); None if that would cost more than
as many states as the last argument says."""
Checked = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
Stretch = Callable[[Tensor, Tensor], Tensor]

_TRUSTED = 1e-10
_CHECKS = 40
_CHUNK = 1 << 14
_LEVELS = ((4, 20), (4, 40), (10, 40))
_WIDEST = math.log(64.0)
_TERMS, _POINTS, _REACH = 256, 801, 13.0


@dataclass(frozen=True, eq=False)
class Axis:
    """Chebyshev points of the second kind on [low, high]; a single point where the two agree."""

    low: float
    high: float
    count: int

    @property
    def nodes(self) -> Tensor:
        if self.count == 1:
            return torch.tensor([self.low], dtype=torch.float64)
        k = torch.arange(self.count, dtype=torch.float64)
        return self.low + (self.high - self.low) * torch.sin(math.pi * k / (2 * (self.count - 1))) ** 2

    def cardinal(self, x: Tensor) -> Tensor:
        """The cardinal functions at x, (n, count), by the barycentric formula (Berrut & Trefethen 2004)."""
        if self.count == 1:
            return torch.ones(len(x), 1, dtype=torch.float64)
        signs = torch.ones(self.count, dtype=torch.float64)
        signs[1::2] = -1
        signs[0] /= 2
        signs[-1] /= 2
        offset = x.unsqueeze(-1) - self.nodes
        hit = offset == 0
        terms = signs / torch.where(hit, 1, offset)
        terms = torch.where(hit.any(-1, keepdim=True), hit.double(), terms)
        return terms / terms.sum(-1, keepdim=True)


def _norm_axis(logs: Tensor, least: int) -> Axis:
    low, high = float(logs.min()), float(logs.max())
    if high - low < 1e-13:
        return Axis(low, low, 1)
    return Axis(low, high, least + math.ceil(8 * (high - low)))


def _averaging(axis: Axis) -> Tensor:
    """The matrix that turns K at the angles t_k into G(t_k) = ∫_0^t_k K(s) sin s ds / (1 - cos t_k)."""
    nodes, weights = (torch.from_numpy(x.copy()) for x in np.polynomial.legendre.leggauss(axis.count + 12))
    rows = []
    for t in axis.nodes.tolist():
        s = t * (nodes + 1) / 2
        scale = torch.sin(s) * weights * t / 2 if t > 0 else (nodes + 1) * weights
        rows.append((scale / scale.sum()) @ axis.cardinal(s))
    return torch.stack(rows)


def interpolate(
    slopes: Slopes, A: Tensor, B: Tensor, D: Tensor, check: Checked, stretch: Stretch | None
) -> tuple[Tensor, Tensor] | None:
    """Distances (with `stretch`, which gives H) or slopes K (without) at float64 vectors A, B, D, and their error.

    `check` answers the same question directly: a sample of the states, extremes included, must agree, and the worst
    disagreement is the error. None where the norms spread too widely, one is zero, or the sample disagrees.
    """
    if not bool(((A > 0) & (B > 0)).all()):
        return None
    home = A.device
    A, B, D = A.cpu(), B.cpu(), D.cpu()
    shape = triangle(A, B, D)
    log_a, log_b, t = shape.a.log(), shape.b.log(), shape.angle
    if max(float(x.max() - x.min()) for x in (log_a, log_b)) > _WIDEST:
        return None
    sample = _sample(log_a, log_b, t)
    truth, doubt = (t.cpu() for t in check(A[sample].to(home), B[sample].to(home), D[sample].to(home)))
    for least, angles in _LEVELS:
        turn = Axis(0.0, max(0.3, float(t.max())), angles)
        axes = (_norm_axis(log_a, least), _norm_axis(log_b, least), turn)
        grid = _grid(slopes, axes, home, len(A))
        if grid is None:
            return None
        if stretch is None:
            factors: tuple[Tensor, Tensor | None] = grid, None
        else:
            first, second = (
                x.flatten().mul(2).exp() for x in torch.meshgrid(*(a.nodes for a in axes[:2]), indexing="ij")
            )
            factors = grid @ _averaging(axes[2]).T, stretch(first.to(home), second.to(home)).cpu()
        value = _evaluate(axes, factors, log_a, log_b, t, shape.gap, 4 * shape.a * shape.b * shape.q)
        scale = truth.abs() if stretch is not None else truth.abs().max()
        worst = float(((value[sample] - truth).abs() / scale.clamp(min=1e-300)).max())
        if worst < _TRUSTED:
            size = value.abs() if stretch is not None else value.abs().max().expand_as(value)
            own = float((doubt / scale.clamp(min=1e-300)).max())  # no interpolant is better than what it was made of
            return value.to(home), (size * max(2 * worst, 1e-14, own)).to(home)
    return None


def interpolate_line(direct: Callable[[Tensor], tuple[Tensor, Tensor]], A: Tensor) -> tuple[Tensor, Tensor] | None:
    """E g(u) for very many variances, as a Chebyshev interpolant in log A, and its error.

    `direct` gives the integral and its error; None unless a sample agrees with it to 1e-12, or to its own error.
    """
    if float(A.min()) <= 0:
        return None
    logs = A.log().cpu()
    if float(logs.max() - logs.min()) > 2 * _WIDEST:
        return None
    sample = torch.linspace(0, len(A) - 1, _CHECKS).long().to(A.device)
    truth, error = (x.cpu() for x in direct(A[sample]))
    for least in (8, 24):
        axis = _norm_axis(logs, least)
        nodes = direct(axis.nodes.exp().to(A.device))[0].cpu()
        value = torch.cat([axis.cardinal(logs[i : i + _CHUNK]) @ nodes for i in range(0, len(logs), _CHUNK)]).to(
            A.device
        )
        allowed = 1e-12 * nodes.abs().max() + 4 * error.max()
        if bool(((value[sample].cpu() - truth).abs() <= allowed).all()):
            return value, allowed.to(A.device).expand_as(value)
    return None


def _sample(log_a: Tensor, log_b: Tensor, t: Tensor) -> Tensor:
    """Evenly spread states and the extreme ones."""
    spread = torch.linspace(0, len(t) - 1, _CHECKS).long()
    ends = [f(x) for x in (log_a, log_b, t, log_a - log_b) for f in (torch.argmin, torch.argmax)]
    chosen: Tensor = torch.unique(torch.cat([spread, torch.stack(ends)]))
    return chosen


def _grid(slopes: Slopes, axes: tuple[Axis, Axis, Axis], home: torch.device, limit: int) -> Tensor | None:
    """K at all nodes, (count_a × count_b, count_t)."""
    log_a, log_b, t = (axis.nodes.to(home) for axis in axes)
    grid = slopes(log_a.exp(), log_b.exp(), t, limit)
    return None if grid is None else grid.cpu()


def mehler_grid(fn: Function, a: Tensor, b: Tensor, t: Tensor) -> Tensor | None:
    """E g(u) g(v) = Σ_n α_n(a) α_n(b) cos^n t on a grid, α_n the Hermite coefficients of g(a z) (Mehler 1866).

    None where the coefficients have not died out, as for a function with kinks or a very wide Gaussian.
    """
    z = torch.linspace(-_REACH, _REACH, _POINTS, dtype=a.dtype, device=a.device)
    root = torch.exp(-z * z / 4) * math.sqrt(2 * _REACH / (_POINTS - 1) / math.sqrt(2 * math.pi))
    before, now = torch.zeros_like(z), root
    waves = [now]  # he_n(z) times the square root of the Gaussian weight, which keeps it bounded
    for n in range(_TERMS - 1):
        before, now = now, (z * now - math.sqrt(n) * before) / math.sqrt(n + 1)
        waves.append(now)
    basis = torch.stack(waves, -1)
    first, second = ((fn(x.unsqueeze(-1) * z) * root) @ basis for x in (a, b))
    terms = first.unsqueeze(1) * second
    tail, whole = terms[..., -_TERMS // 8 :].abs().sum(-1), terms.abs().sum(-1)
    if not bool((tail <= 1e-13 * whole).all()):
        return None
    powers = t.cos().unsqueeze(0) ** torch.arange(_TERMS, dtype=t.dtype, device=t.device).unsqueeze(-1)
    return terms.flatten(0, 1) @ powers


def _evaluate(
    axes: tuple[Axis, Axis, Axis],
    factors: tuple[Tensor, Tensor | None],
    log_a: Tensor,
    log_b: Tensor,
    t: Tensor,
    gap: Tensor,
    turn: Tensor,
) -> Tensor:
    """Σ over nodes: (a-b)² H + (D - (a-b)²) G with both factors, K alone with one."""
    angular, stretch = factors
    answers = []
    for start in range(0, len(t), _CHUNK):
        part = slice(start, start + _CHUNK)
        norms = axes[0].cardinal(log_a[part]).unsqueeze(-1) * axes[1].cardinal(log_b[part]).unsqueeze(-2)
        norms = norms.flatten(1)
        value = (norms * (axes[2].cardinal(t[part]) @ angular.T)).sum(-1)
        if stretch is not None:
            value = gap[part] ** 2 * (norms @ stretch) + turn[part] * value
        answers.append(value)
    return torch.cat(answers)
