"""Kernels of random networks as neural-tangents 0.6.5 gives them, recorded by benchmarks/peers/differential.py --references."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from _pytest.mark import ParameterSet

HERE = Path(__file__).parent
RECORDED = HERE / "peer_references.npz"
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}


def _translation() -> ModuleType:
    """The suite's own translation of a network, which has no need of the peer."""
    path = HERE.parents[1] / "benchmarks" / "peers" / "differ_initscope.py"
    spec = importlib.util.spec_from_file_location("differ_initscope", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _recorded() -> list[dict[str, Any]]:
    with np.load(RECORDED) as file:
        networks, start = json.loads(file["networks"].tobytes()), 0
        for place, network in enumerate(networks):
            shape = (len(file["product"][place]), *network["shape"])
            stop = start + int(np.prod(shape))
            network["inputs"] = file["inputs"][start:stop].reshape(shape).tolist()
            network["expected"] = {name: file[name][place] for name in ("product", "tangent")}
            start = stop
        assert start == len(file["inputs"])
    return networks


NETWORKS = _recorded()


def test_sixty_networks_are_recorded() -> None:
    assert len(NETWORKS) == 60
    assert RECORDED.stat().st_size < 300_000


# Wrong today: tangents through jumps, tangents where positions nearly agree, float32 products of very different norms.
WRONG = {
    *((index, dtype, "tangent") for index in (7, 24, 30, 47, 64, 68, 71, 97) for dtype in TOLERANCE),
    *((index, torch.float64, "tangent") for index in (6, 36, 42)),
    (13, torch.float32, "tangent"),
    (70, torch.float32, "product"),
}


def _cases() -> Iterator[ParameterSet]:
    for network in NETWORKS:
        for dtype in TOLERANCE:
            for name in network["expected"]:
                wrong = (network["index"], dtype, name) in WRONG
                marks = pytest.mark.xfail(strict=True) if wrong else ()
                yield pytest.param(network["index"], dtype, name, marks=marks)


@cache
def _found(index: int, dtype: torch.dtype) -> dict[str, Any]:
    network = next(network for network in NETWORKS if network["index"] == index)
    kernels: dict[str, Any] = _translation().kernels(network, dtype)
    return {**kernels, "expected": network["expected"]}


@pytest.mark.slow
@pytest.mark.parametrize(("index", "dtype", "name"), list(_cases()))
def test_a_kernel_is_that_of_the_peer(index: int, dtype: torch.dtype, name: str) -> None:
    """Norms of the inputs differ by up to 1000, so errors are by the root of an entry's two diagonal entries."""
    found = _found(index, dtype)
    got, expected = found[name], found["expected"][name]
    if name == "tangent" and isinstance(got, dict) and "dropout" in got["refused"]:
        pytest.skip("tangent kernels refuse dropout")
    assert isinstance(got, list), got
    deviation = np.sqrt(np.diag(expected))
    error = np.abs(np.array(got) - expected) / np.outer(deviation, deviation)
    assert error.max() < TOLERANCE[dtype]
