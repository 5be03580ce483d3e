"""Figures: valid, accessible, small SVG; the same bytes every time; what is drawn is what was given."""

from __future__ import annotations

import io
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from PIL import Image

from initscope.errors import BadInput
from initscope.figures import Curve, Line, Panel, Picture, curves_and_points, similarity_curves
from initscope.figures.style import PALETTE
from initscope.files import write_atomically

SVG = "{http://www.w3.org/2000/svg}"


def example(depth: int = 21) -> Picture:
    layers = ["input", *("conv3", "relu") * (depth // 2)][:depth]
    exact = [1 - math.exp(-i / 5) for i in range(depth)]
    low, high = [e - 0.1 for e in exact], [e + 0.1 for e in exact]
    one = Curve("photos", exact, low, high, sampled=exact, margin=[0.02] * depth)
    two = Curve("noise", [e / 2 for e in exact], sampled=[e / 2 for e in exact], margin=[0.01] * depth)
    return similarity_curves(layers, [one, two], title="Angles < & >")


def test_svg_is_valid_and_says_what_it_shows() -> None:
    root = ElementTree.fromstring(example().svg())
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert description is not None
    assert title.text == "Angles < & >"
    assert "photos: from 0 to 0.982" in (description.text or "")
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"


def test_svg_has_no_date_and_no_outside_reference() -> None:
    svg = example().svg()
    assert "<metadata" not in svg
    assert "http" not in svg.replace("http://www.w3.org/", "")


@pytest.mark.parametrize("depth", [2, 21, 601])
def test_svg_is_small(depth: int) -> None:
    assert len(example(depth).svg().encode()) <= 50_000


def test_same_bytes_on_every_call_and_in_every_process() -> None:
    assert example().svg() == example().svg()
    picture = example()
    assert picture.svg() == picture.svg()
    assert picture.png() == picture.png()
    code = (
        "import hashlib; from initscope.figures import *;"
        "print(hashlib.sha256(similarity_curves(['a', 'b'], [Curve('c', [0, 1])]).svg().encode()).hexdigest())"
    )
    runs = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(runs) == 1


def test_exact_line_points_and_bars_are_where_the_numbers_are() -> None:
    curve = Curve("c", [0.1, 0.4], low=[0.0, 0.3], high=[0.2, 0.5], sampled=[0.15, 0.35], margin=[0.01, 0.02])
    axes = similarity_curves(["input", "relu"], [curve]).figure.axes[0]
    line = axes.get_lines()[0]
    assert list(line.get_ydata()) == [0.1, 0.4]
    points, _, (bars,) = axes.containers[0]
    assert list(points.get_ydata()) == [0.15, 0.35]
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, [[0.15 - 0.01, 0.15 + 0.01], [0.35 - 0.02, 0.35 + 0.02]], atol=1e-12)
    band = next(item for item in axes.collections if isinstance(item, PolyCollection))
    assert {0.0, 0.3, 0.2, 0.5} <= {round(y, 9) for y in band.get_paths()[0].vertices[:, 1]}


@pytest.mark.parametrize("depth", [3, 20, 23, 24, 25, 49, 100, 601])
def test_many_layers_are_thinned_and_the_last_is_named(depth: int) -> None:
    axes = example(depth).figure.axes[0]
    ticks = [int(tick) for tick in axes.get_xticks()]
    assert ticks[0] == 0
    assert ticks[-1] == depth - 1
    assert len(ticks) <= 25
    assert len(set(ticks)) == len(ticks)


def test_tick_labels_do_not_touch() -> None:
    for depth in (5, 22, 24, 60, 601):
        figure = example(depth).figure
        figure.draw_without_rendering()
        # Slanted names are parallel strips: their distance across the slant has to exceed their height.
        labels = figure.axes[0].get_xticklabels()
        starts = [label.get_window_extent().x1 for label in labels]
        gaps = np.diff(starts)
        slant = math.sin(math.radians(labels[0].get_rotation())) or 1.0
        height = labels[0].get_fontsize() * figure.dpi / 72
        assert gaps.min() * slant > height


def test_png_is_an_image(tmp_path: Path) -> None:
    path = example().save(tmp_path / "figure.png")
    image = Image.open(io.BytesIO(path.read_bytes()))
    image.load()
    assert image.size[0] > 900
    pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    first = tuple(int(PALETTE[0][i : i + 2], 16) for i in (1, 3, 5))
    assert (pixels == first).all(axis=1).sum() > 100


def test_global_settings_stay_as_they_were() -> None:
    before = dict(mpl.rcParams)
    example().svg()
    assert dict(mpl.rcParams) == before


def test_no_pyplot() -> None:
    code = "import sys, initscope.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["figure", "figure.pdf", "figure.svg.gz"])
def test_other_kinds_of_file_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"expected \.svg or \.png"):
        example().save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot write"):
        example().save(tmp_path / "nowhere" / "figure.svg")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def fail(file: io.BufferedWriter) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(BadInput, match="No space left"):
        write_atomically(target, fail, "file")  # type: ignore[arg-type]
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_wrong_lengths_are_refused() -> None:
    with pytest.raises(BadInput, match="margin has 1 numbers, expected 2"):
        similarity_curves(["a", "b"], [Curve("c", [0, 1], sampled=[0, 1], margin=[0.1])])
    with pytest.raises(BadInput, match="only one of low and high"):
        similarity_curves(["a", "b"], [Curve("c", [0, 1], low=[0, 1])])
    with pytest.raises(BadInput, match="0 layers"):
        similarity_curves([], [])


def test_undefined_numbers_leave_a_gap() -> None:
    curve = Curve("c", [0.5, math.nan, 0.7], sampled=[0.5, math.nan, 0.7], margin=[0.1, math.nan, 0.1])
    ElementTree.fromstring(similarity_curves(["a", "b", "c"], [curve]).svg())


def test_texts_of_an_svg_keep_their_digits_and_coordinates_lose_theirs() -> None:
    panel = Panel([Line("gain 0.0079", [1, 1000], [1.0, 0.001])], "units", "left 0.00123", scale_up="log")
    svg = curves_and_points([panel], "A gain of +0.0079", "From 1 to 0.00125.").svg()
    for text in (">0.001<", "left 0.00123", "gain 0.0079", "A gain of +0.0079", "From 1 to 0.00125."):
        assert text in svg, text
    assert not re.search(r' (?:d|x|y)="[^"]*\d\.\d{3}', svg)
