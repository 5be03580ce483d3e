"""Runs tasks on as many threads as torch uses.

Threads are plain Python ones over code that releases the interpreter lock: calls from several threads at once are fine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch


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
