"""Maxima of Gaussian pairs: limits, scales and the true rate of PC Theorem 4.2."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from initscope.layers.extremes import maximum_distance, maximum_moments


def defect_out(n: int, rho: float) -> float:
    return float(maximum_distance(n, 0.0, np.array([1 - rho]))[0] / (2 * maximum_moments(n, 0.0).second))


@pytest.mark.parametrize(("n", "ratio"), [(10**3, 1.35), (10**6, 1.20)])
def test_the_rate_is_one_over_log_squared(n: int, ratio: float) -> None:
    """1 - rho at rho_in = 0 over pi²/(24 log² n) tends to one from above; O(1/log n) is true, not tight."""
    assert defect_out(n, 0.0) * 24 * math.log(n) ** 2 / math.pi**2 == pytest.approx(ratio, abs=0.005)


@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("defect", [2.0, 1.99, 1.5, 1.0, 0.5, 0.1, 1e-3])
def test_one_unit_is_the_activation_itself(slope: float, defect: float) -> None:
    with mp.workdps(30):
        t = 2 * mp.asin(mp.sqrt(mp.mpf(defect) / 2))
        relu = (mp.pi * mp.mpf(defect) - (mp.sin(t) - t * mp.cos(t))) / mp.pi
        expected = float(slope * 2 * mp.mpf(defect) + (1 - mp.mpf(slope)) ** 2 * relu)
    assert maximum_distance(1, slope, np.array([defect]))[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [2, 7, 100])
@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0])
def test_moments_of_one_maximum(n: int, slope: float) -> None:
    def f(s: mp.mpf) -> mp.mpf:
        return s if s > 0 else slope * s

    def density(s: mp.mpf) -> mp.mpf:
        return n * mp.npdf(s) * mp.ncdf(s) ** (n - 1)

    points = [-9, -3, 0, 1, 2, 3, 5, 9]
    found = maximum_moments(n, slope)
    assert found.mean == pytest.approx(float(mp.quad(lambda s: f(s) * density(s), points)), rel=1e-10)
    assert found.second == pytest.approx(float(mp.quad(lambda s: f(s) ** 2 * density(s), points)), rel=1e-10)


@pytest.mark.parametrize(("n", "rho"), [(5, -0.6), (5, 0.7), (50, -0.99), (3, -1.0), (4, 0.999)])
@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0])
def test_against_sampled_maxima(n: int, rho: float, slope: float) -> None:
    rng = np.random.default_rng(0)
    u, z = rng.standard_normal((2, 200_000, n))
    v = rho * u + math.sqrt(1 - rho**2) * z
    a, b = (np.where(m > 0, m, slope * m) for m in (u.max(1), v.max(1)))
    squares = (a - b) ** 2
    found = maximum_distance(n, slope, np.array([1 - rho]))[0]
    assert abs(found - squares.mean()) <= 4 * squares.std() / math.sqrt(len(squares))


def test_equal_pairs_do_not_part() -> None:
    assert maximum_distance(10, 0.0, np.array([0.0]))[0] == 0
    tiny = maximum_distance(10, 0.0, np.array([1e-10, 1e-8]))
    assert tiny[1] / tiny[0] == pytest.approx(100, rel=1e-3)
