"""The exact law of norms: against direct sums, quadrature, closed forms and sampled networks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import k0
from scipy.stats import chi2, kstest

from initscope.errors import BadInput
from initscope.finite import NormLaw, relu_backward_law, relu_gradient_law, relu_norm_law
from initscope.finite.depths import log_outside_sum
from initscope.finite.mellin import Factor, log_binomial

Array = NDArray[np.float64]


def binomials(width: int) -> tuple[Array, Array]:
    """k and Binomial(k; width, 1/2) where they matter, from high-precision logarithms."""
    reach = min(width, math.ceil(6.5 * math.sqrt(width)) + 10)
    first, last = max(1, width // 2 - reach), min(width, width // 2 + reach)
    with mp.workdps(30):
        log_p = mp.log(mp.binomial(width, first)) - width * mp.log(2)
        found = []
        for k in range(first, last + 1):
            found.append(float(mp.exp(log_p)))
            log_p += mp.log(mp.mpf(width - k) / (k + 1)) if k < width else 0
    return np.arange(first, last + 1, dtype=np.float64), np.array(found)


def one_layer(width: int, variance: float, ratio: float) -> tuple[float, float, float]:
    """P(0 < R <= ratio), P(R > ratio) and the density: sums of χ² probabilities over the number of active units."""
    k, p = binomials(width)
    at = ratio / variance
    return float(p @ chi2.cdf(at, k)), float(p @ chi2.sf(at, k)), float(p @ chi2.pdf(at, k)) / variance


@pytest.mark.parametrize("width", [1, 2, 3, 7, 20, 75, 200, 399, 401, 1919, 20_000])
def test_one_layer_is_the_sum_over_active_units(width: int) -> None:
    law = relu_norm_law(width)
    spread = math.sqrt(5 / width)
    for ratio in (1e-3, 0.1, *np.exp(np.array([-5, -2, -0.5, 0.0, 0.5, 2, 5]) * spread).tolist()):
        below, above, density = one_layer(width, 2 / width, ratio)
        if below > 1e-30:  # the reference leaves out very few active units
            # scipy's χ² has about ten digits at many degrees of freedom.
            assert law.cdf(ratio) == pytest.approx(below + 0.5**width, rel=2e-10)
            assert law.pdf(ratio) == pytest.approx(density, rel=2e-10)
        if above > 1e-30:
            assert law.sf(ratio) == pytest.approx(above, rel=2e-10)


@pytest.mark.parametrize(("width", "ratio"), [(40, 1e-4), (60, 0.01), (90, 0.2), (110, 0.03), (150, 0.1)])
def test_far_lower_tails_are_relatively_exact(width: int, ratio: float) -> None:
    """Where a handful of active units decides: the sum over all k, in high precision."""
    with mp.workdps(40):
        at = mp.mpf(ratio) * width / 4
        terms = (
            mp.binomial(width, k) * mp.gammainc(mp.mpf(k) / 2, 0, at, regularized=True) for k in range(1, width + 1)
        )
        truth = float(mp.fsum(terms) / mp.mpf(2) ** width)
    assert truth < 1e-5
    found = relu_norm_law(width).cdf(ratio) - 0.5**width
    assert found == pytest.approx(truth, rel=1e-10)


def test_a_million_units() -> None:
    """Within nine standard deviations of k every term is summed, none skipped."""
    width = 10**6
    reach = round(9 * math.sqrt(width) / 2)
    k = np.arange(width // 2 - reach, width // 2 + reach + 1, dtype=np.float64)
    p = np.exp(log_binomial(k, width))
    assert p.sum() == pytest.approx(1, abs=1e-12)
    law = relu_norm_law(width)
    for z in (-4.0, -1.0, 0.5, 3.0):
        ratio = 1 + z * math.sqrt(5 / width)
        side = chi2.cdf if z < 0 else chi2.sf
        found = law.cdf(ratio) if z < 0 else law.sf(ratio)
        assert found == pytest.approx(float(p @ side(ratio * width / 2, k)), rel=1e-8)


def regularized_gamma(a: mp.mpf, x: mp.mpf) -> mp.mpf:
    """P(a, x) for huge a by Temme's uniform expansion with two terms; the error is of order a^-2."""
    excess = x / a - 1
    eta = mp.sign(excess) * mp.sqrt(2 * (excess - mp.log1p(excess)))
    first = 1 / excess - 1 / eta
    second = 1 / eta**3 - 1 / excess**3 - 1 / excess**2 - 1 / (12 * excess)
    return mp.erfc(-eta * mp.sqrt(a / 2)) / 2 - mp.exp(-a * eta**2 / 2) / mp.sqrt(2 * mp.pi * a) * (first + second / a)


@pytest.mark.parametrize("exponent", [7, 9, 12])
def test_very_wide_layers_in_high_precision(exponent: int) -> None:
    """scipy's χ² loses its way at so many degrees of freedom: Temme's expansion, at every sixth of a deviation of k."""
    width = 10**exponent
    law = relu_norm_law(width)
    with mp.workdps(50):
        deviation = mp.sqrt(width) / 2
        stride = int(deviation / 6)
        for z in (-4, 2):
            ratio = 1 + z * mp.sqrt(mp.mpf(5) / width)
            total = mp.mpf(0)
            for step in range(-60, 61):
                k = width // 2 + step * stride
                log_p = mp.loggamma(width + 1) - mp.loggamma(k + 1) - mp.loggamma(width - k + 1) - width * mp.log(2)
                below = regularized_gamma(mp.mpf(k) / 2, float(ratio) * mp.mpf(width) / 4)
                total += stride * mp.exp(log_p) * (below if z < 0 else 1 - below)
            found = law.cdf(float(ratio)) if z < 0 else law.sf(float(ratio))
            # A double holds log R to 1e-16, which at 10^12 units is 5e-11 of its deviation.
            assert found == pytest.approx(float(total), rel=1e-11 if exponent < 12 else 1e-9)


def test_two_layers_of_one_unit_are_a_bessel_function() -> None:
    """R = 4 χ²χ'² with probability 1/4; the product of two χ²_1 has the density K0(√y)/(π √y)."""
    law = relu_norm_law([1, 1])
    ratio = np.array([1e-4, 0.01, 0.5, 1.0, 3.0, 40.0, 900.0])
    y = ratio / 4
    np.testing.assert_allclose(law.pdf(ratio), k0(np.sqrt(y)) / (np.pi * np.sqrt(y)) / 16, rtol=1e-12)
    assert law.dead == 0.75


@pytest.mark.parametrize("ratio", ["0.02", "0.7", "3"])
def test_tiny_networks_by_high_precision_quadrature(ratio: str) -> None:
    """Widths 2 and 3: P(R <= r) = Σ_k Σ_j p_k p_j ∫ f_k(y) F_j(r/y) dy."""
    with mp.workdps(25):
        r = mp.mpf(ratio)

        def cdf(j: int, y: mp.mpf) -> mp.mpf:
            return mp.gammainc(mp.mpf(j) / 2, 0, y / 2, regularized=True)

        def integrand(u: mp.mpf) -> mp.mpf:
            y = mp.exp(u)  # the first factor over its variance 1
            halves = [mp.mpf(k) / 2 for k in (1, 2)]
            densities = [y**half * mp.exp(-y / 2) / (2**half * mp.gamma(half)) for half in halves]  # times y
            first = (2 * densities[0] + densities[1]) / 4
            second = sum(mp.binomial(3, j) / 8 * cdf(j, r / y * 3 / 2) for j in (1, 2, 3))
            return first * second

        truth = mp.quad(integrand, [-60, -30, -10, -5, -2, 0, 1, 2, 3, 4, 5, 6])
    law = relu_norm_law([2, 3])
    assert law.dead == pytest.approx(1 - 0.75 * 0.875, rel=1e-14)
    assert law.cdf(float(ratio)) - law.dead == pytest.approx(float(truth), rel=1e-11)


@pytest.mark.parametrize("ratio", [0.002, 0.05, 0.6, 2.0])
def test_two_layers_of_thirty_by_convolution(ratio: float) -> None:
    k, p = binomials(30)

    def integrand(u: float) -> float:
        y = math.exp(u)
        density = float(p @ chi2.pdf(15 * y, k)) * 15 * y
        return density * float(p @ chi2.cdf(15 * ratio / y, k))

    truth = quad(integrand, -60, 3, epsabs=0, epsrel=1e-11, limit=400, points=[-20, -8, -4, -2, 0])[0]
    law = relu_norm_law([30, 30])
    assert law.cdf(ratio) - law.dead == pytest.approx(truth, rel=1e-9)


def sampled_networks(widths: Sequence[int], inputs: int, networks: int, seed: int) -> Array:
    """|h_L|²/|x|² in networks with weight matrices drawn in full."""
    source = torch.Generator().manual_seed(seed)
    x = torch.rand(inputs, generator=source, dtype=torch.float64) + 0.1
    h, before = x.expand(networks, inputs), inputs
    for width in widths:
        weights = torch.randn(networks, width, before, generator=source, dtype=torch.float64) * math.sqrt(2 / width)
        h, before = torch.relu(torch.einsum("nij,nj->ni", weights, h)), width
    return (h.square().sum(1) / x.square().sum()).numpy()


@pytest.mark.parametrize("widths", [[20], [3, 9, 5], [2] * 6, [40, 10, 40, 25], [12] * 10])
def test_sampled_networks_follow_the_law(widths: list[int]) -> None:
    ratios = sampled_networks(widths, inputs=7, networks=6000, seed=sum(widths))
    law = relu_norm_law(widths)
    dead = float((ratios == 0).mean())
    assert abs(dead - law.dead) < 4 * math.sqrt(law.dead * (1 - law.dead) / len(ratios)) + 1e-12
    alive = ratios[ratios > 0]
    given_alive = kstest(alive, lambda r: (law.cdf(np.asarray(r)) - law.dead) / (1 - law.dead))
    assert given_alive.pvalue > 1e-3
    sides = law.interval(0.9)
    inside = float(((ratios >= sides[0]) & (ratios <= sides[1])).mean())
    assert abs(inside - 0.9) < 4 * math.sqrt(0.09 / len(ratios)) or law.dead > 0.05


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=6), st.floats(0.2, 5.0))
def test_moments_in_closed_form(widths: list[int], gain: float) -> None:
    law = relu_norm_law(widths, gain=gain)
    mean = (gain / 2) ** len(widths)
    assert law.mean == pytest.approx(mean, rel=1e-12)
    assert law.moment(1) == pytest.approx(mean, rel=1e-11)
    second = mean**2 * math.prod(1 + 5 / m for m in widths)
    assert law.moment(2) == pytest.approx(second, rel=1e-11)
    assert law.variance == pytest.approx(second - mean**2, rel=1e-9)
    # E χ²_K³ = E K(K+2)(K+4), by whole numbers
    cubes = (8 * sum(math.comb(m, k) * k * (k + 2) * (k + 4) for k in range(m + 1)) for m in widths)
    third = math.prod(float(Fraction(cube, m**3 * 2**m)) for cube, m in zip(cubes, widths, strict=True))
    assert law.moment(3) == pytest.approx(mean**3 * third, rel=1e-10)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=4), st.floats(1e-6, 1 - 1e-6))
def test_quantile_undoes_cdf(widths: list[int], probability: float) -> None:
    law = relu_norm_law(widths)
    ratio = law.quantile(probability)
    if probability <= law.dead:
        assert ratio == 0
    else:
        assert law.cdf(ratio) == pytest.approx(probability, rel=1e-9)
        assert law.sf(ratio) == pytest.approx(1 - probability, rel=1e-9)


def test_logarithm_given_alive() -> None:
    """E log R and its deviation from sums of digamma and trigamma; 5/m for wide layers."""
    with mp.workdps(30):
        weights = [mp.binomial(9, k) for k in range(1, 10)]
        logs = [mp.digamma(mp.mpf(k) / 2) + mp.log(mp.mpf(4) / 9) for k in range(1, 10)]
        squares = [mp.polygamma(1, mp.mpf(k) / 2) + log**2 for k, log in zip(range(1, 10), logs, strict=True)]
        mean = mp.fdot(weights, logs) / mp.fsum(weights)
        variance = mp.fdot(weights, squares) / mp.fsum(weights) - mean**2
    law = relu_norm_law([9] * 4)
    assert law.log_mean == pytest.approx(4 * float(mean), rel=1e-12)
    assert law.log_std == pytest.approx(2 * math.sqrt(float(variance)), rel=1e-12)
    wide = relu_norm_law([10**6] * 50)
    assert wide.log_std == pytest.approx(math.sqrt(50 * 5e-6), rel=1e-5)
    assert wide.log_mean == pytest.approx(-50 * 2.5e-6, rel=1e-5)


def test_gain_scales_and_fan_in_preserves_mean_squares() -> None:
    he, other = relu_norm_law([30, 50]), relu_norm_law([30, 50], gain=1.3)
    for ratio in (0.3, 1.0, 2.0):
        assert other.cdf(ratio * 0.65**2) == pytest.approx(he.cdf(ratio), rel=1e-11)
        per_unit = relu_norm_law([30, 50], inputs=8, fan="in").cdf(ratio * 50 / 8)
        assert per_unit == pytest.approx(he.cdf(ratio), rel=1e-11)
    assert relu_norm_law([30, 50], inputs=30, gain=1.0, fan="mean").mean == pytest.approx(0.5 * 0.5 * 50 / 40)
    assert relu_norm_law([30, 50], inputs=30, fan="geometric").mean == pytest.approx(math.sqrt(50 / 30))


def test_numbers_arrays_and_tensors_come_back_in_kind() -> None:
    law = relu_norm_law([20, 30])
    ratios = np.array([[0.5, 1.0], [1.5, 3.0]])
    table = law.cdf(ratios)
    assert isinstance(law.cdf(0.5), float)
    assert table.shape == (2, 2)
    tensor = law.cdf(torch.tensor(ratios))
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == torch.float64
    np.testing.assert_array_equal(tensor.numpy(), table)
    assert table[0, 0] == pytest.approx(law.cdf(0.5), rel=1e-12)
    many = np.linspace(0.01, 4, 300)
    np.testing.assert_allclose(law.pdf(many)[::30], [law.pdf(float(r)) for r in many[::30]], rtol=1e-11)


def test_ends_of_the_range() -> None:
    law = relu_norm_law([2, 2])
    assert law.cdf(-1.0) == 0
    assert law.cdf(0.0) == pytest.approx(law.dead)
    assert law.sf(0.0) == pytest.approx(1 - law.dead)
    assert (law.cdf(math.inf), law.sf(math.inf), law.sf(-2.0)) == (1, 0, 1)
    assert (law.pdf(0.0), law.pdf(-1.0), law.pdf(math.inf)) == (math.inf, 0, 0)
    assert math.isnan(law.cdf(math.nan))
    assert math.isnan(law.pdf(math.nan))
    assert (law.quantile(0.1), law.quantile(1.0)) == (0, math.inf)
    assert law.sf(1e-300) == pytest.approx(1 - law.dead, rel=1e-9)
    assert law.cdf(1e12) == 1


def test_density_integrates_to_the_tails() -> None:
    law = relu_norm_law([5, 9, 7])
    for low, high in ((0.05, 0.4), (0.8, 3.0)):
        mass = quad(lambda r: law.pdf(r), low, high, epsabs=0, epsrel=1e-9)[0]
        assert mass == pytest.approx(law.cdf(high) - law.cdf(low), rel=1e-8)


def test_very_deep_and_narrow() -> None:
    """Nearly all networks are dead; what lives is still described."""
    law = relu_norm_law([2] * 400)
    assert law.dead == 1.0
    assert law.log_mean < -200
    assert 0 < law.sf(1.0) < 1e-40
    deep = relu_norm_law([64] * 3000)
    assert deep.cdf(math.exp(deep.log_mean)) == pytest.approx(0.5, abs=0.02)


def test_sum_over_layers_is_the_sum_of_the_laws() -> None:
    for width, depth, low, high in ((25, 6, 0.4, 1.7), (700, 12, 0.6, 1.4), (60, 3, 0.05, 1.9)):
        weights = {layer: 1.0 + (layer == 2) for layer in range(1, depth + 1)}
        apart = sum(w * relu_norm_law([width] * l).outside(low, high) for l, w in weights.items())
        together = math.exp(log_outside_sum(Factor(width, 2 / width), weights, low, high))
        assert together == pytest.approx(apart, rel=1e-10)


def backward(widths: Sequence[int], inputs: int, networks: int, fan: str, seed: int) -> tuple[Array, Array]:
    """|∂a_l|²/|δ|² and |∂W_l|²/(|δ|²|x|²) for a fixed δ, shape (networks, layers) each, weight matrices drawn in full."""
    source = torch.Generator().manual_seed(seed)
    sizes = [inputs, *widths]
    x = torch.rand(inputs, generator=source, dtype=torch.float64) - 0.3
    delta = torch.rand(widths[-1], generator=source, dtype=torch.float64) - 0.4
    weights, hidden = [], [x.expand(networks, inputs)]
    for before, after in itertools.pairwise(sizes):
        deviation = math.sqrt(2 / (after if fan == "out" else before))
        weights.append(torch.randn(networks, after, before, generator=source, dtype=torch.float64) * deviation)
        hidden.append(torch.relu(torch.einsum("nij,nj->ni", weights[-1], hidden[-1])))
    error, back, grads = delta.expand(networks, -1), [], []
    for layer in range(len(widths), 0, -1):
        back.append(error.square().sum(1) / delta.square().sum())
        grads.append(back[-1] * hidden[layer - 1].square().sum(1) / x.square().sum())
        error = torch.einsum("nij,ni->nj", weights[layer - 1], error) * (hidden[layer - 1] > 0)
    return torch.stack(back[::-1], 1).numpy(), torch.stack(grads[::-1], 1).numpy()


@pytest.mark.parametrize("fan", ["out", "in"])
def test_gradients_follow_the_law_when_the_error_is_fixed(fan: str) -> None:
    """Masks and weights are shared between the two passes, and still the product law is exact."""
    widths, inputs = [9, 14, 8, 11], 6
    back, grads = backward(widths, inputs, 6000, fan, seed=3)
    for layer in range(1, 5):
        for law, found in (
            (relu_backward_law(widths, layer, inputs=inputs, fan=fan), back),  # type: ignore[arg-type]
            (relu_gradient_law(widths, layer, inputs=inputs, fan=fan), grads),  # type: ignore[arg-type]
        ):
            ratios = found[:, layer - 1]
            if not law.factors:
                np.testing.assert_allclose(ratios, 1, rtol=1e-12)
                continue
            alive = ratios[ratios > 0]
            dead = 1 - len(alive) / len(ratios)
            assert abs(dead - law.dead) < 4 * math.sqrt(law.dead / len(ratios))
            result = kstest(alive, lambda r, law=law: (law.cdf(np.asarray(r)) - law.dead) / (1 - law.dead))
            assert result.pvalue > 1e-3, (layer, law.quantity)


def test_the_gradient_of_autograd_is_what_the_law_describes() -> None:
    """|∂W_l| by autograd in networks of dense layers, loss linear in the last pre-activation."""
    source = torch.Generator().manual_seed(11)
    widths, layer, ratios = [12, 12, 12], 2, []
    x = torch.rand(12, generator=source, dtype=torch.float64)
    delta = torch.rand(12, generator=source, dtype=torch.float64)
    for _ in range(1500):
        shapes = [torch.randn(12, 12, generator=source, dtype=torch.float64) * math.sqrt(1 / 6) for _ in widths]
        weights = [w.requires_grad_(index == layer - 1) for index, w in enumerate(shapes)]
        h = x
        for index, weight in enumerate(weights):
            a = weight @ h
            h = torch.relu(a) if index < len(weights) - 1 else a
        (gradient,) = torch.autograd.grad(delta @ h, [weights[layer - 1]], allow_unused=True)
        ratios.append(float(gradient.square().sum() / (delta.square().sum() * x.square().sum())))
    law = relu_gradient_law(widths, layer)
    assert kstest(ratios, lambda r: law.cdf(np.asarray(r))).pvalue > 1e-3


def test_cross_entropy_drifts_by_the_cosine_of_error_and_activation() -> None:
    """<∂a_l, a_l> is the same in every layer (Euler), so the error keeps a part along h that is not random.

    A backward layer then multiplies the mean of |∂a|² by 1 + q² - 2/m, q the cosine between ∂a_{l+1} and h: one step of it.
    """
    width, networks, classes = 16, 30_000, 20
    source = torch.Generator().manual_seed(2)
    x = torch.ones(width, 1, dtype=torch.float64)
    first, second = (
        torch.randn(networks, width, width, generator=source, dtype=torch.float64) * math.sqrt(2 / width)
        for _ in range(2)
    )
    readout = torch.randn(networks, classes, width, generator=source, dtype=torch.float64) / math.sqrt(width)
    h1 = torch.relu(first @ x)
    a2 = second @ h1
    error = torch.softmax(readout @ torch.relu(a2), 1)
    error[:, 0] -= 1
    delta = (readout.mT @ error) * (a2 > 0)
    below = (second.mT @ delta) * (h1 > 0)
    torch.testing.assert_close((below * first @ x).sum((1, 2)), (delta * a2).sum((1, 2)))
    alive = (delta.square().sum((1, 2)) > 0) & (h1.square().sum((1, 2)) > 0)
    ratio = (below.square().sum((1, 2)) / delta.square().sum((1, 2)))[alive]
    along = ((delta * a2).sum((1, 2)).square() / (delta.square().sum((1, 2)) * h1.square().sum((1, 2))))[alive]
    shift = ratio - 1 - (along - 2 / width)
    assert abs(float(shift.mean())) < 4 * float(shift.std()) / math.sqrt(len(shift))
    assert float(ratio.mean() - 1) > 5 * float(ratio.std()) / math.sqrt(len(ratio))  # the law says 1


def test_one_layer_has_a_gradient_that_is_not_random() -> None:
    law = relu_gradient_law([40], 1)
    assert law.factors == ()
    assert (law.cdf(0.9), law.cdf(1.0), law.sf(0.9), law.mean, law.variance, law.quantile(0.3)) == (0, 1, 1, 1, 0, 1)
    assert (law.outside(0.5, 1.5), law.outside(1.2, 1.5), law.dead, law.moment(2), law.log_std) == (0, 1, 0, 1, 0)
    with pytest.raises(BadInput, match="exactly 1"):
        law.pdf(1.0)


WRONG = {
    "no widths": (lambda: relu_norm_law([]), "got no widths"),
    "width 0": (lambda: relu_norm_law([10, 0]), "a width is 0, expected a whole number; use 1 to"),
    "half a unit": (lambda: relu_norm_law([1.5]), "a width is 1.5"),  # type: ignore[list-item]
    "too wide": (lambda: relu_norm_law(10**13), "use 1 to 1,000,000,000,000"),
    "gain": (lambda: relu_norm_law(10, gain=0), "gain is 0, expected a positive number"),
    "fan": (lambda: relu_norm_law(10, fan="sideways"), "in, out, mean, geometric"),  # type: ignore[arg-type]
    "inputs missing": (lambda: relu_norm_law([10], fan="in"), "pass inputs="),
    "inputs": (lambda: relu_norm_law([10], fan="in", inputs=0), "inputs is 0"),
    "layer": (lambda: relu_gradient_law([10, 10], 3), "use 1 to 2"),
    "backward layer": (lambda: relu_backward_law([10, 10], 0), "layer is 0"),
    "quantile": (lambda: relu_norm_law(10).quantile(1.5), "expected a probability"),
    "level": (lambda: relu_norm_law(10).interval(0), "level is 0"),
    "order": (lambda: relu_norm_law(10).moment(-1), "order is -1"),
    "outside": (lambda: relu_norm_law(10).outside(2, 1), "expected 0 < low <= high"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_names_the_argument_and_its_range(name: str) -> None:
    call, said = WRONG[name]
    with pytest.raises(BadInput, match=said):
        call()


def test_dictionary_is_plain() -> None:
    law = relu_norm_law([4, 4])
    assert isinstance(law, NormLaw)
    content = law.to_dict()
    assert content["quantity"] == "|h|²/|x|²"
    assert all(isinstance(content[name], float) for name in ("mean", "variance", "dead", "log_mean", "log_std"))
