"""Figures of a checked model: what is drawn is what was given, with words for it."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection

from initscope.errors import BadInput
from initscope.figures import Series, layer_curves, share_bar, shorten, step_curves

NAMES = ["conv1", "relu", "conv2"]


def test_lines_points_and_bands_are_where_the_numbers_are() -> None:
    theory = Series("theory", [30.0, None, 10.0], look="dashed", low=[20.0, None, 5.0], high=[40.0, None, 20.0])
    points = Series("pairs", [31.0, None, 12.0], look="points")
    series = [Series("measured", [32.0, 20.0, 11.0]), theory, points]
    axes = layer_curves(NAMES, series, title="Angle", quantity="degrees", mark=1).figure.axes[0]
    drawn = {line.get_label(): np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()}
    np.testing.assert_array_equal(drawn["measured"], [32, 20, 11])
    np.testing.assert_array_equal(drawn["theory"], [30, math.nan, 10])
    np.testing.assert_array_equal(drawn["pairs"], [31, math.nan, 12])
    assert list(next(line for line in axes.get_lines() if line.get_label() == "first bad layer").get_xdata()) == [1, 1]
    assert any(isinstance(item, PolyCollection) for item in axes.collections)
    assert axes.get_ylim()[0] == 0


def test_zeros_are_gaps_on_a_logarithmic_axis() -> None:
    axes = layer_curves(NAMES, [Series("g", [1e-12, 0.0, 1.0])], title="t", quantity="q", log=True).figure.axes[0]
    assert axes.get_yscale() == "log"
    assert np.isnan(np.asarray(axes.get_lines()[0].get_ydata(), dtype=float)[1])
    low, high = axes.get_ylim()
    assert 1e-14 < low < 1e-12
    assert 1 < high < 10


def test_a_narrow_logarithmic_axis_has_plain_numbers() -> None:
    picture = layer_curves(NAMES, [Series("g", [0.3, 0.9, 1.4])], title="t", quantity="q", log=True)
    texts = [t.text for t in ElementTree.fromstring(picture.svg()).iter("{http://www.w3.org/2000/svg}text")]
    assert {"0.5", "1"} <= set(texts)


def test_wide_bands_do_not_stretch_the_axis() -> None:
    band = Series("t", [1.0, 1.0, 1.0], low=[1e-300, 0.0, 0.5], high=[180.0, 1e9, 2.0])
    axes = layer_curves(NAMES, [band], title="t", quantity="q", log=True).figure.axes[0]
    low, high = axes.get_ylim()
    assert low > 0.1
    assert high < 10


def test_the_words_say_what_is_seen() -> None:
    picture = layer_curves(NAMES, [Series("measured", [30.0, None, 0.5])], title="Angle", quantity="degrees", mark=2)
    assert picture.description == (
        "degrees over 3 layers, conv1 to conv2. measured: 30 at the first, 0.5 at the last, lowest 0.5 at conv2, "
        "highest 30 at conv1. First bad layer: conv2."
    )
    nothing = layer_curves(["a"], [Series("m", [None])], title="t", quantity="q", log=True)
    assert "nothing to show" in nothing.description


def test_names_with_dollars_and_brackets_are_only_names() -> None:
    names = ["$x_", "a$b$c", "<b>&"]
    svg = layer_curves(names, [Series("m", [1.0, 2.0, 3.0])], title="t", quantity="q").svg()
    texts = [t.text for t in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert set(names) <= set(texts)


@pytest.mark.parametrize("count", [1, 2, 19, 20, 21, 41, 200, 1000])
def test_many_layers_are_thinned_and_small(count: int) -> None:
    names = [f"encoder.layer.{i}.attention.output.dense" for i in range(count)]
    values = [math.exp(-i / 10) for i in range(count)]
    series = [Series("m", values), Series("t", values, look="points", low=values, high=values)]
    picture = layer_curves(names, series, title="t", quantity="q", log=True)
    ticks = [int(t) for t in picture.figure.axes[0].get_xticks()]
    assert len(ticks) <= 21
    assert ticks[-1] == count - 1
    assert len(set(ticks)) == len(ticks)
    assert len(picture.svg()) < 120_000


def test_shares() -> None:
    picture = share_bar({"conv": 0.7, "norm": 0.298, "pooling": 0.002}, title="Contraction")
    assert picture.description == "conv 70 %, norm 30 %, pooling <1 %."
    bars = [c.patches[0] for c in picture.figure.axes[0].containers]  # type: ignore[attr-defined]
    assert [bar.get_width() for bar in bars] == pytest.approx([0.7, 0.298, 0.002])
    assert [bar.get_x() for bar in bars] == pytest.approx([0, 0.7, 0.998])
    for wrong in ({}, {"a": -0.1}, {"a": math.nan}):
        with pytest.raises(BadInput):
            share_bar(wrong, title="t")


def test_training_curves_end_where_they_diverge() -> None:
    picture = step_curves({"before": [1.0, math.inf], "after": [1.0, 0.5]}, title="Loss", quantity="loss")
    assert "after: from 1 to 0.5" in picture.description
    ElementTree.fromstring(picture.svg())
    with pytest.raises(BadInput):
        step_curves({"before": []}, title="t", quantity="q")


def test_wrong_lengths_are_refused() -> None:
    with pytest.raises(BadInput, match="values has 2 numbers, expected 3"):
        layer_curves(NAMES, [Series("m", [1.0, 2.0])], title="t", quantity="q")
    with pytest.raises(BadInput, match="only one of low and high"):
        layer_curves(["a"], [Series("m", [1.0], low=[0.0])], title="t", quantity="q")
    with pytest.raises(BadInput, match="0 layers"):
        layer_curves([], [], title="t", quantity="q")


@given(st.text(min_size=0, max_size=60), st.integers(1, 70))
def test_shortened_names_fit(name: str, width: int) -> None:
    short = shorten(name, width)
    assert len(short) <= width
    if len(name) <= width:
        assert short == name
    elif width > 3:
        assert "…" in short
        assert short[0] == name[0] or short[0] == "…"
