"""Every item of every paper runs at the quick size, on photographs where the sets are not there."""

from __future__ import annotations

import pytest

from initscope.papers import Item, Plan, choose_source, items, run_item

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("item", items(), ids=lambda item: item.key)
def test_it_runs_and_explains_what_does_not_agree(item: Item) -> None:
    found = run_item(item, Plan(choose_source(), size="quick"))
    assert not found.failed, found.problem
    assert found.checks
    replaced = [words for words in found.given if " in place of " in words]
    for check in found.checks:
        assert check.agrees is None or not (check.published and replaced), check.says
        assert check.agrees is True or check.why, f"{item.key}: {check.says}"
        assert (
            check.agrees is None
            or check.exact is not None
            or check.sampled is not None
            or check.published
            or check.measured is not None
        ), check.says
