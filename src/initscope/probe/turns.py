"""One measurement at a time: hooks of all modules, random states and modes belong to the whole process."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Result = TypeVar("Result")


class _Turn:
    """A lock that its owner may take again. A forked process, whose other threads are gone, begins with a free one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = threading.RLock()


_turn = _Turn()


def in_turn(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function, run by one thread at a time and outside of `inference_mode`, in which nothing has a gradient."""

    @functools.wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with _turn.lock, torch.inference_mode(False):
            return function(*args, **kwargs)

    return run
