"""All items of all papers, and how they are found by name."""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Sequence
from importlib.util import find_spec

from initscope.errors import BadInput
from initscope.papers.item import Erratum, Item
from initscope.papers.published import package_of

# In the order of every list and page: the name in a key, and the paper behind it.
PAPERS = {
    "nachum2022": "JL: A Johnson-Lindenstrauss framework for randomly initialized CNNs",
    "overparam": "OP: The benefits of over-parameterization at initialization in deep ReLU networks",
    "pooling": "PC: Contraction property of pooling layer",
    "random-cnn": "DC: Randomness in deconvolutional networks for visual representation",
}
ALL = "all"


@functools.cache
def items() -> tuple[Item, ...]:
    """Every figure, table and statement that can be run, paper by paper."""
    found = [item for paper in PAPERS for item in _items_of(paper)]
    keys = [item.key for item in found]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise BadInput("papers", f"{', '.join(twice)} more than once", "give every item a key of its own")
    return tuple(found)


def find(key: str) -> tuple[Item, ...]:
    """The items that a name means: one item, all of a paper, or `all`.

    >>> [item.key for item in find("overparam/fig1")]
    ['overparam/fig1']
    """
    if key == ALL:
        return items()
    chosen = tuple(item for item in items() if key in (item.key, item.key.partition("/")[0]))
    if not chosen:
        raise BadInput("papers", f"no item {key!r}", _hint(key))
    return chosen


def find_all(keys: Sequence[str]) -> tuple[Item, ...]:
    """The items that several names mean, each once, in the order of the list."""
    wanted = {item.key for key in keys for item in find(key)}
    return tuple(item for item in items() if item.key in wanted)


def errata() -> dict[str, tuple[Erratum, ...]]:
    """The slips found in each paper, by the paper's name in keys."""
    found = {}
    for paper in PAPERS:
        module = f"{package_of(f'{paper}/')}.errata"
        found[paper] = tuple(importlib.import_module(module).ERRATA) if find_spec(module) is not None else ()
    return found


def _hint(key: str) -> str:
    names = [item.key for item in items()]
    same = [name for name in names if name.partition("/")[2] == key.strip().lower()]
    near = same or difflib.get_close_matches(key.lower(), [*names, *PAPERS, ALL], n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"use {ALL}, {', '.join(PAPERS)} or an item of `initscope papers list`"


def _items_of(paper: str) -> Sequence[Item]:
    found: Sequence[Item] = importlib.import_module(package_of(f"{paper}/")).ITEMS
    return found
