"""Sketched kernels against the exact sum over all pairs of positions: unbiased, and the intervals hold at their rate."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import initscope as iscope
from initscope.data import load
from initscope.errors import BadInput, NoExactForm
from initscope.finite import sketch_kernel
from initscope.finite.sketch import GROUPS
from initscope.finite.sketch_deep import Field, StandIn, _places, _spread, fit
from initscope.geometry import generator
from initscope.networks import kernel, parse
from initscope.networks.fast import fast_plan

ONE_LAYER = (
    "conv3 relu gap",
    "conv3(padding=zero, bias=0.3) leaky(0.2) gap dense(1)",
    "conv5(padding=valid) leaky(0.7) gap",
    "conv3(padding=reflect) relu gap",
    "conv3 gap",
)
DEEP = (
    "3x(conv3 relu) gap",
    "2x(conv3(padding=zero) relu) gap dense(1, bias=0.2)",
    "2x(conv3(padding=valid) relu) gap",
)


def _photos(count: int, size: int) -> torch.Tensor:
    return load("photos", count=count, size=size).images


def _check_coverage(arch: str, images: torch.Tensor, work: int, seeds: int) -> None:
    """Entries of one sketch are strongly related: the rate's error is taken between seeds."""
    net = parse(arch)
    exact = kernel(net, images.double())
    rates = []
    for seed in range(seeds):
        low, high = sketch_kernel(net, images, work=work, seed=seed).interval()
        rates.append(((low <= exact) & (exact <= high)).double().mean())
    found = torch.stack(rates)
    assert float(found.mean()) > 0.95 - 3.5 * float(found.std()) / math.sqrt(seeds)


@pytest.mark.parametrize("arch", [a for a in ONE_LAYER if a != "conv3 gap"])
def test_intervals_hold_for_one_layer(arch: str) -> None:
    _check_coverage(arch, _photos(4, 12), 64, 24)


@pytest.mark.parametrize("arch", DEEP)
def test_intervals_hold_for_deep_networks(arch: str) -> None:
    _check_coverage(arch, _photos(3, 20), GROUPS, 20)


@pytest.mark.parametrize("arch", ONE_LAYER)
def test_one_layer_is_precise(arch: str) -> None:
    """References from the images themselves leave little to the random filters."""
    net, images = parse(arch), _photos(4, 24)
    exact = kernel(net, images.double())
    found = sketch_kernel(net, images, work=256)
    assert found.value.shape == (4, 4)
    assert float(((found.value - exact) / exact.abs().max()).abs().max()) < 1e-4
    beside = sketch_kernel(net, images[:1], images[1:], work=256)
    low, high = beside.interval(0.9999)
    slack = 1e-6 * float(exact.abs().max())
    assert ((low - slack <= exact[:1, 1:]) & (exact[:1, 1:] <= high + slack)).all()


def test_one_layer_stays_positive_semidefinite() -> None:
    """Both of its parts are Gram matrices, however few filters there are."""
    images = load("shapes", count=60, size=16, channels=1).images
    found = sketch_kernel(parse("conv5(padding=valid) relu gap"), images, work=16).value
    torch.testing.assert_close(found, found.T, rtol=1e-12, atol=0)
    assert float(torch.linalg.eigvalsh(found)[0]) > -1e-12 * float(found.diagonal().max())


def test_images_that_are_mostly_zero() -> None:
    """Patches without a direction are references for nothing."""
    images = torch.zeros(3, 1, 16, 16)
    images[0, 0, 4:6, 4:6] = 1.0
    images[1, 0, 9:12, 2:3] = -2.0
    net = parse("conv3 relu gap")
    exact = kernel(net, images.double())
    found = sketch_kernel(net, images, work=4096)
    low, high = found.interval(0.9999)
    assert ((low - 1e-12 <= exact) & (exact <= high + 1e-12)).all()
    assert float(found.value[2].abs().max()) == 0.0


def test_the_same_seed_gives_the_same_and_another_another() -> None:
    net, images = parse("conv3 relu gap"), _photos(3, 12)
    one, again, other = (sketch_kernel(net, images, work=16, seed=seed).value for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def _field(padding: str) -> tuple[Field, StandIn, torch.Tensor, torch.Tensor]:
    """Two layers on small images, in float64: the field, its stand-in, the images and the exact kernel."""
    net = parse(f"conv3(padding={padding}, bias=0.2) leaky(0.3) conv3(padding={padding}) relu gap")
    images = _photos(3, 9 if padding == "valid" else 5).double()
    plan = fast_plan(net, tuple(images.shape[1:]))
    assert plan is not None
    assert plan.stack is not None
    field = Field(plan.stack, (images.shape[2], images.shape[3]))
    return field, fit(field, images, generator(0)), images, kernel(net, images)


@pytest.mark.parametrize("padding", ["circular", "valid", "zero"])
def test_all_pairs_of_positions_add_up_to_the_kernel(padding: str) -> None:
    """Nothing is drawn: every pair of positions once, those at the border included; κ and what stands in for it."""
    field, stand_in, images, exact = _field(padding)
    total, other = torch.zeros(2, 3, 3, dtype=torch.float64)
    for places in itertools.product(range(5), repeat=4):
        (place,) = _places(field, [(at + 0.5) / 5 for at in places], (1, 1))
        total += field.window_sums(images, images, place)
        other += stand_in.window_sums(images, images, place)
    torch.testing.assert_close(total / 5**4, exact, rtol=1e-10, atol=0)
    means = stand_in.means(images)
    torch.testing.assert_close(other / 5**4, means @ stand_in.matrix @ means.T, rtol=1e-8, atol=0)


@pytest.mark.parametrize("padding", ["circular", "valid", "zero"])
def test_a_window_is_the_sum_of_its_positions(padding: str) -> None:
    """Also one that goes round the end of the image, where it is cut unless the image is a ring."""
    field, stand_in, images, _ = _field(padding)
    for starts in ((0, 1, 2, 0), (3, 4, 0, 2), (4, 3, 3, 4)):
        whole, parts = torch.zeros(2, 2, 3, 3, dtype=torch.float64)
        for place in _places(field, [(at + 0.5) / 5 for at in starts], (3, 2)):
            whole += torch.stack([kind.window_sums(images, images, place) for kind in (field, stand_in)])
        for row, column in itertools.product(range(3), range(2)):
            at = (starts[0] + row, starts[1] + column, starts[2] + row, starts[3] + column)
            (place,) = _places(field, [(side % 5 + 0.5) / 5 for side in at], (1, 1))
            parts += torch.stack([kind.window_sums(images, images, place) for kind in (field, stand_in)])
        torch.testing.assert_close(whole, parts, rtol=1e-9, atol=0)


def test_every_pair_of_places_is_equally_likely() -> None:
    """The points of one group are shifted together: each of them is uniform, as all of them are together."""
    seen = torch.zeros(3, 3, 3, 3, dtype=torch.float64)
    groups, each = 2000, 6
    for seed in range(groups):
        for point in _spread(each, generator(3, seed)):
            seen[tuple(int(3 * u) for u in point)] += 1
    expected = groups * each / 81
    assert float((seen - expected).abs().max()) < 4.5 * math.sqrt(expected)


def test_a_stand_in_leaves_little_to_the_windows() -> None:
    """The spread of the groups falls far below that of the same windows without it."""
    images = _photos(3, 48)
    net = parse("3x(conv3 relu) gap")
    plan = fast_plan(net, tuple(images.shape[1:]))
    assert plan is not None
    assert plan.stack is not None
    field = Field(plan.stack, (48, 48))
    stand_in = fit(field, images, generator(0))
    bare, rest = [], []
    for point in _spread(32, generator(1)):
        (place,) = _places(field, point, (16, 16))
        sums = field.window_sums(images, images, place)
        bare.append(sums)
        rest.append(sums - stand_in.window_sums(images, images, place))
    assert float(torch.stack(rest).std(0).mean()) < 0.03 * float(torch.stack(bare).std(0).mean())


@pytest.mark.parametrize("arch", ["conv3 relu", "dense(10) relu", "conv3 tanh gap", "conv3 relu gmp"])
def test_other_networks_are_refused(arch: str) -> None:
    images = torch.rand(2, 3, 6, 6)
    with pytest.raises(NoExactForm, match="global average"):
        sketch_kernel(parse(arch), images.flatten(1) if arch.startswith("dense") else images)


def test_the_public_kernel_takes_the_method() -> None:
    net, images = parse("2x(conv3 relu) gap"), _photos(3, 12)
    found = iscope.kernel(net, images, method="sketch", work=16, seed=3)
    again = sketch_kernel(net, images, work=16, seed=3)
    assert torch.equal(found.value, again.value)
    assert torch.equal(found.stderr, again.stderr)
    assert torch.equal(iscope.kernel(net, images, quantity="cosine"), kernel(net, images, quantity="cosine"))
    for options, words in (
        ({"method": "sketch", "quantity": "cosine"}, "quantity is 'cosine', and a sketch is of products"),
        ({"method": "sketch", "memory": 1 << 30}, "has no budget"),
        ({"work": 16}, "an exact kernel draws nothing"),
        ({"method": "guess"}, "choose 'exact' or 'sketch'"),
    ):
        with pytest.raises(BadInput, match=words):
            iscope.kernel(net, images, **options)  # type: ignore[call-overload]


def test_deep_networks_with_reflected_borders_are_refused() -> None:
    with pytest.raises(NoExactForm, match="another padding"):
        sketch_kernel(parse("2x(conv3(padding=reflect) relu) gap"), torch.rand(2, 3, 6, 6))


def test_bad_input() -> None:
    net = parse("conv3 relu gap")
    with pytest.raises(BadInput, match="work is 0"):
        sketch_kernel(net, torch.rand(2, 3, 6, 6), work=0)
    with pytest.raises(BadInput, match="NaN"):
        sketch_kernel(net, torch.full((2, 3, 6, 6), math.nan))
