"""Runs tasks on as many threads as torch uses.

Threads are plain Python ones over code that releases the interpreter lock: calls from several threads at once are fine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Thread
from typing import Any

import torch


def finish(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Results of the tasks once all are done. The calling thread takes its share: for many short tasks."""
    results: list[Any] = [None] * len(tasks)
    errors: list[BaseException] = []
    turns = count()  # each number goes to one thread

    def work() -> None:
        try:
            while not errors and (turn := next(turns)) < len(tasks):
                results[turn] = tasks[turn]()
        except BaseException as error:
            errors.append(error)

    others = [Thread(target=work) for _ in range(min(torch.get_num_threads(), len(tasks)) - 1)]
    for thread in others:
        thread.start()
    work()
    for thread in others:
        try:
            thread.join()
        except BaseException as error:  # interrupted: the others stop after their task
            errors.append(error)
            thread.join()
    if errors:
        raise errors[0]
    return results


def run(tasks: Sequence[Callable[[], Any]]) -> Iterator[Any]:
    """Results of the tasks in their order, computed on `torch.get_num_threads()` threads."""
    threads = min(torch.get_num_threads(), len(tasks))
    if threads <= 1:
        for task in tasks:
            yield task()
        return
    pool = ThreadPoolExecutor(threads)
    try:
        yield from pool.map(lambda task: task(), tasks)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
