"""Panels of curves and points: a legend without repeats, labels, the same bytes every time."""

from __future__ import annotations

import pytest

from initscope.errors import BadInput
from initscope.figures import Line, Panel, Picture, Points, curves_and_points


def picture(title: str = "A finding") -> Picture:
    marks = [
        Line("exact", [1, 2, 3], [1.0, 0.5, 0.25], low=[0.9, 0.4, 0.2], high=[1.1, 0.6, 0.3], band="95 %"),
        Points("sampled", [1, 2, 3], [1.02, 0.49, 0.26], 1, error=[0.1, 0.1, 0.1]),
        Points("pairs", [1, 2, 3], [1.2, 0.4, 0.3], 2, cloud=True),
    ]
    panels = [
        Panel(marks, "layer", "angle, degrees", "left", counts=True, level=1.0),
        Panel(marks, "width, units", "ratio", "right", scale_across="log", scale_up="log", limits_up=(0.1, None)),
    ]
    return curves_and_points(panels, title, "What is seen.")


def test_labels_stand_once_and_axes_have_theirs() -> None:
    svg = picture().svg()
    for words in ("exact", "sampled", "pairs", "95 %", "layer", "angle, degrees", "width, units", "left", "right"):
        assert svg.count(f">{words}</text>") == 1, words
    assert "<desc" in svg
    assert "What is seen." in svg


def test_the_same_bytes_every_time() -> None:
    assert picture().svg() == picture().svg()


def test_long_titles_are_wrapped() -> None:
    long = "A title that goes on for so long that it would not fit above two panels of the usual size " * 2
    svg = picture(long.strip()).svg()
    assert ">A title that goes on" in svg
    assert f">{long.strip()}</text>" not in svg


def test_counting_axes_mark_whole_numbers_only() -> None:
    left = picture().figure.axes[0]
    assert all(tick == int(tick) for tick in left.get_xticks())


def test_short_logarithmic_axes_have_more_than_one_label() -> None:
    right = picture().figure.axes[1]
    low, high = right.get_ylim()
    assert sum(low <= tick <= high for tick in right.get_yticks()) >= 2


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(BadInput, match="no panels"):
        curves_and_points([], "t", "d")
