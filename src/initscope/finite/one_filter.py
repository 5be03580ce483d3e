"""The law of one filter's contribution to the output similarity: its moments, exact or from random filters.

One filter makes of a pair the triple Q = |σ(F*x)|², S = |σ(F*y)|², P = <σ(F*x), σ(F*y)>. Divided by their means (P by √(qs)),

    T = P - ρ̄ (Q + S)/2 = ½ (d (Q + S) - |σ(F*x)/√q - σ(F*y)/√s|²),   U = (Q + S)/2,   Z = Q - S,     d = 1 - ρ̄,

and E T = 0, E U = 1, E Z = 0. T is what the similarity of many filters is the mean of, to first order; U and Z come in at second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Generator, Tensor
from torch.quasirandom import SobolEngine

from initscope.activations.plane import Kernel, integrate
from initscope.finite.one_layer import OneLayer
from initscope.geometry import generator

REPLICATES = 16
_VALUES = 1 << 18  # outputs of filters at positions held at once
_NEARLY_PARALLEL = 1e-8  # below this defect, single precision would be felt in T


@dataclass(frozen=True, eq=False)
class OneFilterMoments:
    """Moments over one filter, (n,) each; `stderr` is the standard error of `tt` = E T², zero where it is exact."""

    tt: Tensor
    ttt: Tensor
    tttt: Tensor
    tu: Tensor
    uu: Tensor
    ttu: Tensor
    zz: Tensor
    tz: Tensor
    uz: Tensor
    tzz: Tensor
    ttz: Tensor
    stderr: Tensor

    @classmethod
    def of(cls, moments: Sequence[Tensor], stderr: Tensor | None = None) -> OneFilterMoments:
        """From the moments in the order of the fields; exact without a standard error."""
        assert len(moments) == len(_POWERS)
        named = {field.name: moment for field, moment in zip(fields(cls), moments, strict=False)}
        return cls(**named, stderr=torch.zeros_like(moments[0]) if stderr is None else stderr)

    @classmethod
    def join(cls, parts: list[OneFilterMoments]) -> OneFilterMoments:
        """One after the other."""
        return cls(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(cls)))


# Each moment as its degree in (T, U, Z), in the order of the fields above.
_POWERS = (
    (2, 0, 0), (3, 0, 0), (4, 0, 0), (1, 1, 0), (0, 2, 0), (2, 1, 0), (0, 0, 2), (1, 0, 1), (0, 1, 1), (1, 0, 2), (2, 0, 1),
)  # fmt: skip


def radial_moment(size: int, power: int) -> float:
    """E |g|^(2 power) of a standard Gaussian vector with `size` entries.

    >>> radial_moment(2, 2)
    8.0
    """
    return math.prod(float(size + 2 * i) for i in range(power))


def unit_moments(layer: OneLayer) -> OneFilterMoments:
    """One position and an activation of degree one: integrals over the angle, exact."""
    fu, fv, gap, weight = (t[:, 0] for t in layer.unit_pair().nodes())
    triple = _triple(layer.defect[:, None], fu.square(), fv.square(), gap.square())
    means = [(_monomial(triple, p) * weight).sum(-1) * radial_moment(2, sum(p)) for p in _POWERS]
    return OneFilterMoments.of(means)


def quadrature_moments(layer: OneLayer) -> OneFilterMoments:
    """One position and any activation: integrals over the plane of the Gaussian pair, split at the kinks."""
    f, rows = layer.activation, []
    for i in range(len(layer)):
        state = layer.norm_x[i], layer.norm_y[i], layer.distance[i]
        q, s, d = layer.mean_x[i], layer.mean_y[i], layer.defect[i]

        def of(power: tuple[int, int, int], q: Tensor = q, s: Tensor = s, d: Tensor = d) -> Kernel:
            def kernel(u: Tensor, v: Tensor, _: Tensor) -> Tensor:
                a, b = f(u) / q.sqrt(), f(v) / s.sqrt()
                return _monomial(_triple(d, a.square(), b.square(), (a - b).square()), power)

            return kernel

        rows.append(torch.cat([integrate(of(p), *state, f.kinks)[0] for p in _POWERS]))
    table = torch.stack(rows)
    return OneFilterMoments.of(table.unbind(1))


def linear_moments(layer: OneLayer) -> OneFilterMoments:
    """f(z) = g z at many positions: T, U, Z are quadratic forms of the filter, and Isserlis' theorem is exact."""
    assert layer.slopes is not None
    scale, rows = layer.variance * layer.slopes[0] ** 2, []
    for i in range(len(layer)):
        gram_x, gram_y, gram_gap = (scale * gram for gram in _grams(layer, i))
        total = gram_x + gram_y
        T, U, Z = (layer.defect[i] * total - gram_gap) / 2, total / 2, gram_x - gram_y
        TT = T @ T
        tt = 2 * _trace(T, T)
        moments = (
            tt,
            8 * _trace(TT, T),
            3 * tt * tt + 48 * _trace(TT, TT),
            2 * _trace(T, U),
            2 * _trace(U, U) + 1,
            8 * _trace(TT, U) + tt,
            2 * _trace(Z, Z),
            2 * _trace(T, Z),
            2 * _trace(U, Z),
            8 * _trace(T, Z @ Z),
            8 * _trace(TT, Z),
        )
        rows.append(torch.stack(moments))
    table = torch.stack(rows)
    return OneFilterMoments.of(table.unbind(1))


def simulated_moments(layer: OneLayer, draws: int, seed: int) -> OneFilterMoments:
    """Many positions: `draws` random filters for each pair, in independent repetitions of a scrambled Sobol sequence.

    The sequence runs along the principal directions of the patches, where most of T happens. For an activation of degree one
    only the direction of the filter is drawn: its length enters by exact moments.
    """
    return OneFilterMoments.join([_simulate(layer, i, draws, seed) for i in range(len(layer))])


def _simulate(layer: OneLayer, index: int, draws: int, seed: int) -> OneFilterMoments:
    size, each = layer.filter_size, -(-draws // REPLICATES)
    sources = [generator(seed, layer.first + index, replicate) for replicate in range(REPLICATES)]
    points = torch.cat([_gaussian_points(size, each, source) for source in sources]).to(layer.x.device)
    triple = _respond(layer, index, points)
    factors = [1.0] * len(_POWERS)
    if layer.slopes is not None:
        squared = points.square().sum(1)
        triple = (triple[0] / squared, triple[1] / squared, triple[2] / squared)
        factors = [radial_moment(size, sum(power)) for power in _POWERS]
    powers = zip(_POWERS, factors, strict=True)
    means = [_monomial(triple, power).view(REPLICATES, each).mean(1) * factor for power, factor in powers]
    stderr = means[0].std() / math.sqrt(REPLICATES)
    return OneFilterMoments.of([m.mean()[None] for m in means], stderr[None])


def _respond(layer: OneLayer, index: int, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """T, U, Z, (m,) each, of standard Gaussian filters (m, weights) given along the principal directions of the patches."""
    f, q, s, d = layer.activation, layer.mean_x[index], layer.mean_y[index], layer.defect[index]
    gram_x, gram_y, _ = _grams(layer, index)
    axes = torch.linalg.eigh(gram_x + gram_y).eigenvectors.flip(1)
    dtype = torch.float64 if float(d) < _NEARLY_PARALLEL else torch.float32
    filters = (math.sqrt(layer.variance) * points @ axes.T).to(dtype)
    scale_x, scale_y = float(q.sqrt()), float(s.sqrt())
    sums = torch.zeros(3, len(points), dtype=torch.float64, device=points.device)
    for x, y in zip(layer.patches(layer.x[index]), layer.patches(layer.y[index]), strict=True):
        x, y = x.to(dtype), y.to(dtype)
        step = max(1, _VALUES // x.shape[1])
        for start in range(0, len(points), step):
            part = slice(start, start + step)
            a, b = f(filters[part] @ x).div_(scale_x), f(filters[part] @ y).div_(scale_y)
            for total, value in zip(sums, (a, b, a - b), strict=True):
                total[part] += torch.linalg.vecdot(value, value)
    return _triple(d, sums[0], sums[1], sums[2])


def _gaussian_points(size: int, count: int, source: Generator) -> Tensor:
    if size > SobolEngine.MAXDIM:
        return torch.randn(count, size, generator=source, dtype=torch.float64)
    engine = SobolEngine(size, scramble=True, seed=source.initial_seed())  # type: ignore[no-untyped-call]
    inside: Tensor = engine.draw(count, dtype=torch.float64).clamp(2.0**-32, 1 - 2.0**-32)
    points: Tensor = torch.special.ndtri(inside)
    return points


def _grams(layer: OneLayer, index: int) -> list[Tensor]:
    """Σ over positions of the outer products of patches of x/√q, of y/√s and of their difference, (weights, weights) each."""
    x, y = layer.x[index] / layer.mean_x[index].sqrt(), layer.y[index] / layer.mean_y[index].sqrt()
    shape = (layer.filter_size, layer.filter_size)
    grams = [torch.zeros(shape, dtype=torch.float64, device=x.device) for _ in range(3)]
    for a, b in zip(layer.patches(x), layer.patches(y), strict=True):
        for gram, band in zip(grams, (a, b, a - b), strict=True):
            gram += band @ band.T
    return grams


def _triple(d: Tensor, Q: Tensor, S: Tensor, gap: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """T, U, Z from |a|², |b|² and |a - b|² of the normalised outputs."""
    return (d * (Q + S) - gap) / 2, (Q + S) / 2, Q - S


def _monomial(triple: tuple[Tensor, Tensor, Tensor], power: tuple[int, int, int]) -> Tensor:
    factors = [t**k for t, k in zip(triple, power, strict=True) if k]
    return math.prod(factors[1:], start=factors[0])


def _trace(a: Tensor, b: Tensor) -> Tensor:
    """tr(ab) of symmetric matrices."""
    return (a * b).sum()
