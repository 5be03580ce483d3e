"""Pairs against mpmath at fifty digits."""

from __future__ import annotations

import math
import warnings

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from initscope.errors import BadInput, UndefinedSimilarity
from initscope.geometry.pairs import angle, defect, similarity, squared_distance, warn_undefined

DEFECTS = [2 - 1e-9, 1.9, 1.0, 0.3, 1e-2, 1e-4, 1e-7, 1e-9, 1e-11, 1e-12]


def reference(x: Tensor, y: Tensor) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """Cosine, 1 - cosine and angle of two vectors, from the definition, with 60 digits."""
    with mpmath.workdps(60):
        a, b = ([mpmath.mpf(float(v)) for v in z.flatten()] for z in (x, y))
        dot = mpmath.fsum(p * q for p, q in zip(a, b, strict=True))
        cosine = dot / mpmath.sqrt(mpmath.fsum(p * p for p in a) * mpmath.fsum(q * q for q in b))
        return cosine, 1 - cosine, mpmath.acos(cosine)


def pair_at(target: float, ratio: float, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    """Two random vectors with about that defect and that ratio of lengths, rounded to `dtype`."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, 40, dtype=torch.float64, generator=generator)
    other = torch.randn(1, 40, dtype=torch.float64, generator=generator)
    other -= (other * x).sum() / x.square().sum() * x
    other *= x.norm() / other.norm()
    t = 2 * math.asin(math.sqrt(target / 2))
    return x.to(dtype), (ratio * (math.cos(t) * x + math.sin(t) * other)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ratio", [1.0, 1 + 1e-5, 3.7, 1e-6])
@pytest.mark.parametrize("target", DEFECTS)
def test_defect_and_angle_are_relatively_accurate(target: float, ratio: float, dtype: torch.dtype) -> None:
    x, y = pair_at(target, ratio, dtype, seed=3)
    cosine, one_minus, t = reference(x, y)
    # The result is rounded once to its own precision; the chords themselves are good to about 1e-15.
    relative = 1e-7 if dtype is torch.float32 else 1e-14
    assert float(abs(defect(x, y).item() - one_minus) / one_minus) < relative
    assert float(abs(angle(x, y).item() - t) / t) < relative
    assert float(abs(similarity(x, y).item() - cosine)) < relative


@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3),
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_any_pair_agrees_with_mpmath(first: list[float], second: list[float]) -> None:
    x, y = torch.tensor([first], dtype=torch.float64), torch.tensor([second], dtype=torch.float64)
    if not x.any() or not y.any():
        return
    cosine, one_minus, t = reference(x, y)
    assert float(abs(similarity(x, y).item() - cosine)) < 1e-14
    # Below 1e-30 the stretch itself, rounded to 53 bits, leaves a residue.
    assert float(abs(defect(x, y).item() - one_minus)) < 1e-14 * float(one_minus) + 1e-30
    assert float(abs(angle(x, y).item() - t)) < 1e-14 * float(t) + 1e-15


def test_exact_ends() -> None:
    x = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(defect(x, 2 * x), torch.zeros(5))
    assert torch.equal(similarity(x, -x), -torch.ones(5))
    assert torch.equal(angle(x, -4 * x), torch.full((5,), math.pi))
    disjoint = torch.eye(4)
    assert torch.equal(similarity(disjoint[:2], disjoint[2:]), torch.zeros(2))


@pytest.mark.parametrize("scale", [1e-310, 1e-160, 1e155, 1e300])
def test_extreme_lengths_do_not_overflow(scale: float) -> None:
    x = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    y = torch.tensor([[1.5, 2.0, 2.5]], dtype=torch.float64)
    _, expected, _ = reference(x * scale, y)
    assert math.isclose(defect(x * scale, y).item(), float(expected), rel_tol=1e-13)


def test_squared_distance_sums_in_double() -> None:
    x = torch.full((1, 100_000), 1.0 + 2**-20)
    y = torch.ones(1, 100_000)
    assert squared_distance(x, y).item() == pytest.approx(100_000 * 2.0**-40, rel=1e-7)


def test_result_keeps_the_precision_of_the_input() -> None:
    x = torch.ones(2, 3)
    assert similarity(x, x).dtype == torch.float32
    assert similarity(x.double(), x).dtype == torch.float64
    assert defect(x.half(), x.half()).dtype == torch.float32
    assert similarity(x.long(), x.long()).dtype == torch.float32


@pytest.mark.parametrize("function", [similarity, defect, angle])
def test_zero_vectors_warn_once_and_give_nan(function) -> None:
    x = torch.ones(5, 4)
    y = torch.ones(5, 4)
    x[1], x[3], y[3], y[4] = 0, 0, 0, 0
    with pytest.warns(UndefinedSimilarity) as caught:
        out = function(x, y)
    assert len(caught) == 1
    assert "zero in x: 1, 3" in str(caught[0].message)
    assert "zero in y: 3, 4" in str(caught[0].message)
    assert out.isnan().tolist() == [False, True, False, True, True]


def test_warning_shortens_long_lists_and_keeps_quiet_without_zeros() -> None:
    with pytest.warns(UndefinedSimilarity, match="9 and 15 more"):
        warn_undefined("here", torch.ones(25, dtype=torch.bool), torch.zeros(25, dtype=torch.bool))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_undefined("here", torch.zeros(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool))


def test_no_pairs_no_answer() -> None:
    assert similarity(torch.ones(0, 3), torch.ones(0, 3)).shape == (0,)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (torch.ones(2, 3), torch.ones(3, 3)),
        (torch.ones(3), torch.ones(3)),
        (torch.ones(2, 0), torch.ones(2, 0)),
        (torch.ones(2, 3, dtype=torch.complex64), torch.ones(2, 3)),
    ],
)
def test_bad_shapes_are_refused(x: Tensor, y: Tensor) -> None:
    with pytest.raises(BadInput, match="similarity"):
        similarity(x, y)
