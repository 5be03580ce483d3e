"""Names, requests, centring and the choice of pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from initscope.data import FORMS, load, load_pairs
from initscope.errors import BadInput

BUILT_IN = ["photos", "gaussian", "dead-leaves", "shapes"]


@pytest.fixture
def numbered(tmp_path: Path) -> str:
    """Seven images that can be told apart: image i has all pixels i (as float, so unscaled)."""
    path = tmp_path / "numbered.npz"
    np.savez(path, images=np.arange(7, dtype=np.float32)[:, None, None, None] * np.ones((7, 4, 5, 3), np.float32))
    return f"npz:{path}"


@pytest.mark.parametrize("name", BUILT_IN)
def test_generators_obey_count_size_channels_and_seed(name: str) -> None:
    first = load(name, count=5, size=(12, 17), channels=1, seed=3)
    assert first.images.shape == (5, 1, 12, 17)
    assert first.images.dtype == torch.float32
    assert len(first) == 5
    assert first.source == name
    assert first.description
    assert torch.equal(first.images, load(name, count=5, size=(12, 17), channels=1, seed=3).images)
    assert not torch.equal(first.images, load(name, count=5, size=(12, 17), channels=1, seed=4).images)
    assert load(name, count=1).images.shape[2:] == (32, 32)


@pytest.mark.parametrize("name", ["photos", "dead-leaves", "shapes"])
def test_pictures_lie_between_zero_and_one(name: str) -> None:
    images = load(name, count=12, size=24).images
    assert images.min() >= 0
    assert images.max() <= 1


@pytest.mark.parametrize("name", BUILT_IN)
def test_pairs_are_seeded_and_differ(name: str) -> None:
    pairs = load_pairs(name, pairs=4, size=16, seed=1)
    assert pairs.x.shape == pairs.y.shape == load(name, count=4, size=16).images.shape
    assert len(pairs) == 4
    again = load_pairs(name, pairs=4, size=16, seed=1)
    assert torch.equal(pairs.x, again.x)
    assert torch.equal(pairs.y, again.y)
    assert all(not torch.equal(a, b) for a, b in list(zip(pairs.x, pairs.y, strict=True))[:-1])


def test_stored_images_are_drawn_without_replacement(numbered: str) -> None:
    seen = load(numbered, count=7, seed=2).images[:, 0, 0, 0]
    assert sorted(seen.tolist()) == list(range(7))
    assert seen.tolist() != list(range(7))
    with pytest.raises(BadInput, match="8 images asked for, 7 there"):
        load(numbered, count=8)


@pytest.mark.parametrize(("pairs", "seed"), [(1, 0), (3, 1), (5, 2), (12, 3), (21, 4)])
def test_pairs_of_stored_images_repeat_as_little_as_possible(numbered: str, pairs: int, seed: int) -> None:
    got = load_pairs(numbered, pairs=pairs, seed=seed)
    index = [(int(a), int(b)) for a, b in zip(got.x[:, 0, 0, 0], got.y[:, 0, 0, 0], strict=True)]
    assert all(a != b for a, b in index)
    assert len({frozenset(pair) for pair in index}) == pairs
    if 2 * pairs <= 7:
        assert len({i for pair in index for i in pair}) == 2 * pairs


def test_which_image_is_x_is_random(numbered: str) -> None:
    got = load_pairs(numbered, pairs=21, seed=0)
    smaller_first = (got.x[:, 0, 0, 0] < got.y[:, 0, 0, 0]).float().mean().item()
    assert 0.2 < smaller_first < 0.8


def test_more_pairs_than_there_are_is_refused(numbered: str) -> None:
    with pytest.raises(BadInput, match="21 different pairs, 22 asked for"):
        load_pairs(numbered, pairs=22)


def test_one_image_makes_no_pair(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", images=np.ones((1, 4, 4)))
    with pytest.raises(BadInput, match="at least two images"):
        load_pairs(f"npz:{tmp_path / 'one.npz'}", pairs=1)


def test_many_pairs_of_few_images_all_come(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", vectors=np.arange(60, dtype=np.float32).reshape(20, 3))
    got = load_pairs(f"npz:{tmp_path / 'v.npz'}", pairs=190)
    assert len({(a, b) for a, b in zip(got.x[:, 0].tolist(), got.y[:, 0].tolist(), strict=True)}) == 190


def test_centre_and_standardise_act_on_each_channel_of_the_whole_set() -> None:
    plain = load("photos", count=9, size=20).images.double()
    centred = load("photos", count=9, size=20, centre=True).images.double()
    standard = load("photos", count=9, size=20, standardise=True).images.double()
    mean = plain.mean((0, 2, 3), keepdim=True)
    torch.testing.assert_close(centred, plain - mean, rtol=0, atol=1e-6)
    deviation = (plain - mean).square().mean((0, 2, 3), keepdim=True).sqrt()
    torch.testing.assert_close(standard, (plain - mean) / deviation, rtol=1e-5, atol=1e-5)


def test_pairs_are_centred_together() -> None:
    pairs = load_pairs("photos", pairs=5, size=20, centre=True)
    both = torch.cat([pairs.x, pairs.y]).double()
    assert both.mean((0, 2, 3)).abs().max() < 1e-6
    assert pairs.x.double().mean((0, 2, 3)).abs().max() > 1e-3


def test_vectors_are_centred_coordinate_by_coordinate(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", vectors=np.random.default_rng(0).random((50, 3)) + 5)
    images = load(f"npz:{tmp_path / 'v.npz'}", count=50, centre=True).images
    assert images.double().mean(0).abs().max() < 1e-6


def test_a_constant_channel_cannot_be_standardised(tmp_path: Path) -> None:
    np.savez(tmp_path / "flat.npz", images=np.ones((3, 4, 4, 3)))
    with pytest.raises(BadInput, match=r"channels \[0, 1, 2\] are constant"):
        load(f"npz:{tmp_path / 'flat.npz'}", count=3, standardise=True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("photo", "did you mean 'photos'"),
        ("gausian:0.5", "did you mean 'gaussian'"),
        ("deadleaves", "did you mean 'dead-leaves'"),
        ("", "names are photos"),
        ("zzzz", "hf:NAME"),
        ("folder", "write folder:PATH"),
        ("npz:", "write npz:PATH"),
        ("photos:3", "takes nothing after a colon"),
        ("dead-leaves:3", "takes nothing after a colon"),
        ("shapes:stars", "kinds are rectangles"),
    ],
)
def test_wrong_names_say_what_is_right(name: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(name, count=1)
    assert words in str(caught.value)
    with pytest.raises(BadInput):
        load_pairs(name, pairs=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0},
        {"count": -1},
        {"count": True},
        {"count": 2.5},
        {"count": 1, "size": 0},
        {"count": 1, "size": (4, 0)},
        {"count": 1, "size": (4, 4, 4)},
        {"count": 1, "size": ((4, 4), 4)},
        {"count": 1, "size": "32"},
        {"count": 1, "channels": 0},
        {"count": 1, "seed": -1},
        {"count": 1, "seed": 0.5},
        {"count": 10**6, "size": 10**5},
    ],
)
def test_wrong_numbers_are_refused_before_work(wrong: dict) -> None:
    with pytest.raises(BadInput):
        load("gaussian", **wrong)


def test_numpy_integers_are_numbers() -> None:
    assert load("gaussian", count=np.int64(2), size=np.int32(4), seed=np.int64(1)).images.shape == (2, 3, 4, 4)


def test_every_form_is_known() -> None:
    for form in FORMS:
        kind = form.partition(":")[0].partition("[")[0]
        if kind not in BUILT_IN:
            with pytest.raises(BadInput, match="names no data"):
                load(kind, count=1)
