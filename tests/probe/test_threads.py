"""Several threads may check at once: nothing is lost, and shared models stay as they were."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from initscope.probe import Report, check, turns


class Slow(nn.Module):
    """Lets other threads go on in the middle of a pass."""

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.002)
        return torch.relu(x)


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = [m for _ in range(3) for m in (nn.Linear(8, 8), nn.BatchNorm1d(8), Slow())]
    return nn.Sequential(*layers, nn.Linear(8, 3))


def outcome(report: Report) -> tuple[object, ...]:
    return report.verdict, report.seeds, [(s.name, s.rms, s.cosine_mean, s.grad_norm_ratio) for s in report.layers]


def in_threads(work: Callable[[int], Report], count: int) -> list[Report]:
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, range(count)))


def test_reports_are_those_of_one_thread() -> None:
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    alone = outcome(check(model(), x, theory=False))
    nets = [model() for _ in range(8)]
    for report in in_threads(lambda i: check(nets[i], x, theory=False), 8):
        assert outcome(report) == alone


def test_a_shared_model_stays_as_it_was() -> None:
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    net = model().eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    reports = in_threads(lambda i: check(net, x, theory=False), 8)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not any(module.training for module in net.modules())
    assert {r.seeds for r in reports} == {3}


def test_models_that_run_in_other_threads_are_not_recorded() -> None:
    """The hooks of a check are called for every module of the process."""
    stop = threading.Event()

    def busy() -> None:
        other = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
        while not stop.is_set():
            with torch.no_grad():
                other(torch.ones(2, 4))

    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    alone = [layer.name for layer in check(model(), x, seeds=1, theory=False).layers]
    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(10):
            report = check(model(), x, seeds=1, theory=False)
            assert report.failure is None
            assert [layer.name for layer in report.layers] == alone
    finally:
        stop.set()
        thread.join()


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="there is no fork here")
def test_a_forked_process_begins_with_a_free_lock() -> None:
    held = turns._turn.lock
    turns._turn._renew()
    assert turns._turn.lock is not held
