"""Biases of dense and convolutional layers: what they add to the state, and how far their law is from Gaussian.

A channel's bias b is shared by all inputs and positions: A' = A + β² with β² = Var(b), P' = P + β², exact for any law.
The units are Gaussian only if the bias is; otherwise they are taken as Gaussian of the same variance. The first thing that
this gets wrong is their fourth cumulant κ = κ_b (β²/A')², κ_b the bias's excess kurtosis. By the Edgeworth series and
Cauchy-Schwarz E h(u) is off by κ/24 · E h He₄ <= κ/√24 · √(E h²), relatively κ/√8 where E h² = 3 (E h)², as for h = u².
That is the error which the trace reports: an estimate, not a bound.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Generator, Tensor

from initscope.errors import BadInput
from initscope.geometry import Block, Draw, Pairs, State, draw_units, unequal
from initscope.layers.layer import Trace, require_number
from initscope.weights import Fans, Gaussian, Independent

Bias = float | Independent


def bias_law(place: str, bias: Bias) -> Independent | None:
    """The law of the biases, None without any; a number is the standard deviation of Gaussian ones.

    >>> bias_law("dense", 0.1) == Gaussian.of_deviation(0.1)
    True
    """
    if isinstance(bias, Independent):
        return bias
    if not isinstance(bias, int | float):
        raise BadInput(
            place,
            f"bias is {bias!r}, expected a number or a law of independent weights",
            "pass for example bias=0.1 or bias=weights.by_name('pytorch')",
        )
    require_number(place, bias=bias)
    return Gaussian(bias * bias, "none") if bias * bias > 0 else None


def add_bias(state: State, law: Independent | None, fans: Fans, word: str, trace: Trace) -> State:
    """The state of Gaussian units after a bias of this law."""
    if law is None:
        return state
    biased = _shift(state, law.variance(fans))
    if law.gaussian:
        return biased
    smallest = min(float(biased.x.norm.min()), float(biased.y.norm.min()))
    trace.note(f"{word}: {law.name} biases are taken as Gaussian of the same variance")
    trace.answer("approximate", not_gaussian(law, fans, smallest))
    return replace(biased, draw=_draw(state, law, fans))


def not_gaussian(law: Independent, fans: Fans, smallest: float) -> float:
    """The relative error of taking biases as Gaussian, `smallest` being the smallest E u² behind them: |κ|/√8."""
    cumulant = law.excess_kurtosis * (law.variance(fans) / smallest) ** 2
    return abs(cumulant) / math.sqrt(8)


def add_drawn_bias(state: State, law: Independent | None, fans: Fans) -> State:
    """The state of units that later layers draw, bias and all, rather than take as Gaussian."""
    return state if law is None else _shift(state, law.variance(fans))


def _shift(state: State, variance: float) -> State:
    """A' = A + β², P' = P + β², and what the bias adds to the excess of unequal norms."""

    beta = torch.tensor(math.sqrt(variance), dtype=state.excess.dtype, device=state.excess.device)

    def pairs(block: Block, a: Tensor, b: Tensor) -> Pairs:
        added = unequal(((block.root_a, block.root_b), (beta, beta)), a, b)
        return Pairs(block.excess + added, block.product + variance)

    return state.map(lambda s: s.norm + variance, pairs, lambda s: s.mean, tangent=lambda t: t, draw=state.draw)


def _draw(state: State, law: Independent, fans: Fans) -> Draw:
    """Gaussian units, each with a bias of its own."""

    def draw(units: int, generator: Generator) -> Tensor:
        samples = draw_units(state, units, generator)  # (K, units, images, *positions)
        shape = (*samples.shape[:2], *(1,) * (samples.ndim - 2))
        bias: Tensor = law.sample(shape, fans, generator, torch.float64)
        return samples + bias.to(samples)

    return draw
