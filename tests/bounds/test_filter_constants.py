"""JL Theorem 2 and Corollary 1 with their constant: every step of the derivation, and the slips."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import pytest
import torch
from torch import Tensor

from bounds.dense import dense_triples, planar, value
from initscope.activations import RELU, SOFTPLUS, STEP, Activation, by_name, leaky_relu
from initscope.bounds import filters_for, printed
from initscope.bounds.lipschitz import _CONSTANTS, lipschitz_constant, steepest
from initscope.finite import similarity_variance

# --- the constants ---------------------------------------------------------------------------------------------------


def test_orlicz_norms_of_the_normal_law_and_of_a_constant() -> None:
    t = mp.mpf(printed.GAUSSIAN_PSI2)
    normal = mp.quad(lambda g: mp.exp(g * g / t**2 - g * g / 2), [-mp.inf, 0, mp.inf]) / mp.sqrt(2 * mp.pi)
    assert float(normal) == pytest.approx(2, rel=1e-12)
    assert math.exp(1 / printed.CONSTANT_PSI2**2) == pytest.approx(2, rel=1e-12)
    assert pytest.approx(16 / 3) == printed.D


@pytest.mark.parametrize("rho", [-1.0, -0.4, 0.0, 0.7, 1.0])
def test_tail_bound_for_a_given_orlicz_norm(rho: float) -> None:
    """Products of two normal variables have norm at most 8/3: log E exp(θ(X - EX)) ≤ θ²k² up to θ = 1/k."""
    k = printed.GAUSSIAN_PSI2**2
    for share in (0.1, 0.5, 0.9, 1.0, -0.5, -1.0):
        theta = share / k
        exact = -0.5 * math.log(1 - 2 * theta * rho - theta**2 * (1 - rho**2)) - theta * rho  # of uv, then centred
        assert exact <= (theta * k) ** 2


def test_rate_is_the_best_exponent_and_meets_the_two_regimes() -> None:
    for k, t in itertools.product((0.3, 1.0, 8.0), (0.01, 0.5, 2.0, 40.0)):
        theta = torch.linspace(0, 1 / k, 200_001, dtype=torch.float64)
        best = float((theta * t - (theta * k) ** 2).max())
        rate = float(printed.orlicz_rate(torch.tensor([k], dtype=torch.float64), t))
        assert rate == pytest.approx(best, rel=1e-6)
        assert rate >= min((t / (2 * k)) ** 2, t / (2 * k)) - 1e-12  # so that N > max(K, K²) log suffices with K = 2k/t


def test_elementary_inequality_of_corollary_1() -> None:
    """|A-A'|, |B-1|, |C-1| ≤ ε/5 and |A'| ≤ 1 give |A/√(BC) - A'| ≤ 2ε/(5-ε), at most ε up to ε = 3; attained at a corner."""
    grid = torch.linspace(-1, 1, 21, dtype=torch.float64)
    for epsilon in (1e-3, 0.1, 0.5, 1.0, 2.9):
        eta = epsilon / printed.SHARE
        target, move, b, c = torch.meshgrid(grid, eta * grid, 1 + eta * grid, 1 + eta * grid, indexing="ij")
        worst = float(((target + move) / (b * c).sqrt() - target).abs().max())
        assert worst == pytest.approx(2 * epsilon / (5 - epsilon), rel=1e-9)
        assert worst <= epsilon


def test_known_lipschitz_constants() -> None:
    for activation, constant in _CONSTANTS.items():
        least = steepest(activation)
        assert least <= constant * (1 + 1e-12), activation.name
        assert constant <= least * (1 + 1e-3), activation.name  # the grid is as coarse as that
    known = ("relu", "abs", "identity", "leaky_relu", "tanh", "gelu", "selu")
    assert all(lipschitz_constant(by_name(name)) is not None for name in known)
    assert lipschitz_constant(STEP) is None
    assert lipschitz_constant(leaky_relu(-3.0)) == 3


# --- what the papers print ---------------------------------------------------------------------------------------------


def test_printed_counts_are_the_formulas() -> None:
    x, y = planar(0.2)
    epsilon, delta = 0.1, 0.01
    count = filters_for(x, y, epsilon, delta)
    K = 5 * 16 / 3 / (epsilon * 0.5)  # one position, R = r = L = 1, ν_σ² = 1/2
    assert value(count, "corollary_1") == math.floor(K * K * math.log(6 / delta)) + 1
    K = 16 / 3 / (epsilon * 0.5)  # the mean squared output norm is ν² ν_σ² |x|²
    assert value(count, "theorem_2") == math.floor(K * K * math.log(2 / delta)) + 1
    linear = filters_for(x, y, epsilon, delta, activation="identity")
    K = 16 / 3 / epsilon
    assert value(linear, "lemma_2") == value(linear, "theorem_2") == math.floor(K * K * math.log(2 / delta)) + 1


def test_printed_counts_of_images_sum_over_patches() -> None:
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.rand(1, 2, 5, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    count = filters_for(x, y, 0.05, 0.05, draws=64)

    def largest(image: Tensor) -> float:
        norms = [
            sum(float(image[0, :, (i + a) % 5, (j + b) % 6].square().sum()) for a in range(3) for b in range(3))
            for i in range(5)
            for j in range(6)
        ]
        return max(norms) / float(image.square().sum())  # R²

    K = 5 * 16 / 3 * max(largest(x), largest(y)) * 30 / (0.05 * 0.5 * 9)  # n² = 30, r² = 9
    assert value(count, "corollary_1") == math.floor(K * K * math.log(6 * 30 / 0.05)) + 1
    K = 16 / 3 * math.sqrt(largest(x) * largest(y)) * 30 / (0.05 * 0.5 * 9)
    assert value(count, "theorem_2") == math.floor(K * K * math.log(2 * 30 / 0.05)) + 1


def test_equation_20_fails_where_the_activation_is_not_zero_at_zero() -> None:
    """‖f(u)‖_ψ2 ≤ √(8/3) L ν|x| tends to 0 with |x|, f(u) tends to f(0)."""
    small, L = 1e-3, lipschitz_constant(SOFTPLUS)
    assert L is not None
    claimed = printed.GAUSSIAN_PSI2 * L * small
    z = torch.randn(10_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = SOFTPLUS(small * z)
    assert float((values / claimed).square().min()) > math.log(2)  # E exp((X/t)²) > 2 for t = claimed
    repaired = claimed + math.log(2) * printed.CONSTANT_PSI2
    assert float((values / repaired).square().exp().mean()) <= 2


def test_theorem_2_as_printed_fails_for_such_an_activation() -> None:
    """f(z) = z + c has L = 1 for every c, but the inner product of x with itself varies like 2c."""
    c, epsilon, delta = 100.0, 1.0, 0.05
    K = printed.D * 1.0 / epsilon  # ν = L = R = n = 1
    filters = math.floor(max(K, K * K) * math.log(2 / delta)) + 1
    u = torch.randn(2000, filters, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    off = ((c + u).square().mean(1) - (c * c + 1)).abs() >= epsilon
    assert float(off.double().mean()) > 0.9
    shifted = Activation.from_function(lambda z: z + c, name="shifted")
    x = torch.tensor([[1.0, 0.0]])
    relative = epsilon / (c * c + 1)
    repaired = filters_for(x, x, relative, delta, activation=shifted, lipschitz=1.0)
    assert value(repaired, "theorem_2") > 1000 * filters
    assert value(repaired, "bernstein_inner_product") > 1000 * filters


def test_repaired_theorem_2_covers() -> None:
    shifted = Activation.from_function(lambda z: z + 1, name="shifted")
    x, y = planar(0.5)
    epsilon = 0.5
    count = filters_for(x, y, epsilon, 0.05, activation=shifted, lipschitz=1.0)
    filters = int(value(count, "bernstein_inner_product"))
    t = dense_triples(shifted, 0.5, 100 * filters, 2)
    means = t.P.view(100, filters).mean(1)
    truth = 1 + 0.5  # E (1+u)(1+v)
    assert float((means - truth).abs().max()) < epsilon * 2  # √(qs) = E (1+u)² = 2
    assert value(count, "theorem_2") >= filters


def test_corollary_1_as_printed_with_nu_squared_fails() -> None:
    """Neither ρ_out nor its mean depends on ν, but the printed K = D L²R²n²/(ε ν² r²) goes to 0 as ν grows."""
    nu, epsilon, delta = 30.0, 0.05, 0.05
    K = 5 * printed.D / (epsilon * nu**2)
    filters = math.floor(max(K, K * K) * math.log(6 / delta)) + 1
    mean = float(similarity_variance(*planar(0.0)).similarity)
    failed, sets = dense_triples(RELU, 0.0, 4000 * filters, 3).failures(filters, mean, epsilon)
    assert failed / sets > 0.5


def test_the_mean_inner_product_can_exceed_one() -> None:
    """JL's proof takes |A| ≤ 1; it is A' that is at most 1, A only at most √(BC)."""
    t = dense_triples(RELU, 0.9, 1000, 4)
    assert float((2 * t.P.view(100, 10).mean(1)).max()) > 1  # norms preserved in expectation: ν_σ² = 1/2


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.8])
def test_printed_counts_cover(rho: float) -> None:
    count = filters_for(*planar(rho), 0.9, 0.05)
    mean = float(count.mean_similarity.value)
    filters = int(value(count, "corollary_1"))
    failed, sets = dense_triples(RELU, rho, 200 * filters, 5).failures(filters, mean, 0.9)
    assert (failed, sets) == (0, 200)
