"""Second moments of maxima of n independent Gaussian pairs, by integration.

For pairs (u_i, v_i) with unit variances and correlation rho, M = max u_i, M' = max v_i, and f piecewise linear with slope
1 above zero and `slope` below: (f(M) - f(M'))² = 2 ∬_{s<t} f'(s) f'(t) [1{M <= s, M' > t} + 1{M' <= s, M > t}] ds dt, so

    E (f(M) - f(M'))² = 4 ∬_{s<t} f'(s) f'(t) [Φ(s)^n - Φ2(s, t)^n] ds dt,

a sum of positive terms: no digits are lost when the pairs nearly agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri, owens_t

Array = NDArray[np.float64]
_REACH = 9.5  # standard deviations beyond which a Gaussian is neglected (tail 1e-21)
_ORDER = 16
_CHUNK = 64  # pairs integrated at once


def _panels(edges: Array, order: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on consecutive panels."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    lengths = np.diff(edges)[:, None]
    return (edges[:-1, None] + lengths * (nodes + 1) / 2).ravel(), (lengths * weights / 2).ravel()


# Graded towards both ends, where nearly equal or nearly opposite pairs change fast.
_INNER = _panels(np.array([0.0, 0.02, 0.08, 0.2, 0.4, 0.6, 0.8, 0.92, 0.98, 1.0]), 10)


@dataclass(frozen=True)
class MaximumMoments:
    """E f(M)² and E f(M) of the maximum M of n standard normals."""

    second: float
    mean: float


@lru_cache(maxsize=256)
def maximum_moments(n: int, slope: float) -> MaximumMoments:
    """Moments under the density n φ(s) Φ(s)^(n-1).

    >>> round(maximum_moments(2, 1.0).mean * float(np.sqrt(np.pi)), 12)
    1.0
    """
    s, weight = _outer(n, -_REACH)
    density = np.exp(np.log(n) - s**2 / 2 - np.log(2 * np.pi) / 2 + (n - 1) * log_ndtr(s)) * weight
    f = np.where(s > 0, s, slope * s)
    return MaximumMoments(float(density @ f**2), float(density @ f))


def maximum_distance(n: int, slope: float, defect: Array) -> Array:
    """E (f(M) - f(M'))² for each `defect` = 1 - rho."""
    flat = np.clip(defect.ravel().astype(float), 0.0, 2.0)
    parts = [_distance_chunk(n, slope, flat[i : i + _CHUNK]) for i in range(0, flat.size, _CHUNK)]
    return np.concatenate(parts).reshape(defect.shape) if parts else np.zeros(defect.shape)


def _distance_chunk(n: int, slope: float, defect: Array) -> Array:
    s, weight_s = _outer(n, 0.0 if slope == 0 else -_REACH)
    d = defect[:, None]
    rho, spread = 1 - d, np.sqrt(d * (2 - d))  # √(1 - rho²)
    near = _REACH * spread + np.maximum(-s, 0) * d  # v - rho u rarely exceeds this
    reach = np.where(rho > 0, np.minimum(_REACH - s, near), _REACH - s).clip(min=0)  # (pairs, s)
    below, mirror = np.minimum(np.maximum(-s, 0), reach), np.minimum(np.maximum(-2 * s, 0), reach)
    total = np.zeros(len(defect))
    # The integrand bends where t = 0 (f' jumps) and, for opposite pairs, where t = -s: the range of w is cut there.
    for start, stop in ((np.zeros_like(reach), below), (below, mirror), (mirror, reach)):
        length = stop - start
        if not length.any():
            continue
        w = start[..., None] + length[..., None] * _INNER[0]  # t = s + w
        inner = _exceed(n, s[None, :, None], w, d[..., None]) * _slopes(s[None, :, None], w, slope)
        total += ((inner @ _INNER[1]) * length) @ weight_s
    return 4 * total


def _slopes(s: Array, w: Array, slope: float) -> Array:
    return np.where(s > 0, 1.0, slope) * np.where(s + w > 0, 1.0, slope)


def _exceed(n: int, s: Array, w: Array, d: Array) -> Array:
    """Φ(s)^n - Φ2(s, s+w)^n = P(M <= s, M' > s + w)."""
    t = s + w
    spread = np.sqrt(d * (2 - d))
    with np.errstate(divide="ignore", invalid="ignore"):
        # P(u <= s, v > t) by Owen's T for the pair (s, -t) with correlation -rho; t - rho s = w + d s.
        first = owens_t(s, -(w + d * s) / (s * spread))
        second = owens_t(-t, (w - d * t) / (t * spread))
        apart = np.where(s * -t > 0, 0.0, 0.5)
        joint = (ndtr(s) + ndtr(-t)) / 2 - first - second - apart
        share = np.clip(joint, 0.0, None) / ndtr(s)
        value = np.exp(n * log_ndtr(s)) * -np.expm1(n * np.log1p(-np.minimum(share, 1.0)))
    return np.where(spread > 0, np.nan_to_num(value), _exceed_opposite(n, s, t, d))


def _exceed_opposite(n: int, s: Array, t: Array, d: Array) -> Array:
    """The limits: equal pairs never part; opposite ones (v = -u) have P(u <= s, v > t) = P(u <= min(s, -t))."""
    share = ndtr(np.minimum(s, -t)) / ndtr(s)
    with np.errstate(divide="ignore"):
        value = np.exp(n * log_ndtr(s)) * -np.expm1(n * np.log1p(-np.minimum(share, 1.0)))
    return np.where(d > 1, value, 0.0)


def _outer(n: int, lowest: float) -> tuple[Array, Array]:
    """Nodes and weights over s, from where Φ(s)^n begins to count, split at zero."""
    start = max(lowest, float(ndtri(np.exp(-45.0 / n))) if n > 1 else -_REACH)
    centre = float(ndtri(0.5 ** (1 / n)))
    inside = np.linspace(start, min(centre + 3, _REACH), 9)
    edges = np.unique(np.concatenate([inside, np.linspace(min(centre + 3, _REACH), _REACH + 0.5, 4)]))
    if edges[0] < 0 < edges[-1]:
        edges = np.unique(np.append(edges, 0.0))
    return _panels(edges, _ORDER)
