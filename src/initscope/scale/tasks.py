"""Independent tasks, in this process, on worker processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from initscope.errors import BadInput, InitscopeError
from initscope.networks.progress import Progress
from initscope.scale.extras import Unfinished, extra

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2  # tasks handed out per worker: enough that none waits, few enough that a stop is quick
POLL = 2.0  # seconds between looks at whether anybody is still there
PATIENCE = 60.0  # seconds without any worker before giving up
CONNECT = 10.0  # seconds for a scheduler to answer
STARTS = 3  # attempts to start local workers
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Ctrl-C in a terminal reaches all processes; the client alone answers it, and ends the workers.
_DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


@dataclass(frozen=True)
class Cluster:
    """Where tasks run: `workers` processes here, or those of the Dask scheduler at an address; 0 and None: this process."""

    workers: int = 0
    scheduler: str | None = None
    memory: int | None = None  # bytes of each local worker; one that takes more is ended and its task given to another

    def __post_init__(self) -> None:
        if isinstance(self.workers, bool) or not isinstance(self.workers, int) or self.workers < 0:
            raise BadInput("workers", f"got {self.workers!r}, expected a whole number", "use 0 for this process alone")
        if self.workers and self.scheduler is not None:
            problem = f"got workers={self.workers} and a scheduler"
            raise BadInput("workers", problem, "choose one: a scheduler brings its own workers")


def run_tasks(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int = 0,
    scheduler: str | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """`[function(item) for item in items]`, spread over processes: a sweep over seeds, the items of a paper.

    workers: processes of this machine (0: this one), or scheduler: the address of a Dask scheduler, such as
    "tcp://host:8786". memory: bytes of each local worker. A task whose worker dies is given to another; an error in a task
    stops the run. Scripts that use workers need `if __name__ == "__main__":`, as all that start processes do.

    >>> run_tasks(lambda seed: seed**2, [1, 2, 3])
    [1, 4, 9]
    """
    results: dict[int, Result] = {}
    for place, result in completed(function, items, Cluster(workers, scheduler, memory)):
        results[place] = result
        if progress is not None:
            progress(len(results), len(items))
    return [results[place] for place in range(len(items))]


def completed(
    function: Callable[[Item], Result], items: Sequence[Item], cluster: Cluster
) -> Generator[tuple[int, Result]]:
    """Place and result of every item, in the order in which they finish."""
    if not items:
        return
    if cluster.workers == 0 and cluster.scheduler is None:
        for place, item in enumerate(items):
            yield place, function(item)
        return
    with _client(cluster) as client:
        yield from _hand_out(client, function, items)


def _hand_out(client: Any, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result]]:
    """Keep a few tasks per worker under way; what the cluster cannot tell as an exception becomes one message."""
    distributed = extra("distributed")
    rest = iter(enumerate(items))
    waiting: dict[Any, int] = {}
    watch = _Watch(client)
    try:
        while True:
            for place, item in _next(rest, watch.room - len(waiting)):
                waiting[client.submit(_guarded, function, item, pure=False)] = place
            if not waiting:
                return
            try:
                distributed.wait(list(waiting), timeout=POLL, return_when="FIRST_COMPLETED")
            except TimeoutError:
                watch.look()
                continue
            for future in [future for future in waiting if future.status != "pending"]:
                place = waiting.pop(future)
                yield place, _result(future)
    except (OSError, EOFError, _cancelled()) as error:
        raise _gone(error) from error


def _next(rest: Iterator[tuple[int, Item]], count: int) -> Iterator[tuple[int, Item]]:
    for _ in range(max(count, 0)):
        try:
            yield next(rest)
        except StopIteration:
            return


class _Watch:
    """How many tasks the workers can take, and whether any worker is left."""

    def __init__(self, client: Any) -> None:
        self._client, self._seen = client, time.monotonic()
        self.room = AHEAD
        self.look()

    def look(self) -> None:
        threads = sum(self._client.nthreads().values())
        now = time.monotonic()
        if threads:
            self._seen, self.room = now, AHEAD * threads
        elif now - self._seen > PATIENCE:
            problem = f"no worker for {PATIENCE:.0f} s"
            raise Unfinished(
                "scheduler", problem, "start workers, then go on with resume=True: complete tasks are kept"
            )


@dataclass(frozen=True)
class _Outcome:
    """What a task came to. Errors travel as text: not every exception survives the way from process to process."""

    result: Any = None
    refused: tuple[str, str, str, str] | None = None  # class, place, problem, remedy
    failed: str | None = None


def _guarded(function: Callable[[Item], Result], item: Item) -> _Outcome:
    try:
        return _Outcome(result=function(item))
    except InitscopeError as error:
        return _Outcome(refused=(type(error).__name__, error.place, error.problem, error.remedy))
    except Exception:
        return _Outcome(failed=traceback.format_exc())


def _result(future: Any) -> Any:
    """The result of a finished task, or its error as one of ours."""
    if future.status == "error":
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            problem = "the worker process died several times on the same task, most often for want of memory"
            raise Unfinished(
                "worker", problem, "use a smaller tile= or more memory=; go on with resume=True"
            ) from error
        raise Unfinished("worker", f"{type(error).__name__}: {error}", "see the cause above") from error
    outcome = future.result()  # raises where the task was cancelled
    if outcome.refused is not None:
        kind, *words = outcome.refused
        raise (Unfinished if kind == "Unfinished" else BadInput)(*words)
    if outcome.failed is not None:
        last = outcome.failed.strip().splitlines()[-1]
        raise Unfinished("worker", last, "see the cause above") from RuntimeError(outcome.failed)
    return outcome.result


def _cancelled() -> type[BaseException]:
    cancelled: type[BaseException] = extra("distributed").CancelledError
    return cancelled


def _gone(error: BaseException) -> Unfinished:
    problem = f"the scheduler went away ({type(error).__name__})"
    return Unfinished("scheduler", problem, "start it again, then go on with resume=True: complete tasks are kept")


@contextmanager
def _client(cluster: Cluster) -> Iterator[Any]:
    """A connection to the cluster; local workers end with the block, also when it ends in an error."""
    dask, distributed = extra("dask"), extra("distributed")
    loud = logging.getLogger("distributed")
    level = loud.level
    loud.setLevel(logging.CRITICAL)  # what matters of it is told by our own messages
    try:
        if cluster.scheduler is not None:
            with _connect(distributed, cluster.scheduler) as client:
                yield client
            return
        # A worker over its memory is ended; spilling or pausing would leave it waiting for memory that torch keeps.
        memory = {"target": False, "spill": False, "pause": False, "terminate": 1.0}
        settings: dict[str, Any] = {f"distributed.worker.memory.{name}": value for name, value in memory.items()}
        # One thread each. Dask would also have freed memory given back at once, which makes every tensor a new mapping.
        settings["distributed.nanny.pre-spawn-environ"] = dict.fromkeys(_ONE_THREAD, 1)
        with (
            dask.config.set(settings),
            _start(distributed, cluster) as local,
            distributed.Client(local) as client,
        ):
            yield client
    finally:
        loud.setLevel(level)


def _start(distributed: Any, cluster: Cluster) -> Any:
    """Workers on this machine. One that dies while it starts ends the whole start, so that is tried again."""
    for attempt in range(1, STARTS + 1):
        try:
            return distributed.LocalCluster(
                n_workers=cluster.workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                memory_limit=cluster.memory or 0,
                silence_logs=logging.CRITICAL,
                preload=[_DEAF],
            )
        except RuntimeError as error:
            if attempt == STARTS:
                remedy = "see whether memory is short, and that a script has `if __name__ == '__main__':`"
                raise Unfinished("workers", f"the processes do not start ({error})", remedy) from error
    raise AssertionError  # the last attempt returns or raises


@contextmanager
def _connect(distributed: Any, address: str) -> Iterator[Any]:
    try:
        client = distributed.Client(address, timeout=CONNECT)
    except (OSError, ValueError) as error:
        problem = f"nobody answers at {address} ({type(error).__name__})"
        raise BadInput("scheduler", problem, "start one with: dask scheduler, and give its tcp:// address") from error
    try:
        yield client
    finally:
        client.close(timeout=POLL)
