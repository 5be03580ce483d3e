"""JL Theorem 2, Corollary 1 and Lemma 2 with their absolute constant made explicit: D = 16/3 (docs/filters.md).

With ‖.‖ the Orlicz norms of JL Definition 3: a standard normal variable has ‖g‖_ψ2 = √(8/3); |f(z)| ≤ L|z| + |f(0)| makes
‖f(u)‖_ψ2 ≤ √(8/3) L √(E u²) + |f(0)|/√(ln 2); products have ‖XY‖_ψ1 ≤ ‖X‖_ψ2 ‖Y‖_ψ2; and if ‖X‖_ψ1 ≤ k,

    P(|mean of N - E X| ≥ t) ≤ 2 exp(-N min(t²/4k², t/2k)).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from initscope.finite.one_layer import OneLayer

GAUSSIAN_PSI2 = math.sqrt(8 / 3)  # E exp(g²/t²) = (1 - 2/t²)^-½ = 2
CONSTANT_PSI2 = 1 / math.sqrt(math.log(2))  # exp(1/t²) = 2
D = 2 * GAUSSIAN_PSI2**2  # 16/3
SHARE = 5  # Corollary 1 uses Theorem 2 with ε/5, three times


def theorem_2_count(layer: OneLayer, lipschitz: float, epsilon: float, delta: float) -> Tensor:
    """Smallest whole N > max(K, K²) log(2n²/δ), K = D ν² L² R² n²/ε, for ε times the root mean squared output norms; (n,).

    n² is the number of positions, R² the product of the largest patch norms of x and of y. Where f(0) is not zero, each factor
    LνR has |f(0)|/√(ln 2)/√(8/3) added.
    """
    rest = _at_zero(layer) * CONSTANT_PSI2 / GAUSSIAN_PSI2
    x, y = (lipschitz * norm.amax(1).sqrt() + rest for norm in (layer.norm_x, layer.norm_y))  # LνR
    K = D * x * y * layer.positions / (epsilon * (layer.mean_x * layer.mean_y).sqrt())
    return above(torch.maximum(K, K * K) * math.log(2 * layer.positions / delta))


def corollary_1_count(layer: OneLayer, lipschitz: float, epsilon: float, delta: float) -> Tensor:
    """Smallest whole N > max(K, K²) log(6n²/δ), K = 5D L² R² n² / (ε ν_σ² r²), (n,); f of degree one.

    R²/r² is the largest share that one patch has in the sum of the squared norms of all patches, which for cyclic padding is
    what JL's max |patch|²/|x|² over r² is.
    """
    share = torch.maximum(*(norm.amax(1) / norm.sum(1) for norm in (layer.norm_x, layer.norm_y)))
    one = torch.ones((), dtype=torch.float64, device=share.device)
    K = SHARE * D * lipschitz**2 * share * layer.positions / (epsilon * layer.activation.second_moment(one))
    return above(torch.maximum(K, K * K) * math.log(6 * layer.positions / delta))


def orlicz_total(layer: OneLayer, lipschitz: float) -> Tensor:
    """Σ over positions of ‖f(u)‖_ψ2 ‖f(v)‖_ψ2, which bounds ‖P‖_ψ1 of one filter, divided by √(qs); (n,)."""
    rest = _at_zero(layer) * CONSTANT_PSI2
    x, y = (GAUSSIAN_PSI2 * lipschitz * norm.sqrt() + rest for norm in (layer.norm_x, layer.norm_y))
    return (x * y).sum(1) / (layer.mean_x * layer.mean_y).sqrt()


def orlicz_rate(total: Tensor, epsilon: float) -> Tensor:
    """sup over θ ≤ 1/k of θε - θ²k²: the rate at which each tail dies out if ‖X‖_ψ1 ≤ k."""
    return torch.where(epsilon <= 2 * total, (epsilon / (2 * total)).square(), epsilon / total - 1)


def above(count: Tensor) -> Tensor:
    """The smallest whole number larger than `count`, at least one."""
    return count.floor() + 1


def _at_zero(layer: OneLayer) -> float:
    return abs(float(layer.activation(torch.zeros(1, dtype=torch.float64))))
