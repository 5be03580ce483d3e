"""Small jobs for the tests of stored kernels, and processes that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch
from torch import Tensor

import initscope as iscope
from initscope import scale

POOLED = "conv3(8, padding=circular) relu gap"
START = [sys.executable, "-c", "from initscope.cli import main; main(prog_name='initscope')"]


def images(count: int, size: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(count, 2, size, size, generator=torch.Generator().manual_seed(seed))


def stored(path: Path, count: int = 11, tile: int = 4) -> tuple[scale.KernelRun, Tensor]:
    """A complete store and the matrix that `kernel` gives."""
    x = images(count)
    run = scale.kernel_to(iscope.parse(POOLED), x, path, tile=tile)
    return run, iscope.kernel(iscope.parse(POOLED), x)


def start_client(*arguments: str) -> subprocess.Popen[str]:
    """The command as a process of its own, ended by `finish`."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    pipe = subprocess.PIPE
    return subprocess.Popen([*START, *arguments], stdout=pipe, stderr=pipe, text=True, env=environment)


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The living worker processes of a client, without the helpers of multiprocessing."""
    try:
        children = psutil.Process(process.pid).children()
    except psutil.NoSuchProcess:
        return []
    return [child for child in children if _is_worker(child)]


def _is_worker(child: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(child.cmdline())
    except psutil.NoSuchProcess:  # also one that has ended and was not yet asked how
        return False


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 300.0) -> bool:
    """Whether it came about before the process ended."""
    deadline = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None:
            return ready()
        if time.monotonic() > deadline:
            left = [(worker.pid, worker.status()) for worker in workers_of(process)]
            kill(process)
            raise AssertionError(f"nothing happened; workers {left}; {process.communicate()}")
        time.sleep(0.01)
    return True


def kill(process: psutil.Process | subprocess.Popen[str]) -> None:
    try:
        process.send_signal(signal.SIGKILL)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return


def wait_gone(processes: list[psutil.Process]) -> None:
    """Workers end by themselves when their client was killed."""
    _, alive = psutil.wait_procs(processes, timeout=60)
    for process in alive:
        kill(process)
    assert not alive
