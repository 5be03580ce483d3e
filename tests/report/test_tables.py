"""Rows and tables: summaries over pairs by hand, and what a reader sees of them."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.table import Table

from initscope.networks import LayerGeometry
from initscope.report import Compared, LayerRow, comparison_table, cosine_text, facts_table, layer_rows, layer_table


def text_of(table: Table, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def cells_of(table: Table) -> list[tuple[str, ...]]:
    return list(zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True))


def layer(
    name: str, shape: tuple[int, ...], norms: list[tuple[float, float]], angles: list[float], **more: Any
) -> LayerGeometry:
    """Pairs of vectors of given norms at given angles."""
    x, y = (torch.tensor(side, dtype=torch.float64) for side in zip(*norms, strict=True))
    t = torch.tensor(angles, dtype=torch.float64)
    defect = 2 * (t / 2).sin().square()
    distance = ((x - y).square() + 2 * x * y * defect).sqrt()
    return LayerGeometry(name, shape, x, y, distance, defect, 1 - defect, t, **more)


START = layer("input", (3, 2, 2), [(3.0, 4.0), (1.0, 2.0)], [0.5, 1.0])


def row(**changes: Any) -> LayerRow:
    values = LayerRow("1 conv3", 1.25, 0.75, 0.5, 1.0, 0.25, 0.0, 0.5, 41.4, "exact", 0.0, None, None)
    return replace(values, **changes)


def test_rows_summarise_over_the_pairs() -> None:
    after = layer("1 conv3", (8, 2, 2), [(6.0, 8.0), (3.0, 1.0)], [0.3, 1.2], note="as it is")
    first, second = layer_rows([START, after])
    assert (first.name, first.norm_ratio) == ("input", pytest.approx(1))
    assert second.name == "1 conv3"
    # Per unit: 12 units before, 32 after.
    ratios = [math.sqrt((36 + 64) / 32 / ((9 + 16) / 12)), math.sqrt((9 + 1) / 32 / ((1 + 4) / 12))]
    assert second.norm_ratio == pytest.approx(sum(ratios) / 2)
    near, far = math.cos(0.3), math.cos(1.2)
    assert second.cosine_mean == pytest.approx((near + far) / 2)
    assert (second.cosine_min, second.cosine_max) == (pytest.approx(far), pytest.approx(near))
    assert (second.defect_min, second.defect_max) == (pytest.approx(1 - near), pytest.approx(1 - far))
    assert second.defect_mean == pytest.approx(1 - (near + far) / 2)
    assert second.angle_deg == pytest.approx(math.degrees(0.75))
    assert (second.method, second.error, second.stderr, second.note) == ("exact", 0.0, None, "as it is")
    assert first.note is None


def test_small_defects_keep_their_digits() -> None:
    [found] = layer_rows([layer("input", (4,), [(1.0, 1.0)], [2e-9])])
    assert found.defect_mean == pytest.approx(2e-18, rel=1e-9)
    assert found.cosine_mean == 1


def test_pairs_without_an_angle_are_left_out() -> None:
    nan = math.nan
    half = layer("input", (4,), [(0.0, 1.0), (1.0, 1.0), (0.0, 0.0)], [nan, 0.8, nan])
    [found] = layer_rows([half])
    assert found.cosine_mean == found.cosine_min == found.cosine_max == pytest.approx(math.cos(0.8))
    assert found.angle_deg == pytest.approx(math.degrees(0.8))
    assert found.norm_ratio == pytest.approx(1)  # a pair of zeros has no ratio
    [none] = layer_rows([layer("input", (4,), [(0.0, 1.0)], [nan])])
    assert all(math.isnan(v) for v in (none.cosine_mean, none.defect_min, none.defect_max, none.angle_deg))


def test_the_standard_error_is_the_mean_over_the_pairs() -> None:
    """Pairs share their draws: their errors are not averaged away."""
    stderr = {"cosine": torch.tensor([0.01, 0.03]), "norm_x": torch.tensor([5.0, 5.0])}
    simulated = layer("1 maxpool2", (3, 1, 1), [(3.0, 4.0), (1.0, 2.0)], [0.5, 1.0], method="simulated", stderr=stderr)
    assert layer_rows([START, simulated])[1].stderr == pytest.approx(0.02)
    without = replace(simulated, stderr={"norm_x": torch.tensor([5.0, 5.0])})
    assert layer_rows([START, without])[1].stderr is None


def test_a_row_survives_json() -> None:
    [found] = layer_rows([START])
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document == found.to_dict()
    assert LayerRow(**document) == found


@pytest.mark.parametrize(
    ("defect", "text"),
    [
        (0.0, "1.0000"),
        (1e-16, "1 - 1.0e-16"),
        (4.99e-4, "1 - 5.0e-04"),
        (5e-4, "0.9995"),
        (0.25, "0.7500"),
        (1.0, "0.0000"),
        (1.5, "-0.5000"),
        (2.0, "-1.0000"),
        (math.nan, "undefined"),
    ],
)
def test_cosines_are_written_by_their_defect(defect: float, text: str) -> None:
    assert cosine_text(defect) == text


def test_layer_table_has_a_line_per_layer() -> None:
    rows = [
        row(name="input"),
        row(name="1 tanh", method="quadrature", error=3e-9, defect_mean=1e-7, defect_min=1e-8, defect_max=1e-6),
        row(name="2 maxpool2", method="simulated", stderr=0.01, error=3e-9, norm_ratio=123456.0),
        row(name="3 relu", defect_mean=math.nan, defect_min=math.nan, defect_max=math.nan, angle_deg=math.nan),
    ]
    table = layer_table(rows, "Two pairs")
    assert [str(c.header) for c in table.columns] == ["layer", "norm ratio", "cosine", "min .. max", "angle", "method"]
    assert cells_of(table) == [
        ("input", "1.25", "0.7500", "0.5000 .. 1.0000", "41.4°", "exact"),
        ("1 tanh", "1.25", "1 - 1.0e-07", "1 - 1.0e-06 .. 1 - 1.0e-08", "41.4°", "quadrature ± 3e-09"),
        # 1.96 standard errors, and the sampling error in place of the quadrature's
        ("2 maxpool2", "1.235e+05", "0.7500", "0.5000 .. 1.0000", "41.4°", "simulated ± 0.02"),
        ("3 relu", "1.25", "undefined", "undefined .. undefined", "nan°", "exact"),
    ]
    text = text_of(table)
    assert text.startswith("Two pairs")
    assert len([line for line in text.splitlines() if line.strip()]) == 3 + len(rows)  # title, heading, rule


def test_comparison_table_puts_exact_next_to_sampled() -> None:
    sets = [
        Compared("photos", exact=[0.5, 0.75], sampled=[0.51, 0.74], margin=[0.0, 0.0123]),
        Compared("noise", exact=[0.0, 0.318309886], sampled=[-0.002, 0.32], margin=[0.0, 0.00004]),
    ]
    table = comparison_table(["input", "1 conv3"], sets, "Cosines")
    assert cells_of(table) == [
        ("input", "0.5000", "0.5100 ± 0.0000", "0.0000", "-0.0020 ± 0.0000"),
        ("1 conv3", "0.7500", "0.7400 ± 0.0123", "0.3183", "0.3200 ± 0.0000"),
    ]
    lines = [line.rstrip() for line in text_of(table).splitlines() if line.strip()]
    assert lines[0] == "Cosines"
    assert lines[1].split() == ["photos", "noise"]
    assert lines[2].split() == ["layer", *["exact", "sampled,", "95", "%"] * 2]
    # Numbers end where their headings end.
    assert lines[1].index("photos") + len("photos") == lines[4].index("0.5000") + len("0.5000")
    assert len(lines[2]) == len(lines[4]) == len(lines[5])


def test_facts_table_keeps_the_order_and_folds_long_values() -> None:
    long = "0123456789" * 8
    table = facts_table({"smallest": "0.5", "file": long, "any": "1"})
    assert [name for name, _ in cells_of(table)] == ["smallest", "file", "any"]
    lines = text_of(table, width=40).splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["smallest", "file", "any"]
    assert "".join(line[10:].strip() for line in lines[1:-1]) == long
    assert max(map(len, lines)) <= 40
    assert "…" not in "".join(lines)


def test_facts_table_of_nothing_is_empty() -> None:
    assert text_of(facts_table({})).strip() == ""
