"""Independent draws on all cores: each on one thread of its own, handed back in order.

A draw's arithmetic never depends on how many threads there are, so neither do the numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Generic, TypeVar

import torch

Result = TypeVar("Result")
_AHEAD = 2  # draws under way or waiting, per worker: results that nobody has taken yet cost memory


class Stopped(Exception):
    """Raised inside a draw that nobody waits for any more."""


class Draws(Generic[Result]):
    """Runs `work(draw, check)` for draw = 0, 1, ...; `check` raises `Stopped` once the caller has gone."""

    def __init__(self, work: Callable[[int, Callable[[], None]], Result], pool: ThreadPoolExecutor, size: int) -> None:
        self._work, self._pool, self._size = work, pool, size
        self._stop = Event()

    def run(self, first: int, last: int) -> Iterator[Result]:
        """The results of draws first, ..., last - 1, in this order."""
        waiting: deque[Future[Result]] = deque()
        for draw in range(first, last):
            waiting.append(self._pool.submit(self._work, draw, self._check))
            if len(waiting) >= _AHEAD * self._size:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def stop(self) -> None:
        self._stop.set()

    def _check(self) -> None:
        if self._stop.is_set():
            raise Stopped


@contextmanager
def drawing(work: Callable[[int, Callable[[], None]], Result], workers: int) -> Iterator[Draws[Result]]:
    """Worker threads that end with the block, also when it ends in an error or an interrupt.

    >>> with drawing(lambda draw, check: draw * draw, workers=2) as draws:
    ...     list(draws.run(0, 4))
    [0, 1, 4, 9]
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(workers, "initscope-draw", initializer=torch.set_num_threads, initargs=(1,))
    draws = Draws(work, pool, workers)
    try:
        yield draws
    finally:
        draws.stop()
        try:
            pool.shutdown(wait=True, cancel_futures=True)
        finally:
            torch.set_num_threads(threads)  # a worker's setting is also the one that new threads would start with
