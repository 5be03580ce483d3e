"""Kernels of random networks as neural-tangents 0.6.5 gives them, recorded by benchmarks/peers/differential.py --references."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

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


CASES = [(network["index"], dtype, name) for network in NETWORKS for dtype in TOLERANCE for name in network["expected"]]


@cache
def _found(index: int, dtype: torch.dtype) -> dict[str, Any]:
    network = next(network for network in NETWORKS if network["index"] == index)
    kernels: dict[str, Any] = _translation().kernels(network, dtype)
    return {**kernels, "expected": network["expected"]}


@pytest.mark.slow
@pytest.mark.parametrize(("index", "dtype", "name"), CASES)
def test_a_kernel_is_that_of_the_peer(index: int, dtype: torch.dtype, name: str) -> None:
    """Norms of the inputs differ by up to 1000, so errors are by the root of an entry's two diagonal entries."""
    found = _found(index, dtype)
    got, expected = found[name], found["expected"][name]
    assert isinstance(got, list), got
    deviation = np.sqrt(np.diag(expected))
    error = np.abs(np.array(got) - expected) / np.outer(deviation, deviation)
    assert error.max() < TOLERANCE[dtype]
