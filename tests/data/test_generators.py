"""The built-in generators against the laws they are named after."""

from __future__ import annotations

import importlib.util
import math
import socket

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch

from initscope.data import load, load_pairs, photos
from initscope.data.leaves import radii
from initscope.data.shapes import BODIES
from initscope.errors import BadInput, MissingExtra


def test_photos_need_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    photos.picture_named.cache_clear()
    assert load("photos", count=12, size=16, channels=1).images.shape == (12, 1, 16, 16)


def test_photos_take_turns_and_pairs_show_two_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = {name: torch.full((1, 3, 40, 50), float(i)) for i, name in enumerate(photos.COLOUR + photos.GREY)}
    for picture in pictures.values():
        picture[..., ::2, ::2] += 0.25  # not constant, so that crops are accepted
    monkeypatch.setattr(photos, "picture_named", pictures.__getitem__)
    shown = load("photos", count=12, size=8).images.flatten(1).mean(1).floor()
    assert sorted(shown.tolist()) == sorted([*range(6)] * 2)
    pairs = load_pairs("photos", pairs=30, size=8)
    assert (pairs.x.flatten(1).mean(1).floor() != pairs.y.flatten(1).mean(1).floor()).all()


def test_photos_grow_beyond_the_pictures_and_shrink_to_a_pixel() -> None:
    large = load("photos", count=6, size=(900, 700)).images
    assert large.shape == (6, 3, 900, 700)
    assert large.flatten(1).std(1).min() > 0.01
    assert load("photos", count=6, size=1).images.shape == (6, 3, 1, 1)


def test_photos_are_resized_with_antialiasing() -> None:
    """Each block of four columns has mean one half, but the two columns around its centre are white."""
    stripes = ((torch.arange(64) % 4 == 1) | (torch.arange(64) % 4 == 2)).float().expand(1, 1, 64, 64)
    shrunk = photos.resize(stripes, (16, 16))
    assert (shrunk - 0.5).abs().max() < 0.15


def test_photos_come_grey_or_in_colour_only() -> None:
    with pytest.raises(BadInput, match="channels=1"):
        load("photos", count=1, channels=2)


def test_photos_without_scikit_image(monkeypatch: pytest.MonkeyPatch) -> None:
    photos.picture_named.cache_clear()
    monkeypatch.setattr(photos, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="pip install scikit-image"):
        load("photos", count=1)
    monkeypatch.setattr(photos, "find_spec", importlib.util.find_spec)
    monkeypatch.setattr(photos, "COLOUR", ("no_such_picture.png",))
    with pytest.raises(BadInput, match="lacks no_such_picture"):
        load("photos", count=1)


@pytest.mark.parametrize("rho", [-1.0, -0.7, 0.0, 0.5, 1.0])
def test_gaussian_pairs_have_their_correlation(rho: float) -> None:
    pairs = load_pairs(f"gaussian:{rho}", pairs=20, size=40, channels=2, seed=5)
    assert pairs.correlation is not None
    assert pairs.correlation.tolist() == [rho] * 20
    x, y = pairs.x.double().flatten(), pairs.y.double().flatten()
    n = len(x)
    # Var(xy) = 1 + rho² for standard normal pairs; Var(y²) = 2.
    assert abs((x * y).mean().item() - rho) < 4 * math.sqrt((1 + rho**2) / n)
    assert abs(y.square().mean().item() - 1) < 4 * math.sqrt(2 / n)
    assert abs(y.mean().item()) < 4 / math.sqrt(n)
    if rho < 1:
        neighbours = (pairs.x[..., 1:] * pairs.y[..., :-1]).double()
        assert abs(neighbours.mean().item()) < 4 / math.sqrt(neighbours.numel())


def test_gaussian_pairs_spread_over_all_correlations() -> None:
    pairs = load_pairs("gaussian", pairs=9, size=64)
    expected = torch.linspace(-1, 1, 9, dtype=torch.float64)
    assert pairs.correlation is not None
    torch.testing.assert_close(pairs.correlation, expected)
    got = torch.cosine_similarity(pairs.x.double().flatten(1), pairs.y.double().flatten(1))
    # The sample correlation of n pairs has standard deviation about (1 - rho²)/sqrt(n).
    assert ((got - expected).abs() <= 4 * (1 - expected**2) / math.sqrt(3 * 64 * 64) + 1e-7).all()
    assert torch.equal(pairs.y[0], -pairs.x[0])
    assert load_pairs("gaussian", pairs=1).correlation.tolist() == [0.0]


def test_gaussian_mean() -> None:
    pairs = load_pairs("gaussian:0.5:2", pairs=10, size=32)
    shifted = torch.cat([pairs.x, pairs.y]).double() - load_pairs("gaussian:0.5", pairs=10, size=32).x.repeat(
        2, 1, 1, 1
    )
    assert shifted[:10].mean().item() == pytest.approx(2, abs=1e-6)
    images = load("gaussian::-1", count=10, size=32).images.double()
    assert abs(images.mean().item() + 1) < 4 / math.sqrt(images.numel())


@pytest.mark.parametrize("rho", [-0.25, 0.0, 0.4, 1.0])
def test_gaussian_sets_are_equally_correlated(rho: float) -> None:
    images = load(f"gaussian:{rho}", count=5, size=100).images.double().flatten(1)
    n = images.shape[1]
    moments = images @ images.T / n
    expected = torch.full((5, 5), rho, dtype=torch.float64)
    expected.fill_diagonal_(1.0)
    # Var(x²) = 2 on the diagonal, 1 + rho² beside it.
    assert ((moments - expected).abs() < 4 * (1 + expected**2).div(n).sqrt()).all()


@pytest.mark.parametrize("name", ["gaussian:2", "gaussian:x", "gaussian:0:0:0", "gaussian:nan", "gaussian:0:inf"])
def test_gaussian_names_are_checked(name: str) -> None:
    with pytest.raises(BadInput, match="CORRELATION"):
        load_pairs(name, pairs=1)


def test_five_images_cannot_all_oppose_each_other() -> None:
    with pytest.raises(BadInput, match=r"at least -0\.25"):
        load("gaussian:-0.5", count=5)


def test_leaves_have_power_law_radii() -> None:
    drawn = radii(np.random.default_rng(0), 20_000, 16.0)
    law = scipy.stats.kstest(drawn, lambda r: (1 - r**-2.0) / (1 - 16.0**-2))
    assert drawn.min() >= 1
    assert drawn.max() <= 16
    assert law.pvalue > 1e-3


@pytest.mark.parametrize(("size", "distance"), [(14, 1), (14, 4), (20, 3), (20, 6)])
def test_leaves_share_a_disc_as_often_as_the_model_says(size: int, distance: int) -> None:
    """P(two pixels show one disc) = g(d) / (2 g(0) - g(d)), g(d) the mean overlap of a disc with itself moved by d."""
    largest = size / 2

    def overlap(d: float) -> float:
        def lens(r: float) -> float:
            if d >= 2 * r:
                return 0.0
            return 2 * r * r * math.acos(d / (2 * r)) - d / 2 * math.sqrt(4 * r * r - d * d)

        return float(scipy.integrate.quad(lambda r: lens(r) * r**-3, 1.0, largest, points=[max(1.0, d / 2)])[0])

    expected = overlap(distance) / (2 * overlap(0) - overlap(distance))
    count = 300
    images = load("dead-leaves", count=count, size=size, channels=1, seed=11).images[:, 0]
    across = (images[:, :, distance:] == images[:, :, :-distance]).double()
    down = (images[:, distance:] == images[:, :-distance]).double()
    # Also along the borders alone: centres outside the image must count as much as those inside.
    for same in (across, down, across[:, :, :1], down[:, :1], across[:, :, -1:], down[:, -1:]):
        each = same.mean((1, 2))
        assert abs(each.mean().item() - expected) < 4 * each.std().item() / math.sqrt(count)


def test_leaves_have_uniform_independent_colours() -> None:
    pixels = load("dead-leaves", count=400, size=6, channels=3, seed=2).images[:, :, 3, 3].double()
    for channel in pixels.T:
        assert scipy.stats.kstest(channel.numpy(), "uniform").pvalue > 1e-3
    correlation = torch.corrcoef(pixels.T)
    assert (correlation - torch.eye(3)).abs().max() < 4 / math.sqrt(400)


def test_leaves_fit_odd_sizes() -> None:
    assert load("dead-leaves", count=2, size=1).images.shape == (2, 3, 1, 1)
    assert load("dead-leaves", count=1, size=(3, 150)).images.isfinite().all()


@pytest.mark.parametrize("kind", ["", *(f":{kind}" for kind in BODIES)])
@pytest.mark.parametrize("size", [3, 4, 9, (20, 33)])
def test_shapes_are_single_convex_bodies_inside_the_image(kind: str, size: int | tuple[int, int]) -> None:
    images = load(f"shapes{kind}", count=40, size=size).images
    assert images.shape[1] == 1
    assert set(images.unique().tolist()) == {0.0, 1.0}
    assert images.flatten(1).any(1).all()
    border = images.clone()
    border[..., 1:-1, 1:-1] = 0
    assert not border.any()
    # A convex body meets every line in one run: each row and column rises at most once.
    assert (images.diff(dim=-1) > 0).sum(-1).max() <= 1
    assert (images.diff(dim=-2) > 0).sum(-2).max() <= 1


def test_shapes_are_what_they_are_called() -> None:
    rectangles = load("shapes:rectangles", count=30, size=40).images[:, 0]
    rows, columns = rectangles.amax(2), rectangles.amax(1)
    assert torch.equal(rectangles, rows[:, :, None] * columns[:, None])
    discs = load("shapes:discs", count=30, size=80).images[:, 0].double()
    area, height = discs.sum((1, 2)), discs.amax(2).sum(1)
    assert (area / (math.pi * height**2 / 4) - 1).abs().max() < 0.1
    ellipses = load("shapes:ellipses", count=50, size=80).images[:, 0].double()
    assert (ellipses.sum((1, 2)) / ellipses.amax(2).sum(1) ** 2).std() > 0.05
    polygons = load("shapes:polygons", count=50, size=80).images[:, 0].double()
    assert not torch.equal(polygons, polygons.flip(2))
    # Even the thinnest triangle drawn covers 0.3 of the square on its radius, which is at least 19 pixels.
    assert polygons.sum((1, 2)).min() > 0.3 * 19**2


def test_shapes_repeat_over_channels_and_need_room() -> None:
    images = load("shapes", count=4, size=16, channels=3).images
    assert torch.equal(images[:, 0], images[:, 2])
    with pytest.raises(BadInput, match="size=3 or more"):
        load("shapes", count=1, size=2)
