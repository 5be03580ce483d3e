"""Workers and clients killed at random times: the matrix is that of an undisturbed run, and no tile is done twice."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import psutil
import pytest
import torch

import initscope as iscope
from initscope import scale
from initscope.data import load
from scale.jobs import kill, start_client, wait_gone, wait_until, workers_of

NET, SIZE = "2x(conv3 relu) gap", 16


class Rounds:
    """Runs of one job, each stopped by a kill; a finished job is checked and the next one started."""

    def __init__(self, folder: Path, count: int, tile: int, seed: int) -> None:
        self.folder, self.count, self.tile = folder, count, tile
        self.random = random.Random(seed)
        self.jobs = self.kills = 0
        reference = folder / "reference.zarr"
        scale.kernel_to(iscope.parse(NET), self._inputs(), reference, tile=tile)
        self.reference = scale.open_kernel(reference).tensor()

    def _inputs(self) -> torch.Tensor:
        return load("gaussian", count=self.count, size=SIZE, channels=1, seed=0).images.float()

    @property
    def path(self) -> Path:
        return self.folder / f"K{self.jobs}.zarr"

    def records(self) -> int:
        return len(list(self.path.glob("kernel/records/*.json")))

    def round(self, *victims: str) -> None:
        """Start or go on, and kill each victim after a random number of further tiles; a client that lives ends well."""
        size = ["--size", str(SIZE), "--channels", "1", "--count", str(self.count), "--tile", str(self.tile)]
        client = start_client("kernel", NET, *size, "--out", str(self.path), "--workers", "2", "--resume", "--quiet")
        workers: list[psutil.Process] = []
        try:
            for victim in victims:
                goal = self.records() + self.random.randint(0, 8)
                if not wait_until(lambda goal=goal: len(workers_of(client)) == 2 and self.records() >= goal, client):
                    break  # it was finished before
                workers = workers_of(client)
                kill(client if victim == "client" else self.random.choice(workers))
                self.kills += 1
            _, errors = client.communicate(timeout=200)
            assert client.returncode == (-signal.SIGKILL if victims[-1] == "client" else 0), errors
        finally:
            kill(client)
            client.communicate()
            wait_gone(workers)
        if client.returncode == 0:
            self.check()
            self.jobs += 1

    def check(self) -> None:
        """Equal to the last digit, every tile completed exactly once, nothing left over."""
        found = scale.open_kernel(self.path)
        assert torch.equal(found.tensor(), self.reference)
        assert {record["computed"] for record in found.records()} == {1}
        blocks = -(-self.count // self.tile)
        assert len(found.records()) == blocks * (blocks + 1) // 2

    def finish(self) -> None:
        if self.path.exists():
            run = scale.kernel_to(iscope.parse(NET), self._inputs(), self.path, tile=self.tile, resume=True)
            assert run.computed + run.found == run.plan.tiles
            self.check()
            assert not list(self.path.rglob("*.part"))


def test_a_worker_and_its_client_are_killed(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path, count=113, tile=6, seed=1)
    rounds.round("worker", "client")
    assert rounds.kills == 2
    assert 0 < rounds.records() < len(scale.open_kernel(rounds.path, partial=True).job.tiles())
    rounds.finish()


@pytest.mark.slow
def test_twenty_rounds(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path, count=113, tile=6, seed=2)
    while rounds.kills < 20:
        rounds.round(*rounds.random.choice([["client"], ["worker", "client"], ["worker"]]))
    rounds.finish()
    assert bool(rounds.reference.isfinite().all())
