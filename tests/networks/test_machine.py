"""Compiled steps beside the layer-by-layer path: the same numbers for every layer that has a step."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from initscope.activations import Activation
from initscope.errors import InexactIntegral
from initscope.layers import Activate, Conv, Dense, GlobalAveragePool
from initscope.networks import Sequential, kernel, kernel_estimate, kernel_with_error, parse, tangent_kernel
from initscope.networks.machine import Unknown, answer, unknown
from initscope.networks.stepping import Quantity

IMAGES = (
    "conv3 relu conv3 gelu gap",
    "conv3(padding=zero) erf conv3(padding=zero, stride=2) relu gap",
    "conv3(padding=valid) relu conv2(padding=valid, stride=2, bias=0.3) gelu gap dense relu dense",
    "conv3(padding=same) relu conv3(padding=same, stride=2) relu flatten dense",
    "conv3(dilation=2) gelu conv1x3 abs gap",
    "conv3(stride=2) gelu conv3 leaky_relu(0.2) gap",
    "conv3 2x(res(relu conv3)) gap",
    "conv3 res(gelu conv3, scale=0.5) erf conv1 gap",
    "conv3 cat(relu | gelu) conv3 gelu gap",
    "conv3 relu sum(conv3 gelu | conv1 relu) conv3 erf gap",
    "conv3 prod(conv3 erf | conv3 relu) conv3 gelu gap",
    "conv3 relu avgpool2 conv3 gelu gap",
    "conv3(padding=zero) relu avgpool3(stride=2) conv1x3 gelu flatten dense(bias=0.2)",
    "conv3 gelu avgpool2 conv3 relu avgpool2 conv1 erf gap dense gelu dense",
    "conv3(bias=0.1) ln relu conv3(bias=0.1) gn(2) gelu conv3 gap dense(bias=0.1) relu dense",
    "conv3 relu ln conv3 gelu ln(channels) conv3 relu gap",
    "conv3 gelu dropout(0.3) conv3 relu",
    "conv3(bias=pytorch) gelu conv3(init=lecun) scale(2) erf gap",
)
VECTORS = (
    "dense gelu dense erf dense",
    "dense(bias=0.3) res(gelu dense) ln relu dense cat(relu | erf) dense(init=lecun) gelu",
    "dense relu dropout(0.5) dense gelu ln dense",
)
SERIES = ("silu", "sigmoid", "softplus", "tanh")


def _inputs(text: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(len(text))
    shape = (7,) if text.startswith("dense") else (3, 6, 8)
    x = torch.randn(11, *shape, generator=g, dtype=torch.float64)
    x[1], x[2], x[3] = 0, 1e-2 * x[0], -x[0]
    return x.to(dtype), torch.randn(5, *shape, generator=g, dtype=torch.float64).to(dtype)


def _layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INITSCOPE_NO_NUMBA", "1")


def _off(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("text", IMAGES + VECTORS)
def test_products(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = parse(text, width=16)
    x, y = _inputs(text)
    assert unknown(net, x) is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InexactIntegral)
        whole, across, single = kernel(net, x), kernel(net, x, y), kernel(net, x.float())
        _layer_by_layer(monkeypatch)
        assert _off(whole, kernel(net, x)) < 1e-13
        assert _off(across, kernel(net, x, y)) < 1e-13
        assert _off(single.double(), kernel(net, x.float().double())) < 2e-6
    assert torch.equal(whole, whole.T)


@pytest.mark.parametrize("parametrization", ["ntk", "standard"])
@pytest.mark.parametrize("text", [t for t in IMAGES + VECTORS if "dropout" not in t])
def test_tangent_kernels(text: str, parametrization: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = parse(text, width=16)
    x, y = _inputs(text)
    whole = tangent_kernel(net, x, parametrization=parametrization)  # type: ignore[arg-type]
    across = tangent_kernel(net, x, y, parametrization=parametrization)  # type: ignore[arg-type]
    _layer_by_layer(monkeypatch)
    # Slopes of a kink know the angle of equal inputs to the root of rounding.
    assert _off(whole, tangent_kernel(net, x, parametrization=parametrization)) < 3e-8  # type: ignore[arg-type]
    assert _off(across, tangent_kernel(net, x, y, parametrization=parametrization)) < 3e-8  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SERIES)
def test_series(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = parse(f"conv3 {name} conv3 {name} gap", width=16)
    x, y = _inputs("conv3")
    found = kernel_with_error(net, x.float(), y.float())
    assert found.accuracy.method == "quadrature"
    _layer_by_layer(monkeypatch)
    expected = kernel(net, x.float().double(), y.float().double())
    assert _off(found.value.double(), expected) < found.accuracy.error + 1e-6


@pytest.mark.parametrize("name", ["elu", "selu"])
def test_series_with_a_kink_at_zero(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = parse(f"dense {name} dense", width=16)
    x, y = _inputs("dense")
    x, y = x.float(), y.float()
    found = kernel_with_error(net, x, y)
    tangent = answer(net, x, y, standard=False).tangent
    assert tangent is not None
    assert 0 < found.accuracy.error < 1e-5
    _layer_by_layer(monkeypatch)
    assert _off(found.value.double(), kernel(net, x.double(), y.double())) < found.accuracy.error + 1e-6
    assert _off(tangent.double(), tangent_kernel(net, x.double(), y.double())) < 1e-3


def test_many_inputs_are_answered_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and tiles that do not divide the number of inputs."""
    monkeypatch.setattr("initscope.networks.machine.running.PACK_BYTES", 1)
    net = parse("conv3 gelu conv3 relu avgpool2 conv1 gap", width=16)
    x = torch.randn(21, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole, across = answer(net, x).product, answer(net, x[:9], x[9:]).product
    assert torch.allclose(whole[:9, 9:], across, rtol=1e-13)
    monkeypatch.undo()
    assert torch.allclose(answer(net, x).product, whole, rtol=1e-13)


def test_norms_that_leave_float32_are_answered_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    net = parse("dense gelu dense gelu", width=16)
    x = 1e18 * torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    found = kernel(net, x)
    _layer_by_layer(monkeypatch)
    assert torch.allclose(found, kernel(net, x), rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("conv3(padding=reflect) gelu gap", "reflects its borders"),
        ("conv3(groups=3) gelu gap", "has groups"),
        ("conv3(init=zero_sum) gelu gap", "depend on each other"),
        ("conv3 sign gap", "no short series"),
        ("conv3(padding=zero) gelu conv3 gap", "another way"),
        ("conv3 up2 conv3 gelu gap", "no compiled step"),
    ],
)
def test_what_has_no_step_says_why(text: str, why: str) -> None:
    net = parse(text, width=6)
    x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(Unknown, match=why):
        answer(net, x)
    estimate = kernel_estimate(net, x)
    assert estimate.method == "tiles"
    assert why in estimate.why


def test_estimates_name_the_path() -> None:
    x = torch.randn(4, 3, 8, 8)
    assert kernel_estimate(parse("conv3 relu gap"), x).method == "fused"
    steps = kernel_estimate(parse("conv3 res(gelu conv3) gap"), x)
    assert (steps.method, steps.why) == ("steps", "every layer has a compiled step")
    tiles = kernel_estimate(parse("dense res(gelu dense)"), torch.randn(4, 5), memory=1 << 20)
    assert tiles.method == "tiles"
    assert "compiled steps need" in tiles.why


def test_a_function_of_the_user_takes_the_series(monkeypatch: pytest.MonkeyPatch) -> None:
    wave = Activation.from_function(lambda z: torch.sin(z) + 0.1 * z, name="wave")
    net = Sequential(Conv(8, kernel=3), Activate(wave), Conv(8, kernel=3), GlobalAveragePool(), Dense(1))
    x = torch.randn(3, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    found = kernel_with_error(net, x)
    assert unknown(net, x) is None
    _layer_by_layer(monkeypatch)
    assert _off(found.value.double(), kernel(net, x.double())) < found.accuracy.error + 1e-6


def test_loops_of_different_cases_have_different_names() -> None:
    """Loops that two processes kept on disk are linked by name: tangent kernels were computed with the loops of products."""
    bends = pytest.importorskip("initscope.networks.machine.bends")
    series_bends = pytest.importorskip("initscope.networks.machine.series_bends")
    closed = [getattr(bends, name) for name in ("bend", "arc", "gelu")]
    kinked = pytest.importorskip("initscope.networks.machine.kinked")
    for plain, steep in (*closed, series_bends.series, series_bends.bent_series, series_bends.tails, kinked.hinges):
        assert plain.py_func.__qualname__ != steep.py_func.__qualname__


GROWING = (
    "20x(conv3 abs ln) gap",
    "30x(conv3 relu ln(channels)) gap",
    "12x(dense scale(2) erf) dense",
    "20x(dense scale(3) erf) dense",
    "8x(dense relupower(3) ln) dense",
    "10x(dense(bias=0.2) sin scale(1.5)) dense",
)


@pytest.mark.parametrize("text", GROWING)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layers_that_make_rounding_grow_leave_the_digits(
    monkeypatch: pytest.MonkeyPatch, text: str, dtype: torch.dtype
) -> None:
    """In float32 the diagonal of the first one was 0.0004, 0.19, 0.0002 for 0.0156, and called exact."""
    net = parse(text, width=8)
    x, _ = _inputs(text)
    x = x[:4, ...] if text.endswith("dense") else x[:3]
    found = kernel_with_error(net, x.to(dtype))
    _layer_by_layer(monkeypatch)
    expected = kernel(net, x)
    scale = expected.diagonal().clamp_min(1e-300).sqrt()
    off = ((found.value.double() - expected).abs() / (scale[:, None] * scale)).max()
    assert float(off) < (1e-5 if dtype == torch.float32 else 2e-11)


def test_tangent_kernels_of_layers_that_make_rounding_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    net = parse("12x(dense abs ln) dense", width=8)
    x, _ = _inputs("dense")
    found = tangent_kernel(net, x[4:])
    _layer_by_layer(monkeypatch)
    expected = tangent_kernel(net, x[4:])
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-6


def test_norms_whose_products_leave_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    net = parse("conv3 gelu gap", width=8)
    x = 1e10 * _inputs("conv3 gelu gap", torch.float32)[0][4:]
    found = kernel(net, x)
    assert kernel_estimate(net, 1e-25 * x).method == "steps"
    _layer_by_layer(monkeypatch)
    assert torch.allclose(found, kernel(net, x), rtol=1e-5)


@pytest.mark.parametrize(
    "text", ["3x(conv3 gelu)", "2x(conv3 tanh) gap", "conv3 res(relu conv3) gap", "4x(dense erf) dense"]
)
@pytest.mark.parametrize("quantity", ["cosine", "distance", "defect"])
def test_other_quantities_keep_their_digits(monkeypatch: pytest.MonkeyPatch, text: str, quantity: Quantity) -> None:
    """Inputs that nearly agree too: their distances are a millionth of the norms."""
    net = parse(text, width=8)
    x = _inputs(text)[0][4:8]
    x[1] = x[0] + 1e-6 * x[1]
    x[2] = x[0] + 1e-3 * x[2]
    x = x.float()
    assert kernel_estimate(net, x, quantity=quantity).method == "steps"
    found = kernel(net, x, quantity=quantity).double()
    _layer_by_layer(monkeypatch)
    expected = kernel(net, x.double(), quantity=quantity)
    if quantity == "cosine":
        assert float((found - expected).abs().max()) < 1e-5
    else:
        assert torch.allclose(found, expected, rtol=1e-5, atol=0)
        assert not found.diagonal().any()


@pytest.mark.parametrize("text", ["3x(dense tanh)", "dense hardswish dense silu", "dense elu"])
def test_inputs_of_one_norm(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A power of two, around which no range is left by rounding."""
    net = parse(text, width=8)
    x = torch.eye(4, dtype=torch.float64)
    assert unknown(net, x) is None
    found, single = kernel(net, x), kernel(net, x.float())
    _layer_by_layer(monkeypatch)
    expected = kernel(net, x)
    assert _off(found, expected) < 1e-9
    assert _off(single.double(), expected) < 1e-5
