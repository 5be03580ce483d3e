"""`check` raises no alarm about models that train: over three draws of the weights none fails."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch

from initscope import check
from probe.trainable_zoo import TRAINABLE

DRAWS = 3
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRAINABLE)
def test_a_model_that_trains_does_not_fail(name: str) -> None:
    entry = TRAINABLE[name]
    if entry.needs is not None:
        pytest.importorskip(entry.needs)
    for draw in range(DRAWS):
        torch.manual_seed(draw)
        report = check(entry.build(), entry.batch(), seeds=1, seed=draw, **entry.options)
        first = next((row.reason for row in report.layers if row.name == report.first_bad_layer and row.reason), "")
        assert report.verdict != "fail", f"draw {draw}: {report.first_bad_layer}: {first}"


def test_the_zoo_is_large_and_half_of_it_has_targets() -> None:
    known = [entry for entry in TRAINABLE.values() if entry.goal is None or "target" in entry.options]
    assert len(TRAINABLE) >= 60
    assert len(known) >= 0.4 * len(TRAINABLE)


def test_the_page_has_the_losses_of_the_file() -> None:
    spec = importlib.util.spec_from_file_location("benchmarks_zoo", ROOT / "benchmarks" / "zoo.py")
    assert spec is not None
    assert spec.loader is not None
    zoo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(zoo)
    page = (ROOT / "docs" / "zoo.md").read_text()
    rows = [
        line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| .* \| (healthy|warn|fail) ", line)
    ]

    assert zoo.learned() in page, "run python benchmarks/zoo.py check --page docs/zoo.md"
    assert rows
    assert all(row[-1] == zoo.change(row[0]) for row in rows)
    assert f"{len(TRAINABLE)} models, {DRAWS * len(TRAINABLE)} checks" in page
    assert all(name in page for name in TRAINABLE)
    assert all(row["trains"] for row in zoo.rows())
    needs = [entry.needs for entry in TRAINABLE.values()]
    for package, words in (
        ("transformers", "configurations of `transformers`"),
        ("pytorchcv", "models of pytorchcv"),
        ("diffusers", "of diffusers"),
        (None, "written for this purpose"),
    ):
        assert f"{needs.count(package)} {words}" in page
