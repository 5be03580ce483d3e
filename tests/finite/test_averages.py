"""Running statistics against numpy, squares against brute force, and the plan of a simulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import Tensor

from initscope.errors import BadInput
from initscope.finite import Estimate
from initscope.finite.averages import Lengths, Moments, squares
from initscope.finite.planning import plan_draws
from initscope.finite.running import Running
from initscope.networks import parse


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_running_means_and_covariances_are_those_of_numpy(offset: float) -> None:
    """Also far from zero, where sums of squares would have lost the variance."""
    rows = numbers(30, 2, 3, 5) + offset
    running = Running([(0, 0), (0, 2), (1, 1)])
    for row in rows:
        running.add(row)
    assert running.draws == 30
    np.testing.assert_allclose(running.mean, rows.numpy().mean(0), rtol=1e-12)
    for i, j in running.pairs:
        for layer in range(2):
            for n in range(5):
                truth = np.cov(rows[:, layer, i, n], rows[:, layer, j, n])[0, 1]
                assert running.covariance(i, j)[layer, n].item() == pytest.approx(
                    truth, rel=1e-6, abs=1e-6 * (offset > 0)
                )


def test_one_draw_has_no_covariance() -> None:
    running = Running([(0, 0)])
    running.add(numbers(1, 4))
    assert torch.isinf(running.covariance(0, 0)).all()


def test_constants_vary_by_nothing() -> None:
    running = Running([(0, 0)])
    for _ in range(7):
        running.add(torch.full((1, 2), 0.1))
    assert running.covariance(0, 0).tolist() == [0, 0]
    assert torch.equal(running.mean, torch.full((1, 2), 0.1).double())


@pytest.mark.parametrize("block", [7, 64, 1 << 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squares_in_blocks_are_those_of_whole_rows(
    block: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("initscope.finite.averages._BLOCK", block)
    both = numbers(10, 3, 4, 5).to(dtype)
    x, y = both.flatten(1).double().numpy().reshape(2, 5, 60)
    expected = [(x * x).sum(1), (y * y).sum(1), ((x - y) ** 2).sum(1)]
    np.testing.assert_allclose(squares(both), expected, rtol=1e-13)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e150])
def test_lengths_are_root_mean_squares_or_means(scale: float) -> None:
    rows = numbers(20, 2, 2, 3).abs()
    for average, mean, stderr in (
        ("moments", rows.square().mean(0).sqrt(), rows.square().std(0) / 20**0.5 / 2 / rows.square().mean(0).sqrt()),
        ("networks", rows.mean(0), rows.std(0) / 20**0.5),
    ):
        lengths = Lengths(average)  # type: ignore[arg-type]
        for row in rows:
            lengths.add(scale * row)
        found = lengths.estimate()
        np.testing.assert_allclose(found.value, scale * mean, rtol=1e-12)
        np.testing.assert_allclose(found.stderr, scale * stderr, rtol=1e-9)


def test_plans_cut_inputs_by_size_and_threads_by_memory() -> None:
    net, x = parse("4x(conv3(64) relu)"), torch.zeros(256, 3, 32, 32)
    plan = plan_draws("here", net, x, draws=10, memory=1 << 40, group=2)
    assert 1 <= plan.tile < 128  # 256 images of 64 channels are more than a tile
    assert plan.workers == min(10, torch.get_num_threads())
    for memory in (1 << 28, 1 << 34):
        assert plan_draws("here", net, x, draws=10, memory=memory, group=2).tile == plan.tile
    assert plan_draws("here", net, x, draws=1, memory=1 << 40).workers == 1
    with pytest.raises(BadInput, match="here: needs about"):
        plan_draws("here", net, x, draws=10, memory=1 << 20)
    joined = plan_draws("here", parse("conv3 bn"), x, draws=10, memory=1 << 40, group=2)
    assert joined.tile == 128  # batch norm needs them all
    with pytest.raises(BadInput, match="batch norm takes the whole batch at once"):
        plan_draws("here", parse("conv3 bn"), x, draws=10, memory=1 << 20, group=2)


@pytest.mark.parametrize(
    "text", ["conv3(5) relu gap dense(7)", "res(conv3(3) relu conv3(3))", "cat(conv3(4)|conv1(6)) dense(2)"]
)
def test_plans_count_the_weights_of_any_composition(text: str) -> None:
    """Against the modules themselves: a plan for gradients keeps all weights."""
    from initscope.finite.planning import _sizes

    net = parse(text)
    module = net.sample((3, 6, 6), generator=torch.Generator().manual_seed(0))
    assert _sizes(net, (3, 6, 6)).weights == sum(p.numel() for p in module.parameters())


def _independent_draws(depth: int, width: int, draws: int, repeats: int) -> Tensor:
    """|h(x)|², |h(y)|² and |h(x) - h(y)|² of He ReLU networks, every one drawn anew: (draws, 1, 3, repeats)."""
    g = torch.Generator().manual_seed(7)
    x = torch.randn(20, generator=g, dtype=torch.float64)
    y = 0.5 * x + torch.randn(20, generator=g, dtype=torch.float64)
    found = []
    for _ in range(draws):
        h = torch.stack([x, y]).expand(repeats, 2, 20)
        for _ in range(depth):
            fan = h.shape[2]
            h = (h @ torch.randn(repeats, fan, width, generator=g, dtype=torch.float64) * (2 / fan) ** 0.5).relu()
        a, b = h.unbind(1)
        found.append(torch.stack([a.square().sum(1), b.square().sum(1), (a - b).square().sum(1)])[None])
    return torch.stack(found)


@pytest.mark.parametrize(
    ("depth", "width", "draws"),
    [
        (3, 16, 10),
        (1, 8, 30),
        (2, 4, 30),
        pytest.param(3, 16, 30, marks=pytest.mark.slow),
        pytest.param(3, 64, 30, marks=pytest.mark.slow),
        pytest.param(3, 16, 100, marks=pytest.mark.slow),
    ],
)
def test_intervals_hold_for_few_draws_of_narrow_networks(depth: int, width: int, draws: int) -> None:
    """Student's intervals alone hold 87 to 92 % of the time where squared lengths are skewed."""
    repeats = 2000
    rows = _independent_draws(depth, width, draws, repeats)
    truth, found = Moments(), Moments()
    for row in rows:
        found.add(row)
    truth.add(rows.mean((0, 3), keepdim=True)[0])
    least, most = binom.interval(0.999, repeats, 0.95)
    for name, estimate in found.estimates().items():
        low, high = estimate.interval()
        exact = truth.estimates()[name].value
        assert least <= int(((low <= exact) & (exact <= high)).sum()) <= 1.02 * most, name


def test_skewed_draws_reach_further_and_many_draws_do_not() -> None:
    """Student's quantile plus (z⁵ + 2z³ - 3z)/18 γ²/draws."""
    one = torch.ones(1)
    for draws, added in ((10, 2.1167 * 4 / 10), (10**6, 0.0)):
        plain, skewed = Estimate(one, one, draws), Estimate(one, one, draws, 2 * one)
        assert float(skewed.reach() - plain.reach()) == pytest.approx(added, abs=1e-3)
        assert float(skewed.reach(0.5)) == float(plain.reach(0.5))
