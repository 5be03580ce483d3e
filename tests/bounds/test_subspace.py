"""Subspaces: OP Theorem 2 as printed, what its proof overlooks, the repair, and the chained bound."""

from __future__ import annotations

import functools
import itertools
import math

import mpmath as mp
import numpy as np
import pytest
import torch

from initscope.bounds import width_for, width_for_subspace
from initscope.bounds.printed_width import per_layer, rate
from initscope.bounds.subspace import _chain_length, log_net_failure, log_regions
from initscope.errors import BadInput
from initscope.finite import relu_norm_law


def test_hidden_activations_leave_the_subspace() -> None:
    """OP eq. 16 says that they stay in d dimensions: three input dimensions fill all 400 of the first hidden layer."""
    source = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(50, 3, generator=source, dtype=torch.float64)).Q
    inputs = torch.randn(4000, 3, generator=source, dtype=torch.float64) @ basis.T
    weights = torch.randn(400, 50, generator=source, dtype=torch.float64) * math.sqrt(2 / 400)
    assert torch.linalg.matrix_rank(inputs) == 3
    assert torch.linalg.matrix_rank(torch.relu(inputs @ weights.T)) == 400


@pytest.mark.parametrize(("hyperplanes", "dimension"), [(1, 1), (4, 2), (5, 3), (7, 3), (3, 5)])
def test_regions_counted_by_hand(hyperplanes: int, dimension: int) -> None:
    """Sign patterns of random points: each region is met when there are many points."""
    source = np.random.default_rng(hyperplanes)
    planes = source.standard_normal((hyperplanes, dimension))
    points = source.standard_normal((400_000, dimension))
    patterns = np.packbits(points @ planes.T > 0, axis=1)
    assert round(math.exp(log_regions(hyperplanes, dimension))) == len(np.unique(patterns, axis=0))
    if hyperplanes >= dimension:
        assert log_regions(hyperplanes, dimension) <= math.log(2) + dimension * math.log(
            math.e * hyperplanes / dimension
        )


def test_regions_by_adding_one_hyperplane_at_a_time() -> None:
    """A new hyperplane cuts as many regions in two as the others leave on it: r(n, d) = r(n-1, d) + r(n-1, d-1)."""

    @functools.cache
    def regions(n: int, d: int) -> int:
        if n == 0 or d == 0:
            return 1 if n == 0 else 0
        return regions(n - 1, d) + (regions(n - 1, d - 1) if d > 1 else int(n == 1))

    for n, d in itertools.product(range(1, 30), range(1, 9)):
        assert math.exp(log_regions(n, d)) == pytest.approx(regions(n, d), rel=1e-11)


def test_regions_of_many_hyperplanes() -> None:
    with mp.workdps(40):
        truth = mp.log(2 * mp.fsum(mp.binomial(99_999, i) for i in range(20)))
    assert log_regions(100_000, 20) == pytest.approx(float(truth), rel=1e-10)


@pytest.mark.parametrize(
    ("dimension", "depth", "epsilon", "delta"), [(3, 10, 0.5, 0.05), (20, 1, 0.1, 0.01), (1, 2, 0.9, 0.2)]
)
def test_printed_width_is_equation_11(dimension: int, depth: int, epsilon: float, delta: float) -> None:
    with mp.workdps(40):
        e = mp.mpf(1 + epsilon) ** (mp.mpf(1) / depth) - 1
        gap = min(e / (3 * mp.sqrt(dimension)), mp.sqrt(e) / (mp.sqrt(3) * dimension))
        above = dimension * mp.log(2 / gap) + mp.log(4 * depth / mp.mpf(delta))
        truth = above / (e / 12 - mp.log(mp.mpf("0.5") * (1 + mp.sqrt(1 + e / 3))))
    found = width_for_subspace(dimension, depth, epsilon, delta)
    assert found.printed.value == math.ceil(truth)
    assert "not proved" in found.printed.note


def test_repaired_width_is_the_smallest_that_covers_all_pieces() -> None:
    dimension, depth, epsilon, delta = 3, 4, 0.5, 0.05
    found = width_for_subspace(dimension, depth, epsilon, delta).repaired.value
    each = per_layer(epsilon, depth)
    gap = min(each / (3 * math.sqrt(dimension)), math.sqrt(each / 3) / dimension)

    def failure(n: int) -> float:
        pieces = sum(mp.mpf(2) ** l * (1 + (n - 1) + mp.mpf(n - 1) * (n - 2) / 2) ** l for l in range(depth))
        return float(pieces * 4 * mp.mpf(2 / gap) ** dimension * mp.exp(-n * mp.mpf(rate(each / 3))))

    assert failure(found) <= delta < failure(found - 1)


@pytest.mark.parametrize("dimension", [1, 2, 5, 100])
@pytest.mark.parametrize("depth", [1, 8])
def test_chained_is_below_printed_and_above_one_point(dimension: int, depth: int) -> None:
    found = width_for_subspace(dimension, depth, 0.5, 0.05)
    one_point = width_for(depth, 0.5, 0.05, every_layer=True).exact.value
    assert one_point < found.chained.value < found.printed.value <= found.repaired.value
    assert found.to_dict()["chained"]["kind"] == "bound"


def test_one_dimension_is_two_points() -> None:
    width = width_for_subspace(1, 3, 0.5, 0.05).chained.value
    at, before = (
        2 * sum(relu_norm_law([m] * layer).outside(0.5, 1.5) for layer in (1, 2, 3)) for m in (width, width - 1)
    )
    assert at <= 0.05 < before


def test_high_dimensions_do_not_underflow() -> None:
    """A net of e^4000 points needs probabilities that no double holds; log-normal tails give the size."""
    found = width_for_subspace(784, 10, 0.5, 0.05).chained.value
    narrower = width_for_subspace(392, 10, 0.5, 0.05).chained.value
    assert found == pytest.approx(2 * narrower, rel=0.02)


def distances(width: int, depth: int, networks: int, angle: float, seed: int) -> torch.Tensor:
    """|h(x) - h(y)|²/|x - y|² for two unit vectors at an angle, in fresh networks."""
    source = torch.Generator().manual_seed(seed)
    pair = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    h = pair.expand(networks, 2, 2)
    for _ in range(depth):
        weights = torch.randn(networks, width, h.shape[2], generator=source, dtype=torch.float64)
        h = torch.relu(torch.einsum("nij,npj->npi", weights * math.sqrt(2 / width), h))
    return (h[:, 0] - h[:, 1]).square().sum(1) / (pair[0] - pair[1]).square().sum()


@pytest.mark.parametrize(("angle", "power"), list(itertools.product((0.02, 0.8, math.pi), (1.0, 2.5))))
def test_distances_grow_no_more_than_norms(angle: float, power: float) -> None:
    """The step of the chain: E (|h(x) - h(y)|²/|x - y|²)^p <= E R^p for p >= 1."""
    ratio = distances(15, 3, 40_000, angle, seed=7) ** power
    mean, error = float(ratio.mean()), float(ratio.std()) / math.sqrt(len(ratio))
    assert mean - 4 * error <= relu_norm_law([15] * 3).moment(power)


def test_the_chain_is_long_enough() -> None:
    """The bound on the move between neighbours holds for the largest move found on a circle, again and again."""
    width, depth, mesh = 60, 2, 0.1
    slack = _chain_length(width, 2, depth, mesh, allowed=0.05)
    source = torch.Generator().manual_seed(5)
    worst = []
    for _ in range(60):
        angles = torch.arange(0, 2 * math.pi, mesh / 8, dtype=torch.float64)
        h = torch.stack([angles.cos(), angles.sin()], 1)
        for _ in range(depth):
            h = torch.relu(
                h @ torch.randn(h.shape[1], width, generator=source, dtype=torch.float64) * math.sqrt(2 / width)
            )
        norms = h.square().sum(1).sqrt()
        worst.append(max(float((norms - norms.roll(k)).abs().max()) for k in range(1, 9)))
    assert sum(move > slack for move in worst) == 0
    assert slack < 6 * mesh


def test_chained_width_holds_on_a_whole_plane() -> None:
    """Every direction of a plane, every layer, in networks of the chained width; at an eighth of it some fail."""
    depth, epsilon = 2, 0.5
    width = width_for_subspace(2, depth, epsilon, 0.05).chained.value
    angles = torch.linspace(0, 2 * math.pi, 1000)
    circle = torch.stack([angles.cos(), angles.sin()], 1)

    def failures(units: int) -> int:
        source, failed = torch.Generator().manual_seed(units), 0
        for _ in range(25):
            h, bad = circle, False
            for _ in range(depth):
                weights = torch.randn(h.shape[1], units, generator=source) * math.sqrt(2 / units)
                h = torch.relu(h @ weights)
                bad |= bool(((h.square().sum(1) - 1).abs() > epsilon).any())
            failed += bad
        return failed

    assert failures(width) == 0
    assert failures(width // 8) > 2


def test_any_mesh_gives_a_bound_and_the_chosen_one_is_good() -> None:
    values = [log_net_failure(3, 5, 0.5, 0.05, mesh)(8000) for mesh in (1e-3, 5e-3, 2e-2, 0.3)]
    assert values[1] < values[0]
    assert values[3] > 0  # too coarse: nothing is left of the interval


WRONG = {
    "dimension": (
        lambda: width_for_subspace(0, 1, 0.5, 0.05),
        "dimension is 0, expected a whole number; use 1 or more",
    ),
    "depth": (lambda: width_for_subspace(1, 0, 0.5, 0.05), "depth is 0"),
    "epsilon": (lambda: width_for_subspace(1, 1, 1.0, 0.05), "epsilon is 1.0, expected a number between 0 and 1"),
    "delta": (lambda: width_for_subspace(1, 1, 0.5, -1), "delta is -1"),
    "too wide": (lambda: width_for_subspace(10, 10, 1e-5, 0.05), "width_for_subspace: the target needs more than"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input(name: str) -> None:
    call, said = WRONG[name]
    with pytest.raises(BadInput, match=said):
        call()
