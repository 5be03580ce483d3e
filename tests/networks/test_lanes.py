"""Eight numbers at once, against numpy with one after the other."""

from typing import Any

import numpy as np
import pytest

numba = pytest.importorskip("numba")
lanes = pytest.importorskip("initscope.networks.fused.lanes")

LANES = lanes.LANES
COUNT = int(LANES)


def numbers(dtype: Any, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(3 * COUNT + 2).astype(dtype)


@numba.njit
def arithmetic(x: Any, y: Any, two: Any, out: Any) -> None:
    a, b = lanes.load(x, np.uint64(1)), lanes.load(y, np.uint64(2))
    results = (a + b, a - b, a * b, a / b, two - a, a * two, min(a, b), max(a, b), max(a, two), np.sqrt(abs(a)))
    at = np.uint64(0)
    for result in numba.literal_unroll(results):
        lanes.store(out, at, result)
        at += LANES


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arithmetic_is_that_of_each_number(dtype: Any) -> None:
    x, y, two = numbers(dtype, 0), numbers(dtype, 1), dtype(2)
    out = np.zeros(10 * COUNT, dtype)
    arithmetic(x, y, two, out)
    a, b = x[1 : 1 + COUNT], y[2 : 2 + COUNT]
    expected = [a + b, a - b, a * b, a / b, two - a, a * two]
    expected += [np.minimum(a, b), np.maximum(a, b), np.maximum(a, two), np.sqrt(np.abs(a))]
    np.testing.assert_array_equal(out.reshape(10, COUNT), np.array(expected))


@numba.njit
def parts(x: Any, count: Any) -> Any:
    a = lanes.load(x, np.uint64(0))
    return lanes.added(a), lanes.added(lanes.first(a, count)), lanes.added(lanes.spread(x[0]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [0, 1, 5, COUNT])
def test_sums_add_halves(dtype: Any, count: int) -> None:
    x = numbers(dtype, 2)

    def halves(v: Any) -> Any:
        while len(v) > 1:
            v = v[: len(v) // 2] + v[len(v) // 2 :]
        return v[0]

    a = x[:COUNT]
    kept = np.where(np.arange(COUNT) < count, a, dtype(0))
    assert parts(x, count) == (halves(a), halves(kept), halves(np.full(COUNT, x[0])))


def test_what_is_left_out_may_be_anything() -> None:
    x = np.full(COUNT, np.nan, np.float32)
    x[:3] = 1, 2, 3
    assert parts(x, 3)[1] == 6


@numba.njit
def chosen(x: Any, y: Any, out: Any) -> None:
    a, b = lanes.load(x, np.uint64(0)), lanes.load(y, np.uint64(0))
    lanes.store(out, np.uint64(0), lanes.where_less(a, b, a + a, b))


def test_where_less_chooses_in_each_lane() -> None:
    x, y, out = numbers(np.float32, 3), numbers(np.float32, 4), np.zeros(COUNT, np.float32)
    chosen(x, y, out)
    a, b = x[:COUNT], y[:COUNT]
    np.testing.assert_array_equal(out, np.where(a < b, a + a, b))


def test_numbers_of_another_type_are_refused() -> None:
    with pytest.raises(numba.TypingError):
        arithmetic(numbers(np.float32, 0), numbers(np.float32, 1), np.float64(2), np.zeros(10 * COUNT, np.float32))


@numba.njit
def doubled(x: Any) -> float:
    view = lanes.uncounted(x)
    view[0] *= 2
    return float(view.sum())


def test_an_uncounted_array_is_the_same_array() -> None:
    x = np.arange(5.0)
    x[0] = 3
    assert doubled(x) == 16
    assert x[0] == 6
