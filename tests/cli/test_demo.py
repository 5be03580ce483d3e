"""The demo: a deep network collapses on photos and is repaired; a page shows it; in less than a minute."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from initscope.cli import main
from initscope.cli.demo import PAGE


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("demo") / "out"
    result = CliRunner().invoke(main, ["demo", "--out", str(folder), "--json"], prog_name="initscope")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), folder


def test_it_collapses_and_is_repaired(demo: tuple[Any, Path]) -> None:
    document, _ = demo
    assert document["schema"] == "initscope.demo/1"
    before, after = document["before"], document["after"]
    assert before["verdict"] == "fail"
    assert after["verdict"] in ("healthy", "warn")
    assert sum(row["kind"] == "conv" for row in before["layers"]) == 30
    assert before["layers"][-1]["angle_deg"] < 1e-3  # indistinguishable
    assert after["layers"][-1]["angle_deg"] > 1
    assert before["layers"][0]["grad_norm_ratio"] < 1e-6
    assert 1e-3 < after["layers"][0]["grad_norm_ratio"] < 1e3
    assert max(before["blame"], key=before["blame"].get) == "conv"
    assert [r["name"] for r in before["remedies"] if r["applied"]] == [r["name"] for r in document["applied"]]


def test_the_page_shows_both(demo: tuple[Any, Path]) -> None:
    document, folder = demo
    assert [path.name for path in folder.iterdir()] == [PAGE]
    text = (folder / PAGE).read_text()
    assert text.count('class="verdict ') == 2
    assert document["applied"][0]["name"] in text
    assert len(re.findall("<svg", text)) >= 5
    assert len(text) < 1_000_000
