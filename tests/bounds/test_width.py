"""Widths: the numbers, the definition, the paper's formulas, coverage by sampled networks, bad input."""

from __future__ import annotations

import functools
import itertools
import math

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from scipy.stats import chi2 as chi_square

from initscope.bounds import failure_probability, width_for
from initscope.bounds.curves import failure_by_width
from initscope.bounds.printed_width import per_layer, rate, theorem_failure
from initscope.errors import BadInput
from initscope.finite import relu_norm_law


@functools.cache
def answer(depth: int, epsilon: float, delta: float) -> int:
    return width_for(depth, epsilon, delta).exact.value


@pytest.mark.parametrize(
    ("epsilon", "exact", "lemma2"), [(0.1, 1919, 4151.3107), (0.2, 479, 1091.0022), (0.5, 75, 199.3457)]
)
def test_one_layer(epsilon: float, exact: int, lemma2: float) -> None:
    found = width_for(depth=1, epsilon=epsilon, delta=0.05)
    assert found.exact.value == exact
    assert found.exact.kind == "exact"
    assert found.lemma2 is found.theorem1
    assert found.theorem1 is not None
    assert found.theorem1.value == math.ceil(lemma2)
    assert f"{lemma2:.2f}" in found.theorem1.note
    assert "Lemma 2" in found.theorem1.source


@pytest.mark.parametrize(("depth", "exact", "theorem1"), [(10, 750, 38179), (50, 3747, 1228461)])
def test_deep(depth: int, exact: int, theorem1: int) -> None:
    found = width_for(depth=depth, epsilon=0.5, delta=0.05)
    assert found.exact.value == exact
    assert found.theorem1 is not None
    assert found.theorem1.value == theorem1
    assert found.lemma2 is None
    assert found.asymptotic.kind == "asymptotic"
    assert found.asymptotic.value == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize(
    ("depth", "epsilon", "delta", "samples"),
    [(1, 0.5, 0.05, 1), (3, 0.3, 0.2, 1), (7, 0.8, 0.01, 50), (20, 0.6, 1e-6, 3), (2, 0.95, 0.4, 1), (4, 0.05, 0.1, 1)],
)
def test_the_width_suffices_and_one_fewer_does_not(depth: int, epsilon: float, delta: float, samples: int) -> None:
    found = width_for(depth, epsilon, delta, samples)
    width = found.exact.value
    at, before = (samples * relu_norm_law([m] * depth).outside(1 - epsilon, 1 + epsilon) for m in (width, width - 1))
    assert at <= delta < before
    assert found.failure == pytest.approx(at, rel=1e-10)
    assert found.exact.kind == ("exact" if samples == 1 else "bound")
    assert ("union bound" in found.exact.note) == (samples > 1)


@pytest.mark.parametrize("depth", [1, 2, 6])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.97])
def test_failure_falls_with_the_width(depth: int, epsilon: float) -> None:
    """The search relies on it: with He's gain no wider layer fails more often."""
    widths = [*range(1, 40), *range(40, 400, 24)]
    failures = [relu_norm_law([m] * depth).outside(1 - epsilon, 1 + epsilon) for m in widths]
    assert all(later < earlier for earlier, later in itertools.pairwise(failures))


def test_the_widths_are_in_order() -> None:
    for depth, epsilon, delta, samples in ((1, 0.3, 0.05, 1), (5, 0.5, 0.01, 10), (12, 0.9, 0.1, 1)):
        found = width_for(depth, epsilon, delta, samples)
        every = width_for(depth, epsilon, delta, samples, every_layer=True)
        assert found.theorem1 is not None
        assert found.theorem3 is not None
        assert found.exact.value <= every.exact.value <= found.gradients.value
        assert found.exact.value < found.theorem1.value < found.theorem3.value
        assert found.gradients.value < found.theorem3.value


def test_gradients_and_every_layer_are_sums_of_laws() -> None:
    depth, epsilon, delta, samples = 6, 0.6, 0.1, 2
    low, high = 1 - epsilon, 1 + epsilon
    found = width_for(depth, epsilon, delta, samples, every_layer=True)

    def layers(m: int) -> float:
        return samples * sum(relu_norm_law([m] * layer).outside(low, high) for layer in range(1, depth + 1))

    def both(m: int) -> float:
        return layers(m) + samples * depth * relu_norm_law([m] * (depth - 1)).outside(low, high)

    assert layers(found.exact.value) <= delta < layers(found.exact.value - 1)
    assert both(found.gradients.value) <= delta < both(found.gradients.value - 1)
    assert any("does not depend on the weights" in one for one in found.gradients.assumes)


def test_other_gains() -> None:
    drifting = width_for(4, 0.5, 0.05, gain=1.75)
    assert drifting.theorem1 is None
    assert drifting.theorem3 is None
    width = drifting.exact.value
    assert width > width_for(4, 0.5, 0.05).exact.value
    at, before = (relu_norm_law([m] * 4, gain=1.75).outside(0.5, 1.5) for m in (width, width - 1))
    assert at <= 0.05 < before
    assert "1.75/fan-out" in " ".join(drifting.exact.assumes)


def test_small_distortions_follow_the_normal_quantile() -> None:
    found = width_for(3, 1e-3, 0.05)
    closed = 5 * 3 * float(norm.ppf(0.975)) ** 2 / 1e-6
    assert found.exact.value == pytest.approx(closed, rel=1e-4)
    assert found.asymptotic.value == pytest.approx(closed, rel=1e-4)


def test_rate_is_the_papers() -> None:
    with mp.workdps(40):
        for epsilon in (1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.99):
            e = mp.mpf(epsilon)
            assert rate(epsilon) == pytest.approx(float(e / 4 + mp.log(2 / (1 + mp.sqrt(1 + e)))), rel=1e-13)


def test_lower_tail_is_the_lighter_one() -> None:
    """OP eq. 63 and 139, 'it can be shown': ε/4 - log(2/(1+√(1-ε))) <= -(ε/4 + log(2/(1+√(1+ε)))) on (0, 1)."""
    with mp.workdps(40):
        for step in range(1, 1000):
            e = mp.mpf(step) / 1000
            lower = e / 4 - mp.log(2 / (1 + mp.sqrt(1 - e)))
            assert lower < -(e / 4 + mp.log(2 / (1 + mp.sqrt(1 + e))))


def test_exponential_moment_of_a_unit() -> None:
    """OP eq. 120 and 134 print 0.5 + 1/√(1∓2λ); half of it is right, and 121 and 135 as printed are below the truth."""
    source = np.random.default_rng(0)
    units = source.standard_normal(10**6) * (source.random(10**6) < 0.5)
    for signed in (0.15, -0.6):
        values = np.exp(signed * units**2)
        mean, error = values.mean(), values.std() / 1000
        root = math.sqrt(1 - 2 * signed)
        assert abs(mean - (0.5 + 0.5 / root)) < 4 * error
        assert abs(mean - (0.5 + 1 / root)) > 50 * error
        assert mean - 0.5 * (1 + 0.5 / root) > 50 * error


def test_per_layer_distortion_multiplies_to_the_total() -> None:
    for depth, epsilon in ((1, 0.3), (10, 0.5), (200, 0.01)):
        each = per_layer(epsilon, depth)
        assert (1 + each) ** depth == pytest.approx(1 + epsilon, rel=1e-12)
        assert (1 - each) ** depth >= 1 - epsilon - 1e-12


def recursion_failures(depth: int, width: int, epsilon: float, networks: int, seed: int) -> int:
    """How many of the networks fail, unit by unit: given h, the units of W h are independent N(0, 2|h|²/m)."""
    source = np.random.default_rng(seed)
    failures, block = 0, max(1, 2_000_000 // width)
    for start in range(0, networks, block):
        size = min(block, networks - start)
        ratio = np.ones(size)
        for _ in range(depth):
            units = source.standard_normal((size, width), dtype=np.float32)
            np.maximum(units, 0, out=units)
            ratio *= 2 / width * np.einsum("ij,ij->i", units, units, dtype=np.float64)
        failures += int((np.abs(ratio - 1) > epsilon).sum())
    return failures


def matrix_failures(depth: int, width: int, epsilon: float, networks: int, seed: int) -> int:
    """How many of the networks fail, all weight matrices drawn in full, inputs of 20 numbers."""
    source = torch.Generator().manual_seed(seed)
    failures = 0
    for _ in range(networks):
        x = torch.rand(20, generator=source)
        h = x
        for _ in range(depth):
            h = torch.relu(torch.randn(width, len(h), generator=source) @ h * math.sqrt(2 / width))
        ratio = float(h.double().square().sum() / x.double().square().sum())
        failures += abs(ratio - 1) > epsilon
    return failures


BY_UNITS = [
    *((1, epsilon, delta) for epsilon in (0.12, 0.15, 0.2, 0.3, 0.4) for delta in (0.02, 0.05, 0.1)),
    *((3, epsilon, delta) for epsilon in (0.3, 0.5) for delta in (0.05, 0.2)),
    *((10, epsilon, delta) for epsilon in (0.5, 0.6) for delta in (0.05, 0.2)),
    *((25, epsilon, delta) for epsilon in (0.7, 0.9) for delta in (0.1, 0.3)),
    *((50, epsilon, delta) for epsilon in (0.7, 0.9) for delta in (0.2, 0.4)),
]
BY_MATRICES = [(1, 0.5, 0.05), (2, 0.6, 0.1), (4, 0.8, 0.1), (10, 0.9, 0.05)]


def test_coverage_of_the_exact_width() -> None:
    """Thirty-five settings: the failure rate of fresh networks is binomial around the exact probability, which is about δ.

    Each count lies within its 99.9 % interval, and the squared deviations together within theirs.
    """
    squares, settings = 0.0, 0
    for index, (depth, epsilon, delta) in enumerate([*BY_UNITS, *BY_MATRICES]):
        width = answer(depth, epsilon, delta)
        assert 50 <= width <= 2000
        chance = relu_norm_law([width] * depth).outside(1 - epsilon, 1 + epsilon)
        assert 0.97 * delta < chance <= delta
        if index < len(BY_UNITS):
            networks = max(800, min(8000, 25_000_000 // (depth * width)))
            failed = recursion_failures(depth, width, epsilon, networks, seed=index)
        else:
            networks = 1500
            failed = matrix_failures(depth, width, epsilon, networks, seed=index)
        low, high = binom.interval(0.999, networks, chance)
        assert low <= failed <= high, (depth, epsilon, delta, width, failed / networks)
        squares += (failed - networks * chance) ** 2 / (networks * chance * (1 - chance))
        settings += 1
    assert settings >= 35
    assert 1e-3 < chi_square.sf(squares, settings) < 1 - 1e-3


def test_the_papers_widths_fail_far_less() -> None:
    for depth, epsilon, delta in (*BY_UNITS, *BY_MATRICES):
        found = width_for(depth, epsilon, delta)
        assert found.theorem1 is not None
        law = relu_norm_law([found.theorem1.value] * depth)
        assert law.outside(1 - epsilon, 1 + epsilon) < delta / (4 if depth == 1 else 1000)
    assert recursion_failures(1, 200, 0.5, 20_000, seed=1) < 20_000 * 0.01  # Lemma 2 asks for 200 at δ = 0.05


def test_failure_probability_goes_the_other_way() -> None:
    found = failure_probability(75, depth=1, epsilon=0.5)
    assert found.exact.value == pytest.approx(0.0495087, rel=1e-5)
    assert found.exact.kind == "exact"
    assert found.theorem1 is not None
    assert found.theorem1.value == pytest.approx(2 * math.exp(-75 * rate(0.5)), rel=1e-12)
    mixed = failure_probability([100, 200, 100], None, 0.5, samples=4)
    assert mixed.exact.value == pytest.approx(4 * relu_norm_law([100, 200, 100]).outside(0.5, 1.5), rel=1e-12)
    assert mixed.exact.kind == "bound"
    assert mixed.theorem3 is None  # it is for equal widths
    assert mixed.theorem1 is not None
    assert mixed.theorem1.value == theorem_failure([100, 200, 100], 0.5, 8) == 1
    wide = failure_probability([30_000, 40_000], depth=2, epsilon=0.1, samples=3)
    each = rate(per_layer(0.1, 2))
    assert wide.theorem1 is not None
    assert wide.theorem1.value == pytest.approx(6 * (math.exp(-30_000 * each) + math.exp(-40_000 * each)), rel=1e-12)
    assert failure_probability(50, 3, 0.5, inputs=50, fan="in").theorem1 is not None
    assert failure_probability(50, 3, 0.5, inputs=20, fan="in").theorem1 is None
    assert failure_probability(50, 3, 0.5, gain=1.0).theorem1 is None
    assert failure_probability(10, 2, 0.5, samples=100).exact.value == 1


def test_dictionaries_are_plain() -> None:
    found = width_for(2, 0.5, 0.05).to_dict()
    assert found["exact"]["kind"] == "exact"
    assert found["theorem3"]["source"].endswith("Theorem 3, eq. 22")
    assert found["depth"] == 2
    failure = failure_probability(40, 2, 0.5).to_dict()
    assert failure["widths"] == [40, 40]
    assert failure["law"]["mean"] == pytest.approx(1)


def test_curves_for_figures() -> None:
    found = width_for(5, 0.5, 0.05, samples=3)
    curves = failure_by_width(found)
    assert len(curves.exact) == len(curves.exact_widths)
    crossing = float(np.interp(-math.log(0.05), -np.log(curves.exact), np.log(curves.exact_widths)))
    assert math.exp(crossing) == pytest.approx(found.exact.value, rel=0.02)
    assert found.theorem1 is not None
    bound = float(np.interp(-math.log(0.05), -np.log(curves.theorem1), np.log(curves.theorem1_widths)))
    assert math.exp(bound) == pytest.approx(found.theorem1.value, rel=0.02)
    assert failure_by_width(width_for(2, 0.5, 0.05, gain=1.95), gain=1.95).theorem1 == ()


def test_extremes() -> None:
    far = width_for(200, 0.01, 1e-9)
    closed = 5 * 200 * float(norm.isf(0.5e-9)) ** 2 / 1e-4
    assert far.exact.value == pytest.approx(closed, rel=0.01)
    assert far.failure <= 1e-9
    assert width_for(1, 0.999, 0.9).exact.value == 1
    assert width_for(3, 0.999, 1e-12).exact.value < 3000
    many = width_for(2, 0.5, 0.01, samples=10**30)
    assert many.failure <= 0.01
    assert many.exact.value < width_for(2, 0.5, 0.01).exact.value * 60


WRONG = {
    "epsilon 0": (lambda: width_for(1, 0, 0.05), "epsilon is 0, expected a number between 0 and 1"),
    "epsilon 1": (lambda: width_for(1, 1, 0.05), "epsilon is 1, expected a number between 0 and 1"),
    "epsilon nan": (lambda: width_for(1, math.nan, 0.05), "epsilon is nan"),
    "delta 0": (lambda: width_for(1, 0.5, 0), "delta is 0, expected a number between 0 and 1"),
    "delta 2": (lambda: width_for(1, 0.5, 2), "delta is 2"),
    "depth 0": (lambda: width_for(0, 0.5, 0.05), "depth is 0, expected a whole number; use 1 or more"),
    "depth 2.5": (lambda: width_for(2.5, 0.5, 0.05), "depth is 2.5"),  # type: ignore[arg-type]
    "samples 0": (lambda: width_for(1, 0.5, 0.05, 0), "samples is 0, expected a whole number; use 1 or more"),
    "too strict": (lambda: width_for(1, 0.5, 1e-270, 10**20), "delta/samples is 1e-290"),
    "gain": (lambda: width_for(1, 0.5, 0.05, gain=-1), "gain is -1"),
    "impossible": (lambda: width_for(10, 0.5, 0.05, gain=1.0), "tends to 0.000977 .* no width is enough"),
    "too wide": (lambda: width_for(1, 1e-7, 0.05), "more than 1,000,000,000,000 units"),
    "width 0": (lambda: failure_probability(0, 1, 0.5), "width is 0, expected a whole number; use 1 to"),
    "widths": (lambda: failure_probability([10, -1], None, 0.5), "a width is -1"),
    "no widths": (lambda: failure_probability([], None, 0.5), "got no widths"),
    "no depth": (lambda: failure_probability(10, None, 0.5), "no depth"),
    "depth": (lambda: failure_probability([10, 10], 3, 0.5), "2 widths and depth 3"),
    "failure epsilon": (lambda: failure_probability(10, 1, 1.5), "epsilon is 1.5"),
    "failure samples": (lambda: failure_probability(10, 1, 0.5, 0), "samples is 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_names_the_argument_and_its_range(name: str) -> None:
    call, said = WRONG[name]
    with pytest.raises(BadInput, match=said):
        call()


def test_whole_numbers_of_numpy_are_welcome() -> None:
    assert width_for(np.int64(1), np.float64(0.5), 0.05, np.int32(1)).exact.value == 75  # type: ignore[arg-type]
