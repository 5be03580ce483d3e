"""Exact counter-examples and the helpers that judge."""

from __future__ import annotations

import math

import pytest
import torch

from initscope.finite import Estimate
from initscope.networks import kernel, predict
from initscope.papers.item import Sampled
from initscope.papers.pooling.dense_theorems import defects
from initscope.papers.pooling.measures import all_agree, allowed, conv_net, global_average_defect, larger
from initscope.papers.pooling.toy import toy_pair
from initscope.papers.pooling.windows import meeting


@pytest.mark.parametrize("side", [3, 6])
def test_constant_images_stay_orthogonal_under_max_pooling(side: int) -> None:
    """Corollary 4.3 names any pair; 1 and -1 everywhere have r(s) and r(-s), whose product is zero."""
    one = torch.ones(1, 1, side, side)
    module = conv_net("max", 50).sample((1, side, side), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        first, second = module(one), module(-one)
    assert float((first * second).abs().max()) == 0
    assert float(first.max()) > 0


@pytest.mark.parametrize("block", [5, 12, 20])
def test_opposite_images_of_zero_mean_have_one_average(block: int) -> None:
    x, _ = toy_pair(block)
    x = x - x.mean()
    assert float(kernel(conv_net("average", 1), torch.cat([x, -x]), quantity="cosine")[0, 1]) == pytest.approx(
        1, abs=1e-12
    )


def test_toy_images_without_filters_across_edges() -> None:
    """One tap: cosine 2p(1-p) / (1 - 2p(1-p)) for a share p of +1, since r(w) and r(-w) are orthogonal."""
    for block in (5, 15, 25):
        x, y = toy_pair(block)
        p = float((x > 0).double().mean())
        found = 1 - float(global_average_defect(x, y, size=1)[0])
        assert found == pytest.approx(2 * p * (1 - p) / (1 - 2 * p * (1 - p)), rel=1e-9)


def test_pairs_go_through_the_kernel_as_through_predict() -> None:
    x, y = torch.randn(2, 3, 2, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = predict(conv_net("average", 1), x, y).layers[-1].defect
    assert torch.allclose(global_average_defect(x, y), expected, rtol=1e-9)


def test_average_pooling_passes_max_pooling_after_fifty_units() -> None:
    """Orthogonal inputs: the paper's group size is the last at which max pooling is ahead."""
    average, largest = (defects(pool, [50, 51], (0.0,))[:, 0] for pool in ("average", "max"))
    assert largest[0] < average[0]
    assert largest[1] > average[1]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_windows_that_meet(size: int) -> None:
    assert meeting(2 * size + 1, size) == (2 * size - 1) ** 2


def test_larger_decides_only_beyond_the_interval() -> None:
    mean = Sampled(1.0, 0.1, 100)
    assert larger("", mean, 0.5, why="no").agrees is True
    assert larger("", mean, 1.1, why="no").agrees is None
    below = larger("", mean, Sampled(2.0, 0.1, 100), why="no")
    assert (below.agrees, below.why) == (False, "no")


def test_all_agree_takes_the_worst_case() -> None:
    found = Estimate(torch.tensor([1.0, 2.0, 0.0]), torch.tensor([0.1, 0.1, 0.0]), 1000)
    limit = allowed(2, 1000)
    assert limit == pytest.approx(2.2414, abs=0.01)
    assert all_agree("", found, torch.tensor([1.0, 2.2, 0.0])).agrees
    off = all_agree("", found, torch.tensor([1.0, 2.3, 0.0]))
    assert off.agrees is False
    assert off.sampled == Sampled(2.0, pytest.approx(0.1), 1000)
    assert off.why


def test_relu_variance_is_what_the_pooled_distance_shows() -> None:
    """Theorem 4.1's exact value from the moments alone: D/2A with D = (1 - r̂)/n, A = (1/2 + (n-1)/(2π))/n."""
    n, relu = 50, 1 - 1 / math.pi
    expected = relu / (1 + (n - 1) / math.pi)
    assert float(defects("average", [n], (0.0,))) == pytest.approx(expected, rel=1e-12)
