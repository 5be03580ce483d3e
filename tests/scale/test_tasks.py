"""Tasks on other processes: the same results, errors that say what to do, and nothing that waits for ever."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import distributed
import pytest
import torch

import initscope as iscope
from initscope import scale
from initscope.errors import BadInput
from initscope.scale import tasks
from scale.jobs import POOLED, images, kill


def test_results_keep_their_order(scheduler: str) -> None:
    steps: list[tuple[int, int]] = []
    found = scale.run_tasks(
        lambda item: item**2, list(range(20)), scheduler=scheduler, progress=lambda *step: steps.append(step)
    )
    assert found == [item**2 for item in range(20)]
    assert steps == [(done, 20) for done in range(1, 21)]
    assert scale.run_tasks(lambda item: item, [], scheduler=scheduler) == []


def test_a_sweep_over_seeds(scheduler: str) -> None:
    net, x, y = iscope.parse("dense(20) relu"), torch.eye(4)[:2], torch.eye(4)[2:]

    def cosine(seed: int) -> list[float]:
        values: list[float] = iscope.simulate(net, x, y, draws=5, seed=seed).layers[-1].cosine.value.tolist()
        return values

    seeds = [3, 1, 4]
    assert scale.run_tasks(cosine, seeds, scheduler=scheduler) == scale.run_tasks(cosine, seeds)


@pytest.mark.parametrize("net", [POOLED, "3x(dense(50) relu)"])
def test_workers_give_the_same_digits(tmp_path: Path, scheduler: str, net: str) -> None:
    network, x = iscope.parse(net), images(37)
    alone = scale.kernel_to(network, x, tmp_path / "one.zarr", tile=8).open()
    spread = scale.kernel_to(network, x, tmp_path / "many.zarr", tile=8, scheduler=scheduler).open()
    assert torch.equal(alone.tensor(), spread.tensor())
    assert [r["sha256"] for r in alone.records()] == [r["sha256"] for r in spread.records()]
    processes = {record["process"] for record in spread.records()}
    assert f"{socket.gethostname()}:{os.getpid()}" not in processes


def test_an_error_of_ours_arrives_whole(tmp_path: Path, scheduler: str) -> None:
    def refuse(item: int) -> None:
        raise BadInput("here", f"got {item}", "do that")

    with pytest.raises(BadInput, match="here: got 1; do that"):
        scale.run_tasks(refuse, [1], scheduler=scheduler)
    run = scale.kernel_to(iscope.parse(POOLED), images(3), tmp_path / "K.zarr", tile=2)
    store = run.open().store
    store.record_path(0, 1).unlink()
    (store.path / "inputs" / "c" / "1" / "0" / "0" / "0").write_bytes(b"")
    with pytest.raises((BadInput, scale.Unfinished)):
        scale.kernel_to(iscope.parse(POOLED), images(3), run.path, resume=True, scheduler=scheduler)


def test_any_other_error_names_itself(scheduler: str) -> None:
    with pytest.raises(scale.Unfinished, match="ZeroDivisionError"):
        scale.run_tasks(lambda item: 1 // item, [1, 0], scheduler=scheduler)


@pytest.mark.slow
def test_a_task_that_kills_its_workers(scheduler: str) -> None:
    with pytest.raises(scale.Unfinished, match="died several times"):
        scale.run_tasks(lambda item: os.kill(os.getpid(), signal.SIGKILL), [1], scheduler=scheduler)
    assert scale.run_tasks(lambda item: item, [5], scheduler=scheduler) == [5]


@pytest.mark.slow
def test_a_worker_that_takes_too_much_is_ended() -> None:
    def hold(count: int) -> int:
        import time

        held = bytearray(b"1") * count
        time.sleep(3)
        return len(held)

    assert scale.run_tasks(hold, [1000], workers=1, memory=1 << 30) == [1000]
    with pytest.raises(scale.Unfinished, match="died several times"):
        scale.run_tasks(hold, [1 << 30], workers=1, memory=1 << 30)


def test_workers_that_do_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []

    def fail(**_: object) -> None:
        starts.append(1)
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr(distributed, "LocalCluster", fail)
    with pytest.raises(scale.Unfinished, match=r"the processes do not start .*__main__"):
        scale.run_tasks(str, [1], workers=1)
    assert len(starts) == tasks.STARTS


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CONNECT", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    path = tmp_path / "K.zarr"
    with pytest.raises(BadInput, match="nobody answers at tcp"):
        scale.kernel_to(iscope.parse(POOLED), images(3), path, scheduler=address)
    with pytest.raises(BadInput, match="scheduler"):
        scale.run_tasks(str, [1], scheduler="nonsense://")
    assert scale.kernel_to(iscope.parse(POOLED), images(3), path, resume=True).computed == 6


def test_a_cluster_without_workers_and_a_scheduler_that_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same scheduler first has no workers at all, then is killed."""
    file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--scheduler-file", str(file)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        address = next(line.split()[-1] for line in process.stderr if "Scheduler at:" in line)
        monkeypatch.setattr(tasks, "PATIENCE", 1.0)
        monkeypatch.setattr(tasks, "POLL", 0.3)
        with pytest.raises(scale.Unfinished, match="no worker for 1 s"):
            scale.run_tasks(str, [1, 2], scheduler=address)
        monkeypatch.setattr(tasks, "PATIENCE", 600.0)
        real = tasks._Watch.look

        def look(watch: tasks._Watch) -> None:
            real(watch)
            kill(process)

        monkeypatch.setattr(tasks._Watch, "look", look)
        with pytest.raises(scale.Unfinished, match="the scheduler went away"):
            scale.run_tasks(str, [1, 2], scheduler=address)
    finally:
        kill(process)
        process.communicate()
