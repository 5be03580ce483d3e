"""Activations by name, as the architecture language and the command line spell them."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from initscope.activations import catalogue as c
from initscope.activations.activation import Activation
from initscope.errors import BadInput


@dataclass(frozen=True)
class _Entry:
    make: Callable[..., Activation]
    least: int
    most: int | None
    usage: str


_FIXED = {
    "relu": c.RELU,
    "abs": c.ABS,
    "identity": c.IDENTITY,
    "linear": c.IDENTITY,
    "step": c.STEP,
    "sign": c.SIGN,
    "erf": c.ERF,
    "gelu": c.GELU,
    "sin": c.SIN,
    "cos": c.COS,
    "exp": c.EXP,
    "gaussian": c.GAUSSIAN,
    "tanh": c.TANH,
    "sigmoid": c.SIGMOID,
    "silu": c.SILU,
    "swish": c.SILU,
    "softplus": c.SOFTPLUS,
    "selu": c.SELU,
    "hardswish": c.HARDSWISH,
    "mish": c.MISH,
    "relu6": c.RELU6,
    "hardtanh": c.HARDTANH,
}

_LEAKY = _Entry(c.leaky_relu, 0, 1, "leaky_relu(slope=0.01)")
_WITH_NUMBERS = {
    "leaky": _LEAKY,
    "leaky_relu": _LEAKY,
    "elu": _Entry(c.elu, 0, 1, "elu(alpha=1)"),
    "hermite": _Entry(c.hermite, 1, 1, "hermite(k)"),
    "poly": _Entry(lambda *numbers: c.polynomial(numbers), 1, None, "poly(c0, c1, ...)"),
    "relupower": _Entry(c.rectified_power, 1, 1, "relupower(k)"),
}


def names() -> tuple[str, ...]:
    """Every name that `by_name` knows, in alphabetical order.

    >>> "relu" in names()
    True
    """
    return tuple(sorted({**_FIXED, **_WITH_NUMBERS}))


def by_name(name: str, *numbers: float) -> Activation:
    """Look an activation up; the numbers are its parameters.

    >>> by_name("leaky_relu", 0.2).name
    'leaky_relu(0.2)'
    >>> by_name("rellu")
    Traceback (most recent call last):
        ...
    initscope.errors.BadInput: activation: no activation is called 'rellu'; did you mean relu, relu6 or elu?
    """
    key = name.strip().lower()
    entry = _WITH_NUMBERS.get(key)
    if entry is not None:
        if len(numbers) < entry.least or (entry.most is not None and len(numbers) > entry.most):
            raise BadInput("activation", f"{key} was given {len(numbers)} numbers", f"write {entry.usage}")
        return entry.make(*numbers)
    if key not in _FIXED:
        raise BadInput("activation", f"no activation is called {name!r}", _suggestion(key))
    if numbers:
        raise BadInput("activation", f"{key} takes no numbers, got {list(numbers)}", f"write {key}")
    return _FIXED[key]


def _suggestion(key: str) -> str:
    near = difflib.get_close_matches(key, names(), n=3, cutoff=0.5)
    if not near:
        return "choose one of " + ", ".join(names())
    return "did you mean " + (" or ".join([", ".join(near[:-1]), near[-1]]) if len(near) > 1 else near[0]) + "?"
