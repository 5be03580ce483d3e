"""Weight laws: what they say about their second moments, against the weights that they draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from initscope.errors import BadInput
from initscope.weights import (
    DeltaOrthogonal,
    Fan,
    Fans,
    Gaussian,
    He,
    Orthogonal,
    TapCovariance,
    Uniform,
    WeightLaw,
    ZeroSum,
    by_name,
)

DRAWS = 400
NAMES = (
    "he", "he_fan_out", "he_geometric", "he_uniform", "glorot", "glorot_uniform", "lecun", "pytorch", "orthogonal",
    "delta_orthogonal", "zero_sum", "zero_sum_channel",
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A layer's weights: `outputs` filters in `groups`, each over `inputs` channels of its group."""

    outputs: int
    inputs: int
    kernel: tuple[int, ...] = ()
    groups: int = 1

    @property
    def fans(self) -> Fans:
        return Fans(self.inputs, self.outputs // self.groups, math.prod(self.kernel))

    @property
    def weights(self) -> tuple[int, ...]:
        return (self.outputs, self.inputs, *self.kernel)

    def __str__(self) -> str:
        return f"{self.outputs}x{self.inputs}x{self.kernel}/{self.groups}"


DENSE = [Shape(24, 10), Shape(8, 20), Shape(12, 12)]
CONV = [
    Shape(24, 3, (2, 3)),
    Shape(24, 3, (3, 2), groups=3),
    Shape(6, 3, (3, 3)),
    Shape(12, 1, (3, 3), groups=12),
    Shape(12, 4, (1, 1), groups=2),
]


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
        Uniform(1 / 3),
        Uniform(2.0, "out"),
        Orthogonal(1.5),
        ZeroSum(1.3),
    ]
    if shape.kernel:
        taps = decaying_taps(shape.kernel)
        laws += [DeltaOrthogonal(0.7), ZeroSum(0.9, over="channel"), TapCovariance(taps, 1.1)]
    return laws


cases = pytest.mark.parametrize(
    ("law", "shape"), [pytest.param(law, s, id=f"{law.name}-{s}") for s in DENSE + CONV for law in laws_for(s)]
)


def draw(law: WeightLaw, shape: Shape, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return law.sample(shape.weights, shape.fans, torch.Generator().manual_seed(seed), dtype)


def draws(law: WeightLaw, shape: Shape, count: int = DRAWS) -> Tensor:
    """Independent weight tensors, (count, *shape), from one stream."""
    generator = torch.Generator().manual_seed(11)
    return torch.stack([law.sample(shape.weights, shape.fans, generator, torch.float64) for _ in range(count)])


def assert_mean(samples: Tensor, expected: Tensor | float, errors: float = 4) -> None:
    """The mean over the first axis agrees to within standard errors, or to rounding where nothing varies."""
    stderr = samples.std(0) / math.sqrt(len(samples))
    scale = samples.abs().amax()
    assert bool(((samples.mean(0) - expected).abs() <= errors * stderr + 1e-13 * scale).all())


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
@pytest.mark.parametrize(("law", "kurtosis"), [(Gaussian, 3.0), (Uniform, 9 / 5)])
def test_the_fourth_moment_tells_gaussian_from_uniform(
    law: Callable[[float, Fan], WeightLaw], kurtosis: float, fan: Fan
) -> None:
    shape = Shape(12, 4, (3, 3), groups=2)
    weights = draws(law(2.0, fan), shape).flatten(1)
    variance = law(2.0, fan).variance(shape.fans)
    assert_mean((weights**4).mean(1), kurtosis * variance**2)
    assert law(2.0, fan).gaussian == (kurtosis == 3)
    if kurtosis < 3:
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


@pytest.mark.parametrize("name", NAMES)
def test_every_name_draws_weights(name: str) -> None:
    shape = Shape(6, 4, (3, 3))
    law = by_name(name)
    assert_mean(draws(law, shape).flatten(1).square().mean(1), law.variance(shape.fans))
    assert by_name(name).name == law.name


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("delta_ortogonal", "delta_orthogonal"),
        ("Glorot", "glorot"),
        ("zerosum", "zero_sum"),
        ("he_fanout", "he_fan_out"),
    ],
)
def test_an_unknown_name_gets_a_near_suggestion(name: str, near: str) -> None:
    with pytest.raises(BadInput) as caught:
        by_name(name)
    assert repr(name) in caught.value.problem
    assert caught.value.remedy.startswith("did you mean")
    assert near in caught.value.remedy.removesuffix("?").removeprefix("did you mean ").split(", ")


def test_a_name_like_no_other_gets_the_list() -> None:
    with pytest.raises(BadInput) as caught:
        by_name("qqqqqq")
    assert caught.value.remedy == f"choose from {', '.join(sorted(NAMES))}"


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "law", [Gaussian, Uniform, Orthogonal, DeltaOrthogonal, ZeroSum, lambda s: TapCovariance(torch.eye(9), s)]
)
def test_a_scale_must_be_positive(law: Callable[[float], WeightLaw], scale: float) -> None:
    with pytest.raises(BadInput, match=f"scale is {scale}"):
        law(scale)


def test_what_is_no_covariance_is_refused() -> None:
    lopsided = torch.eye(4)
    lopsided[0, 1] = 0.5
    indefinite = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    for matrix in (torch.eye(4)[:3], torch.ones(4)):
        with pytest.raises(BadInput, match="pass a square"):
            TapCovariance(matrix)
    for matrix in (lopsided, indefinite):
        with pytest.raises(BadInput, match="no covariance"):
            TapCovariance(matrix)
    with pytest.raises(BadInput, match="the matrix has 4 taps, the 3x3 filter 9"):
        TapCovariance(torch.eye(4)).taps((3, 3))
    with pytest.raises(BadInput, match="over is 'taps'"):
        ZeroSum(over="taps")


def test_a_singular_tap_covariance_ties_its_taps() -> None:
    weights = draw(TapCovariance(torch.ones(4, 4)), Shape(6, 2, (2, 2))).flatten(2)
    # The root of a singular matrix is exact to the root of the rounding.
    assert (weights - weights[:, :, :1]).abs().max() < 1e-7 * weights.abs().max()
