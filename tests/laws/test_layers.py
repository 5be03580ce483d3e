"""Every layer of the table meets every law."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from initscope.errors import SimulatedKernel
from initscope.finite.simulation import activations
from initscope.networks import kernel, predict
from initscope.networks.prediction import LayerGeometry
from laws.table import LAYERS, Case

cases = pytest.mark.parametrize("case", LAYERS, ids=str)
TINY = 1e-9  # rounding of float64 through a few layers


def last(case: Case, width: int = 16, **changes: object) -> LayerGeometry:
    x, y = case.inputs()
    return predict(case.net(width), x, y, **changes).layers[-1]  # type: ignore[arg-type]


def moments(layer: LayerGeometry) -> torch.Tensor:
    """Squared norms and distances, (3, n)."""
    return torch.stack([layer.norm_x, layer.norm_y, layer.distance]).square()


def moments_stderr(layer: LayerGeometry) -> torch.Tensor:
    if layer.stderr is None:
        return torch.zeros(3, len(layer.norm_x), dtype=torch.float64)
    return torch.stack([2 * getattr(layer, q) * layer.stderr[q] for q in ("norm_x", "norm_y", "distance")])


def assert_twins_agree(case: Case, width: int, seeds: range) -> None:
    x, y = case.inputs()
    net = case.net(width)
    samples = []
    for seed in seeds:
        *_, h = activations(net, torch.cat([x, y]), seed)
        a, b = h.flatten(1).chunk(2)
        samples.append(torch.stack([a.square().sum(1), b.square().sum(1), (a - b).square().sum(1)]))
    stack = torch.stack(samples)
    exact = predict(net, x, y).layers[-1]
    spread = (stack.var(0) / len(seeds) + moments_stderr(exact) ** 2).sqrt()
    assert ((stack.mean(0) - moments(exact)).abs() <= 4 * spread + TINY * moments(exact)).all()


@cases
def test_swapping_the_inputs_swaps_the_norms(case: Case) -> None:
    x, y = case.inputs()
    one, two = (predict(case.net(16), a, b).layers[-1] for a, b in ((x, y), (y, x)))
    tolerance = 4 * (moments_stderr(one) ** 2 + moments_stderr(two) ** 2).sqrt() + TINY * moments(one)
    assert ((moments(one) - moments(two)[[1, 0, 2]]).abs() <= tolerance).all()


@cases
def test_distances_obey_the_triangle_inequality_with_the_norms(case: Case) -> None:
    layer = last(case)
    low, high = (layer.norm_x - layer.norm_y).abs(), layer.norm_x + layer.norm_y
    slack = TINY * high
    assert (layer.distance >= low - slack).all()
    assert (layer.distance <= high + slack).all()
    assert layer.cosine.abs().max() <= 1


@cases
def test_kernel_is_positive_semidefinite_and_agrees_with_predict(case: Case) -> None:
    x, y = case.inputs()
    both = torch.cat([x, y])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimulatedKernel)
        matrix = kernel(case.net(16), both)
        cosine = kernel(case.net(16), both, quantity="cosine")
    assert torch.equal(matrix, matrix.T)
    assert torch.linalg.eigvalsh(matrix)[0] >= -TINY * matrix.diagonal().max()
    layer = last(case)
    index = torch.arange(3)
    tolerance = TINY if layer.stderr is None else 5 * layer.stderr["cosine"] * math.sqrt(2)
    assert ((cosine[index, 3 + index] - layer.cosine).abs() <= tolerance).all()


@cases
def test_scaling_the_input(case: Case) -> None:
    x, y = case.inputs()
    one, two = (predict(case.net(16), c * x, c * y).layers[-1] for c in (1.0, 7.0))
    if case.degree is None:
        assert not torch.allclose(moments(two), 49 * moments(one), rtol=1e-3)
        return
    expected = 49.0**case.degree * moments(one)
    slack = 4 * 49.0**case.degree * moments_stderr(one) * math.sqrt(2) + 1e-8 * expected
    assert ((moments(two) - expected).abs() <= slack).all()


@cases
def test_an_input_paired_with_itself_has_no_angle(case: Case) -> None:
    if "dropout" in case.name:
        pytest.skip("dropout draws two masks")
    x, _ = case.inputs()
    layer = predict(case.net(16), x, x.clone()).layers[-1]
    # Drawn units carry the rounding of a matrix root, √ε, and batch norm enlarges it for units of small variance.
    assert layer.defect.max() < (1e-12 if layer.stderr is None else 1e-10)


@cases
@pytest.mark.parametrize("width", [16, 64])
def test_twins_agree(case: Case, width: int) -> None:
    """The exact face lies within four standard errors of the mean over sampled networks, for norms and distances."""
    wide = case.wide
    assert_twins_agree(case, 64 * width if wide else width, range(24 if wide else 300))


@cases
def test_float32_agrees_with_float64(case: Case) -> None:
    one, two = last(case), last(case, dtype=torch.float32)
    tolerance = 4 * moments_stderr(one) * math.sqrt(2) + 1e-4 * moments(one)
    assert ((moments(one) - moments(two)).abs() <= tolerance).all()


@pytest.mark.slow
@cases
def test_twins_agree_with_many_draws(case: Case) -> None:
    """The same comparison, five times sharper: other seeds, 2,500 networks of width 32."""
    draws, width = (100, 2048) if case.wide else (2500, 32)
    assert_twins_agree(case, width, range(10_000, 10_000 + draws))
