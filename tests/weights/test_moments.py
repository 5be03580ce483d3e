"""Absolute moments of one weight, and k1, k2, k4 of DC's Definition 1, by quadrature and from draws."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
import pytest
import torch
from torch import Tensor

from initscope.errors import BadInput, NoExactForm
from initscope.weights import (
    DeltaOrthogonal,
    Fans,
    Gaussian,
    Independent,
    Laplace,
    Logistic,
    Orthogonal,
    Sparse,
    TapCovariance,
    TruncatedNormal,
    Uniform,
    WeightLaw,
    ZeroSum,
    by_name,
)
from weights.shapes import Shape, assert_mean, draws

SHAPE = Shape(12, 4, (3, 3), groups=2)
TAPS = torch.diag(torch.arange(1.0, 10.0, dtype=torch.float64))
LAWS: list[WeightLaw] = [
    Gaussian(1.7, "out"),
    Uniform(1 / 3),
    Logistic(1.2),
    Laplace(0.8),
    TruncatedNormal(2.0),
    TruncatedNormal(2.0, "mean", cut=0.5),
    Sparse(0.5),
    Sparse.of_parent(0.5, 0.3),
    Orthogonal(1.5),
    DeltaOrthogonal(0.7),
    ZeroSum(1.3),
    ZeroSum(1.3, "channel"),
    TapCovariance(TAPS, 1.1),
]
laws = pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)


@laws
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_moments_of_the_weights_drawn(law: WeightLaw, order: int) -> None:
    weights = draws(law, SHAPE, 1000).flatten(1)
    assert_mean((weights.abs() ** order).mean(1), law.absolute_moment(order, SHAPE.fans))


@laws
def test_the_second_moment_is_the_variance(law: WeightLaw) -> None:
    assert law.absolute_moment(2, SHAPE.fans) == pytest.approx(law.variance(SHAPE.fans), rel=1e-12)


Density = Callable[[mp.mpf], mp.mpf]
DENSITIES: dict[str, tuple[Independent, Density, float]] = {
    "gaussian": (Gaussian(1.0, "none"), lambda z: mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi), math.inf),
    "uniform": (Uniform(1.0, "none"), lambda z: 1 / mp.sqrt(12), math.sqrt(3)),
    "laplace": (Laplace(1.0, "none"), lambda z: mp.exp(-mp.sqrt(2) * z) / mp.sqrt(2), math.inf),
    "logistic": (
        Logistic(1.0, "none"),
        lambda z: mp.pi / mp.sqrt(48) / mp.cosh(mp.pi * z / mp.sqrt(12)) ** 2,
        math.inf,
    ),
}


@pytest.mark.parametrize("kind", DENSITIES)
@pytest.mark.parametrize("order", [1, 2, 3, 4, 6, 20])
def test_moments_by_quadrature(kind: str, order: int) -> None:
    law, density, end = DENSITIES[kind]
    points = [0, end] if end < math.inf else [0, 1, 4, 16, 64, mp.inf]
    expected = 2 * mp.quad(lambda z: z**order * density(z), points)
    assert law.standard_moment(order) == pytest.approx(float(expected), rel=1e-12)
    assert law.absolute_moment(order, Fans(3, 5)) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("cut", [0.001, 0.3, 1.0, 2.0, 6.0, 100.0])
def test_truncated_moments_by_quadrature(cut: float) -> None:
    """The variance of the cut law, of which PyTorch's convention makes Var(w), and its higher moments."""
    parent = TruncatedNormal.of_parent(0.5, bound=0.5 * cut)
    points = sorted({0.0, *(min(cut, p) for p in (0.5, 2.0, 8.0, 30.0))})
    mass = mp.quad(lambda z: mp.exp(-z * z / 2), points)
    for order in (1, 2, 4, 6):
        moment = mp.quad(lambda z, m=order: z**m * mp.exp(-z * z / 2), points) / mass
        assert parent.absolute_moment(order, Fans(2, 3)) == pytest.approx(
            float(moment * mp.mpf(0.5) ** order), rel=1e-12
        )
    variance = float(mp.quad(lambda z: z**2 * mp.exp(-z * z / 2), points) / mass)
    assert parent.variance(Fans(2, 3)) == pytest.approx(variance / 4, rel=1e-12)
    assert TruncatedNormal(2.0, cut=cut).variance(Fans(10, 3)) == 0.2


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 7), (7, 3), (4, 36), (64, 9), (1, 5), (3000, 1000)])
def test_orthogonal_moments_by_quadrature(rows: int, columns: int) -> None:
    """One coordinate of a uniform point on the sphere of d dimensions has the density ~ (1 - w²)^((d-3)/2)."""
    size = max(rows, columns)
    moments = Orthogonal(1.5).moments(Fans(columns, rows))

    def integral(order: int) -> mp.mpf:  # w = sin θ
        return mp.quad(lambda t: mp.sin(t) ** order * mp.cos(t) ** (size - 2), [0, 3 / mp.sqrt(size), mp.pi / 2])

    for order, k in ((1, moments.k1), (2, moments.k2), (4, moments.k4)):
        expected = integral(order) / integral(0) / 2 * mp.mpf(1.5) ** (mp.mpf(order) / 2)
        assert k == pytest.approx(float(expected), rel=1e-11)


def test_a_sphere_of_one_dimension_has_two_points() -> None:
    moments = Orthogonal(4.0).moments(Fans(1, 1))
    assert (moments.k1, moments.k2, moments.k4) == pytest.approx((1.0, 2.0, 8.0), rel=1e-14)
    assert pytest.approx(1.0, rel=1e-14) == moments.K1
    assert pytest.approx(1.0, rel=1e-14) == moments.K2


def test_gaussian_constants_are_those_of_the_paper() -> None:
    moments = Gaussian(0.5, "none").moments(Fans(3, 64, 9))
    deviation = math.sqrt(0.5)
    expected = (deviation / math.sqrt(2 * math.pi), deviation**2 / 2, 3 * deviation**4 / 2)
    assert (moments.k1, moments.k2, moments.k4) == pytest.approx(expected, rel=1e-14)
    assert pytest.approx(math.pi - 1, rel=1e-14) == moments.K1
    assert pytest.approx(5.0, rel=1e-14) == moments.K2


def test_orthogonal_filters_vary_less_and_become_gaussian() -> None:
    sizes = [2, 8, 32, 128, 10**4, 10**6]
    each = [Orthogonal().moments(Fans(size, 1)) for size in sizes]
    ones, twos = [m.K1 for m in each], [m.K2 for m in each]
    assert ones == sorted(ones)
    assert twos == sorted(twos)
    assert ones[-1] == pytest.approx(math.pi - 1, rel=1e-5)
    assert twos[-1] == pytest.approx(5.0, rel=1e-5)


def relu_moments(law: WeightLaw, shape: Shape, direction: Tensor) -> Tensor:
    """ReLU(wy)^m, m = 1, 2, 4, averaged over the filters of each of many draws: (draws, 3)."""
    filters = draws(law, shape, 4000).flatten(2)
    response = (filters @ direction).relu()
    return torch.stack([(response**m).mean(1) for m in (1, 2, 4)], 1)


@pytest.mark.parametrize("shape", [Shape(6, 9), Shape(12, 3), Shape(4, 2, (2, 1))], ids=str)
@pytest.mark.parametrize("law", [Gaussian(2.0), Orthogonal(2.0)], ids=lambda law: law.name)
def test_isotropic_filters_see_only_the_length_of_a_patch(law: WeightLaw, shape: Shape) -> None:
    """E ReLU(wy)^m = k_m |y|^m for every y (DC Lemma 5)."""
    k = law.moments(shape.fans)
    size = shape.fans.fan_in
    along, across = torch.eye(size, dtype=torch.float64)[0], torch.linspace(-1, 2, size, dtype=torch.float64)
    for direction in (along, across):
        length = direction.norm()
        expected = torch.stack([k.k1 * length, k.k2 * length**2, k.k4 * length**4])
        assert_mean(relu_moments(law, shape, direction), expected)


@pytest.mark.parametrize("law", [Laplace(2.0), Uniform(2.0)], ids=lambda law: law.name)
def test_filters_of_other_shapes_see_more(law: WeightLaw) -> None:
    """Why their k is refused: by the direction of y, E ReLU(wy) differs by many standard errors."""
    shape = Shape(24, 4)
    along = torch.eye(4, dtype=torch.float64)[0]
    one, two = (relu_moments(law, shape, y)[:, 0] for y in (along, torch.full((4,), 0.5, dtype=torch.float64)))
    stderr = (one.var() / len(one) + two.var() / len(two)).sqrt()
    assert (one.mean() - two.mean()).abs() > 8 * stderr


@laws
def test_only_isotropic_laws_have_k(law: WeightLaw) -> None:
    if law.isotropic:
        assert law.moments(SHAPE.fans).k2 == pytest.approx(law.variance(SHAPE.fans) / 2, rel=1e-12)
        return
    with pytest.raises(NoExactForm, match="isotropic") as caught:
        law.moments(SHAPE.fans)
    assert "Gaussian or Orthogonal" in caught.value.remedy


@laws
def test_orders_are_whole_numbers(law: WeightLaw) -> None:
    for order in (0, -2, 1.5, 51, True):
        with pytest.raises(BadInput, match="expected a whole number from 1 to 50"):
            law.absolute_moment(order, SHAPE.fans)  # type: ignore[arg-type]
    assert math.isfinite(law.absolute_moment(50, SHAPE.fans))


def test_a_law_of_ones_own_need_not_know_its_moments() -> None:
    class Constant(WeightLaw):
        name = "signs"
        gaussian = False

        def variance(self, fans: Fans) -> float:
            return 1.0

        def sample(self, shape: tuple[int, ...], fans: Fans, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
            return torch.randint(0, 2, shape, generator=generator).to(dtype) * 2 - 1

    with pytest.raises(NoExactForm, match="signs: the absolute moments of this law are not known"):
        Constant().absolute_moment(2, Fans(1, 1))


def test_the_parameters_of_dc() -> None:
    """DC A.1.2: the four laws do not have one variance, and two of its sentences cannot be meant as printed."""
    deviations = {kind: math.sqrt(by_name(f"dc_{kind}").variance(Fans(64, 64, 9))) for kind in DENSITIES}
    assert deviations == pytest.approx(
        {
            "gaussian": 0.015,
            "uniform": 0.04 / math.sqrt(3),
            "logistic": 0.015 * math.pi / math.sqrt(3),
            "laplace": 0.015 * math.sqrt(2),
        },
        rel=1e-12,
    )
    # "[-0.04, 0.04], such that the interval equals [-3δ, 3δ]" with δ = 0.015 would be ±0.045.
    assert 3 * deviations["gaussian"] == pytest.approx(0.045)
    # "a small variance around 0.015" with δ = 0.015 is a deviation: as a variance, squared norms would grow 4.3 times in every
    # ReLU layer of 64 channels, where they shrink to 0.065 of themselves with the deviation.
    as_variance = Gaussian(0.015, "none")
    assert math.sqrt(as_variance.scale) / deviations["gaussian"] == pytest.approx(8.165, abs=1e-3)
    assert as_variance.gain(Fans(64, 64, 9)) / 2 == pytest.approx(4.32, rel=1e-12)
    assert by_name("dc_gaussian").gain(Fans(64, 64, 9)) / 2 == pytest.approx(0.0648, rel=1e-12)
