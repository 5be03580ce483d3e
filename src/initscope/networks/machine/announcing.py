"""One line for whoever waits while the loop of the machine is compiled; nothing unless somebody listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

import torch

MESSAGE = "compiling loops, once per machine; about 10 s"
_REGISTERS = 9  # argument of the loop that has the machine's type

_listeners: list[Callable[[str], None]] = []
_told: set[tuple[str, torch.dtype]] = set()
_lock = Lock()


@contextmanager
def compiling_announced(say: Callable[[str], None]) -> Iterator[None]:
    """Within it, `say` gets one line before a loop is compiled that is not kept on disk."""
    _listeners.append(say)
    try:
        yield
    finally:
        _listeners.remove(say)


def announce(loop: Any, dtype: torch.dtype) -> None:
    """Tell the listeners, once, if calling the loop means to compile it first."""
    if not _listeners:
        return
    with _lock:
        key = (str(loop.py_func.__name__), dtype)
        if key in _told:
            return
        _told.add(key)
        if not _ready(loop, str(dtype).removeprefix("torch.")):
            for say in _listeners:
                say(MESSAGE)


def _ready(loop: Any, dtype: str) -> bool:
    """Whether the loop is compiled for this type, in memory or on disk."""
    known = list(loop.signatures)
    with suppress(AttributeError):  # numba has no public way to look at what is kept, and some folders keep nothing
        known += [key[0] for key in loop._cache._cache_file._load_index()]
    return any(str(signature[_REGISTERS].dtype) == dtype for signature in known)
