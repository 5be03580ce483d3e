"""As many numbers at once as a register of the processor holds, against numpy with one after the other."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

numba = pytest.importorskip("numba")
lanes = pytest.importorskip("initscope.networks.fused.lanes")
exponential = pytest.importorskip("initscope.networks.fused.exponential")

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


@numba.njit
def exponentials(x: Any, out: Any) -> None:
    for i in range(np.uint64(0), np.uint64(len(x)), LANES):
        lanes.store(out, i, exponential.exponential(lanes.load(x, i)))


@pytest.mark.parametrize(("dtype", "least"), [(np.float32, -87.0), (np.float64, -708.0)])
def test_exponentials(dtype: Any, least: float) -> None:
    x = np.concatenate([-np.geomspace(1e-12, -least, 100 * COUNT), np.linspace(-1, 3, 10 * COUNT)]).astype(dtype)
    out = np.empty_like(x)
    exponentials(x, out)
    expected = np.exp(x.astype(np.longdouble))
    assert float(np.abs(out / expected - 1).max()) < np.finfo(dtype).eps
    far = np.full(COUNT, 100 * least, dtype)
    exponentials(far, out[:COUNT])
    assert (out[:COUNT] < 2e-38).all()
    assert (out[:COUNT] >= 0).all()


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


KERNELS = """
import sys
import torch
from initscope.networks import kernel, parse
from initscope.networks.fused.lanes import LANES
g = torch.Generator().manual_seed(0)
x = torch.randn(11, 2, 6, 5, generator=g)
found = [kernel(parse(text), t) for text, t in (
    ("2x(conv3 relu) gap", x), ("conv3(3) silu conv3(3) elu flatten dense", x), ("3x(dense(5) gelu)", x.flatten(1)))]
torch.save((int(LANES), found), sys.argv[1])
"""


@pytest.mark.slow
def test_processors_with_short_registers_get_the_same_kernels(tmp_path: Path) -> None:
    found = []
    for name, features in (
        ("long", {}),
        ("short", {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"}),
    ):
        environment = {**os.environ, **features, "NUMBA_CACHE_DIR": str(tmp_path / f"cache {name}")}
        subprocess.run([sys.executable, "-c", KERNELS, str(tmp_path / name)], env=environment, check=True)
        found.append(torch.load(tmp_path / name))
    assert found[1][0] == 8
    for a, b in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(a, b, rtol=3e-6, atol=1e-7)
