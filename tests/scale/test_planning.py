"""Plans: tiles cover the matrix, fit the memory, and hours follow from the measured speed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import initscope as iscope
from initscope import scale
from initscope.errors import BadInput
from initscope.scale.planning import MOST_BLOCKS, PROCESS_BYTES

NET = iscope.parse("conv3 relu gap")
X = torch.ones(2, 1, 8, 8)


@given(count=st.integers(1, 100_000), workers=st.integers(1, 200), memory=st.integers(PROCESS_BYTES + 2**20, 2**33))
@settings(max_examples=30, deadline=None)
def test_the_chosen_tile_fits(count: int, workers: int, memory: int) -> None:
    plan = scale.plan(NET, X, count=count, workers=workers, memory=memory, measure=False)
    blocks = -(-count // plan.tile)
    assert 1 <= plan.tile <= count
    assert plan.tiles == blocks * (blocks + 1) // 2
    assert plan.pairs == count * (count + 1) // 2
    assert plan.worker_bytes <= memory
    assert plan.hours is None
    given_tile = scale.plan(NET, X, count=count, workers=workers, memory=memory, tile=plan.tile, measure=False)
    assert given_tile == plan


def test_hours_follow_from_the_speed() -> None:
    plan = scale.plan(NET, X, count=1000, tile=100, workers=10)
    assert plan.pair_seconds is not None
    assert plan.hours_on(1) == pytest.approx(plan.pairs * plan.pair_seconds / 3600)
    assert plan.hours_on(10) == pytest.approx(plan.hours_on(1) * 6 / 55)  # 55 tiles in 6 rounds
    assert plan.hours == plan.hours_on(10)
    assert plan.cores_for(plan.hours_on(10) * 1.0001) == 10
    assert plan.cores_for(plan.hours_on(10) * 0.9999) == 11
    assert plan.cores_for(plan.hours_on(55) * 0.99) is None
    assert plan.to_dict()["hours"] == plan.hours


def test_a_large_matrix_does_not_become_a_million_files() -> None:
    heavy = iscope.parse("5x(conv3 relu) gap")
    plan = scale.plan(heavy, torch.ones(1, 3, 32, 32), count=60_000, memory=2**32, measure=False)
    assert -(-plan.count // plan.tile) <= MOST_BLOCKS
    assert "60000 x 60000 kernel" in str(plan)
    assert "on disk" in str(plan)


def test_bad_plans() -> None:
    with pytest.raises(BadInput, match="a worker needs about"):
        scale.plan(NET, X, memory=2**20)
    with pytest.raises(BadInput, match="smaller tile"):
        scale.plan(NET, X, count=50_000, tile=20_000, memory=2**30)
    with pytest.raises(BadInput, match="count is 0"):
        scale.plan(NET, X, count=0)


# VmHWM, not ru_maxrss: that one remembers the peak of the process that started this one.
MEASURE = """
import json, sys, tempfile
from pathlib import Path
import torch
import initscope as iscope
from initscope import scale
from initscope.scale.entries import Entries
from initscope.scale.tile import compute_tile
from initscope.scale.job import make_job
from initscope.scale.store import create_store
net, tile, size, quantity = iscope.parse(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
with tempfile.TemporaryDirectory() as folder:
    x = torch.ones(1, *size).expand(2 * tile, *size)
    plan = scale.plan(net, x, quantity=quantity, tile=tile, memory=2**40, measure=False)
    path = Path(folder) / "K.zarr"
    job = make_job(net, x, Entries(quantity), tile)
    create_store(path, job, x)
    compute_tile(str(path), job.digest, 0, 1)
    print(json.dumps([plan.worker_bytes, 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])]))
"""


@pytest.mark.parametrize(
    ("net", "tile", "size", "least", "quantity"),
    [
        ("3x(dense relu)", 3000, [784], 0.4, "product"),
        pytest.param("conv5(8, padding=valid) relu gap", 60, [1, 14, 14], 0.4, "product", marks=pytest.mark.slow),
        pytest.param("5x(conv3 relu) flatten dense", 500, [3, 32, 32], 0.4, "product", marks=pytest.mark.slow),
        # Generic layers are estimated by their largest state, here the one before the stride, which is never held.
        pytest.param("conv3(8, stride=2) relu gap", 20, [1, 12, 12], 0.0, "product", marks=pytest.mark.slow),
        pytest.param("3x(dense relu)", 3000, [784], 0.4, "tangent", marks=pytest.mark.slow),
        pytest.param("5x(conv3 relu) flatten dense", 300, [3, 32, 32], 0.2, "tangent", marks=pytest.mark.slow),
        pytest.param("2x(conv3(padding=zero) relu) gap", 20, [3, 16, 16], 0.2, "tangent", marks=pytest.mark.slow),
        pytest.param("conv3(8, stride=2) relu gap", 20, [1, 12, 12], 0.0, "tangent", marks=pytest.mark.slow),
    ],
)
def test_a_tile_stays_within_its_estimate(net: str, tile: int, size: list[int], least: float, quantity: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, net, str(tile), json.dumps(size), quantity],
        capture_output=True,
        text=True,
        check=True,
    )
    estimate, peak = json.loads(done.stdout)
    assert least * estimate < peak <= estimate
