"""DC Theorems 2, 6 and 8 step by step: each bound against sampled networks, each slip with its counter-example."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bounds.random_nets import K1, K2, R, cnn_dcn, picture
from initscope.activations import leaky_relu
from initscope.bounds import angle_to_input, angle_to_limit, convergence_image
from initscope.bounds.random_cnn import read_random_cnn
from initscope.data import load
from initscope.errors import BadInput, NoExactForm
from initscope.geometry import angle
from initscope.layers import Activate, AveragePool, Conv, L2Pool, Layer, Upsample
from initscope.networks import Sequential
from initscope.weights import Orthogonal


def outputs(net: Layer, images: Tensor, draws: int, seed: int = 0) -> Tensor:
    """(draws, n, h, w): the mean over channels of freshly sampled networks."""
    source = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(draws):
        module = net.sample(tuple(images.shape[1:]), generator=source, dtype=torch.float64)
        with torch.no_grad():
            found.append(module(images).mean(1))
    return torch.stack(found)


def sines(samples: Tensor, limit: Tensor) -> Tensor:
    """(draws, n): the sine of the angle between each output and the limit."""
    return torch.stack([angle(sample, limit).sin() for sample in samples])


def relative_error(samples: Tensor, limit: Tensor) -> Tensor:
    return (samples - limit).square().sum((2, 3)) / limit.square().sum((1, 2))


# Theorem 6


def test_the_second_moment_behind_theorem_6_is_exact() -> None:
    """E|f - f*|² = K1 |f*|² / N."""
    net, images = Sequential(Conv(6, padding="zero"), R), picture(0, 2, 3, 5, 5) - 0.3
    errors = relative_error(outputs(net, images, 4000), convergence_image(net, images).image)
    stderr = errors.std(0) / math.sqrt(len(errors))
    assert float(((errors.mean(0) - K1 / 6) / stderr).abs().max()) < 4


def test_theorem_6_is_its_formula_whatever_the_image() -> None:
    for width, delta in ((10, 0.05), (1000, 0.3)):
        found = angle_to_limit(Sequential(Conv(width, 5), R), picture(1, 3, 2, 6, 6), delta)
        expected = torch.full((3,), math.sqrt(K1 / (width * delta)), dtype=torch.float64)
        torch.testing.assert_close(found.theorem.value, expected)
        assert found.theorem.delta == delta
        assert "Theorem 6" in found.theorem.source
    pooled = angle_to_limit(Sequential(L2Pool(2), Conv(1000), R), picture(1, 1, 2, 6, 6), 0.3)
    assert float(pooled.theorem.value) == pytest.approx(math.sqrt(K1 / 300))  # what comes before the filters is data
    assert "vacuous" in angle_to_limit(Sequential(Conv(3), R), picture(1, 1, 2, 6, 6)).theorem.note


@pytest.mark.parametrize("delta", [0.1, 0.5])
@pytest.mark.parametrize("name", ["one layer", "cnn-dcn", "disjoint", "leaky"])
def test_bounds_fail_no_more_often_than_delta(name: str, delta: float) -> None:
    net = {
        "one layer": Sequential(Conv(24, padding="zero"), R),
        "cnn-dcn": cnn_dcn(24),
        "disjoint": cnn_dcn(24, stride=2),
        "leaky": Sequential(Conv(24), Activate(leaky_relu(0.2)), L2Pool(2), Conv(24), Activate(leaky_relu(0.2))),
    }[name]
    images = torch.cat([load("photos", count=2, size=8).images.double(), picture(3, 1, 3, 8, 8) ** 8])
    found = angle_to_limit(net, images, delta)
    samples = sines(outputs(net, images, 150), convergence_image(net, images).image)
    for bound in (found.sharper.value, found.theorem.value):
        failures = (samples > bound).double().mean(0)
        assert bool((failures <= delta + 4 * math.sqrt(delta * (1 - delta) / len(samples))).all())
    squares = samples.square()
    assert bool((squares.mean(0) <= found.mean_square.value + 4 * squares.std(0) / math.sqrt(len(squares))).all())
    assert bool((found.sharper.value <= found.theorem.value).all())


# The sharper bound


def test_the_mean_square_bound_is_attained_by_orthogonal_patches() -> None:
    """Each position its own channel: f has independent entries, and sin²Θ -> K1/(N + K1) with many positions."""
    width, side = 8, 24
    images = torch.eye(side * side, dtype=torch.float64).reshape(1, side * side, side, side)
    net = Sequential(Conv(width, 1), R)
    bound = angle_to_limit(net, images).mean_square.value
    torch.testing.assert_close(bound, torch.tensor([K1 / (width + K1)], dtype=torch.float64))
    samples = sines(outputs(net, images, 200), convergence_image(net, images).image).square()
    stderr = samples.std(0) / math.sqrt(len(samples))
    assert bool((samples.mean(0) <= bound + 4 * stderr).all())
    assert bool((samples.mean(0) >= bound * (1 - 3 / side**2) - 4 * stderr).all())
    assert float(stderr / bound) < 0.005


@pytest.mark.parametrize("alike", [True, False])
def test_squared_norms_spread_by_the_product_of_layers(alike: bool) -> None:
    """E z⁴ <= z*⁴ Π(1 + K2/N), with equality where all patches are alike; two layers of 2x2 cyclic filters."""
    widths, draws = (5, 7), 20_000
    image = torch.ones(1, 1, 3, 3, dtype=torch.float64) if alike else picture(4, 1, 1, 3, 3) ** 4
    source = torch.Generator().manual_seed(0)
    features = image.expand(draws, 1, 3, 3)
    for width in widths:
        shifts = itertools.product((0, -1), repeat=2)
        patches = torch.cat([features.roll(shift, (2, 3)) for shift in shifts], 1).flatten(2)
        weights = torch.randn(draws, width, patches.shape[1], generator=source, dtype=torch.float64)
        features = (weights @ patches).relu().reshape(draws, width, 3, 3) * math.sqrt(2 / width)  # N k2 = 1
    squares = features.square().sum(1)
    cnn = read_random_cnn("test", Sequential(Conv(5, 2), R, Conv(7, 2), R), (1, 3, 3))
    ratio = squares / cnn.squares(image.square().sum(1))
    seconds, stderr = ratio.square().mean(0), ratio.square().std(0) / math.sqrt(draws)
    growth = math.prod(1 + K2 / n for n in widths)
    assert bool(((ratio.mean(0) - 1).abs() < 5 * ratio.std(0) / math.sqrt(draws)).all())
    assert bool((seconds <= growth + 5 * stderr).all())
    assert bool((seconds >= growth - 5 * stderr).all()) is alike


# First order in 1/N


@pytest.mark.parametrize("name", ["zero", "stride", "leaky", "upsampled"])
def test_the_first_order_is_the_measured_mean_square(name: str) -> None:
    """The next order is a share of about K1/N = 0.2 %, the standard error of 400 draws about 4 %."""
    net = {
        "zero": Sequential(Conv(1000, 3, padding="zero"), R),
        "stride": Sequential(Conv(1000, 3, 2, padding="reflect"), R),
        "leaky": Sequential(Conv(1000, 3), Activate(leaky_relu(0.2))),
        "upsampled": Sequential(AveragePool(2), Upsample(2, "zeros"), Conv(1000, 3), R),
    }[name]
    images = torch.cat([load("photos", count=1, size=8).images.double(), picture(6, 1, 3, 8, 8) - 0.5])
    found = angle_to_limit(net, images)
    first = found.first_order
    assert first is not None
    assert first.kind == "asymptotic"
    squares = sines(outputs(net, images, 400), convergence_image(net, images).image).square()
    stderr = squares.std(0) / math.sqrt(len(squares))
    assert float(((squares.mean(0) - first.value) / stderr).abs().max()) < 4
    growth = 1 / (1 - found.mean_square.value)  # 1 + K1/N
    assert bool((first.value <= (growth - 1) * (1 + 1e-9)).all())


def test_the_first_order_in_tiles_is_the_covariance_in_full() -> None:
    """One matrix of all pairs of 625 positions, against the blocks."""
    net, images = Sequential(Conv(10, padding="zero"), R), picture(7, 1, 2, 25, 25) - 0.4
    first = angle_to_limit(net, images).first_order
    assert first is not None
    patches = torch.nn.functional.unfold(images, 3, padding=1)[0].T
    z = patches.norm(dim=1)
    cosine = (patches @ patches.T / (z[:, None] * z)).clamp(-1, 1)
    product = ((1 - cosine**2).sqrt() + (math.pi - cosine.acos()) * cosine) / (2 * math.pi) * z[:, None] * z
    limit = z / math.sqrt(2 * math.pi)
    covariance = product - limit[:, None] * limit
    along = limit @ covariance @ limit / limit.square().sum()
    expected = (covariance.trace() - along) / limit.square().sum() / 10
    assert float(first.value) == pytest.approx(float(expected), rel=1e-10)


def test_the_first_order_is_left_out_where_it_would_take_minutes_or_has_no_form() -> None:
    assert angle_to_limit(cnn_dcn(8), picture(8, 1, 1, 8, 8)).first_order is None
    assert angle_to_limit(Sequential(Conv(8), R), picture(8, 1, 1, 150, 150)).first_order is None


# Theorem 8


def matrix(function: object, shape: tuple[int, int]) -> Tensor:
    """A linear map of images as a matrix."""
    basis = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
    assert callable(function)
    return function(basis).flatten(1).T


def test_the_factors_are_those_of_lemma_7_where_windows_are_disjoint() -> None:
    net, images = cnn_dcn(4, stride=2), picture(9, 2, 3, 8, 8)
    found = angle_to_limit(net, images)
    assert "Lemma 7" not in found.theorem.note
    cnn = read_random_cnn("test", net, (3, 8, 8))
    current = cnn.steps[0].gather(images.square().sum(1))
    expected = []
    for step in cnn.steps[1:]:
        size = current.shape[-1] // step.gather(current).shape[-1]
        blocks = current.unfold(1, size, size).unfold(2, size, size)
        spread = (blocks - blocks.mean((-2, -1), keepdim=True)).square().sum((1, 2, 3, 4))  # |ε|²
        expected.append(1 / (1 - spread / current.square().sum((1, 2))).sqrt())
        current = step.gather(current)
    spread = (current - current.mean((1, 2), keepdim=True)).square().sum((1, 2))
    expected.append(1 / (1 - spread / current.square().sum((1, 2))).sqrt())
    torch.testing.assert_close(found.factors, torch.stack(expected, 1))
    share = math.sqrt((K1 / 4 + 2 * K2 / 4) / 0.05)
    value = share + (3 * share * found.factors.prod(1)).sqrt()  # L = 5: two convolutions, a pooling, the last, the mean
    torch.testing.assert_close(found.theorem.value, value)
    assert bool((found.sharper.value <= share).all())  # without the second term


def test_the_factors_use_the_operator_norm_where_windows_overlap() -> None:
    net, images = cnn_dcn(4), picture(10, 2, 1, 8, 8) ** 6
    found = angle_to_limit(net, images)
    assert "operator norm" in found.theorem.note
    cnn = read_random_cnn("test", net, (1, 8, 8))
    current, expected = cnn.steps[0].gather(images.square().sum(1)), []
    for before, step in itertools.pairwise(cnn.steps):
        full = matrix(lambda t, b=before, s=step: s.gather(b.spread(t)), tuple(current.shape[1:]))
        after = step.gather(before.spread(current))
        length = current.flatten(1).norm(dim=1) / after.flatten(1).norm(dim=1)
        expected.append(torch.linalg.matrix_norm(full, 2) * length)
        current = after
    exact = torch.stack(expected, 1)
    assert bool((found.factors[:, :-1] >= exact * (1 - 1e-12)).all())
    assert bool((found.factors[:, :-1] <= 1.1 * exact).all())


def test_one_route_is_not_enough_for_lemma_7() -> None:
    """A 1x1 and a 3x3 convolution: one route between any two pixels, yet |φ(x)|² <= r|x|² fails, since windows overlap."""
    cnn = read_random_cnn("test", Sequential(Conv(4, 1), R, Conv(4, 3), R), (1, 6, 6))
    full = matrix(cnn.squares, (6, 6))
    assert float(full.max()) == 1
    ones = torch.ones(36, dtype=torch.float64)
    assert float((full @ ones).square().sum()) > 9 * float(ones.square().sum())


def test_lambda_must_be_taken_of_the_squares() -> None:
    """Theorem 2 prints ε(z*)/|z*|; with windows {1,2}, {3,4} the step sin θ' <= λ sin β then fails."""
    squares = torch.tensor([4.0, 1.0, 4.0, 1.0], dtype=torch.float64)
    direction = 1e-4 * torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)

    def factor(v: Tensor) -> float:
        spread = v - v.reshape(2, 2).mean(1).repeat_interleave(2)
        return float(1 / (1 - spread.square().sum() / v.square().sum()).sqrt())

    def sine(a: Tensor, b: Tensor) -> float:
        return float(angle(a[None], b[None]).sin())

    before = sine(squares + direction, squares)
    after = sine((squares + direction).reshape(2, 2).sum(1), squares.reshape(2, 2).sum(1))
    assert after > 1.1 * factor(squares.sqrt()) * before  # as Theorem 2 prints it
    assert after <= factor(squares) * before * (1 + 1e-6)  # as Theorem 8 has it


@given(st.integers(0, 10**6), st.integers(2, 30), st.floats(0.1, 4.0))
@settings(max_examples=100, deadline=None)
def test_the_root_step_of_theorem_8(seed: int, count: int, power: float) -> None:
    """sin μ <= sqrt(λ sin θ), θ between z² and z*², μ between z and z*, λ = sqrt(n)|z*²|/|z*|²."""
    z, star = picture(seed, 2, count) ** power
    theta, mu = (angle(a[None], b[None]).sin() for a, b in ((z**2, star**2), (z, star)))
    factor = math.sqrt(count) * star.square().norm() / star.square().sum()
    assert float(mu) <= float((factor * theta).sqrt()) + 1e-12


@given(st.integers(0, 10**6), st.integers(2, 12))
@settings(max_examples=50, deadline=None)
def test_sines_of_angles_add_up(seed: int, count: int) -> None:
    """sin β <= sin θ + sin α between any three vectors, also where θ + α is more than a right angle."""
    a, b, c = (picture(seed, 3, count) - 0.5).unsqueeze(1)
    theta, alpha, beta = (float(angle(p, q).sin()) for p, q in ((a, b), (b, c), (a, c)))
    assert beta <= theta + alpha + 1e-12


# What is refused


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0, math.nan, True, "0.1"])
def test_delta_is_a_probability(delta: object) -> None:
    with pytest.raises(BadInput, match="delta"):
        angle_to_limit(Sequential(Conv(4), R), torch.ones(1, 1, 4, 4), delta)  # type: ignore[arg-type]


def test_very_deep_networks() -> None:
    """9^400 routes are more than floating point can count; λ does not need them."""
    deep, images = Sequential(*[Conv(10**6), R] * 400), picture(15, 1, 1, 4, 4)
    found = angle_to_limit(deep, images)
    growth = (1 + K1 / 1e6) * (1 + K2 / 1e6) ** 399
    assert float(found.mean_square.value) == pytest.approx(1 - 1 / growth, rel=1e-9)
    torch.testing.assert_close(found.factors[:, 10:], torch.ones(1, 390, dtype=torch.float64))
    with pytest.raises(BadInput, match="more routes"):
        angle_to_input(deep, images)


def test_bounds_refuse_filters_that_depend_on_each_other() -> None:
    with pytest.raises(NoExactForm, match="depend on each other"):
        angle_to_limit(Sequential(Conv(4, weights=Orthogonal()), R), torch.ones(1, 1, 4, 4))
