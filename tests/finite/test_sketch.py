"""Sketched kernels against the exact sum over all pairs of positions: certificates hold for every image and amount of work."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import binom
from torch import Tensor

import initscope as iscope
from initscope.data import load
from initscope.errors import BadInput, NoExactForm
from initscope.finite import sketch_kernel
from initscope.finite.certificate import ONE_SIGMA, Residuals
from initscope.finite.patches import Field
from initscope.finite.sketch import PAIRS, ROUNDING, Projection
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


def _photos(count: int, size: int) -> Tensor:
    return load("photos", count=count, size=size).images


def _dark(count: int, size: int, seed: int = 0) -> Tensor:
    """Black but for one small bright square."""
    g = torch.Generator().manual_seed(seed)
    images = torch.zeros(count, 1, size, size)
    for image in images:
        row, column = torch.randint(size - 2, (2,), generator=g).tolist()
        image[0, row : row + 2, column : column + 2] = torch.rand(2, 2, generator=g)
    return images


def _strokes(count: int, size: int) -> Tensor:
    """Like digits: a few thin lines on black."""
    g = torch.Generator().manual_seed(4)
    images = torch.zeros(count, 1, size, size)
    for image in images:
        for axis in (1, 2):
            place, start = torch.randint(size // 2, (2,), generator=g).tolist()
            image.transpose(1, axis)[0, start : start + size // 2, place + 3] = 0.3 + 0.7 * torch.rand(1, generator=g)
    return images


def _gaussian(count: int, size: int) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(2))


def _misses(arch: str, images: Tensor, work: int, seeds: int) -> Tensor:
    """Which entries lie outside of their 95 % interval, (seeds, n, n)."""
    net = parse(arch)
    exact = kernel(net, images.double())
    found = []
    for seed in range(seeds):
        low, high = sketch_kernel(net, images, work=work, seed=seed).interval()
        found.append((exact < low) | (high < exact))
    return torch.stack(found)


@pytest.mark.parametrize("work", [1, 16, 32])
@pytest.mark.parametrize(
    ("arch", "images"),
    [
        ("2x(conv3(8, padding=zero) relu) gap", _dark(4, 20)),
        ("3x(conv3 relu) gap", _strokes(3, 14)),
        ("conv3 relu gap", _dark(4, 12)),
        ("2x(conv3 relu) gap", _gaussian(3, 9)),
        ("conv3(padding=zero, bias=0.1) leaky(0.3) gap", _photos(3, 12)),
    ],
    ids=["dark", "strokes", "dark, one layer", "Gaussian", "photos"],
)
def test_no_entry_misses_its_interval_too_often(arch: str, images: Tensor, work: int) -> None:
    """Each entry on its own: a certificate may miss in one of twenty sketches."""
    seeds = 12
    misses = _misses(arch, images, work, seeds).sum(0)
    assert int(misses.max()) <= binom.ppf(0.999, seeds, 0.05)


@pytest.mark.parametrize("work", [1, 16, 1024])
def test_no_entry_states_no_error_and_is_wrong(work: int) -> None:
    """Also where references leave nothing, or see nothing but black."""
    net = parse("2x(conv3(8, padding=zero) relu) gap")
    images = torch.cat([_dark(5, 20), torch.zeros(1, 1, 20, 20)])
    exact = kernel(net, images.double())
    for seed in range(4):
        found = sketch_kernel(net, images, work=work, seed=seed)
        error, reach = (found.value - exact).abs(), found.reach(0.9999)
        assert bool((error <= reach).all())
        assert bool((reach[:5, :5] > 0).all())
        assert bool((error[reach == 0] == 0).all())


@pytest.mark.parametrize("arch", ONE_LAYER + DEEP)
def test_errors_are_small_and_stated_within_reason(arch: str) -> None:
    """At the default work on photographs: the bound is near to what the diagonal, where it is attained, leaves out."""
    net, images = parse(arch), _photos(4, 16)
    exact = kernel(net, images.double())
    found = sketch_kernel(net, images)
    error, reach = ((found.value - exact).abs() / exact, found.reach() / exact)
    assert found.value.shape == (4, 4)
    assert bool((error <= reach).all())
    assert float(reach.max()) < 5e-3
    assert bool((reach.diagonal() < 4 * error.diagonal() + 1e-5).all())
    beside = sketch_kernel(net, images[:1], images[1:])
    assert bool(((beside.value - exact[:1, 1:]).abs() <= beside.reach(0.9999)).all())


@pytest.mark.parametrize("arch", ["conv5(padding=valid) relu gap", "2x(conv3 relu) gap"])
def test_a_sketch_is_positive_semidefinite(arch: str) -> None:
    """It is a Gram matrix, however few references there are, and its diagonal is never above the exact one."""
    net, images = parse(arch), load("shapes", count=20, size=12, channels=1).images
    found = sketch_kernel(net, images, work=16).value
    torch.testing.assert_close(found, found.T, rtol=1e-12, atol=0)
    assert float(torch.linalg.eigvalsh(found)[0]) > -1e-12 * float(found.diagonal().max())
    exact = kernel(net, images.double()).diagonal()
    assert bool((found.diagonal() <= exact * (1 + 1e-9)).all())


def test_more_references_leave_less() -> None:
    net, images = parse("2x(conv3 relu) gap"), _photos(3, 14)
    reaches = [float(sketch_kernel(net, images, work=work).reach().max()) for work in (4, 32, 256)]
    assert reaches[0] > 3 * reaches[1] > 9 * reaches[2] > 0


def test_zero_images_are_exact() -> None:
    found = sketch_kernel(parse("2x(conv3 relu) gap"), torch.zeros(2, 1, 8, 8))
    assert float(found.value.abs().max()) == float(found.reach().max()) == 0.0


def test_scales_of_images_do_not_matter() -> None:
    """The kernel is homogeneous: relative errors are those of images of one brightness."""
    net, images = parse("2x(conv3 relu) gap"), _photos(3, 12).double()
    scales = torch.tensor([1e-6, 1.0, 1e5], dtype=torch.float64)
    exact = kernel(net, images)
    found = sketch_kernel(net, images * scales[:, None, None, None], dtype=torch.float64)
    share = found.reach() / torch.outer(scales, scales) / exact
    assert float(share.max()) < 1e-3
    assert bool((((found.value / torch.outer(scales, scales) - exact).abs() / exact) <= share).all())


def test_the_same_seed_gives_the_same_and_another_another() -> None:
    net, images = parse("conv3 relu gap"), _photos(3, 12)
    one, again, other = (sketch_kernel(net, images, work=16, seed=seed).value for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def _field(padding: str, layers: int = 2) -> tuple[Field, Tensor, Tensor]:
    """Layers on small images, in float64: the field, the images and the exact kernel."""
    last = f" conv3(padding={padding}) relu" * (layers - 1)
    net = parse(f"conv3(padding={padding}, bias=0.2) leaky(0.3){last} gap")
    images = _photos(3, 9 if padding == "valid" else 5).double()
    plan = fast_plan(net, tuple(images.shape[1:]))
    assert plan is not None
    assert plan.stack is not None
    return Field(plan.stack, (images.shape[2], images.shape[3])), images, kernel(net, images)


@pytest.mark.parametrize(("padding", "layers"), [(p, 2) for p in ("circular", "valid", "zero")] + [("reflect", 1)])
def test_all_pairs_of_positions_add_up_to_the_kernel(padding: str, layers: int) -> None:
    field, images, exact = _field(padding, layers)
    every = torch.arange(field.positions)
    patches = [field.patches(image, every) for image in images]
    for i, one in enumerate(patches):
        for j, two in enumerate(patches):
            found = field.products(one, two)
            torch.testing.assert_close(found.mean(), exact[i, j], rtol=1e-11, atol=0)
            torch.testing.assert_close(field.paired(one, two), found.diagonal(), rtol=1e-11, atol=0)
        torch.testing.assert_close(field.squares(images[i]), field.paired(one, one), rtol=1e-11, atol=0)


@pytest.mark.parametrize("padding", ["circular", "valid", "zero"])
def test_the_kernel_is_the_sketch_and_the_residuals(padding: str) -> None:
    """K = φ̄·φ̄ + <R, R>, and the draws of one image estimate |R|² without bias."""
    field, images, exact = _field(padding)
    projection = Projection.fit(field, images, 12, generator(0))
    mean, (size, cosine, variance, _) = projection.image(images[0], generator(1))
    every = field.patches(images[0], torch.arange(field.positions))
    phi = projection.features(every)
    torch.testing.assert_close(mean, phi.mean(0))
    residual = field.products(every, every) - phi @ phi.T
    assert float(torch.linalg.eigvalsh(residual)[0]) > -1e-9
    left = float(exact[0, 0] - mean @ mean)
    assert float(residual.mean()) == pytest.approx(left, rel=1e-8)
    lengths = (residual.diagonal().clamp_min(0) + ROUNDING * field.squares(images[0])).sqrt()
    assert size == pytest.approx(float(lengths.mean()), rel=1e-3)
    assert cosine * size**2 == pytest.approx(left, abs=4.5 * size**2 * math.sqrt(variance / PAIRS))


def test_the_bound_is_empirical_bernstein() -> None:
    """Against means of values of a known law: rare ones, which a Student interval of few draws does not see."""
    draws, experiments, chance = 64, 4000, 0.02
    g = torch.Generator().manual_seed(0)
    values = (torch.rand(experiments, draws, generator=g) < chance).double()
    one = torch.ones(experiments, dtype=torch.float64)
    found = Residuals(one, values.mean(1), values.var(1), 0 * one, draws)
    for delta in (0.2, 0.05):
        missed = int((found.bound(delta).square() < chance).sum())
        assert missed <= binom.ppf(0.9999, experiments, delta)
    none = Residuals(one[:1], 0 * one[:1], 0 * one[:1], 0 * one[:1], draws)
    assert float(none.bound(0.05).square()) == pytest.approx(14 * math.log(40) / (3 * 63))


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
    assert torch.equal(found.stderr, found.reach(ONE_SIGMA))
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
    with pytest.raises(BadInput, match="level"):
        sketch_kernel(net, torch.rand(2, 3, 6, 6), work=2).reach(1.0)
