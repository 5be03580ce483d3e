"""Biases of any law: exact second moments, and how good it is to take units with non-Gaussian biases as Gaussian."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from initscope.activations import Activation, by_name
from initscope.errors import BadInput
from initscope.layers import Activate, BatchNorm, Conv, Dense, GlobalMaxPool, Layer, ReLU
from initscope.layers.biases import Bias
from initscope.networks import Sequential, kernel, parse, predict
from initscope.networks.prediction import LayerGeometry
from initscope.weights import (
    Fans,
    Gaussian,
    Laplace,
    Logistic,
    Orthogonal,
    PyTorchDefault,
    Sparse,
    TruncatedNormal,
    Uniform,
)

LAWS: list[Bias] = [
    0.4,
    Gaussian(0.5, "out"),
    PyTorchDefault(),
    Uniform.of_bound(0.9),
    Laplace(0.2, "none"),
    Logistic(2.0, "mean"),
    TruncatedNormal(0.3, "none", cut=1.0),
]
biases = pytest.mark.parametrize("bias", LAWS, ids=lambda bias: getattr(bias, "name", str(bias)))


def inputs(*shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = torch.rand(shape, generator=generator, dtype=torch.float64) - 0.1
    return x, 0.6 * x + 0.5 * torch.rand(shape, generator=generator, dtype=torch.float64) - 0.2


def sampled(net: Layer, x: Tensor, y: Tensor, draws: int) -> Tensor:
    """|h(x)|², |h(y)|², |h(x) - h(y)|² of finite networks, (draws, 3, n)."""
    rows = []
    for seed in range(draws):
        module = net.sample(tuple(x.shape[1:]), generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
        rows.append(squares(module, x, y))
    return torch.stack(rows)


def squares(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        a, b = module(x).flatten(1), module(y).flatten(1)
    return torch.stack([a.square().sum(1), b.square().sum(1), (a - b).square().sum(1)])


def predicted(layer: LayerGeometry) -> tuple[Tensor, Tensor]:
    """The same three from theory, and their standard errors."""
    value = torch.stack([layer.norm_x, layer.norm_y, layer.distance])
    if layer.stderr is None:
        return value.square(), torch.zeros_like(value)
    stderr = torch.stack([layer.stderr[q] for q in ("norm_x", "norm_y", "distance")])
    return value.square(), 2 * value * stderr


def apart(layer: LayerGeometry, sample: Tensor) -> Tensor:
    """How many standard errors theory and sampled networks are apart."""
    expected, stderr = predicted(layer)
    spread = (sample.var(0) / len(sample) + stderr**2).sqrt()
    return (sample.mean(0) - expected).abs() / (spread + 1e-12 * expected)


@biases
@pytest.mark.parametrize(
    "layer",
    [
        lambda bias: Dense(16, bias=bias),
        lambda bias: Conv(12, padding="zero", bias=bias),
        lambda bias: Conv(12, groups=2, bias=bias),
    ],
    ids=["dense", "conv", "groups"],
)
def test_second_moments_are_exact_for_every_law(layer: type[Dense], bias: Bias) -> None:
    x, y = inputs(3, 12) if isinstance(layer(bias), Dense) else inputs(3, 4, 5, 5)
    exact = predict(layer(bias), x, y).layers[-1]
    assert apart(exact, sampled(layer(bias), x, y, 400)).max() < 4


def test_a_number_is_the_deviation_of_gaussian_biases() -> None:
    x, y = inputs(3, 12)
    one, two = (Sequential(Dense(16, bias=bias), ReLU()) for bias in (0.3, Gaussian.of_deviation(0.3)))
    assert torch.equal(sampled(one, x, y, 2), sampled(two, x, y, 2))
    assert torch.equal(predict(one, x, y).layers[-1].defect, predict(two, x, y).layers[-1].defect)
    assert predict(one, x, y).layers[-1].method == "exact"
    assert Dense(16).bias_law is None
    assert Dense(16, bias=1e-200).bias_law is None


@pytest.mark.parametrize("groups", [1, 3])
def test_the_default_is_that_of_pytorch(groups: int) -> None:
    """Biases of fresh modules: same bound, same variance, judged by what PyTorch draws."""
    with torch.random.fork_rng():
        torch.manual_seed(8)
        theirs = torch.cat([nn.Conv2d(12, 24, 3, groups=groups).bias.detach() for _ in range(200)]).double()
    layer = Conv(24, groups=groups, bias=PyTorchDefault())
    generator = torch.Generator().manual_seed(2)
    modules = [layer.sample((12, 5, 5), generator=generator, dtype=torch.float64) for _ in range(200)]
    ours = torch.cat([dict(module.named_parameters())["bias"].detach() for module in modules])
    fans = Fans(12 // groups, 24 // groups, 9)
    law = layer.bias_law
    assert law is not None
    for biases in (theirs, ours):
        assert 0.99 < biases.abs().max() * math.sqrt(fans.fan_in) <= 1
        stderr = biases.square().std() / math.sqrt(len(biases))
        assert (biases.square().mean() - law.variance(fans)).abs() < 4 * stderr


def test_depthwise_layers_draw_their_biases() -> None:
    """Their units are drawn, not taken as Gaussian, and so are the biases."""
    x, y = inputs(1, 2, 3, 3)
    net = Sequential(Conv(16), ReLU(), Conv(16, groups=16, bias=Uniform.of_bound(2.0)), ReLU())
    layer = predict(net, x, y).layers[-1]
    assert layer.method == "simulated"
    assert apart(layer, sampled(net, x, y, 400)).max() < 4


def test_units_are_drawn_with_the_true_bias() -> None:
    """Where a later layer is simulated, the bias is not taken as Gaussian: tanh of a maximum tells a Laplace one from it."""
    x, y = inputs(2, 3, 4, 4)
    laplace, gaussian = (
        Sequential(Conv(32, bias=b), GlobalMaxPool(), Activate(by_name("tanh"))) for b in (Laplace(9.0, "none"), 3.0)
    )
    sample = sampled(laplace, x, y, 400)
    assert apart(predict(laplace, x, y).layers[-1], sample).max() < 4
    assert apart(predict(gaussian, x, y).layers[-1], sample).max() > 8


def test_batch_norm_takes_the_bias_away() -> None:
    x, y = inputs(4, 12)
    plain, biased = (
        predict(Sequential(Dense(64, bias=b), BatchNorm(0.0), ReLU()), x, y) for b in (0.0, PyTorchDefault())
    )
    torch.testing.assert_close(plain.layers[-1].defect, biased.layers[-1].defect, rtol=1e-10, atol=0)


@pytest.mark.parametrize(
    "text",
    [
        "3x(dense(32, init=pytorch, bias=pytorch) relu) dense(10, bias=laplace_fixed(0.1))",
        "conv3(8, bias=pytorch) relu gap",
    ],
)
def test_the_fused_kernel_knows_the_biases(text: str) -> None:
    x, y = inputs(3, 12) if text[0] == "3" else inputs(3, 4, 5, 5)
    net = parse(text)
    cosine = kernel(net, torch.cat([x, y]), quantity="cosine").diagonal(3)
    torch.testing.assert_close(cosine, predict(net, x, y).layers[-1].cosine, rtol=0, atol=1e-9)


# From here on: how good is the Gaussian stand-in?


def mixture(f: Activation, A: float, B: float, D: float, law: Uniform, fans: Fans) -> tuple[float, float, float]:
    """E f(u)², E f(v)², E (f(u) - f(v))² for u, v = Gaussian + uniform bias: Gauss-Legendre over the bias, f shifted by it."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    bound = math.sqrt(3 * law.variance(fans))
    a, b, d = (torch.tensor(v, dtype=torch.float64) for v in (A, B, D))
    totals = np.zeros(3)
    for node, weight in zip(nodes, weights, strict=True):
        shift = float(node) * bound
        shifted = Activation.from_function(lambda z, s=shift: f.fn(z + s), kinks=tuple(k - shift for k in f.kinks))
        values = (shifted.second_moment(a), shifted.second_moment(b), shifted.distance(a, b, d))
        totals += weight / 2 * np.array([float(v) for v in values])
    return float(totals[0]), float(totals[1]), float(totals[2])


def stand_in(f: Activation, A: float, B: float, D: float, variance: float) -> tuple[float, float, float]:
    a, b, d = (torch.tensor(v, dtype=torch.float64) for v in (A + variance, B + variance, D))
    return float(f.second_moment(a)), float(f.second_moment(b)), float(f.distance(a, b, d))


def defect(A: float, B: float, D: float) -> float:
    return (D - (math.sqrt(A) - math.sqrt(B)) ** 2) / (2 * math.sqrt(A * B))


@pytest.mark.parametrize("name", ["relu", "abs", "tanh", "gelu"])
@pytest.mark.parametrize("size", [0.1, 1.0, 10.0])
def test_the_error_reported_covers_the_error_made(name: str, size: float) -> None:
    """One layer, biases of a tenth to ten times the size of the rest, inputs at right angles."""
    x, y = math.sqrt(12) * torch.eye(12, dtype=torch.float64)[:2, None]
    law, fans = Uniform(size, "none"), Fans(12, 64)
    net = Sequential(Dense(64, Gaussian(1.0), law), Activate(by_name(name)))
    layer = predict(net, x, y).layers[-1]
    exact = mixture(by_name(name), 1.0, 1.0, 2.0, law, fans)
    ours = [float(q) ** 2 / 64 for q in (layer.norm_x, layer.norm_y, layer.distance)]
    made = [abs(one / two - 1) for one, two in zip(ours, exact, strict=True)]
    assert layer.method == "approximate"
    assert "biases are taken as Gaussian of the same variance" in predict(net, x, y).layers[1].note
    assert max(made) <= layer.error
    assert max(made) > (0.3 if (name, size) == ("tanh", 10.0) else 1e-5)
    if name in ("relu", "abs"):  # E f(u)² is a multiple of E u² for every symmetric law
        assert max(made[:2]) < 1e-10


def test_the_error_vanishes_with_the_share_of_the_bias() -> None:
    """κ = -1.2 (β²/A')² of uniform biases, over √8."""
    x, y = math.sqrt(12) * torch.eye(12, dtype=torch.float64)[:2, None]
    for size in (1e-3, 1.0):
        layer = predict(Sequential(Dense(64, Gaussian(1.0), Uniform(size, "none"))), x, y).layers[-1]
        assert layer.error == pytest.approx(1.2 * (size / (1 + size)) ** 2 / math.sqrt(8), rel=1e-9)


@pytest.mark.parametrize(("name", "most"), [("relu", 0.03), ("tanh", 0.006)])
def test_eight_layers_of_pytorch_defaults(name: str, most: float) -> None:
    """Width 50, where biases soon outweigh the rest: cosines are right to 0.002, 1 - cosine to 3 % (tanh: 0.6 %)."""
    f, law, fans = by_name(name), PyTorchDefault(), Fans(50, 50)
    beta = law.variance(fans)
    true = ours = (1.0, 0.7, 1.7)  # inputs at right angles
    relative, absolute = [], []
    for _ in range(8):
        true = mixture(f, *(s / 3 for s in true), law, fans)
        ours = stand_in(f, *(s / 3 for s in ours), beta)
        relative.append(abs(defect(*ours) / defect(*true) - 1))
        absolute.append(abs(defect(*ours) - defect(*true)))
    assert max(absolute) < 0.002
    assert most / 3 < max(relative) < most
    x = torch.zeros(1, 50, dtype=torch.float64)
    y = x.clone()
    x[0, 0], y[0, 1] = math.sqrt(50), math.sqrt(0.7 * 50)
    net = parse(f"8x(dense(50, init=pytorch, bias=pytorch) {name})")
    assert float(predict(net, x, y).layers[-1].defect) == pytest.approx(defect(*ours), rel=1e-6)


def test_fresh_pytorch_networks() -> None:
    """Six layers of nn.Linear(256, 256) and ReLU as PyTorch makes them, 250 networks: norms exact, cosines to 0.003."""
    x = torch.zeros(1, 256, dtype=torch.float64)
    y = x.clone()
    x[0, :128], y[0, 128:] = 1.0, 1.0
    layers = 6
    rows = []
    with torch.random.fork_rng():
        torch.manual_seed(9)
        for _ in range(250):
            a, b = x, y
            row = []
            for _ in range(layers):
                linear = nn.Linear(256, 256, dtype=torch.float64)
                with torch.no_grad():
                    a, b = linear(a).relu(), linear(b).relu()
                row.append(torch.cat([a.square().sum(1), b.square().sum(1), (a - b).square().sum(1)]))
            rows.append(torch.stack(row))
    mean = torch.stack(rows).mean(0)
    stderr = torch.stack(rows).std(0) / math.sqrt(len(rows))
    prediction = predict(parse(f"{layers}x(dense(256, init=pytorch, bias=pytorch) relu)"), x, y)
    for i, layer in enumerate(prediction.layers[2::2]):
        expected, _ = predicted(layer)
        assert ((mean[i, :2] - expected[:2, 0]).abs() < 4 * stderr[i, :2]).all()
        measured = 1 - defect(*mean[i].tolist())
        assert abs(float(layer.cosine) - measured) < 0.003
        assert layer.method == "approximate"


@pytest.mark.parametrize(
    "make", [lambda bias: Dense(8, bias=bias), lambda bias: Conv(8, bias=bias)], ids=["dense", "conv"]
)
@pytest.mark.parametrize(
    ("bias", "problem"),
    [
        ("pytorch", "bias is 'pytorch', expected a number or a law of independent weights"),
        (None, "bias is None"),
        (Orthogonal(), "bias is Orthogonal(scale=2.0)"),
        (Sparse(), "bias is Sparse("),
        (-0.1, "bias is -0.1, expected a number of at least 0"),
        (True, "bias is True"),
        (math.nan, "bias is nan"),
        (1e200, "scale is inf"),
    ],
    ids=str,
)
def test_bad_biases_are_named(make: type[Dense], bias: Bias, problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        make(bias)
    assert problem in caught.value.problem
