"""Norms that leave the range of float32 inside a network, and inputs of unequal norms: answers agree with float64."""

from __future__ import annotations

import pytest
import torch

from initscope.networks import kernel, kernel_estimate, parse, tangent_kernel


def images(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, 4, 4, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "text",
    [
        "25x(dense(64, init=gaussian_fixed(0.0001)) relu)",
        "130x(dense(64, init=lecun) relu)",
        "30x(dense(64, init=gaussian_fixed(1)) relu)",
        "30x(conv3(64, init=gaussian_fixed(1)) relu) gap",
        "160x(conv3(64, init=lecun) relu) flatten",
    ],
)
def test_norms_beyond_float32_inside_the_network(text: str) -> None:
    net, x = parse(text), images(3)
    for quantity in ("cosine", "defect"):
        found, expected = (kernel(net, t, quantity=quantity) for t in (x, x.double()))
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-7)
    for function in (kernel, tangent_kernel):
        torch.testing.assert_close(function(net, x), function(net, x.double()).float(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("scale", [1e19, 1e-19])
@pytest.mark.parametrize("text", ["dense(8) relu", "conv3(8) relu flatten", "conv3(8) relu gap"])
def test_large_and_small_inputs(text: str, scale: float) -> None:
    net, x = parse(text), images(3)
    found, expected = kernel(net, scale * x, quantity="cosine"), kernel(net, x.double(), quantity="cosine")
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("padding", ["zero", "circular", "valid"])
def test_deep_stacks_and_dark_images_keep_the_compiled_loops(padding: str) -> None:
    """Zeros at the border take from every layer, yet nothing is lost that counts."""
    x = images(2).repeat(1, 1, 4, 4)
    x[0, :, 1:] = 0
    net = parse(f"{6 if padding == 'valid' else 100}x(conv3(8, padding={padding}) relu) flatten")
    assert kernel_estimate(net, x).method == "fused"
    assert kernel_estimate(net, torch.zeros_like(x)).method == "fused"


@pytest.mark.parametrize("ratio", [1e3, 1e6, 1e8])
@pytest.mark.parametrize(
    "text", ["conv3(8) relu gap", "2x(conv3(8, padding=zero) relu) gap", "conv3(8, bias=0.5) relu gap"]
)
def test_cosines_of_unequal_norms_behind_a_pool(text: str, ratio: float) -> None:
    net, x = parse(text), torch.cat([images(1), ratio * images(1, 1)])
    for y in (None, x):
        found, expected = (kernel(net, t, None if y is None else t, quantity="cosine") for t in (x, x.double()))
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("factor", [-1.0, -0.5, 100.0, 1e-4])
@pytest.mark.parametrize("text", ["dense(8) relu", "2x(dense(8) leaky_relu(0.2))", "2x(conv3(8) relu) gap"])
def test_tangents_of_parallel_inputs(text: str, factor: float) -> None:
    a = images(1)
    net, x = parse(text), torch.cat([a, factor * a, images(1, 1)])
    for y in (None, x.flip(0)):
        found = tangent_kernel(net, x, y)
        expected = tangent_kernel(net, x.double(), None if y is None else y.double())
        own = tangent_kernel(net, x.double()).diagonal()
        scale = (own[:, None] * (own if y is None else own.flip(0))).sqrt()
        assert ((found.double() - expected).abs() / scale).max() < 1e-6
