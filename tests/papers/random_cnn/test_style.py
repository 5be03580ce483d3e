"""The style items of DC: they run quickly, are plain, and every disagreement has a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from initscope.images import layout
from initscope.papers.desk import choose_source, make_desk
from initscope.papers.item import Item
from initscope.papers.random_cnn import style


@pytest.mark.parametrize("item", style.ITEMS, ids=lambda item: item.key)
def test_items_run_and_are_plain(item: Item, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("INITSCOPE_WEIGHTS", str(tmp_path))
    desk, _ = make_desk(item, choose_source("photos"), size="quick")
    found = item.run(desk)
    json.dumps(dict(found.data), allow_nan=False)
    assert found.picture is not None
    assert all(check.why for check in found.checks if not check.agrees)
    if item.key == "random-cnn/fig15":
        assert found.checks[-1].agrees is None
    if item.key == "random-cnn/fig17":
        assert found.data["scaled"] == 0


def test_multiplications_by_hand() -> None:
    """VGG16 at 32x32: Conv1 has 9 (3 + 64) 64 products at each of 1024 positions."""
    plan = layout("vgg16", 5)
    assert style._products(plan, 32, 0) - style._products(plan, 32, 1) == 9 * 67 * 64 * 1024
