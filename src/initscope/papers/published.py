"""The figures as they are printed: `published.toml` beside the items of a paper, one table for each item."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from importlib.util import find_spec

from initscope.errors import BadInput

FILE = "published.toml"


def package_of(key: str) -> str:
    """The package that holds an item.

    >>> package_of("random-cnn/fig7a")
    'initscope.papers.random_cnn'
    """
    return f"initscope.papers.{key.partition('/')[0].replace('-', '_')}"


def published(key: str) -> Mapping[str, str]:
    """What the paper prints for an item, by name, digit for digit; empty where it prints nothing."""
    return _tables(package_of(key)).get(key.partition("/")[2], {})


@functools.cache
def _tables(package: str) -> Mapping[str, Mapping[str, str]]:
    if find_spec(package) is None or not (file := resources.files(package) / FILE).is_file():
        return {}
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise BadInput(f"{package} {FILE}", f"{name!r} is not in a table", "write it below [its item]")
        for entry, value in table.items():
            if not isinstance(value, str):
                problem = f"[{name}] {entry} is {value!r}, which has lost the digits that are printed"
                raise BadInput(f"{package} {FILE}", problem, "write it in quotes")
    return tables
