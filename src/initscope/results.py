"""What every result can do: be plain JSON, and be shown by the report room, which stands on all others."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


def jsonable(value: Any) -> Any:
    """Numbers, text, lists and dictionaries that JSON knows; NaN and infinity become None, anything else its text.

    >>> jsonable({"cosine": (1.0, float("nan")), "limit": float("inf"), "name": "conv1"})
    {'cosine': [1.0, None], 'limit': None, 'name': 'conv1'}
    """
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): jsonable(content) for key, content in value.items()}
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, Sequence):
        return [jsonable(content) for content in value]
    return str(value)


def shown(module: str, function: str, *given: Any) -> Any:
    """What a function of the report room makes of a result. Python's random numbers go on as if nothing was shown.

    Rich draws some when it is imported and when it makes links.
    """
    state = random.getstate()
    try:
        return getattr(import_module(f"initscope.report.{module}"), function)(*given)
    finally:
        random.setstate(state)
