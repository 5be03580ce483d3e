"""Filter counts that are proved and use what is known of one filter, for activations of degree one (docs/filters.md).

Each way in which the similarity of N filters can fail implies that the mean of a form W = Σ_p W_p over the filters is not
negative though E W = -g < 0. At one position E |W_p|^k ≤ (k!/2) v_p b_p^(k-2), where v_p = E W_p² and b_p are exact
(finite/wedges.py). By Minkowski's and Hölder's inequalities the sum obeys the same with √v = Σ √v_p and b = Σ b_p, whence,
for 0 < θ < 1/b,

    log E exp(θ (W - E W)) ≤ θ²/2 · (E W² + v bθ/(1 - bθ)),     P(mean ≥ 0) ≤ exp(-N sup_θ (θg - that)).

E W² is at most v; where the variance of W is known, it is Var W + g².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.bounds.printed import above
from initscope.finite.one_filter import OneFilterMoments
from initscope.finite.one_layer import OneLayer
from initscope.finite.wedges import Form, UnitPair

# Shares of ε given up to the curvature of √(QS); the best of them is taken.
_SHARES = (0.01, 0.03, 0.1, 0.2, 0.4)
_STEPS = 200
_SURE = 5.0  # standard errors added to a simulated variance


@dataclass(frozen=True, eq=False)
class Tail:
    """A form whose mean over the filters must stay negative: its gap g = -E W and, if known, its variance; (n,)."""

    form: Form
    gap: Tensor
    variance: Tensor | None = None
    possible: Tensor | None = None  # (n,) booleans; where it is false the tail cannot happen


def similarity_counts(
    layer: OneLayer, epsilon: float, delta: float, moments: OneFilterMoments
) -> tuple[Tensor, Tensor]:
    """Filters after which |ρ_out - ρ̄| ≥ ε has probability at most δ, (n,): by Minkowski's variances, and by those of `moments`.

    A simulated variance is raised by five standard errors.
    """
    pair = layer.unit_pair()
    table = [[_rates(pair, tail) for tail in _tails(layer, epsilon, share * epsilon, moments)] for share in _SHARES]
    plain, informed = (
        count_for([torch.stack([rates[which] for rates in tail]) for tail in zip(*table, strict=True)], delta).amin(0)
        for which in (0, 1)
    )
    return plain, informed


def inner_product_count(layer: OneLayer, epsilon: float, delta: float) -> Tensor:
    """Filters after which the mean inner product is off by ε √(qs) with probability at most δ, (n,)."""
    pair = layer.unit_pair()
    gap = torch.full_like(layer.defect, epsilon)
    rate, _ = _rates(pair, Tail(Form(1.0, 1.0, 1.0), gap))  # P = (Q + S - |a - b|²)/2, and -P alike
    return count_for([rate, rate], delta)


def count_for(rates: Sequence[Tensor], delta: float) -> Tensor:
    """Smallest whole N with Σ exp(-N rate) ≤ δ, of the shape of each rate.

    >>> count_for([torch.tensor([0.1]), torch.tensor([math.inf])], 0.05)
    tensor([30.])
    """
    table = torch.stack(list(rates))
    slowest = table.amin(0)
    low, high = (math.log(1 / delta) / slowest, math.log(len(table) / delta) / slowest)
    for _ in range(64):
        middle = (low + high) / 2
        enough = torch.exp(-middle * table).sum(0) <= delta
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return torch.where(slowest == math.inf, 1.0, above(high * (1 - 1e-12)))


def _tails(layer: OneLayer, epsilon: float, lost: float, moments: OneFilterMoments) -> list[Tail]:
    """The ways to fail: too large, too small, and, so that √(QS) may be replaced by m (Q + S)/2, norms too far apart."""
    rho = layer.similarity
    high, low = rho + epsilon, rho - epsilon
    reach = torch.maximum(high, -low).clamp_min(1e-300)
    m = (1 - lost / reach).clamp_min(0)  # chord: √(QS) ≥ m (Q + S)/2 while 1/κ ≤ Q/S ≤ κ
    upper = torch.where(high > 0, high * m, high)  # P ≥ c √(QS) implies P ≥ upper (Q + S)/2
    lower = torch.where(low < 0, low * m, low)
    least = 0.0 if _never_negative(layer) else -1.0
    # √κ = (1 + √(1 - m²))/m; for m = 0 nothing is asked of the norms.
    kappa = ((1 + (1 - m * m).sqrt()) / m).square()
    bounded = torch.isfinite(kappa)
    kappa = torch.where(bounded, kappa, 2.0)
    return [
        Tail(Form(1 - upper, 1 - upper, 1.0), upper - rho, _variance(moments, upper - rho), high <= 1),
        Tail(Form(lower - 1, lower - 1, -1.0), rho - lower, _variance(moments, lower - rho), low >= least),
        Tail(Form(2.0, -2 * kappa, 0.0), kappa - 1, None, bounded),
        Tail(Form(-2 * kappa, 2.0, 0.0), kappa - 1, None, bounded),
    ]


def _variance(moments: OneFilterMoments, move: Tensor) -> Tensor:
    """Var(P - c (Q + S)/2) = Var(T - (c - ρ̄) U), from moments of one filter."""
    raised = moments.tt + _SURE * moments.stderr
    spread = (moments.uu - 1).clamp_min(0)
    return (raised - 2 * move * moments.tu + move.square() * spread).clamp_min(0)


def _rates(pair: UnitPair, tail: Tail) -> tuple[Tensor, Tensor]:
    """sup over θ of θg - θ²/2 (E W² + v bθ/(1 - bθ)), (n,), with v for E W² and with what is known of it."""
    beta, gamma = (_per_position(c, pair.a) for c in (tail.form.beta, tail.form.gamma))
    form = Form(beta, gamma, tail.form.mu)
    v = pair.second_moment(form).sqrt().sum(1).square()
    b = pair.peak(form).sum(1)
    known = v if tail.variance is None else torch.minimum(v, tail.variance + tail.gap.square())
    rates = []
    for second in (v, known):
        grid = torch.linspace(0, 1, _STEPS + 2, dtype=v.dtype, device=v.device)[1:-1, None]  # bθ
        # Where E W² rules, the best θ lies near g/E W², far below 1/b: a second grid covers it.
        near = torch.logspace(-3, 0.5, _STEPS, dtype=v.dtype, device=v.device)[:, None] * b * tail.gap / second
        share = torch.cat([grid.expand(-1, len(b)), near.clamp(max=1 - 1e-9)])
        theta = share / b
        values = theta * tail.gap - theta.square() / 2 * (second + v * share / (1 - share))
        rate = values.amax(0).clamp_min(0)
        rates.append(rate if tail.possible is None else torch.where(tail.possible, rate, math.inf))
    return rates[0], rates[1]


def _per_position(coefficient: Tensor | float, like: Tensor) -> Tensor | float:
    return coefficient[:, None].expand_as(like) if isinstance(coefficient, Tensor) else coefficient


def _never_negative(layer: OneLayer) -> bool:
    """Whether f has one sign, so that no similarity is negative."""
    assert layer.slopes is not None
    plus, minus = layer.slopes
    return plus * -minus >= 0
