"""The optional packages of this room, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from initscope.errors import InitscopeError, MissingExtra


class Unfinished(InitscopeError):
    """Work on tiles stopped before its end; what was complete is kept, and the same call with `resume` goes on."""


def extra(name: str) -> Any:
    """The module of that name, or one message that says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise MissingExtra("scale", f"{package} is not installed", "pip install 'initscope[scale]'") from error
