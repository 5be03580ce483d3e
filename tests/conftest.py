"""Settings for all tests."""

from __future__ import annotations

import os

import pytest

pytest_plugins = ["pytester"]

# Threads that wait by sleeping: on a machine with other work, spinning ones slow every small tensor operation down.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# One test process per core (`pytest -n auto`): more threads in each would only get in each other's way.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("NUMBA_NUM_THREADS", "2")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-seconds", type=float, default=40.0, help="how long tests/fuzz tries hostile inputs, in all"
    )
