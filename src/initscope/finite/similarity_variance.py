"""How much the similarity of two outputs varies from one set of random filters to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from scipy.special import ndtri
from torch import Tensor

from initscope.activations import RELU, Activation
from initscope.finite.one_filter import (
    REPLICATES,
    OneFilterMoments,
    linear_moments,
    quadrature_moments,
    simulated_moments,
    unit_moments,
)
from initscope.finite.one_layer import LayerSpec, OneLayer, check_draws, layer_tiles
from initscope.layers.shifts import Padding
from initscope.weights import WeightLaw

DRAWS = 8192
_ROUNDING = 1e-14  # a standard deviation of T below this is none
Method = Literal["exact", "quadrature", "monte carlo"]


@dataclass(frozen=True, eq=False)
class SimilarityVariance:
    """V = lim N Var(ρ_out) of the similarity of N filters or units, for each pair; tensors of shape (n,).

    `similarity` is ρ̄ and `defect` 1 - ρ̄, both exact. `stderr` is the standard error of `value`, zero unless `method` is
    "monte carlo"; `draws` is how many filters were drawn for each pair.
    """

    similarity: Tensor
    defect: Tensor
    value: Tensor
    stderr: Tensor
    method: Method
    draws: int
    moments: OneFilterMoments

    @classmethod
    def join(cls, parts: list[SimilarityVariance]) -> SimilarityVariance:
        """Tiles of pairs, one after the other."""
        similarity, defect, value, stderr = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("similarity", "defect", "value", "stderr")
        )
        moments = OneFilterMoments.join([part.moments for part in parts])
        return cls(similarity, defect, value, stderr, parts[0].method, parts[0].draws, moments)

    def standard_deviation(self, filters: int) -> Tensor:
        """Of ρ_out with that many filters, to first order: √(V/N)."""
        return (self.value / filters).sqrt()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        names = ("similarity", "defect", "value", "stderr")
        return {**{n: getattr(self, n).tolist() for n in names}, "method": self.method, "draws": self.draws}


def similarity_variance(
    x: Tensor,
    y: Tensor,
    *,
    kernel: int | tuple[int, int] = 3,
    stride: int | tuple[int, int] = 1,
    padding: Padding = "circular",
    activation: str | Activation = RELU,
    weights: WeightLaw | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> SimilarityVariance:
    """The asymptotic variance of the similarity of zipped pairs after one layer of independent Gaussian filters.

    With P, Q, S of one filter (its inner product and squared norms, summed over positions) and p, q, s their means,
    `V = Var(P/√(qs) - ρ̄/2 (Q/q + S/s))`: then ρ_out of N filters has variance V/N + O(1/N²).

    x, y: (n, d) for dense units, (n, c, h, w) for filters. Exact for dense units (angular integrals; quadrature for activations
    not of degree one), for a filter that fits at one position only, and for linear filters; otherwise from `draws` filters.

    >>> x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> found = similarity_variance(x, y)
    >>> found.method, round(float(found.value), 4)
    ('exact', 0.5441)
    """
    check_draws("similarity_variance", draws, 2 * REPLICATES)
    spec = LayerSpec(kernel, stride, padding, activation, weights)
    return SimilarityVariance.join([variance_of(layer, draws, seed) for layer in layer_tiles(spec, x, y)])


def variance_of(layer: OneLayer, draws: int, seed: int) -> SimilarityVariance:
    """The same for a tile of pairs already prepared."""
    method = method_of(layer)
    if method == "monte carlo":
        moments = simulated_moments(layer, draws, seed)
    elif method == "quadrature":
        moments = quadrature_moments(layer)
    else:
        moments = unit_moments(layer) if layer.positions == 1 else linear_moments(layer)
    used = REPLICATES * -(-draws // REPLICATES) if method == "monte carlo" else 0
    return SimilarityVariance(layer.similarity, layer.defect, moments.tt, moments.stderr, method, used, moments)


def method_of(layer: OneLayer) -> Method:
    """How V comes about for this layer."""
    if layer.positions == 1:
        return "exact" if layer.slopes is not None else "quadrature"
    linear = layer.slopes is not None and layer.slopes[0] == layer.slopes[1]
    return "exact" if linear else "monte carlo"


def second_order_shift(variance: SimilarityVariance, delta: float) -> Tensor:
    """By how many filters z²V/ε² falls short of a failure probability δ, as ε → 0; (n,).

    With bars for means over the filters, ρ_out = (ρ̄ + T̄/Ū)/√(1 - Z̄²/4Ū²). If √(N/V) (ρ_out - ρ̄) has the cumulants b₁/√N,
    1 + b₂/N, b₃/√N, b₄/N, then P(|ρ_out - ρ̄| > z√(V/N)) = δ + zφ(z) shift/N + O(1/N²) (Hall 1992, section 2.3), where

        shift = b₂ + b₁² + (b₄ + 4 b₁ b₃)(z² - 3)/12 + b₃² (z⁴ - 10z² + 15)/36.

    >>> pair = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]])
    >>> round(float(second_order_shift(similarity_variance(*pair), 0.05)), 1)
    1.2
    """
    z = float(-ndtri(delta / 2))
    varies = variance.value.sqrt() > _ROUNDING
    b1, b2, b3, b4 = _cumulants(variance, torch.where(varies, variance.value, 1.0))
    shift = b2 + b1**2 + (b4 + 4 * b1 * b3) * (z**2 - 3) / 12 + b3**2 * (z**4 - 10 * z**2 + 15) / 36
    return torch.where(varies, shift, 0.0)


def _cumulants(variance: SimilarityVariance, V: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """b₁, ..., b₄ of T + (-Tu + βZ²) + (Tu² - 2βZ²u + TZ²/8), u = U - 1, β = ρ̄/8: ρ_out - ρ̄ to third order.

    The linear part has covariances s = (V, E Tu, E TZ) with (T, u, Z); g is the gradient of the quadratic part at s.
    """
    m, beta = variance.moments, variance.similarity / 8
    uu, ttu = m.uu - 1, m.ttu - m.tt
    first = -m.tu + beta * m.zz
    from_quadratic = (
        2 * (-ttu + beta * m.tzz) + V * uu + m.tu**2 + 2 * beta**2 * m.zz**2 - 4 * beta * m.tz * m.uz
    )  # 2 Cov(linear, quadratic) + Var(quadratic)
    from_cubic = V * uu + 2 * m.tu**2 - 2 * beta * (m.tu * m.zz + 2 * m.tz * m.uz) + (V * m.zz + 2 * m.tz**2) / 8
    third = m.ttt + 6 * (-V * m.tu + beta * m.tz**2)
    g_t, g_u, g_z = -m.tu, -V, 2 * beta * m.tz
    along = g_t * m.ttt + g_u * ttu + g_z * m.ttz
    spread = (
        g_t**2 * V + g_u**2 * uu + g_z**2 * m.zz + 2 * (g_t * g_u * m.tu + g_t * g_z * m.tz + g_u * g_z * m.uz)
    )  # variance of the gradient's combination of (T, u, Z)
    cubic = V * m.tu**2 - 2 * beta * m.tz**2 * m.tu + V * m.tz**2 / 8
    fourth = m.tttt - 3 * V**2 + 12 * (along + spread) + 24 * cubic
    return first / V.sqrt(), (from_quadratic + 2 * from_cubic) / V, third / V**1.5, fourth / V**2


def first_order_count(variance: SimilarityVariance, epsilon: float, delta: float) -> Tensor:
    """z²V/ε², not rounded; z is the two-sided quantile of the normal law at δ."""
    return variance.value * (float(ndtri(delta / 2)) / epsilon) ** 2
