"""Tails of the products of rectified powers against their own series, summed term by term."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from initscope.activations import rectified_constants, tail_polynomial
from initscope.activations.arc_tails import tail_at

PAIRS = [(1, 1), (1, 3), (3, 5), (5, 5), (2, 2), (2, 4), (4, 6)]
TERMS = 4000


def summed(i: int, j: int, last: int, rho: Tensor, slope: bool = False) -> Tensor:
    """Σ_(k > last) r_k^(i) r_k^(j) ρ^k (slope: k ρ^(k-1)) over the orders of the other parity."""
    orders = tuple(k for k in range(last + 1, TERMS) if k % 2 != i % 2)
    k = torch.tensor(orders, dtype=torch.float64).unsqueeze(-1)
    terms = (rectified_constants(i, orders) * rectified_constants(j, orders)).unsqueeze(-1)
    return (terms * (k * rho ** (k - 1) if slope else rho**k)).sum(0)


def last_of(i: int, near: int) -> int:
    return near if near % 2 != i % 2 else near + 1


@pytest.mark.parametrize(("i", "j"), PAIRS)
@pytest.mark.parametrize("near", [6, 21])
def test_the_closed_form_is_the_rest_of_the_series(i: int, j: int, near: int) -> None:
    last = last_of(i, near)
    d = torch.linspace(0.2, 1.0, 9, dtype=torch.float64)
    rho = (1 - d * d).clamp_min(0).sqrt()
    largest = float(summed(i, j, last, torch.ones(1, dtype=torch.float64)).abs())
    assert float((tail_at(i, j, last, d) - summed(i, j, last, rho)).abs().max()) < 1e-12 * max(1.0, 1e3 * largest)


@pytest.mark.parametrize(("i", "j"), PAIRS)
@pytest.mark.parametrize("allowed", [1e-5, 1e-8, 1e-11])
@pytest.mark.parametrize("slope", [False, True])
def test_polynomials_stay_within_their_stated_error(i: int, j: int, allowed: float, slope: bool) -> None:
    last = last_of(i, 16)
    found, error = tail_polynomial(i, j, last, allowed, slope)
    assert error <= allowed
    assert len(found) < 20
    d = torch.linspace(0.15, 0.999, 40, dtype=torch.float64)
    rho = (1 - d * d).sqrt()
    got = torch.zeros_like(d)
    for c in reversed(found):
        got = got * (2 * d - 1) + c
    if (i % 2 == 0) != slope:
        got = got * rho
    assert float((got - summed(i, j, last, rho, slope)).abs().max()) <= error + 1e-13


def test_a_tail_below_what_is_allowed_has_no_coefficients() -> None:
    found, error = tail_polynomial(5, 5, 40, 1e-4)
    assert found == ()
    assert 0 < error <= 1e-4
