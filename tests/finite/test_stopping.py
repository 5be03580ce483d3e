"""Drawing until the intervals are narrow enough, on any number of threads, and what is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.finite import simulate, simulate_gradients
from initscope.finite.stopping import FEWEST
from initscope.finite.workers import Stopped, drawing
from initscope.layers import BatchNorm, Conv, Dense, Dropout, GlobalAveragePool, Layer, ReLU
from initscope.networks import Concat, Residual, Sequential


def pairs(*shape: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=g)
    return x, 0.6 * x + 0.6 * torch.randn(shape, generator=g)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


NET = Sequential(Dense(20), ReLU(), Dense(20))


@pytest.mark.parametrize("average", ["moments", "networks"])
@pytest.mark.parametrize("until", [0.08, 0.04])
def test_until_stops_at_the_wanted_width_and_is_the_prefix_of_a_longer_run(average: str, until: float) -> None:
    x, y = pairs(3, 8)
    found = simulate(NET, x, y, until=until, average=average)  # type: ignore[arg-type]
    assert found.reached is True
    assert FEWEST <= found.draws < 10_000
    assert 0.8 * until < found.widest <= until  # no more draws than it took
    low, high = (torch.stack([layer.cosine.interval()[i] for layer in found.layers]) for i in (0, 1))
    assert float((high - low).max()) == pytest.approx(found.widest, rel=1e-9)
    fixed = simulate(NET, x, y, draws=found.draws, average=average)  # type: ignore[arg-type]
    assert [layer.to_dict() for layer in fixed.layers] == [layer.to_dict() for layer in found.layers]


def test_a_narrower_interval_takes_more_draws_and_a_wider_level_too() -> None:
    x, y = pairs(3, 8)
    draws = [simulate(NET, x, y, until=u, level=v).draws for u, v in ((0.08, 0.95), (0.04, 0.95), (0.04, 0.99))]
    assert draws[0] * 2.5 < draws[1] < draws[2]


def test_draws_cap_the_search_and_the_result_says_so() -> None:
    x, y = pairs(3, 8)
    found = simulate(NET, x, y, until=1e-4, draws=40)
    assert (found.draws, found.reached) == (40, False)
    assert found.widest > 1e-4
    assert simulate(NET, x, y, draws=3).reached is None


def test_what_has_no_angle_does_not_keep_the_search_going() -> None:
    x, y = pairs(3, 8)
    x[1] = 0
    with pytest.warns(UserWarning, match="zero in x: 1"):
        found = simulate(NET, x, y, until=0.3)
    assert found.reached is True


def test_progress_ends_full_when_it_stops_early() -> None:
    x, y = pairs(3, 8)
    calls: list[tuple[int, int]] = []
    found = simulate(NET, x, y, until=0.3, progress=lambda done, total: calls.append((done, total)))
    assert calls[0] == (0, 10_000)
    assert calls[-1] == (found.draws, found.draws)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


NETS: dict[str, tuple[Layer, tuple[int, ...]]] = {
    "dense": (Sequential(Dense(300, bias=0.1), ReLU(), Dense(300), ReLU()), (40, 200)),
    "conv": (Sequential(Conv(16), ReLU(), Conv(16, 3, 2), ReLU(), GlobalAveragePool(), Dense(5)), (3, 3, 16, 16)),
    "coupled": (Sequential(Conv(8), BatchNorm(), ReLU(), Dropout(0.2)), (3, 3, 8, 8)),
    "branches": (Sequential(Dense(64), Residual(ReLU(), Dense(64)), Concat(Dense(5), Dense(6))), (4, 50)),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("materialise", [False, True])
def test_the_number_of_threads_changes_nothing(name: str, materialise: bool) -> None:
    net, shape = NETS[name]
    x, y = pairs(*shape)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(simulate(net, x, y, draws=7, seed=4, materialise=materialise).to_dict())
        assert torch.get_num_threads() == threads
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("name", NETS)
def test_the_number_of_threads_does_not_change_gradients(name: str) -> None:
    net, shape = NETS[name]
    x, _ = pairs(*shape)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(simulate_gradients(net, x, loss="mse", draws=5, seed=4).to_dict())
    assert results[0] == results[1]


def test_the_global_random_state_is_left_alone_by_threads() -> None:
    torch.set_num_threads(2)
    x, y = pairs(4, 30)
    before = torch.get_rng_state()
    simulate(Sequential(Dense(40), ReLU(), Dense(40)), x, y, draws=40, materialise=True)
    simulate_gradients(Sequential(Dense(40), ReLU(), Dense(40)), x, draws=40)
    assert torch.equal(before, torch.get_rng_state())


class Trouble(Exception):
    pass


@pytest.mark.parametrize("error", [Trouble, KeyboardInterrupt])
def test_errors_and_interrupts_end_the_workers_and_restore_the_threads(error: type[BaseException]) -> None:
    torch.set_num_threads(2)
    x, y = pairs(3, 20)
    alive = threading.active_count()

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise error

    with pytest.raises(error):
        simulate(Sequential(Dense(50), ReLU()), x, y, draws=100_000, progress=stop)
    assert threading.active_count() == alive
    assert torch.get_num_threads() == 2
    found = []
    fresh = threading.Thread(target=lambda: found.append(torch.get_num_threads()))  # what a new thread starts with
    fresh.start()
    fresh.join()
    assert found == [2]


def test_an_error_inside_a_draw_reaches_the_caller() -> None:
    def fail(outputs: Tensor, targets: Tensor | None) -> Tensor:
        raise Trouble("inside")

    alive = threading.active_count()
    with pytest.raises(Trouble, match="inside"):
        simulate_gradients(NET, pairs(3, 8)[0], loss=fail)
    assert threading.active_count() == alive


def test_a_draw_that_nobody_waits_for_stops_at_its_next_check() -> None:
    started = threading.Event()

    def work(draw: int, check: Callable[[], None]) -> int:
        started.set()
        while True:
            check()

    with ThreadPoolExecutor(1) as other, drawing(work, 2) as draws:
        waiting = other.submit(lambda: list(draws.run(0, 1)))
        assert started.wait(30)
    assert isinstance(waiting.exception(30), Stopped)


def test_results_come_in_order_however_long_each_takes() -> None:
    gate = threading.Event()

    def work(draw: int, check: object) -> int:
        if draw == 0:
            assert gate.wait(30)
        if draw == 1:
            gate.set()
        return draw

    with drawing(work, 2) as draws:
        assert list(draws.run(0, 6)) == list(range(6))
        assert list(draws.run(6, 9)) == [6, 7, 8]


def test_stopping_refuses_before_any_work() -> None:
    x, _ = pairs(3, 8)
    with pytest.raises(BadInput, match="until is -1"):
        simulate_gradients(NET, x, until=-1)
    with pytest.raises(BadInput, match="draws is 1"):
        simulate_gradients(NET, x, draws=1)
