"""One small cluster for all tests of this room: starting workers takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import LocalCluster


@pytest.fixture(scope="package")
def scheduler() -> Iterator[str]:
    """The address of a scheduler with two worker processes."""
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
    ) as cluster:
        yield cluster.scheduler_address
