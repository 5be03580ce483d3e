"""Random units of Gaussian states: they have the state's second moments, and samples give the state back."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from initscope.errors import NoExactForm
from initscope.geometry import Inputs, State, covariance, draw_units, push, then
from initscope.geometry import generator as source
from initscope.geometry.draws import state_from_samples

KINDS, PAIRS, POSITIONS = 2, 2, (2, 3)
UNITS = 20_000
LAYOUTS = ("zipped", "zipped, all positions", "joint", "joint, all positions")
layouts = pytest.mark.parametrize("layout", LAYOUTS)


def generator(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def features(rank: int = 30, positions: tuple[int, ...] = POSITIONS, seed: int = 1) -> Tensor:
    """Data whose inner products over `rank` channels are the covariances, (2 PAIRS, KINDS · rank, *positions)."""
    return torch.randn(2 * PAIRS, KINDS * rank, *positions, generator=generator(seed), dtype=torch.float64)


def gaussian_state(layout: str, data: Tensor, kinds: int = KINDS) -> State:
    """The law of units that are Gaussian weightings of features: mean zero, the features' second moments."""
    half = len(data) // 2
    spread = "all positions" in layout
    if layout.startswith("joint"):
        raw = Inputs(data, data, zipped=False, all_positions=spread, joint=True).state(kinds)
    else:
        raw = Inputs(data[:half], data[half:], all_positions=spread).state(kinds)
    x = replace(raw.x, mean=torch.zeros_like(raw.x.mean))
    y = x if raw.joint else replace(raw.y, mean=torch.zeros_like(raw.y.mean))
    return replace(raw, x=x, y=y, law="gaussian", draw=None, independent_units=True)


def second_moments(data: Tensor, kinds: int = KINDS) -> Tensor:
    """E u v between every two images and positions, (K, images, P, images, P)."""
    by_kind = data.reshape(len(data), kinds, data.shape[1] // kinds, -1)  # (images, K, rank, P)
    return torch.einsum("ikrp,jkrq->kipjq", by_kind, by_kind) / by_kind.shape[2]


def related(layout: str, positions: int) -> list[tuple[int, int, int, int]]:
    """Which (image, position, image, position) the state of a layout knows about."""
    spots = list(itertools.product(range(positions), repeat=2))
    if "all positions" not in layout:
        spots = [(p, p) for p in range(positions)]
    images = list(itertools.product(range(2 * PAIRS), repeat=2))
    if layout.startswith("zipped"):
        images = [(i, j) for i, j in images if i % PAIRS == j % PAIRS]
    return [(i, p, j, q) for i, j in images for p, q in spots]


def assert_mean(samples: Tensor, expected: Tensor, axis: int) -> None:
    stderr = samples.std(axis) / math.sqrt(samples.shape[axis])
    rounding = 1e-7 * expected.abs().amax()
    assert bool(((samples.mean(axis) - expected).abs() <= 4 * stderr + rounding).all())


@layouts
@pytest.mark.parametrize("positions", [POSITIONS, ()], ids=["images", "vectors"])
def test_drawn_units_have_the_second_moments_of_the_state(layout: str, positions: tuple[int, ...]) -> None:
    data = features(positions=positions)
    state = gaussian_state(layout, data)
    units = draw_units(state, UNITS, generator())
    assert units.shape == (KINDS, UNITS, 2 * PAIRS, *positions)
    flat = units.flatten(3) if positions else units[..., None]
    i, p, j, q = torch.tensor(related(layout, flat.shape[3])).T
    expected = second_moments(data)[:, i, p, j, q]
    assert_mean(flat[:, :, i, p] * flat[:, :, j, q], expected, 1)
    assert_mean(flat, torch.zeros(KINDS, 2 * PAIRS, flat.shape[3], dtype=torch.float64), 1)


@layouts
def test_drawn_units_have_the_norms_and_distances_of_the_state(layout: str) -> None:
    state = gaussian_state(layout, features())
    units = draw_units(state, UNITS, generator(5))
    x, y = (units, units) if state.joint else (units[:, :, :PAIRS], units[:, :, PAIRS:])
    assert_mean(x.square(), state.x.norm, 1)
    assert_mean(y.square(), state.y.norm, 1)
    assert_mean(differences(x, y, state).square(), state.distance, 1)
    if state.all_positions:
        for block, values in zip(state.blocks()[1:], (x, y), strict=True):
            if block is not None:  # a joint batch has one side
                within = values[..., None, None] - values[..., None, None, :, :]
                assert_mean(within.square(), block.distance, 1)


def differences(x: Tensor, y: Tensor, state: State) -> Tensor:
    """u - v for every pair that the distance holds, after an axis of units."""
    if not state.zipped:
        x, y = x[:, :, :, None], y[:, :, None]
    if state.all_positions:
        x, y = x[..., None, None], y[..., None, None, :, :]
    return x - y


@layouts
def test_units_and_kinds_are_independent(layout: str) -> None:
    units = draw_units(gaussian_state(layout, features()), UNITS, generator(7))
    zero = torch.zeros(2 * PAIRS, *POSITIONS, dtype=torch.float64)
    assert_mean(units[0] * units[1], zero, 0)
    assert_mean(units[0, ::2] * units[0, 1::2], zero, 0)
    size = 2 * PAIRS * math.prod(POSITIONS)
    fourth = 3 * second_moments(features()).reshape(KINDS, size, size).diagonal(dim1=1, dim2=2) ** 2
    assert_mean(units.flatten(2) ** 4, fourth, 1)  # Gaussian: E u⁴ = 3 (E u²)²


@layouts
def test_the_covariance_matrix_is_that_of_the_features(layout: str) -> None:
    """Entry by entry: groups of the matrix are pairs, positions, or the whole batch."""
    data = features()
    count = math.prod(POSITIONS)
    found = covariance(gaussian_state(layout, data))
    true = second_moments(data)
    if layout == "zipped":
        assert found.shape == (KINDS, PAIRS * count, 2, 2)
        for n, p in itertools.product(range(PAIRS), range(count)):
            both = torch.tensor([n, PAIRS + n])
            torch.testing.assert_close(found[:, n * count + p], true[:, both, p][:, :, both, p])
    elif layout == "zipped, all positions":
        for n in range(PAIRS):
            both = torch.tensor([n, PAIRS + n])
            expected = true[:, both][:, :, :, both].reshape(KINDS, 2 * count, 2 * count)
            torch.testing.assert_close(found[:, n], expected)
    elif layout == "joint":
        assert found.shape == (KINDS, count, 2 * PAIRS, 2 * PAIRS)
        for p in range(count):
            torch.testing.assert_close(found[:, p], true[:, :, p, :, p])
    else:
        torch.testing.assert_close(found, true.reshape(KINDS, 1, 2 * PAIRS * count, 2 * PAIRS * count))


@layouts
@pytest.mark.parametrize("positions", [POSITIONS, ()], ids=["images", "vectors"])
def test_samples_give_their_own_moments_as_a_state(layout: str, positions: tuple[int, ...]) -> None:
    """Seven units only: `state_from_samples` takes means over the units, whatever their number."""
    like = gaussian_state(layout, features(positions=positions))
    units = draw_units(like, 7, generator(2)) + 0.2
    state = state_from_samples(like, units, 11, lambda count, g: units)
    x, y = (units, units) if like.joint else (units[:, :, :PAIRS], units[:, :, PAIRS:])
    torch.testing.assert_close(state.x.norm, x.square().mean(1))
    torch.testing.assert_close(state.y.norm, y.square().mean(1))
    torch.testing.assert_close(state.x.mean, x.mean(1))
    torch.testing.assert_close(state.distance, differences(x, y, state).square().mean(1), rtol=1e-12, atol=1e-13)
    assert state.distance.shape == like.distance.shape
    if state.all_positions:
        block = state.blocks()[1 if like.joint else 2]
        assert block is not None
        within = (y[..., None, None] - y[..., None, None, :, :]).square().mean(1)
        torch.testing.assert_close(block.distance, within, rtol=1e-12, atol=1e-13)
    assert (state.channels, state.positions, state.law) == (11, positions, "other")
    assert (state.x is state.y) == like.joint


@layouts
def test_the_state_of_drawn_units_is_the_state(layout: str) -> None:
    state = gaussian_state(layout, features())
    units = draw_units(state, UNITS, generator(3))
    again = state_from_samples(state, units, state.channels, lambda count, g: units, law="gaussian")
    # A mean of m squares of N(0, A) has standard error A √(2/m).
    reach = 4 * math.sqrt(2 / UNITS)
    for found, true in ((again.x.norm, state.x.norm), (again.y.norm, state.y.norm), (again.distance, state.distance)):
        assert bool(((found - true).abs() <= reach * true + 1e-12).all())


@layouts
def test_equal_inputs_give_equal_units(layout: str) -> None:
    data = features()
    data[PAIRS:] = data[:PAIRS]
    units = draw_units(gaussian_state(layout, data), 500, generator(4))
    # The root of a singular matrix is exact to the root of the rounding.
    assert (units[:, :, :PAIRS] - units[:, :, PAIRS:]).abs().max() < 1e-6
    assert units[:, :, :PAIRS].std() > 0.5


@pytest.mark.parametrize("layout", ["zipped, all positions", "joint, all positions"])
def test_equal_positions_and_few_features_give_tied_units(layout: str) -> None:
    """Rank 1: every value of a unit is a multiple of any other, with the features' ratios."""
    data = features(rank=1)
    data[..., 2] = data[..., 0]
    units = draw_units(gaussian_state(layout, data), 200, generator(4))
    assert (units[..., 2] - units[..., 0]).abs().max() < 1e-6
    for kind, image in itertools.product(range(KINDS), range(2 * PAIRS)):
        values = units[kind, :, image].flatten(1)
        direction = data[image, kind].flatten()
        direction = direction / direction.norm()
        assert (values - torch.outer(values @ direction, direction)).abs().max() < 1e-6


@pytest.mark.parametrize("rank", [4, 1200])
def test_large_images_are_drawn_with_the_same_moments(rank: int) -> None:
    """20 x 20 positions of a pair: beyond the size where the root is an eigendecomposition; singular for rank 4."""
    data = features(rank=rank, positions=(20, 20))[:2]
    data[1] = 0.6 * data[0] + 0.8 * data[1]
    state = gaussian_state("zipped, all positions", data[:, :rank], kinds=1)
    units = draw_units(state, 3000, generator(8))
    x, y = units[:, :, :1], units[:, :, 1:]
    errors = [
        (found.square().mean(1) / true - 1).abs().max() * math.sqrt(3000 / 2)
        for found, true in ((x, state.x.norm), (y, state.y.norm), (x - y, state.same_position().distance))
    ]
    assert max(errors) < 4.5  # of 1,200 values; by chance once in a hundred
    shifted = x[..., 1:, :] - x[..., :-1, :]
    within = state.blocks()[1]
    assert within is not None
    i = torch.arange(19)
    true = within.distance[0, 0, i + 1, :, i].diagonal(dim1=1, dim2=2)
    assert (shifted.square().mean(1)[0, 0] / true - 1).abs().max() < 4.5 * math.sqrt(2 / 3000)


def test_parts_of_a_seed_have_sources_of_their_own() -> None:
    parts = list(itertools.product(range(-3, 4), range(4), range(4)))
    starts = [source(*part).initial_seed() for part in parts]
    assert len(set(starts)) == len(parts)
    assert starts == [source(*part).initial_seed() for part in parts]


def test_the_seed_decides_the_units() -> None:
    state = gaussian_state("zipped", features())
    before = torch.get_rng_state()
    first = draw_units(state, 10, generator(1))
    assert torch.equal(first, draw_units(state, 10, generator(1)))
    assert not torch.equal(first, draw_units(state, 10, generator(2)))
    assert torch.equal(before, torch.get_rng_state())


@layouts
def test_a_changed_state_draws_its_own_units(layout: str) -> None:
    """Whatever is kept from earlier draws of a state must not be taken for one that was made from it."""
    data = features()
    first, larger = gaussian_state(layout, data), gaussian_state(layout, 3 * data)
    units = draw_units(first, 10, generator(1))
    changed = replace(first, x=larger.x, y=larger.y, excess=larger.excess, product=larger.product)
    torch.testing.assert_close(draw_units(changed, 10, generator(1)), 3 * units)
    assert torch.equal(draw_units(first, 10, generator(1)), units)


def test_units_have_the_numbers_of_the_state() -> None:
    assert draw_units(gaussian_state("zipped", features().float()), 3, generator()).dtype == torch.float32


@layouts
def test_push_measures_what_a_function_makes_of_the_units(layout: str) -> None:
    """ReLU keeps half of E u², and of its mean √(A/2π); every second column stays."""
    state = gaussian_state(layout, features())
    out = push(state, lambda t: t.relu()[..., ::2], 8, UNITS, generator(9))
    assert out.positions == (2, 2)
    assert out.channels == 8
    kept = state.x.norm[..., ::2]
    # Var relu(u)² = E u⁴/2 - A²/4 = 5A²/4, Var relu(u) = A (1/2 - 1/2π).
    assert ((out.x.norm / (kept / 2) - 1).abs() * math.sqrt(UNITS)).max() <= 4 * math.sqrt(5)
    mean_error = (out.x.mean - (kept / (2 * math.pi)).sqrt()).abs() / kept.sqrt() * math.sqrt(UNITS)
    assert mean_error.max() <= 4 * math.sqrt(0.5 - 0.5 / math.pi)
    again = draw_units(out, 100, generator(10))
    assert again.shape == (KINDS, 100, 2 * PAIRS, 2, 2)
    assert torch.equal(again, draw_units(state, 100, generator(10)).relu()[..., ::2])


def test_then_sends_drawn_units_on() -> None:
    state = gaussian_state("zipped", features())
    np.testing.assert_array_equal(then(state, torch.tanh)(5, generator(1)), draw_units(state, 5, generator(1)).tanh())


def test_what_cannot_be_drawn_says_so() -> None:
    state = gaussian_state("zipped", features())
    with pytest.raises(NoExactForm, match="law 'other' cannot be drawn"):
        draw_units(replace(state, law="other"), 3, generator())
    data = features()
    every = replace(Inputs(data, data.clone(), zipped=False).state(), law="gaussian", draw=None)
    with pytest.raises(NoExactForm, match="use kernel, or predict on pairs"):
        draw_units(every, 3, generator())
