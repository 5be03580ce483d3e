"""Kernels and tangent kernels of inputs that nearly agree, and of inputs whose norms are far apart."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from initscope.activations import Activation
from initscope.errors import BadInput
from initscope.finite import simulate_tangent
from initscope.layers import Activate, Dense, GlobalAveragePool
from initscope.networks import Sequential, kernel, parse, tangent, tangent_kernel

STEPS = (1e-3, 1e-6, 1e-9, 1e-12)


def images(count: int, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tanh_tangent(x: Tensor) -> float:
    """Mean over pairs of positions of c E f'(u) f'(v) behind conv1 (He), by the trapezoidal rule."""
    nodes = np.linspace(-10, 10, 401)
    weights = np.exp(-nodes * nodes / 2)
    weights = weights / weights.sum()
    pixels = (x.flatten(1).T * math.sqrt(2 / len(x))).numpy()  # u = w · pixel
    total = 0.0
    for p in pixels:
        for q in pixels:
            a, b = np.linalg.norm(p), np.linalg.norm(q)
            rho = min(1.0, max(-1.0, float(p @ q / (a * b))))
            u = a * nodes[:, None] + 0 * nodes
            v = b * (rho * nodes[:, None] + math.sqrt(1 - rho * rho) * nodes)
            total += float(p @ q) * float(weights @ (np.cosh(u) ** -2 * np.cosh(v) ** -2) @ weights)
    return total / len(pixels) ** 2


def test_no_entry_of_the_diagonal_is_lost() -> None:
    """A distance that rounds to -1e-17 had a derivative of zero."""
    x = images(12, (3, 1, 2))
    found = tangent_kernel(parse("conv1 tanh gap"), x).diagonal()
    expected = torch.tensor([tanh_tangent(image) for image in x], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=0)


@pytest.mark.parametrize("factor", [2.0, 3.0, 1000.0])
def test_layer_norm_makes_brighter_copies_equal(factor: float) -> None:
    """But for its epsilon of 1e-5."""
    x = images(4, (3, 6, 6))
    net = parse("conv3 ln relu conv3 ln relu gap")
    own = tangent_kernel(net, x).diagonal()
    torch.testing.assert_close(tangent_kernel(net, x, factor * x).diagonal(), own, rtol=1e-4, atol=0)


NEAR = [
    "conv1 gelu gap",
    "conv3 ln relu conv3 ln relu gap",
    "conv3 relu avgpool2 conv1(bias=0.1) relu gap dense",
    "conv3(bias=0.5) abs conv1 res(erf conv3) gap",
    "conv3 cat(relu | sin) conv3(init=zero_sum) leaky_relu(0.3) flatten dense",
    "conv3(init=delta_orthogonal) relu conv3(init=zero_sum_channel, padding=zero) relu gap dense(bias=1)",
    "conv3(padding=zero, bias=0.3) relu conv3(padding=zero) relu gap dense",
]


@pytest.mark.parametrize("text", NEAR)
def test_brighter_copies_come_close_continuously(text: str) -> None:
    x, net = images(5, (3, 4, 4)), parse(text, width=8)
    for function in (kernel, tangent_kernel):
        whole = function(net, x)
        scale = whole.diagonal().sqrt()
        assert torch.equal(whole, whole.T)
        assert float(torch.linalg.eigvalsh(whole / (scale[:, None] * scale))[0]) > -1e-12
        for h in STEPS:
            near = function(net, x, x * (1 + h)).diagonal()
            # Zero padding with pooling is carried as products, with half of the digits where patches are equal.
            assert float((near / whole.diagonal() - 1).abs().max()) < 8 * h + 2e-9


@pytest.mark.parametrize("text", NEAR)
def test_single_precision_knows_brighter_copies(text: str) -> None:
    """A copy brightened by 1e-4, in float32."""
    x, net = images(5, (3, 4, 4)).float(), parse(text, width=8)
    y = x * (1 + 1e-4)
    found, expected = tangent_kernel(net, x, y), tangent_kernel(net, x.double(), y.double())
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=float(1e-6 * expected.abs().max()))
    assert float((found.diagonal() / tangent_kernel(net, x).diagonal() - 1).abs().max()) < 1e-3


def covariances(x: Tensor, y: Tensor, bias: float = 0.0) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """A, B, c behind a dense layer with He weights, in as many digits as mpmath works with."""
    u, v = ([mpmath.mpf(t) for t in w.tolist()] for w in (x, y))
    variance = mpmath.mpf(bias) ** 2

    def dot(p: list[mpmath.mpf], q: list[mpmath.mpf]) -> mpmath.mpf:
        return 2 * mpmath.fsum(s * t for s, t in zip(p, q, strict=True)) / len(p) + variance

    return dot(u, u), dot(v, v), dot(u, v)


@pytest.mark.parametrize("text", ["dense sign dense", "dense(bias=0.7) step dense(bias=0.2)"])
def test_gradients_do_not_pass_a_jump(text: str) -> None:
    """The delta function of a jump is of no finite network: what is left is the share of the weights behind it."""
    x = images(4, (5,), 1)
    x[1] = x[0] * (1 + 1e-9)
    net = parse(text, width=256)
    found = tangent_kernel(net, x)
    torch.testing.assert_close(found, kernel(net, x))
    twin = simulate_tangent(net, x, draws=30)
    assert bool(((twin.value - found).abs() <= 4.5 * twin.stderr + 1e-9).all())


def test_a_function_with_a_jump_has_the_slope_that_is_left() -> None:
    """z + sign(z) has slope 1 almost everywhere, as its gradient has."""
    jump = Activation.from_function(lambda z: z + torch.sign(z), name="jump", kinks=(0.0,))
    net = Sequential(Dense(256), Activate(jump), Dense(1))
    x = images(3, (5,), 2)
    first = kernel(Sequential(Dense(256)), x)
    torch.testing.assert_close(tangent_kernel(net, x), 2 * first + kernel(net, x), rtol=1e-8, atol=0)


def test_behind_a_jump_the_weights_count() -> None:
    """In the middle of a network: the layers behind it alone, with pooling and pairs of positions."""
    x = images(3, (3, 4, 4), 3)
    whole = tangent_kernel(parse("conv3 relu conv3 sign conv3 relu gap dense", width=8), x)
    assert bool(whole.isfinite().all())
    assert float(torch.linalg.eigvalsh(whole)[0]) > 0
    # Networks 64 wide differ from the limit by a few percent of the diagonal.
    twin = simulate_tangent(parse("conv3 relu conv3 sign conv3 relu gap dense", width=64), x, draws=40)
    assert bool(((twin.value - whole).abs() <= 4.5 * twin.stderr + 0.03 * whole.diagonal().max()).all())


def gelu_product(a: mpmath.mpf, b: mpmath.mpf, c: mpmath.mpf) -> mpmath.mpf:
    """E u Φ(u) v Φ(v) as an integral over v of the conditional mean of u Φ(u)."""
    spread = a - c * c / b

    def inner(v: mpmath.mpf) -> mpmath.mpf:
        mean, root = c / b * v, mpmath.sqrt(1 + spread)
        return mean * mpmath.ncdf(mean / root) + spread / root * mpmath.npdf(mean / root)

    top = 12 * mpmath.sqrt(b)
    return mpmath.quad(lambda v: inner(v) * v * mpmath.ncdf(v) * mpmath.npdf(v, 0, mpmath.sqrt(b)), [-top, 0, top])


@pytest.mark.parametrize("ratio", [100, 1000, 10000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_products_of_unequal_norms(ratio: float, dtype: torch.dtype) -> None:
    x = images(2, (6,), 3).to(dtype)
    pair = torch.stack([x[0], x[1] / ratio])
    found = kernel(parse("dense gelu"), pair)
    with mpmath.workdps(30):
        expected = float(gelu_product(*covariances(pair[0], pair[1])))
    assert float(found[0, 1]) == pytest.approx(expected, rel=1e-6 if dtype == torch.float32 else 1e-10)


@pytest.mark.parametrize("size", [3.0, 9.0])
def test_products_behind_exp_stay_positive(size: float) -> None:
    """E e^u e^v = e^((A+B)/2 + c), far below the root of E e^2u E e^2v."""
    x = images(2, (6,), 4)
    x = x / x.square().mean(1, keepdim=True).sqrt()
    pair = torch.stack([size * x[0], 1e-3 * size * x[1]]) / math.sqrt(2)
    found = kernel(parse("dense exp dense exp") if size < 1 else parse("dense exp dense"), pair)
    with mpmath.workdps(30):
        a, b, c = covariances(pair[0], pair[1])
        expected = float(2 * mpmath.exp((a + b) / 2 + c))
    assert float(found[0, 1]) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("ratio", [1, 100, 1000, 1e5])
@pytest.mark.parametrize("pooled", [False, True])
def test_compiled_tangents_with_biases_at_every_ratio_of_norms(
    ratio: float, pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "conv3(bias=1e-4) leaky_relu(0.2) conv3(bias=1e-4) leaky_relu(0.2)"
    net = parse(f"{text} gap dense(bias=1e-4)" if pooled else f"{text} flatten dense(bias=1e-4)", width=8)
    x = images(4, (3, 5, 5), 5).float()
    pair = torch.cat([x, x / ratio])
    quick = [tangent_kernel(net, pair.to(dtype)) for dtype in (torch.float32, torch.float64)]
    monkeypatch.setattr(tangent, "fast_plan", lambda *_: None)
    slow = tangent_kernel(net, pair.double())
    torch.testing.assert_close(quick[0].double(), slow, rtol=1e-6, atol=0)
    torch.testing.assert_close(quick[1], slow, rtol=2e-7, atol=0)


@pytest.mark.parametrize("quantity", ["cosine", "defect"])
@pytest.mark.parametrize("text", ["2x(dense relu)", "2x(dense(bias=0.2) relu)", "2x(dense erf)"])
def test_angles_of_unequal_norms(text: str, quantity: str) -> None:
    """In float32 against float64."""
    x = images(3, (7,), 6).float()
    pair = torch.cat([x, x / 1000 + 1e-6 * x[:1]])
    found, expected = (kernel(parse(text), t, quantity=quantity) for t in (pair, pair.double()))
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-7)


def test_linear_parts_do_not_matter_to_the_excess() -> None:
    """A network without activations: distances after pooling are those of the pooled images."""
    x = images(3, (2, 4, 4), 7)
    y = 50 * (x + 1e-7 * images(3, (2, 4, 4), 8))
    found = kernel(Sequential(GlobalAveragePool(), *parse("dense identity scale(3)").layers), x, y, quantity="defect")
    u, v = (t.mean((2, 3)) / t.mean((2, 3)).norm(dim=1, keepdim=True) for t in (x, y))
    torch.testing.assert_close(found.diagonal(), (u - v).square().sum(1) / 2, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "text", ["conv1 exp conv1 exp conv1 exp ln gap", "conv1 exp conv1 exp conv1 exp conv1 relu gmp"]
)
def test_overflow_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="range of float64"):
        kernel(parse(text), 30 * images(2, (3, 2, 2)))


@pytest.mark.parametrize(
    "activation", ["tanh", "sigmoid", "erf", "sign", "step", "sin", "gaussian", "hardtanh", "silu"]
)
def test_overflow_in_front_of_a_bounded_activation_is_refused(activation: str) -> None:
    """It is not taken for saturation."""
    net, x = parse(f"dense exp dense exp dense {activation}"), 30 * images(2, (5,))
    for function in (kernel, tangent_kernel):
        with pytest.raises(BadInput, match="range of float64"):
            function(net, x)
