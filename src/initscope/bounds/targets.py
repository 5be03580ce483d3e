"""Checks of what a target is made of: whole numbers from one on, shares between zero and one."""

from __future__ import annotations

import operator

from initscope.errors import BadInput


def whole(place: str, name: str, value: object, most: int | None = None) -> int:
    """The value as an int.

    >>> whole("width_for", "depth", 0)
    Traceback (most recent call last):
        ...
    initscope.errors.BadInput: width_for: depth is 0, expected a whole number; use 1 or more
    """
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1 or (most is not None and number > most):
        remedy = "use 1 or more" if most is None else f"use 1 to {most:,}"
        raise BadInput(place, f"{name} is {value!r}, expected a whole number", remedy)
    return number


def share(place: str, name: str, value: object) -> float:
    """The value as a float strictly between 0 and 1.

    >>> share("width_for", "epsilon", 1.5)
    Traceback (most recent call last):
        ...
    initscope.errors.BadInput: width_for: epsilon is 1.5, expected a number between 0 and 1, both excluded; ...
    """
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = -1.0
    if not 0 < number < 1:
        problem = f"{name} is {value!r}, expected a number between 0 and 1, both excluded"
        raise BadInput(place, problem, f"pass for example {name}=0.05")
    return number
