"""Every activation against mpmath, whose values benchmarks/activation_accuracy.json keeps: stated errors are never exceeded."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from initscope import activations as act
from initscope.activations.series_dual import Series
from initscope.activations.triangle import resolved

ROOT = Path(__file__).parents[2]


@functools.cache
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("activation_accuracy", ROOT / "benchmarks" / "activation_accuracy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


NAMES = list(benchmark().load())
QUADRATURE = [name for name in NAMES if benchmark().named(name).rung == "quadrature"]
SMOOTH_OR_AT_ZERO = [name for name in QUADRATURE if set(benchmark().named(name).kinks) <= {0.0}]


def test_no_activation_is_left_out() -> None:
    """Every fixed name, and one of every family with numbers."""
    families = {name.split("(")[0] for name in NAMES}
    same = {"linear": "identity", "swish": "silu", "leaky": "leaky_relu"}
    assert {same.get(name.split("(")[0], name.split("(")[0]) for name in act.names()} == families


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
def test_no_error_exceeds_the_stated_one(name: str, dtype: torch.dtype) -> None:
    module = benchmark()
    for copies in (1, module.MANY) if name in QUADRATURE else (1,):
        row = module.measure(name, module.load()[name], dtype, copies)
        assert bool((row.value <= row.value_stated).all())
        assert bool((row.defect <= row.defect_stated).all())
        # and what is stated is worth something
        assert float(row.value_stated.max()) < (1e-9 if dtype == torch.float64 else 1e-5)
        assert float(row.defect.max()) < (1e-11 if dtype == torch.float64 else 1e-6)


@pytest.mark.parametrize("name", SMOOTH_OR_AT_ZERO)
def test_many_states_are_answered_by_the_series(name: str) -> None:
    module = benchmark()
    row = module.measure(name, module.load()[name], torch.float64, module.MANY)
    assert "series" in row.rung


@pytest.mark.parametrize("tolerance", [1e-4, 3e-6])
@pytest.mark.parametrize("name", SMOOTH_OR_AT_ZERO)
def test_the_bound_of_a_table_holds(name: str, tolerance: float) -> None:
    """Tables as the compiled loops use them, at tolerances so coarse that orders are left out."""
    module = benchmark()
    truth = module.load()[name]
    table = act.series_table(benchmark().named(name), module.LOW, module.HIGH, tolerance, most=1024)
    assert table is not None
    assert table.bound <= tolerance
    series = Series(table)
    s, t, q = torch.tensor(module.STATES, dtype=torch.float64).unbind(-1)
    shape = resolved(s * s, t * t, 2 * s * t * q)
    found = series.product(series.side(s * s), series.side(t * t), shape)
    size = torch.tensor([truth.moments[i] * truth.moments[j] for i, j, _ in module.STATES], dtype=torch.float64).sqrt()
    off = (found / size - (1 - torch.tensor(truth.defects, dtype=torch.float64))).abs()
    assert float(off.max()) <= table.bound + 1e-14
    assert float(off.max()) > 1e-4 * table.bound  # it is not hopelessly careful either
