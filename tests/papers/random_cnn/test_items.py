"""The items of DC: they run, their numbers are what other routes give, and slips are found where they are."""

from __future__ import annotations

import json
import math

import pytest
import torch

from initscope.bounds import convergence_image
from initscope.data import load, load_pairs
from initscope.images import layout, limit_network
from initscope.papers.item import Desk, Item, Outcome, Sampled
from initscope.papers.published import published
from initscope.papers.random_cnn import figure7, inputs, limit, sampling, sheets, variance
from initscope.papers.random_cnn.errata import ERRATA
from initscope.weights import Gaussian

ITEMS = {item.key: item for module in (figure7, inputs, limit, sheets, variance) for item in module.ITEMS}


def desk(item: Item, seed: int = 0) -> Desk:
    def photos(name: str, **options: object) -> object:
        return load("photos", **{"seed": seed, **options})  # type: ignore[arg-type]

    return Desk(photos, load_pairs, published(item.key), quick=True, seed=seed)  # type: ignore[arg-type]


def run(key: str) -> Outcome:
    item = ITEMS[key]
    return item.run(desk(item))


@pytest.mark.parametrize(
    "key", ["random-cnn/lemma5", "random-cnn/lemma7", "random-cnn/thm3", "random-cnn/thm9", "random-cnn/rate"]
)
def test_items_run_and_are_plain(key: str) -> None:
    found = run(key)
    json.dumps(dict(found.data), allow_nan=False)
    assert found.checks
    for check in found.checks:
        assert check.agrees is not None or check.why
    again = run(key)
    assert dict(again.data) == dict(found.data)


@pytest.mark.slow
@pytest.mark.parametrize("key", ITEMS)
def test_every_item_runs(key: str) -> None:
    found = run(key)
    json.dumps(dict(found.data), allow_nan=False)
    assert all(check.agrees is not None or check.why for check in found.checks)
    if found.picture is not None:
        assert found.picture.svg().startswith("<svg")


def test_statements_hold_and_slips_are_found() -> None:
    lemma5, lemma7, theorem3, theorem9 = (run(f"random-cnn/{name}") for name in ("lemma5", "lemma7", "thm3", "thm9"))
    assert all(check.agrees for check in (*lemma5.checks, *theorem9.checks))
    assert [check.agrees for check in lemma7.checks] == [True, False]
    assert [check.agrees for check in theorem3.checks] == [True, True, True, False]
    assert all(check.why for check in (*lemma7.checks, *theorem3.checks) if check.agrees is False)


def test_routes_are_counted_by_hand() -> None:
    """One bright pixel: z* of two 3x3 layers is the root of the number of routes."""
    image = torch.zeros(1, 1, 7, 7, dtype=torch.float64)
    image[..., 3, 3] = 1
    net = limit_network(layout("vgg16", "1_2", inputs=1, channels=4), Gaussian(2.0))
    one = torch.tensor([1.0, 3.0, 6.0, 7.0, 6.0, 3.0, 1.0], dtype=torch.float64)  # three layers of three taps
    expected = torch.outer(one, one).sqrt()
    torch.testing.assert_close(limit.routes(net, image)[0], expected)
    torch.testing.assert_close(convergence_image(net, image).z[0], expected)


def test_both_variants_come_from_one_network() -> None:
    images = load("photos", count=2, size=16).images
    paper, average = sampling.outputs(images, channels=8, seed=3)
    assert paper.shape == (2, 3, 16, 16)
    assert average.shape == (2, 1, 16, 16)
    assert bool((average >= 0).all())
    assert torch.equal(paper, sampling.outputs(images, channels=8, seed=3)[0])


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images = load("photos", count=5, size=16).images
    whole = sampling.outputs(images, channels=8)
    monkeypatch.setattr(sampling, "_BATCH", 2 * 8 * 256)
    for a, b in zip(whole, sampling.outputs(images, channels=8), strict=True):
        torch.testing.assert_close(a, b)


def test_slopes_and_trends() -> None:
    widths = (4, 16, 64)
    exact = torch.tensor([[5 * n**-0.5 for n in widths]] * 3, dtype=torch.float64)
    assert sampling.slope(exact, widths).value == pytest.approx(-0.5)
    random, found = torch.Generator().manual_seed(0), []
    for _ in range(400):
        noise = {n: torch.randn(12, 2, generator=random) for n in widths}
        found.append(sampling.trend({n: 0.1 * math.log2(n) + 0.01 * t for n, t in noise.items()}))
    slopes = torch.tensor([f.value for f in found], dtype=torch.float64)
    told = torch.tensor([f.stderr for f in found], dtype=torch.float64).square().mean().sqrt()
    assert abs(float(slopes.mean()) - 0.1) < 4 * float(slopes.std()) / math.sqrt(len(found))
    assert float(slopes.std() / told) == pytest.approx(1, abs=4 / math.sqrt(2 * len(found)))
    spread = math.sqrt(sum((math.log2(n) - 4) ** 2 for n in widths))
    known = 0.01 / math.sqrt(2 * 12) / spread
    assert float(told / known) == pytest.approx(1, abs=4 / math.sqrt(2 * 22 * len(found)))
    assert sampling.turned(found[0]).value == -found[0].value


def test_a_difference_is_decided_by_its_interval() -> None:
    assert sampling.grows("x", Sampled(1.0, 0.1, 30)).agrees is True
    assert sampling.grows("x", Sampled(-1.0, 0.1, 30), "because").agrees is False
    open_one = sampling.grows("x", Sampled(0.1, 0.1, 30))
    assert open_one.agrees is None
    assert "holds zero" in open_one.why
    assert sampling.rate_check("x", Sampled(-0.52, 0.02, 30)).agrees is True
    assert sampling.rate_check("x", Sampled(-0.6, 0.02, 30)).agrees is False


def test_lemma7_by_hand() -> None:
    left, right = variance.lemma7(torch.tensor([[1.0, 3.0, 2.0, 2.0]], dtype=torch.float64), 2)
    assert left.tolist() == right.tolist() == [32.0]


def test_errata_name_items_that_exist() -> None:
    for erratum in ERRATA:
        assert set(erratum.items) <= set(ITEMS)
    assert published("random-cnn/fig5") == {"cd2_over_cd1": "0.5"}
