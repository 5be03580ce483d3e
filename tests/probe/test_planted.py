"""`check` says the right thing about every planted mistake, names its place, and leaves everything as it was."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

from initscope.probe import check, fix
from probe.planted import PLANTED

LOWEST_HEALTHY, HIGHEST_FAIL = 0.6, 0.2
OF_THE_BATCH = ("batch-degenerate", "input-scale")


def _state(model: nn.Module) -> list[Tensor]:
    return [torch.get_rng_state(), *(value.clone() for value in model.state_dict().values())]


def _at(step: str | None, places: frozenset[str]) -> bool:
    """A place is a step, or a module in which the step is a function; calls of the same name are one place."""
    name = re.sub(r"#\d+$", "", step or "")
    return name in places or name.partition(":")[0] in places


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found_where_it_is(name: str) -> None:
    row = PLANTED[name]
    model, batch = row.build(), row.batch()
    before = _state(model)
    report = check(model, batch, seeds=1, **row.options)
    again = check(model, batch, seeds=3, theory=False, **row.options)
    after = _state(model)
    assert len(before) == len(after)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))

    said = [(f.kind, f.status, f.step, f.value, f.limit) for f in report.findings]
    assert report.verdict in row.verdicts, said
    assert again.verdict == report.verdict, "one seed and three seeds disagree"
    if row.kind is not None:
        places = [f.step for f in report.findings if f.kind == row.kind]
        assert places, f"no finding of the kind {row.kind}: {said}"
        assert row.steps is None or any(_at(step, row.steps) for step in places), said
    if report.verdict == "fail":
        assert report.score <= HIGHEST_FAIL
        assert row.steps is None or _at(report.first_bad_layer, row.steps), (report.first_bad_layer, said)
    if report.verdict == "healthy":
        assert report.score >= LOWEST_HEALTHY
        assert report.first_bad_layer is None
    if row.kind in OF_THE_BATCH:
        assert report.first_bad_layer not in {layer.name for layer in report.layers}, "the model is blamed for its data"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PLANTED)
def test_the_remedy_is_the_one_for_the_mistake(name: str) -> None:
    row = PLANTED[name]
    fixed = fix(row.build(), row.batch(), seeds=1, **row.options)
    parts = {part for remedy in fixed.applied for part in remedy.name.split("+")}
    if row.remedy is None:
        assert not parts, f"no change of the weights can help: {fixed.message}"
    elif parts:
        assert parts & row.remedy, f"{parts}: {fixed.message}"
        assert fixed.after.verdict != "fail", fixed.message
    else:
        assert "fail" not in row.verdicts, fixed.message


def test_the_table_has_enough_of_both() -> None:
    mistakes = [row for row in PLANTED.values() if row.kind is not None]
    assert len(mistakes) >= 60
    assert len(PLANTED) - len(mistakes) >= 20
    assert all(row.remedy is not None or row.advice for row in mistakes)
