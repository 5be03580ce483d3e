"""Items on photographs: deterministic, plain data, and claims that hold hold."""

from __future__ import annotations

import json
import math

import pytest
import torch

from initscope.papers.desk import Source, choose_source, make_desk
from initscope.papers.item import Item, Outcome
from initscope.papers.nachum2022 import ITEMS
from initscope.papers.nachum2022.boundary import _body, _one_piece, _room
from initscope.papers.nachum2022.errata import ERRATA
from initscope.papers.published import published

BY_NAME = {item.key.partition("/")[2]: item for item in ITEMS}
# What the paper says and a check refutes, whatever the images: the number of such checks in each item.
REFUTED = {"thm2": 1, "cor1": 1, "thm3": 1, "remark3": 1, "example1": 1, "thm5": 1, "lemma4": 1}
QUICK = ("eq2", "fig1a", "remark1", "lemma1", "lemma3", "remark2", "thm4", "fig2", "example1", "lemma4", "thm6", "thm5")


def run(name: str, source: Source | None = None, seed: int = 0) -> Outcome:
    item: Item = BY_NAME[name]
    desk, _ = make_desk(item, source or Source(), size="quick", seed=seed)
    return item.run(desk)


def assert_sound(outcome: Outcome) -> None:
    json.dumps(outcome.data, allow_nan=False)
    assert outcome.checks
    for check in outcome.checks:
        assert check.agrees or check.why, check.says
        assert check.exact is not None or check.sampled is not None, check.says
        assert check.exact is None or math.isfinite(check.exact), check.says
    if outcome.picture is not None:
        assert len(outcome.picture.title) < 90
        assert outcome.picture.description.endswith(".")


def test_every_statement_of_the_paper_has_an_item() -> None:
    wanted = {f"thm{i}" for i in range(1, 7)} | {f"lemma{i}" for i in range(1, 5)} | {f"remark{i}" for i in range(1, 4)}
    wanted |= {"cor1", "example1", "fig1a", "fig1b", "fig1c", "fig1d", "fig2", "eq2"}
    assert wanted <= set(BY_NAME)
    assert len(BY_NAME) == len(ITEMS)
    for item in ITEMS:
        assert item.says.endswith(".")
        assert item.key.startswith("nachum2022/")


def test_errata_point_to_items() -> None:
    for erratum in ERRATA:
        assert erratum.evidence
        assert all(key.partition("/")[2] in BY_NAME for key in erratum.items)


def test_published_figures_belong_to_items() -> None:
    assert published("nachum2022/fig1c")["slope"] == "0.97"
    assert published("nachum2022/channels")["angle"] == "12.5"


@pytest.mark.parametrize("name", QUICK)
def test_quick_items(name: str) -> None:
    outcome = run(name)
    assert_sound(outcome)
    refuted = [check.says for check in outcome.checks if check.agrees is False]
    assert len(refuted) == REFUTED.get(name, 0), refuted


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in QUICK])
def test_other_items(name: str) -> None:
    outcome = run(name)
    assert_sound(outcome)
    if name in REFUTED:
        assert sum(check.agrees is False for check in outcome.checks) >= REFUTED[name]


def test_the_same_seed_gives_the_same_outcome() -> None:
    first, second, other = run("lemma1"), run("lemma1"), run("lemma1", seed=1)
    assert first.checks == second.checks
    assert first.data == second.data
    assert first.data != other.data


def test_figure_1_on_given_images_names_them() -> None:
    outcome = run("fig1b", choose_source("photos"))
    assert_sound(outcome)
    assert outcome.picture is not None
    assert outcome.picture.title.startswith("photos")
    assert outcome.checks[0].published == "0.97"


def test_rectangles_on_the_torus() -> None:
    body = _body(10, (8, 2, 4, 3))  # rows 8, 9, 0, 1
    assert body.any(1).nonzero().flatten().tolist() == [0, 1, 8, 9]
    assert _one_piece(body)
    assert not _one_piece(_body(10, (1, 1, 2, 2)) | _body(10, (5, 1, 2, 2)))
    assert _room(body.any(1), body.any(1)) == 4
    ring = torch.ones(10, dtype=torch.bool)
    assert _room(ring, ring) == 10
