"""Items are found by name, have what they need, and wrong names are answered with near ones."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from initscope.errors import BadInput
from initscope.papers import PAPERS, REAL_SETS, errata, find, find_all, items, published
from initscope.papers import registry as registry_module
from initscope.papers.published import _tables, package_of


@pytest.fixture
def fresh() -> Iterator[None]:
    items.cache_clear()
    yield
    items.cache_clear()


def test_every_item_is_well_formed() -> None:
    for item in items():
        assert re.fullmatch(r"[a-z0-9-]+/[a-z0-9-]+", item.key), item.key
        assert item.key.partition("/")[0] in PAPERS
        assert item.title, item.key
        assert item.says.endswith("."), item.key
        assert {name.partition(":")[0] for name in item.sets} <= set(REAL_SETS), item.key


def test_every_paper_has_items() -> None:
    assert {item.key.partition("/")[0] for item in items()} == set(PAPERS)


def test_published_tables_belong_to_items() -> None:
    names = {item.key for item in items()}
    for paper in PAPERS:
        for table in _tables(package_of(f"{paper}/")):
            assert f"{paper}/{table}" in names, f"[{table}] in {paper}"


def test_errata_point_to_items() -> None:
    names = {item.key for item in items()}
    for paper, slips in errata().items():
        assert slips, paper
        for slip in slips:
            assert all((slip.where, slip.printed, slip.should_be)), slip
            assert set(slip.items) <= names, (paper, slip.where, slip.items)


def test_groups_and_all() -> None:
    assert find("all") == items()
    assert find("overparam") == tuple(i for i in items() if i.key.startswith("overparam/"))
    both = find_all(["overparam/fig2", "overparam/fig1", "overparam/fig2"])
    assert [i.key for i in both] == ["overparam/fig1", "overparam/fig2"]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("overparam/fig11", "did you mean overparam/fig1"),
        ("overparm", "did you mean overparam"),
        ("lemma5", "did you mean overparam/lemma5"),
        ("ALL", "did you mean all"),
        ("zzzzzz", "use all, nachum2022"),
        ("", "initscope papers list"),
    ],
)
def test_wrong_names_are_answered_with_near_ones(key: str, said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        find(key)


def test_a_key_given_twice_is_refused(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    one = find("overparam/lemma6")[0]
    items.cache_clear()
    monkeypatch.setattr(registry_module, "_items_of", lambda paper: (one,))
    with pytest.raises(BadInput, match="more than once"):
        items()


def test_published_figures_keep_their_digits() -> None:
    assert published("overparam/nothing") == {}
    assert published("no-such-paper/fig1") == {}
    for item in items():
        assert all(isinstance(value, str) for value in published(item.key).values())
