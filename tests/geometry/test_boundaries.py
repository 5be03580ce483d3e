"""Shared boundaries against the definition read pixel by pixel, and JL Example 1 with its hidden conditions."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from initscope.errors import BadInput
from initscope.geometry.boundaries import (
    boundary_weight,
    rectangle_boundary_size,
    shared_boundary,
    shared_boundary_size,
)


def by_definition(a: Tensor, b: Tensor, r: int) -> Tensor:
    """JL Definition 2: the two existence statements 15a and 15b, tried tap by tap."""
    h, w = a.shape
    out = torch.zeros(h, w, dtype=torch.bool)
    taps = list(itertools.product(range(-r, r + 1), repeat=2))
    for i, j in itertools.product(range(h), range(w)):
        in_a = [bool(a[(i + p) % h, (j + q) % w]) for p, q in taps]
        in_b = [bool(b[(i + p) % h, (j + q) % w]) for p, q in taps]
        out[i, j] = (any(in_a) and any(in_b)) and (not all(in_a) or not all(in_b))
    return out


def rectangle(side: int, top: int, left: int, height: int, width: int) -> Tensor:
    image = torch.zeros(side, side, dtype=torch.bool)
    image[top : top + height, left : left + width] = True
    return image


@given(st.integers(3, 7), st.integers(3, 7), st.integers(1, 3), st.floats(0.05, 0.95), st.integers(0, 10**6))
@settings(max_examples=80, deadline=None)
def test_equals_the_definition(h: int, w: int, r: int, density: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.rand(h, w, generator=generator) < density for _ in range(2))
    expected = by_definition(a, b, r)
    assert torch.equal(shared_boundary(a, b, r), expected)
    assert shared_boundary_size(a, b, r).item() == int(expected.sum())


@pytest.mark.parametrize("r", [2, 3, 4, 5])
def test_windows_that_reach_around_the_torus(r: int) -> None:
    a, b = rectangle(5, 1, 1, 2, 2), rectangle(5, 3, 3, 1, 1)
    assert torch.equal(shared_boundary(a, b, r), by_definition(a, b, r))


@st.composite
def meeting_spans(draw: st.DrawFn) -> tuple[tuple[int, int], tuple[int, int]]:
    """Start and length of two intervals that meet in at least four pixels, in any relative position."""
    start, overlap = draw(st.integers(0, 6)), draw(st.integers(4, 9))
    before, after = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    # What sticks out on a side belongs to one of the two, or the overlap would grow.
    if draw(st.booleans()):
        first, second = (start, before + overlap + after), (start + before, overlap)
    else:
        first, second = (start, before + overlap), (start + before, overlap + after)
    return (first, second) if draw(st.booleans()) else (second, first)


@given(meeting_spans(), meeting_spans(), st.integers(1, 2))
@settings(max_examples=300, deadline=None)
def test_example_1_for_any_relative_placement(
    rows: tuple[tuple[int, int], tuple[int, int]], columns: tuple[tuple[int, int], tuple[int, int]], r: int
) -> None:
    """4r(e+f) whenever e, f >= 2r and the hull of both, widened by r on each side, fits into the image."""
    spans = [rows, columns]
    (rows_a, rows_b), (columns_a, columns_b) = rows, columns
    overlaps = [min(p + m, q + n) - max(p, q) for (p, m), (q, n) in spans]
    hulls = [max(p + m, q + n) - min(p, q) for (p, m), (q, n) in spans]
    side = max(max(hulls) + 2 * r, *(p + m for pair in spans for p, m in pair))
    a = rectangle(side, rows_a[0], columns_a[0], rows_a[1], columns_a[1])
    b = rectangle(side, rows_b[0], columns_b[0], rows_b[1], columns_b[1])
    assert int(shared_boundary(a, b, r).sum()) == rectangle_boundary_size(overlaps[0], overlaps[1], r)
    # Cyclic shifts move the boundary along: rectangles across the border of the picture are no exception.
    moved = shared_boundary(a.roll((3, 5), (0, 1)), b.roll((3, 5), (0, 1)), r)
    assert torch.equal(moved, shared_boundary(a, b, r).roll((3, 5), (0, 1)))


@pytest.mark.parametrize(
    ("name", "a", "b", "e", "f"),
    [
        ("corner", (2, 2, 6, 6), (4, 5, 7, 6), 4, 3),
        ("nested", (2, 2, 9, 9), (4, 5, 4, 3), 4, 3),
        ("equal", (2, 2, 6, 5), (2, 2, 6, 5), 6, 5),
        ("common edge", (2, 2, 6, 5), (2, 2, 3, 5), 3, 5),
        ("cross", (5, 2, 4, 9), (2, 5, 9, 3), 4, 3),
    ],
)
def test_example_1_by_brute_force(
    name: str, a: tuple[int, int, int, int], b: tuple[int, int, int, int], e: int, f: int
) -> None:
    first, second = rectangle(16, *a), rectangle(16, *b)
    assert int((first & second).sum()) == e * f
    assert int(by_definition(first, second, 1).sum()) == 4 * (e + f) == rectangle_boundary_size(e, f, 1), name


def test_example_1_needs_room_on_the_torus() -> None:
    strip = rectangle(10, 3, 0, 4, 10)  # closes around the torus: it has two edges, not four
    assert int(by_definition(strip, strip, 1).sum()) == 40 != rectangle_boundary_size(4, 10, 1)
    # The rectangles come near each other a second time, across the border.
    a, b = rectangle(10, 0, 2, 6, 5), rectangle(10, 3, 2, 6, 5)
    assert int(by_definition(a, b, 1).sum()) == 39 != rectangle_boundary_size(3, 5, 1) == 32


def test_example_1_needs_a_wide_intersection() -> None:
    a, b = rectangle(14, 4, 4, 3, 6), rectangle(14, 4, 4, 3, 6)
    assert int(by_definition(a, b, 2).sum()) == (3 + 4) * (6 + 4) != 4 * 2 * (3 + 6)
    with pytest.raises(BadInput, match="at least 4 x 4"):
        rectangle_boundary_size(3, 6, 2)


def test_disjoint_bodies_share_a_boundary_only_when_near() -> None:
    a, b = rectangle(16, 2, 2, 3, 3), rectangle(16, 2, 6, 3, 3)
    assert shared_boundary_size(a, b, 1).item() == 5  # the one column between them, one pixel beyond on each end
    assert shared_boundary_size(a, b.roll(3, 1), 1).item() == 0


def test_grey_weight_is_bounded_by_the_definition_on_its_support() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 9, 8, generator=generator, dtype=torch.float64) * torch.tensor([[1.0] * 4 + [0.0] * 4])
    weight = boundary_weight(a, b, 1)
    meets = torch.nn.functional.max_pool2d(torch.nn.functional.pad((a * b)[None], (1, 1, 1, 1), mode="circular"), 3, 1)
    assert bool((weight >= 0).all())
    assert bool((weight <= 1).all())
    assert torch.equal(weight > 0, meets[0] > 0)
    assert torch.equal(shared_boundary_size(a, b, 1), weight.sum())


def test_batches_are_independent() -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.rand(3, 6, 7, generator=generator) < 0.5 for _ in range(2))
    each = torch.stack([shared_boundary(a[i], b[i], 1) for i in range(3)])
    assert torch.equal(shared_boundary(a, b, 1), each)


@pytest.mark.parametrize(
    ("a", "b", "r"),
    [
        (torch.ones(4, 4), torch.ones(4, 5), 1),
        (torch.ones(4), torch.ones(4), 1),
        (torch.ones(4, 4), torch.ones(4, 4), 0),
        (torch.ones(4, 4), torch.ones(4, 4), 5),
        (torch.ones(4, 4), torch.full((4, 4), 0.5), 1),
        (torch.ones(4, 4), -torch.ones(4, 4), 1),
        (torch.ones(4, 4), torch.full((4, 4), torch.nan), 1),
    ],
)
def test_bad_input_is_refused(a: Tensor, b: Tensor, r: int) -> None:
    with pytest.raises(BadInput):
        shared_boundary(a, b, r)
