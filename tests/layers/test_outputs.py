"""Outputs drawn without the weights: the law of H Wᵀ, and the cases where rounding could show."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest
from torch import Tensor

from initscope.finite.averages import squares
from initscope.geometry import generator
from initscope.layers import Conv, Dense, ReLU
from initscope.layers.outputs import gaussian_outputs, saves_weights
from initscope.networks import Concat, Residual, Sequential, Sum, predict
from initscope.weights import Gaussian, Uniform
from laws.table import LAYERS, Case
from laws.test_layers import moments, moments_stderr


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs(n: int = 5, d: int = 9, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, d, generator=source(7), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("n", [1, 5, 9])
def test_units_are_gaussian_with_the_covariance_of_the_inputs(n: int) -> None:
    """Whitened by the exact covariance v H Hᵀ, all numbers are independent N(0, 1): moments of order 2, and the whole law."""
    h, width = inputs(n), 40_000
    out = gaussian_outputs(h, width, 0.3, source())
    root = torch.linalg.cholesky(0.3 * h @ h.T)
    white = torch.linalg.solve_triangular(root, out, upper=False)
    second = white @ white.T / width
    spread = torch.ones(n, n).fill_diagonal_(math.sqrt(2)) / math.sqrt(width)
    assert bool(((second - torch.eye(n)).abs() <= 4.5 * spread).all())
    assert kstest(white.flatten().numpy(), "norm").pvalue > 1e-3
    assert bool((out.mean(1).abs() <= 4.5 * (0.3 * h.square().sum(1) / width).sqrt()).all())


def test_no_two_units_share_their_numbers() -> None:
    """Over many draws, the squared length of a few units follows the chi-square law, which dependent ones would not."""
    h = inputs(2)
    draws = torch.stack([gaussian_outputs(h, 3, 1.0, source(i))[1] for i in range(2000)])
    lengths = draws.square().sum(1) / h[1].square().sum()
    assert kstest(lengths.numpy(), chi2(3).cdf).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "d"), [(8, 40), (300, 500)])
def test_equal_inputs_have_equal_outputs_and_zeros_stay_zero(dtype: torch.dtype, n: int, d: int) -> None:
    h = inputs(n, d, dtype)
    h[3], h[4], h[5] = h[0], h[1], 0
    h[n - 1] = h[0]
    out = gaussian_outputs(h, 100, 0.01, source())
    assert torch.equal(out[0], out[3])
    assert torch.equal(out[0], out[n - 1])
    assert torch.equal(out[1], out[4])
    assert not out[5].any()
    assert bool((out[2] != out[0]).all())


def test_all_inputs_zero() -> None:
    assert not gaussian_outputs(torch.zeros(3, 8), 4, 1.0, source()).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("roundings", [30.0, 1e4])
def test_distances_of_close_inputs_keep_their_digits(dtype: torch.dtype, roundings: float) -> None:
    """E|Δout|² = width v |Δin|² holds for pairs some ten roundings apart, which a Gram matrix could not tell from equal.

    The standard error of a mean over width · draws squares of normals is √(2 / their number).
    """
    gap = roundings * torch.finfo(dtype).eps
    h = inputs(2, 200, dtype)
    h[1] = h[0] * (1 + gap * inputs(1, 200, dtype)[0])
    true = (h[1].double() - h[0].double()).square().sum()
    width, draws = 500, 20
    outs = [gaussian_outputs(h, width, 1.0 / width, source(i)) for i in range(draws)]
    found = torch.stack([(o[1].double() - o[0].double()).square().sum() for o in outs]).mean()
    # A rounding of a few units in the last place of each output is the price of any product, too.
    noise = (4 * torch.finfo(dtype).eps) ** 2 * h[0].double().square().sum()
    assert abs(found / true - 1) <= 4.5 * math.sqrt(2 / (width * draws)) + noise / true


@pytest.mark.parametrize("law", [Gaussian(2.0), Gaussian(1.0, "mean")], ids=lambda law: law.name)
@pytest.mark.parametrize("bias", [0.0, 0.7])
def test_dense_draws_have_the_second_moments_of_sampled_layers(law: Gaussian, bias: float) -> None:
    layer, h = Dense(300, weights=law, bias=bias), inputs(4, 60)
    assert saves_weights(4, 60, 300, h.dtype)
    ways = []
    for draw in (layer.draw, lambda h, g: layer.sample((60,), generator=g, dtype=h.dtype)(h).detach()):
        samples = torch.stack([(out := draw(h, source(i))) @ out.T for i in range(200)])
        ways.append((samples.mean(0), samples.std(0) / math.sqrt(200)))
    (one, error_one), (two, error_two) = ways
    assert bool(((one - two).abs() <= 4.5 * (error_one**2 + error_two**2).sqrt()).all())


@pytest.mark.parametrize(
    "layer",
    [Dense(30, weights=Uniform()), Dense(2), Conv(4), ReLU(), Sequential(Conv(4), ReLU())],
    ids=["uniform", "narrow", "conv", "relu", "sequence"],
)
def test_other_layers_draw_the_module_that_they_sample(layer: Dense) -> None:
    h = inputs(20, 75, torch.float32).reshape(20, 3, 5, 5)
    module = layer.sample((3, 5, 5), generator=source(), dtype=h.dtype)
    with torch.no_grad():
        assert torch.equal(layer.draw(h, source()), module(h))


def test_compositions_draw_through_their_parts() -> None:
    """No weights are sampled anywhere: the same numbers as the parts drawn by hand from one source."""
    h, dense = inputs(4, 50), Dense(50)
    assert saves_weights(4, 50, 50, h.dtype)

    def by_hand(count: int) -> list[Tensor]:
        g = source()
        return [gaussian_outputs(h, 50, 2 / 50, g) for _ in range(count)]

    torch.testing.assert_close(Sum(dense, dense).draw(h, source()), sum(by_hand(2)), rtol=0, atol=0)
    torch.testing.assert_close(Concat(dense, dense).draw(h, source()), torch.cat(by_hand(2), 1), rtol=0, atol=0)
    torch.testing.assert_close(Residual(dense).draw(h, source()), h + by_hand(1)[0], rtol=0, atol=0)
    torch.testing.assert_close(Sequential(dense, ReLU()).draw(h, source()), by_hand(1)[0].relu(), rtol=0, atol=0)


def test_the_way_is_chosen_by_sizes() -> None:
    assert saves_weights(200, 1000, 1000, torch.float32)
    assert not saves_weights(1000, 1000, 1000, torch.float32)  # as many inputs as dimensions
    assert not saves_weights(200, 1000, 10, torch.float64)  # the factorisation costs more than ten units
    assert not saves_weights(2, 1000, 1000, torch.float16)  # no factorisation in half precision


def test_overflown_inputs_come_out_as_a_sampled_layer_shows_them() -> None:
    h = inputs(3, 40, torch.float32)
    h[1, 2] = math.inf
    out = Dense(50).draw(h, source())
    assert not out[1].isfinite().any()
    assert bool(out[[0, 2]].isfinite().all())
    np.testing.assert_array_equal(out[0], Dense(50).sample((40,), generator=source())(h)[0].detach())


@pytest.mark.parametrize("case", [case for case in LAYERS if case.vectors and not case.wide], ids=str)
def test_drawn_layers_are_twins_of_the_exact_ones(case: Case) -> None:
    """The law of the table that sampled layers meet, for drawn ones: norms and distances within four standard errors."""
    x, y = case.inputs()
    net = case.net(32)
    assert saves_weights(2 * len(x), x.shape[1], 32, x.dtype)
    rows = torch.stack([squares(net.draw(torch.cat([x, y]), generator(8, i))) for i in range(400)])
    exact = predict(net, x, y).layers[-1]
    spread = (rows.var(0) / len(rows) + moments_stderr(exact) ** 2).sqrt()
    assert bool(((rows.mean(0) - moments(exact)).abs() <= 4 * spread + 1e-9 * moments(exact)).all())
