"""Kernels of networks with one filter for each channel, against finite networks, and the remedies of what is refused."""

from __future__ import annotations

import pytest
import torch

from initscope.errors import NoExactForm, SimulatedKernel
from initscope.networks import kernel, kernel_estimate, parse
from initscope.networks.planning import simulates


@pytest.fixture
def x() -> torch.Tensor:
    return torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def finite(text: str, x: torch.Tensor, draws: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean over finite networks of the mean over units of h(x) h(y), and its standard error."""
    generator = torch.Generator().manual_seed(5)
    products = []
    for _ in range(draws):
        module = parse(text).sample(tuple(x.shape[1:]), generator=generator, dtype=x.dtype)
        with torch.no_grad():
            units = module(x).flatten(1)
        products.append(units @ units.T / units.shape[1])
    stack = torch.stack(products)
    return stack.mean(0), stack.std(0) / draws**0.5


@pytest.mark.parametrize(
    "text",
    [
        "conv3 relu conv3(groups=64) relu gap",
        "conv3 relu conv3(groups=64) relu conv1 relu gap",
        "conv3 gelu conv3(128, groups=64) gelu gap",
    ],
)
def test_agrees_with_finite_networks(text: str, x: torch.Tensor) -> None:
    """64 groups once counted as 64 kinds of units, too many to try out, and the kernel was refused."""
    with pytest.warns(SimulatedKernel, match="standard error") as told:
        found = kernel(parse(text), x, seed=1)
    own = float(str(told[0].message).rsplit("about ", 1)[1].split()[0]) * float(found.max())
    mean, stderr = finite(text, x, 400)
    assert bool(((found - mean).abs() <= 5 * (stderr**2 + own**2).sqrt()).all())


def test_the_first_layer_keeps_the_colors_apart(x: torch.Tensor) -> None:
    """No simulation: each color has Gaussian units of its own."""
    text = "conv3(6, groups=3) relu gap"
    mean, stderr = finite(text, x, 3000)
    assert bool(((kernel(parse(text), x) - mean).abs() <= 5 * stderr).all())


@pytest.mark.parametrize("text", ["conv3 relu conv3(groups=64) relu gap", "conv3 relu avgpool2 relu gap"])
def test_large_images_are_judged_by_a_corner(text: str) -> None:
    x = torch.rand(2, 3, 32, 32)
    assert simulates(parse(text), x)
    assert kernel_estimate(parse(text), x, memory=1 << 40).method == "joint"
    assert not simulates(parse("conv3 relu conv3(groups=64) gap"), x)  # linear: its units are never asked for


def test_the_remedies_can_be_followed(x: torch.Tensor) -> None:
    with pytest.raises(NoExactForm, match="init=zero_sum_channel"):
        kernel(parse("conv3(8) relu conv3(8, groups=8, init=zero_sum) relu gap"), x)
    with pytest.warns(SimulatedKernel):
        kernel(parse("conv3(8) relu conv3(8, groups=8, init=zero_sum_channel) relu gap"), x)
    with pytest.raises(NoExactForm, match="end the branch with conv1 or dense"):
        kernel(parse("conv3(8) relu res(conv3(8, groups=8)) relu gap"), x)
    with pytest.warns(SimulatedKernel):
        kernel(parse("conv3(8) relu res(conv3(8, groups=8) conv1(8)) relu gap"), x)
