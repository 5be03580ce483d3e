"""What is particular to one kind of law: the whole distribution, the zeros of sparse weights, the cut of truncated ones."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import nn

from initscope.weights import Fans, Gaussian, Independent, Laplace, Logistic, Sparse, TruncatedNormal, Uniform
from weights.shapes import Shape, assert_mean, draw, draws

STANDARD_LAWS = [
    (Gaussian(1.0, "none"), stats.norm()),
    (Uniform(1.0, "none"), stats.uniform(-math.sqrt(3), 2 * math.sqrt(3))),
    (Logistic(1.0, "none"), stats.logistic(0, math.sqrt(3) / math.pi)),
    (Laplace(1.0, "none"), stats.laplace(0, 1 / math.sqrt(2))),
    (Gaussian.of_deviation(0.015), stats.norm(0, 0.015)),
    (Uniform.of_bound(0.04), stats.uniform(-0.04, 0.08)),
    (Logistic.of_width(0.015), stats.logistic(0, 0.015)),
    (Laplace.of_width(0.015), stats.laplace(0, 0.015)),
    (TruncatedNormal.of_parent(0.5, 0.4), stats.truncnorm(-0.8, 0.8, 0, 0.5)),
    (TruncatedNormal.of_parent(0.02, 2.0), stats.truncnorm(-100, 100, 0, 0.02)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("law", "theirs"), STANDARD_LAWS, ids=[law.name for law, _ in STANDARD_LAWS])
def test_the_whole_distribution_is_that_of_scipy(law: Independent, theirs: Any, dtype: torch.dtype) -> None:
    sample = law.sample((20_000,), Fans(1, 1), torch.Generator().manual_seed(5), dtype).double()
    assert bool(sample.isfinite().all())
    assert law.variance(Fans(7, 5, 9)) == pytest.approx(theirs.var(), rel=1e-12)
    assert stats.kstest(sample.numpy(), theirs.cdf).pvalue > 1e-3


def test_a_fan_of_none_is_an_absolute_variance() -> None:
    law = Laplace(0.3, "none")
    assert {law.variance(fans) for fans in (Fans(1, 1), Fans(64, 128, 9))} == {0.3}
    assert law.gain(Fans(64, 128, 9)) == pytest.approx(0.3 * 64 * 9, rel=1e-15)


@pytest.mark.parametrize(("rows", "sparsity", "zeros"), [(10, 0.1, 1), (10, 0.55, 6), (50, 0.9, 45), (7, 0.0, 0)])
def test_sparse_columns_have_as_many_zeros_as_those_of_pytorch(rows: int, sparsity: float, zeros: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        theirs = nn.init.sparse_(torch.empty(rows, 12), sparsity)
    ours = draw(Sparse(sparsity), Shape(rows, 12))
    filters = draw(Sparse(sparsity), Shape(3 * rows, 4, (3, 1), groups=3))
    for columns in (theirs, ours, *filters.flatten(1).chunk(3)):
        assert (columns == 0).sum(0).tolist() == [zeros] * 12


def test_sparse_zeros_fall_anywhere() -> None:
    """Each weight is zero equally often, and zeros of one column are dealt without replacement, of two independently."""
    zero = (draws(Sparse(0.5), Shape(6, 4), 3000) == 0).double()
    assert_mean(zero, 0.5)
    same_column, same_row = zero[:, 0] * zero[:, 1], zero[:, :, 0] * zero[:, :, 1]
    assert_mean(same_column, 3 / 6 * 2 / 5)
    assert_mean(same_row, 0.25)


def test_truncated_weights_stay_inside_the_cut() -> None:
    shape = Shape(24, 3, (3, 3))
    law = TruncatedNormal.of_parent(0.5, bound=0.8)
    for dtype in (torch.float32, torch.float64):
        weights = draw(law, shape, dtype=dtype).abs().max()
        assert 0.7 < weights <= 0.8 * (1 + 1e-6)


def test_both_conventions_of_truncation() -> None:
    """PyTorch's deviation is of the parent; JAX and TensorFlow divide by 0.8796... to have it right after the cut."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        theirs = torch.stack([nn.init.trunc_normal_(torch.empty(2000).double(), std=1.5, a=-2, b=2) for _ in range(60)])
    parent = TruncatedNormal.of_parent(1.5, bound=2.0)
    for order in (2, 4):
        assert_mean((theirs**order).mean(1), parent.absolute_moment(order, Fans(1, 1)))
    jax = TruncatedNormal(1.0, "in")
    corrected = TruncatedNormal.of_parent(
        math.sqrt(1 / 90) / 0.87962566103423978, 2 * math.sqrt(1 / 90) / 0.87962566103423978
    )
    assert jax.variance(Fans(10, 5, 9)) == pytest.approx(corrected.variance(Fans(1, 1)), rel=1e-14)
    assert jax.cut == pytest.approx(corrected.cut, rel=1e-14)
