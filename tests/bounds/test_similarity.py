"""JL Theorems 3 and 5 against the exact mean, summed patch by patch from JL eq. 8."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from initscope.bounds import Bound, Interval, relu_conv_similarity_bounds, shared_boundary_bounds
from initscope.errors import BadInput, UndefinedSimilarity
from initscope.geometry.cyclic import cyclic_convolution

# Sums of some hundred terms of size one in float64.
ROUNDING = 1e-10


def exact_mean(x: Tensor, y: Tensor, taps: list[tuple[int, int]]) -> float:
    """E<R(F*x), R(F*y)> with variance 2/k, k taps: the sum of |x_p||y_p| rhat(rho_p) / k over positions (JL eq. 8)."""
    h, w = x.shape[-2:]
    total = 0.0
    for u, v in itertools.product(range(h), range(w)):
        a = torch.stack([x[:, (u + i) % h, (v + j) % w] for i, j in taps])
        b = torch.stack([y[:, (u + i) % h, (v + j) % w] for i, j in taps])
        norms = float(a.norm() * b.norm())
        if norms > 0:
            rho = max(-1.0, min(1.0, float((a * b).sum()) / norms))
            total += norms * (math.sqrt(1 - rho * rho) + (math.pi - math.acos(rho)) * rho) / math.pi
    return total / len(taps)


def square(r: int) -> list[tuple[int, int]]:
    return list(itertools.product(range(r), repeat=2))


def centred(r: int) -> list[tuple[int, int]]:
    return list(itertools.product(range(-r, r + 1), repeat=2))


def cosine(x: Tensor, y: Tensor) -> float:
    return float((x * y).sum() / (x.norm() * y.norm()))


def images(seed: int, shape: tuple[int, ...], sparsity: float = 0.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, noise = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    mix = 2 * torch.rand((), generator=generator, dtype=torch.float64) - 1
    y = mix * x + (1 - mix.abs()) * noise
    keep = torch.rand(shape, generator=generator) >= sparsity
    return x * keep, y * keep.flip(-1)


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3]), st.sampled_from([1, 3]), st.sampled_from([0.0, 0.6]))
@settings(max_examples=60, deadline=None)
def test_theorem_3_holds_for_random_inputs(seed: int, r: int, channels: int, sparsity: float) -> None:
    x, y = images(seed, (channels, 4, 5), sparsity)
    if not x.any() or not y.any():
        return
    after = exact_mean(x, y, square(r)) / float(x.norm() * y.norm())
    bound = relu_conv_similarity_bounds(cosine(x, y)).value
    assert float(bound.low) - ROUNDING <= after <= float(bound.high) + ROUNDING


@pytest.mark.parametrize("rho", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_remark_2_attains_every_end(rho: float) -> None:
    root, rest = math.sqrt(rho), math.sqrt(1 - rho)
    plus, minus = math.sqrt((1 + rho) / 2), math.sqrt((1 - rho) / 2)
    row = lambda *values: torch.tensor(values, dtype=torch.float64).view(1, 1, -1)  # noqa: E731

    upper = exact_mean(row(plus, minus), row(plus, -minus), [(0, 0)])
    assert upper == pytest.approx(float(relu_conv_similarity_bounds(rho).value.high), abs=1e-14)

    zero = exact_mean(row(rest, root, 0), row(0, -root, rest), [(0, 0)])
    assert zero == pytest.approx(float(relu_conv_similarity_bounds(-rho).value.low), abs=1e-14)
    assert zero == pytest.approx(0.0, abs=1e-14)

    lower = exact_mean(row(rest, root, 0), row(0, root, rest), [(0, 0)])
    assert lower == pytest.approx(float(relu_conv_similarity_bounds(rho).value.low), abs=1e-14)


def test_the_mean_is_what_jl_convolution_averages_to() -> None:
    """Filters drawn and convolved by eq. 4 agree with the patch sum within four standard errors."""
    x, y = images(5, (2, 6, 5))
    draws, r = 4000, 3
    generator = torch.Generator().manual_seed(9)
    # Each of r² d entries has variance 2/r²; the patch sum above divides by the r² taps alone.
    filters = torch.randn(draws, 2, r, r, generator=generator, dtype=torch.float64) * math.sqrt(2) / r
    z, t = (cyclic_convolution(filters, image).relu() for image in (x, y))
    products = (z * t).sum((1, 2))
    error = float(products.std()) / math.sqrt(draws)
    assert abs(float(products.mean()) - exact_mean(x, y, square(r))) < 4 * error


@pytest.mark.parametrize("r", [2, 3])
def test_the_mean_does_not_see_flips_or_offsets_of_the_taps(r: int) -> None:
    x, y = images(7, (2, 6, 5))
    forwards = exact_mean(x, y, square(r))
    backwards = exact_mean(x, y, [(-i, -j) for i, j in square(r)])
    shifted = exact_mean(x, y, [(i - 1, j + 2) for i, j in square(r)])
    assert backwards == pytest.approx(forwards, rel=1e-13)
    assert shifted == pytest.approx(forwards, rel=1e-13)


def assert_theorem_5(a: Tensor, b: Tensor, r: int) -> None:
    bounds = shared_boundary_bounds(a, b, r)
    first, second = a.double()[None], b.double()[None]
    inner = exact_mean(first, second, centred(r))
    distance = exact_mean(first, first, centred(r)) + exact_mean(second, second, centred(r)) - 2 * inner
    similarity = inner / float(first.norm() * second.norm())
    for bound, value in (
        (bounds.inner_product, inner),
        (bounds.squared_distance, distance),
        (bounds.similarity, similarity),
    ):
        assert float(bound.value.low) - ROUNDING <= value <= float(bound.value.high) + ROUNDING, bound.source


@given(st.integers(0, 10**6), st.sampled_from([1, 2]), st.floats(0.2, 0.8))
@settings(max_examples=40, deadline=None)
def test_theorem_5_holds_for_random_binary_images(seed: int, r: int, density: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.rand(6, 7, generator=generator) < density for _ in range(2))
    if a.any() and b.any():
        assert_theorem_5(a, b, r)


@pytest.mark.parametrize("r", [1, 2])
def test_theorem_5_for_rectangles(r: int) -> None:
    a, b = torch.zeros(2, 16, 16, dtype=torch.bool)
    a[2:10, 2:11] = True
    b[5:13, 4:13] = True
    bounds = shared_boundary_bounds(a, b, r)
    assert bounds.boundary.item() == 4 * r * (5 + 7)
    assert bounds.inner_product.value.low.item() == 35 - 4 * r * 12
    assert bounds.squared_distance.value.high.item() == (72 + 72 - 70) + 2 * 4 * r * 12
    assert bounds.similarity.value.high.item() == pytest.approx((35 + 4 * r * 12) / 72)
    assert_theorem_5(a, b, r)


@given(st.integers(0, 10**6), st.sampled_from([1, 2]), st.sampled_from([0.05, 0.5, 1.0]))
@settings(max_examples=40, deadline=None)
def test_theorem_5_holds_for_grey_images(seed: int, r: int, contrast: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b = 1 - contrast * torch.rand(2, 6, 7, generator=generator, dtype=torch.float64)
    a[:, :2] = 0
    assert_theorem_5(a, b, r)


def test_grey_bound_is_not_vacuous_for_low_contrast() -> None:
    a, b = 1 - 0.01 * torch.rand(2, 12, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    interval = shared_boundary_bounds(a, b, 1).similarity.value
    assert 0 < float(interval.high - interval.low) < 0.05


def test_empty_image_has_no_similarity() -> None:
    a, b = torch.zeros(6, 6), torch.ones(6, 6)
    with pytest.warns(UndefinedSimilarity, match="zero in x"):
        bounds = shared_boundary_bounds(a, b, 1)
    assert bounds.similarity.value.low.isnan().all()
    assert bounds.inner_product.value.high.item() == 0


def test_results_carry_their_evidence() -> None:
    bound = relu_conv_similarity_bounds(torch.tensor([0.5, -0.5, torch.nan]))
    assert bound.kind == "bound"
    assert bound.delta is None
    assert "Theorem 3" in bound.source
    assert "nu^2" in bound.note
    assert any("cyclic" in hypothesis for hypothesis in bound.assumes)
    assert bound.value.low.dtype == torch.float32
    assert bound.value.low.isnan().tolist() == [False, False, True]
    assert bound.to_dict()["value"]["high"][:2] == [0.75, 0.25]
    everything = shared_boundary_bounds(torch.ones(4, 4), torch.ones(4, 4), 1).to_dict()
    assert everything["squared_distance"]["value"] == {"low": 0.0, "high": 0.0}
    assert Bound(torch.ones(2), 0.05, assumes=("x",), source="here").to_dict()["value"] == [1.0, 1.0]
    assert Interval(torch.zeros(1), torch.ones(1)).contains(torch.tensor([0.5])).tolist() == [True]


@pytest.mark.parametrize("rho", [1.1, -1.0001, torch.tensor([0.0, 2.0])])
def test_similarity_outside_its_range_is_refused(rho: float | Tensor) -> None:
    with pytest.raises(BadInput, match=r"\[-1, 1\]"):
        relu_conv_similarity_bounds(rho)


def test_filter_larger_than_the_image_is_refused() -> None:
    with pytest.raises(BadInput, match="r <= 1"):
        shared_boundary_bounds(torch.ones(4, 9), torch.ones(4, 9), 2)
