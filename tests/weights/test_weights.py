"""Weight laws: what they say about their second moments, against the weights that they draw."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from initscope.weights import (
    DeltaOrthogonal,
    Fan,
    Fans,
    Gaussian,
    He,
    Independent,
    Laplace,
    Logistic,
    Orthogonal,
    PyTorchDefault,
    Sparse,
    TapCovariance,
    TruncatedNormal,
    Uniform,
    WeightLaw,
    ZeroSum,
    by_name,
)
from weights.shapes import CONV, DENSE, DRAWS, Shape, assert_mean, draw, draws


def decaying_taps(kernel: tuple[int, ...]) -> Tensor:
    """Unequal variances and correlated taps."""
    i = torch.arange(float(math.prod(kernel)), dtype=torch.float64)
    size = 1 + i / len(i)
    return torch.exp(-(i[:, None] - i).abs() / 2) * size[:, None] * size


def laws_for(shape: Shape) -> list[WeightLaw]:
    laws: list[WeightLaw] = [
        Gaussian(1.7),
        Gaussian(1.0, "mean"),
        He("out"),
        He("geometric", 0.5),
        Gaussian.of_deviation(0.015),
        PyTorchDefault(),
        Uniform(2.0, "out"),
        Uniform.of_bound(0.04),
        Logistic(1.2),
        Logistic.of_width(0.015),
        Laplace(0.8, "mean"),
        Laplace.of_width(0.015),
        TruncatedNormal(2.0),
        TruncatedNormal(1.0, "geometric", cut=0.7),
        TruncatedNormal.of_parent(0.5, bound=1.2),
        Orthogonal(1.5),
        ZeroSum(1.3),
        *([Sparse(0.4), Sparse.of_parent(0.6, 0.3)] if shape.fans.outputs >= 6 else [Sparse(0.0, 1.5)]),
    ]
    if shape.kernel:
        taps = decaying_taps(shape.kernel)
        laws += [DeltaOrthogonal(0.7), ZeroSum(0.9, over="channel"), TapCovariance(taps, 1.1)]
    return laws


cases = pytest.mark.parametrize(
    ("law", "shape"), [pytest.param(law, s, id=f"{law.name}-{s}") for s in DENSE + CONV for law in laws_for(s)]
)


def filter_covariance(law: WeightLaw, shape: Shape) -> Tensor:
    """What `gain`, `taps` and `centres_filters` say of a filter's covariance, (fan_in, fan_in)."""
    fans = shape.fans
    taps = law.taps((shape.kernel[0], shape.kernel[1])) if shape.kernel else None
    if taps is None:
        taps = torch.ones(fans.taps, dtype=torch.float64)
    inner = torch.diag(taps) if taps.ndim == 1 else taps
    whole = torch.block_diag(*[inner] * fans.inputs)
    if law.centres_filters:
        whole = whole - 1 / fans.fan_in
    return law.gain(fans) / fans.fan_in * whole


@cases
def test_the_mean_square_of_the_weights_is_the_variance(law: WeightLaw, shape: Shape) -> None:
    weights = draws(law, shape).flatten(1)
    assert_mean(weights.square().mean(1), law.variance(shape.fans))
    assert_mean(weights.mean(1), 0.0)


@cases
def test_the_covariance_of_a_filter_is_what_gain_and_taps_say(law: WeightLaw, shape: Shape) -> None:
    filters = draws(law, shape).flatten(2)  # (draws, out, fan_in)
    products = torch.einsum("rfi,rfj->rij", filters, filters) / shape.outputs
    # Hundreds of entries in each of many cases: five standard errors are passed by chance once in a million.
    assert_mean(products, filter_covariance(law, shape), errors=5)


@cases
def test_variance_is_the_mean_of_the_diagonal(law: WeightLaw, shape: Shape) -> None:
    diagonal = filter_covariance(law, shape).diagonal()
    assert law.variance(shape.fans) == pytest.approx(diagonal.mean().item(), rel=1e-12, abs=1e-15)


@cases
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_seed_decides_the_weights(law: WeightLaw, shape: Shape, dtype: torch.dtype) -> None:
    first = draw(law, shape, 3, dtype)
    assert first.shape == shape.weights
    assert first.dtype == dtype
    assert torch.equal(first, draw(law, shape, 3, dtype))
    empty = law.variance(shape.fans) == 0
    assert torch.equal(first, draw(law, shape, 4, dtype)) == empty


@cases
def test_the_global_random_source_is_left_alone(law: WeightLaw, shape: Shape) -> None:
    before = torch.get_rng_state()
    draw(law, shape)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", DENSE + CONV, ids=str)
def test_zero_sum_filters_sum_to_zero(shape: Shape, dtype: torch.dtype) -> None:
    rounding = torch.finfo(dtype).eps * shape.fans.fan_in
    whole = draw(ZeroSum(), shape, dtype=dtype)
    assert whole.flatten(1).sum(1).abs().max() <= rounding * whole.abs().max()
    if shape.kernel:
        each = draw(ZeroSum(over="channel"), shape, dtype=dtype)
        assert each.flatten(2).sum(2).abs().max() <= rounding * each.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", DENSE + CONV, ids=str)
def test_orthogonal_blocks_have_orthonormal_rows_or_columns(shape: Shape, dtype: torch.dtype) -> None:
    for block in draw(Orthogonal(1.5), shape, dtype=dtype).flatten(1).chunk(shape.groups):
        rows, columns = block.shape
        gram = block @ block.T if rows <= columns else block.T @ block
        tolerance = 20 * torch.finfo(dtype).eps
        torch.testing.assert_close(gram, 1.5 * torch.eye(len(gram), dtype=dtype), rtol=0, atol=tolerance)


@pytest.mark.parametrize("kernel", [(3, 3), (1, 1), (4, 2), (5, 3)], ids=str)
@pytest.mark.parametrize("groups", [1, 3])
def test_delta_orthogonal_filters_have_a_centre_only(kernel: tuple[int, int], groups: int) -> None:
    shape = Shape(24, 4, kernel, groups)
    weights = draw(DeltaOrthogonal(0.7), shape)
    row, column = (kernel[0] - 1) // 2, (kernel[1] - 1) // 2
    centre = weights[:, :, row, column].clone()
    weights[:, :, row, column] = 0
    assert bool((weights == 0).all())
    for block in centre.chunk(groups):  # taller than wide
        torch.testing.assert_close(block.T @ block, 0.7 * torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-14)


def test_a_delta_orthogonal_layer_acts_on_each_pixel_alone() -> None:
    """With as many channels out as in it keeps the norm of every pixel under circular padding."""
    shape = Shape(5, 5, (3, 3))
    conv = nn.Conv2d(5, 5, 3, padding=1, padding_mode="circular", bias=False, dtype=torch.float64)
    conv.weight.data = draw(DeltaOrthogonal(1.0), shape)
    x = torch.randn(2, 5, 4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(conv(x).square().sum(1), x.square().sum(1), rtol=1e-12, atol=0)


def test_orthogonal_matrices_are_uniform_over_the_group() -> None:
    """Moments of the uniform law on O(n): E q = 0, E q⁴ = 3/(n(n+2)), E (tr Q)² = 1, E (tr Q)⁴ = 3 for n >= 4."""
    n = 6
    q = draws(Orthogonal(1.0), Shape(n, n), 3000)
    trace = q.diagonal(dim1=1, dim2=2).sum(1)
    assert_mean(q, 0.0)
    assert_mean(q**4, 3 / (n * (n + 2)))
    assert_mean(trace, 0.0)
    assert_mean(trace**2, 1.0)
    assert_mean(trace**4, 3.0)


@pytest.mark.parametrize("fan", ["in", "out", "mean", "geometric"])
@pytest.mark.parametrize(("law", "kurtosis"), [(Gaussian, 3.0), (Uniform, 9 / 5), (Logistic, 21 / 5), (Laplace, 6.0)])
def test_the_fourth_moment_tells_the_shapes_apart(
    law: Callable[[float, Fan], Independent], kurtosis: float, fan: Fan
) -> None:
    shape = Shape(12, 4, (3, 3), groups=2)
    weights = draws(law(2.0, fan), shape).flatten(1)
    variance = law(2.0, fan).variance(shape.fans)
    assert_mean((weights**4).mean(1), kurtosis * variance**2)
    assert law(2.0, fan).excess_kurtosis == pytest.approx(kurtosis - 3, abs=1e-13)
    assert law(2.0, fan).gaussian == (kurtosis == 3)
    if law is Uniform:
        assert weights.abs().max() <= math.sqrt(3 * variance)
        assert weights.abs().max() > 0.999 * math.sqrt(3 * variance)


@pytest.mark.parametrize(
    ("name", "initialise"),
    [
        ("he", lambda w: nn.init.kaiming_normal_(w)),
        ("he_fan_out", lambda w: nn.init.kaiming_normal_(w, mode="fan_out")),
        ("he_uniform", lambda w: nn.init.kaiming_uniform_(w)),
        ("glorot", lambda w: nn.init.xavier_normal_(w)),
        ("glorot_uniform", lambda w: nn.init.xavier_uniform_(w)),
        ("lecun", lambda w: nn.init.kaiming_normal_(w, nonlinearity="linear")),
        ("pytorch", lambda w: nn.init.kaiming_uniform_(w, a=math.sqrt(5))),
    ],
)
def test_named_laws_are_those_of_pytorch(name: str, initialise: Callable[[Tensor], Tensor]) -> None:
    """Same variance and same kind of law, judged by the weights that torch.nn.init draws."""
    shape = Shape(64, 20, (3, 3))
    with torch.random.fork_rng():
        torch.manual_seed(7)
        theirs = torch.stack([initialise(torch.empty(shape.weights, dtype=torch.float64)).flatten() for _ in range(40)])
    assert_mean(theirs.square().mean(1), by_name(name).variance(shape.fans))
    kurtosis = 3.0 if by_name(name).gaussian else 9 / 5
    assert_mean((theirs**4).mean(1), kurtosis * by_name(name).variance(shape.fans) ** 2)


def test_pytorch_is_the_default_of_a_convolution_with_groups() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(8)
        layers = [nn.Conv2d(12, 24, 3, groups=3, dtype=torch.float64) for _ in range(DRAWS)]
    squares = torch.stack([layer.weight.detach().square().mean() for layer in layers])
    assert_mean(squares, by_name("pytorch").variance(Shape(24, 4, (3, 3), 3).fans))


def test_he_geometric_lies_between_fan_in_and_fan_out() -> None:
    fans = Fans(6, 10, 9)
    product = by_name("he").variance(fans) * by_name("he_fan_out").variance(fans)
    assert by_name("he_geometric").variance(fans) ** 2 == pytest.approx(product, rel=1e-12)


def test_a_singular_tap_covariance_ties_its_taps() -> None:
    weights = draw(TapCovariance(torch.ones(4, 4)), Shape(6, 2, (2, 2))).flatten(2)
    # The root of a singular matrix is exact to the root of the rounding.
    assert (weights - weights[:, :, :1]).abs().max() < 1e-7 * weights.abs().max()
