"""Hostile inputs for a while: seconds by default, hours with `pytest tests/fuzz --fuzz-seconds 3600`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fuzz.harness import Target, damaged, run_case, run_target
from fuzz.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_input_breaks_a_promise(target: Target, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seconds = request.config.getoption("--fuzz-seconds") * target.share / sum(each.share for each in TARGETS)
    tally = run_target(target, tmp_path, seconds)
    assert tally.tried
    assert not tally.broken, "\n".join(f"case {number}: {said}" for number, said in tally.broken)


def test_the_harness_finds_what_is_broken(tmp_path: Path) -> None:
    def case(rng: random.Random) -> str:
        if rng.random() < 0.5:
            raise KeyError("lost")
        return "fine"

    target = Target("broken", "", "", lambda folder: case)
    tally = run_target(target, tmp_path, 60, most_broken=5)
    assert [said.partition(" (")[0] for _, said in tally.broken] == ["KeyError: 'lost'"] * 5
    for number, _ in tally.broken:
        with pytest.raises(KeyError):
            run_case(case, number)


def test_damage_damages() -> None:
    whole = bytes(range(256)) * 4
    made = [damaged(whole, random.Random(number)) for number in range(300)]
    assert sum(content == whole for content in made) < 30
    assert {len(content) < len(whole) for content in made} == {True, False}
