"""Activations with numbers: the same numbers give the same activation."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import ParamSpec

import numpy as np

from initscope.activations.activation import Activation
from initscope.errors import BadInput

_Numbers = ParamSpec("_Numbers")


def remembered(make: Callable[_Numbers, Activation]) -> Callable[_Numbers, Activation]:
    """Made once for the same numbers: an activation equals itself, and keeps its tables, however often it is asked for."""
    made: dict[tuple[tuple[float, ...], ...], Activation] = {}
    parameters = inspect.signature(make)

    @functools.wraps(make)
    def found(*args: _Numbers.args, **kwargs: _Numbers.kwargs) -> Activation:
        bound = parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        key = tuple(tuple(np.ravel(numbers).tolist()) for numbers in bound.arguments.values())
        for number in (n for numbers in key for n in numbers):
            if not isinstance(number, int | float) or not math.isfinite(number):
                raise BadInput(make.__name__, f"got {number!r}, expected finite numbers", "pass for example 0.5")
        if key not in made:
            made[key] = make(*args, **kwargs)
        return made[key]

    return found
