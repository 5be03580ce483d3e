"""Every item runs, says why where it disagrees, gives plain data and a picture, and repeats itself."""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import pytest

from initscope.errors import BadInput
from initscope.papers.desk import Source, make_desk
from initscope.papers.item import Item, Outcome
from initscope.papers.pooling import ITEMS
from initscope.papers.pooling.errata import ERRATA
from initscope.papers.pooling.zoo import features
from initscope.papers.published import published

BY_KEY = {item.key: item for item in ITEMS}
NETWORKS = {"pooling/fig1", "pooling/fig5"}
LIGHT = ["pooling/fig6", "pooling/thm4-1", "pooling/thm4-4", "pooling/discussion", "pooling/appendix-d"]


def run(key: str) -> Outcome:
    """A quick run on photographs."""
    item: Item = BY_KEY[key]
    desk, _ = make_desk(item, Source(), size="quick")
    return item.run(desk)


outcome = functools.cache(run)


def look(found: Outcome) -> None:
    assert found.checks
    for check in found.checks:
        assert check.says
        assert check.agrees or check.why, check.says
    assert found.picture is not None
    assert found.picture.svg().startswith('<svg role="img"')
    json.dumps(dict(found.data), allow_nan=False)


@pytest.mark.parametrize("key", LIGHT)
def test_light_items(key: str) -> None:
    look(outcome(key))


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in BY_KEY if key not in LIGHT and key not in NETWORKS])
def test_other_items(key: str) -> None:
    look(outcome(key))


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(NETWORKS))
def test_networks(key: str) -> None:
    pytest.importorskip("pytorchcv")
    look(outcome(key))


def test_the_same_seed_gives_the_same_outcome() -> None:
    first, second = outcome("pooling/thm4-1"), run("pooling/thm4-1")
    assert first.data == second.data
    assert first.checks == second.checks


def test_what_theory_settles_is_settled() -> None:
    """Statements about exact numbers, which no seed can change."""
    verdicts = {
        check.says: check.agrees for key in ("pooling/thm4-1", "pooling/thm4-4") for check in outcome(key).checks
    }
    for words, agrees in (
        ("1 - cosine is O(1/n)", True),
        ("proof: the variance of a pooled unit", False),
        ("1 - C = O(1/d)", True),
        ("true order", True),
        ("proof, eq. 31", False),
        ("repaired", True),
    ):
        (found,) = [value for says, value in verdicts.items() if says.startswith(words)]
        assert found is agrees, words


def test_without_pytorchcv_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pytorchcv"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pytorchcv", None)
    with pytest.raises(BadInput, match=r'pip install "initscope\[papers\]"'):
        run("pooling/fig5")


def test_networks_leave_the_random_state_alone() -> None:
    pytest.importorskip("pytorchcv")
    import torch

    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    before = torch.get_rng_state()
    first = features("ResNet-32", images, 1)
    assert torch.equal(torch.get_rng_state(), before)
    assert first.shape == (4, 64, 8, 8)
    assert float(first.min()) == 0
    assert torch.equal(first, features("ResNet-32", images, 1))


def test_no_network_needs_a_download(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytorchcv")
    import socket

    import torch

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket, "socket", refuse)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert features("DLA-34", images, 0).shape == (2, 512, 4, 4)


def test_keys_errata_and_published_numbers_fit() -> None:
    assert all(item.key.startswith("pooling/") for item in ITEMS)
    assert {key for erratum in ERRATA for key in erratum.items} <= set(BY_KEY)
    table = published("pooling/table2")
    assert len([key for key in table if key.partition("_")[2].isdigit()]) == 20
    assert all(float(value) <= 1 for key, value in table.items() if not key.startswith("_"))
    assert len(BY_KEY) == 13
