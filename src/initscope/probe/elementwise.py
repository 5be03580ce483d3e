"""Which activation an elementwise call of torch is, with the numbers it was given: one row for each function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor

from initscope import activations as act
from initscope.activations import Activation
from initscope.errors import BadInput
from initscope.probe.arguments import Arguments, Unknown
from initscope.probe.trace import Seen

_HIGHEST_POWER = 8  # of a polynomial whose moments are sums of numbers that stay exact


def activation_of(a: Arguments) -> Activation:
    """The activation that a call of one of `ELEMENTWISE` is; `Unknown` where its arguments have no theory."""
    data = a.get(0, "input", a.get(0, "self"))
    if not isinstance(data, Seen) or data.maker is None:
        raise Unknown  # the data are another argument
    found = ELEMENTWISE[a.call.function]
    if isinstance(found, Activation):
        return found
    try:
        return found(a)
    except BadInput:
        raise Unknown from None


def _prelu(a: Arguments) -> Activation:
    slopes = a.weight(1, "weight").detach().double()
    if not bool((slopes == slopes.flatten()[0]).all()):
        raise Unknown  # units of different slopes are not alike
    return act.leaky_relu(float(slopes.flatten()[0]))


def _rrelu(a: Arguments) -> Activation:
    if a.get(3, "training", False):
        raise Unknown  # a random slope for every value
    return act.leaky_relu((a.number(1, "lower", 1 / 8) + a.number(2, "upper", 1 / 3)) / 2)


def _gelu(a: Arguments) -> Activation:
    kinds = {"none": act.GELU, "tanh": act.GELU_TANH}
    kind = a.get(1, "approximate", "none")
    if kind not in kinds:
        raise Unknown
    return kinds[kind]


def _between(low: float, high: float) -> Activation:
    """Torch's clamp to any range, also one that is open on one side."""
    if low == -math.inf and high == math.inf:
        return act.IDENTITY
    if low == -math.inf:
        return act.clip_above(high)
    return act.clip_below(low) if high == math.inf else act.clip(low, high)


def _ends(a: Arguments, names: tuple[str, str], defaults: tuple[float, float]) -> Activation:
    found: list[float] = []
    for place, (name, default) in enumerate(zip(names, defaults, strict=True), 1):
        value = a.get(place, name, default)
        value = default if value is None else value
        if isinstance(value, Tensor | Seen | bool) or math.isnan(value):
            raise Unknown
        found.append(float(value))
    return _between(*found)


def _clamp_min(a: Arguments) -> Activation:
    return act.clip_below(a.number(1, "min"))


def _clamp_max(a: Arguments) -> Activation:
    return act.clip_above(a.number(1, "max"))


def _power(a: Arguments) -> Activation:
    exponent = a.number(1, "exponent")
    if exponent != int(exponent) or not 1 <= exponent <= _HIGHEST_POWER:
        raise Unknown  # of a Gaussian's negative numbers, or without moments
    return act.polynomial([*[0.0] * int(exponent), 1.0])


def _with_number(make: Callable[[float], Activation], name: str, default: float) -> Callable[[Arguments], Activation]:
    return lambda a: make(a.number(1, name, default))


def _with_numbers(
    make: Callable[[float, float], Activation], first: tuple[str, float | None], second: tuple[str, float | None]
) -> Callable[[Arguments], Activation]:
    return lambda a: make(a.number(1, *first), a.number(2, *second))


ELEMENTWISE: Mapping[str, Activation | Callable[[Arguments], Activation]] = {
    "relu": act.RELU,
    "relu6": act.RELU6,
    "leaky_relu": _with_number(act.leaky_relu, "negative_slope", 0.01),
    "prelu": _prelu,
    "rrelu": _rrelu,
    "elu": _with_number(act.elu, "alpha", 1.0),
    "celu": _with_number(act.celu, "alpha", 1.0),
    "selu": act.SELU,
    "gelu": _gelu,
    "silu": act.SILU,
    "mish": act.MISH,
    "softplus": _with_numbers(act.softplus, ("beta", 1.0), ("threshold", 20.0)),
    "tanh": act.TANH,
    "sigmoid": act.SIGMOID,
    "logsigmoid": act.LOG_SIGMOID,
    "softsign": act.SOFTSIGN,
    "tanhshrink": act.TANH_SHRINK,
    "softshrink": _with_number(act.soft_shrink, "lambd", 0.5),
    "hardshrink": _with_number(act.hard_shrink, "lambd", 0.5),
    "hardsigmoid": act.HARDSIGMOID,
    "hardswish": act.HARDSWISH,
    "hardtanh": partial(_ends, names=("min_val", "max_val"), defaults=(-1.0, 1.0)),
    "clamp": partial(_ends, names=("min", "max"), defaults=(-math.inf, math.inf)),
    "clamp_min": _clamp_min,
    "clamp_max": _clamp_max,
    "threshold": _with_numbers(act.threshold, ("threshold", None), ("value", None)),
    "abs": act.ABS,
    "square": act.polynomial([0.0, 0.0, 1.0]),
    "pow": _power,
    "sin": act.SIN,
    "cos": act.COS,
    "sinc": act.SINC,
    "sinh": act.SINH,
    "cosh": act.COSH,
    "asinh": act.ASINH,
    "atan": act.ATAN,
    "exp": act.EXP,
    "exp2": act.EXP2,
    "expm1": act.EXPM1,
    "erf": act.ERF,
    "erfc": act.ERFC,
}
