"""What orders beyond the last one add to the product of u^i sgn u / 2 and v^j sgn v / 2, as polynomials.

    T_ij(ρ) = Σ_(k > last) r_k^(i) r_k^(j) ρ^k = M_ij(ρ) - Σ_(k <= last) r_k^(i) r_k^(j) ρ^k

over the orders that have the other parity than i and j; M_ij is the closed form of `arcs`. T is even in ρ for odd powers and odd
for even ones. At |ρ| = 1 it bends like (1-ρ²)^(3/2), but it is analytic in d = √(1-ρ²), so that a short polynomial in 2d - 1
serves all cosines.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor

from initscope.activations.arcs import arcs_of
from initscope.activations.rectified_series import rectified_constants
from initscope.activations.triangle import Triangle

Array = np.ndarray[Any, np.dtype[np.float64]]
_NODES = 80  # Chebyshev points of d
_LONGEST = 32  # coefficients of a polynomial; those beyond are rounding of the closed form


def tail_at(i: int, j: int, last: int, d: Tensor) -> Tensor:
    """T_ij at ρ = √(1-d²), for powers i, j >= 0 of one parity and the last order of the other one that is left out."""
    rho = ((1 - d) * (1 + d)).sqrt()
    one = torch.ones_like(d)
    shape = Triangle(one, one, one - one, d * d / (2 * (1 + rho)), (1 + rho) / 2)
    x, y = torch.eye(2, dtype=d.dtype).unsqueeze(-1)
    whole = arcs_of((i, j)).value(x, y, shape)
    orders = tuple(range(1 - i % 2, last + 1, 2))
    if not orders:
        return whole
    terms = rectified_constants(i, orders) * rectified_constants(j, orders)
    return whole - (terms.unsqueeze(-1) * rho ** torch.tensor(orders).unsqueeze(-1)).sum(0)


@lru_cache(maxsize=512)
def _waves(i: int, j: int, last: int, slope: bool) -> tuple[float, ...]:
    """Chebyshev coefficients in 2d - 1 of T_ij or dT_ij/dρ, divided by ρ where that is odd in ρ."""
    odd = (i % 2 == 0) != slope

    def at(e: Array) -> Array:
        d = torch.from_numpy((e + 1) / 2)
        # dT_ij/dρ = ij T_(i-1)(j-1), one order lower
        value = i * j * tail_at(i - 1, j - 1, last - 1, d) if slope else tail_at(i, j, last, d)
        return (value / ((1 - d) * (1 + d)).sqrt() if odd else value).numpy()

    found: Array = chebyshev.chebinterpolate(cast(Any, at), _NODES - 1)
    return tuple(found.tolist())


def tail_polynomial(i: int, j: int, last: int, allowed: float, slope: bool = False) -> tuple[tuple[float, ...], float]:
    """The coefficients in e = 2√(1-ρ²) - 1, lowest first, of the shortest polynomial within `allowed`, and its error.

    It is T_ij (`slope`: dT_ij/dρ) itself where that is even in ρ, and T_ij/ρ where it is odd. No coefficients: T is smaller than
    `allowed`. Where rounding is larger than `allowed`, the error is too.

    >>> polynomial, error = tail_polynomial(1, 1, 10, 1e-6)
    >>> len(polynomial) < 12, error < 1e-6
    (True, True)
    """
    waves = np.array(_waves(i, j, last, slope))
    rest = np.append(np.cumsum(np.abs(waves)[::-1])[::-1], 0.0)  # what is lost if only the waves below n are kept
    rest = rest[: _LONGEST + 1]
    count = int(np.argmax(rest <= max(allowed, float(rest[-1]))))
    if count == 0:
        return (), float(rest[0])
    return tuple(chebyshev.cheb2poly(waves[:count]).tolist()), float(rest[count])


def largest_share(c: float, j: int, deviations: Tensor, moments: Tensor) -> float:
    """The largest |c| s^j beside the root of a second moment at the same s."""
    return float((abs(c) * deviations**j / moments.sqrt()).max())
