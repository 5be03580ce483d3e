"""The layer words of the architecture language: how each one, with its options, becomes a layer."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Literal, TypedDict

from initscope import activations, weights
from initscope.activations import Activation
from initscope.errors import BadInput
from initscope.layers import (
    Activate,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    GlobalMaxPool,
    GroupNorm,
    L2Pool,
    Layer,
    LayerNorm,
    MaxPool,
    Scale,
    Upsample,
)
from initscope.layers.biases import Bias
from initscope.layers.pooling import PoolPadding
from initscope.layers.shifts import Padding, Size
from initscope.networks.language.grammar import Arguments, Token, Value, real, whole
from initscope.weights import Independent, WeightLaw

PADDINGS: tuple[Padding, ...] = ("circular", "zero", "valid", "reflect", "same")
POOL_PADDINGS: tuple[PoolPadding, ...] = ("valid", "zero", "same")
EDGES: tuple[Literal["count", "skip"], ...] = ("count", "skip")
OVER: tuple[Literal["all", "channels"], ...] = ("all", "channels")
SIZED = re.compile(r"(conv|avgpool|maxpool|l2pool)([0-9]+)(?:x([0-9]+))?(?:x([0-9]+))?|(up|zeroup)([0-9]+)")

_HIGHEST_ORDER = 50  # coefficients of higher orders overflow or cancel
ACTIVATIONS = frozenset(activations.names())


class _PoolOptions(TypedDict):
    stride: int | None
    padding: PoolPadding
    margin: int | None


def build(arguments: Arguments, width: int) -> Layer:
    """The layer of the word that owns the arguments; `width` serves where none is given."""
    word = arguments.owner.text.lower()
    sized = SIZED.fullmatch(word)
    if sized is not None:
        layer = _build_sized(arguments, sized, width)
    elif word in FIXED:
        layer = FIXED[word](arguments, width)
    else:
        layer = Activate(_activation(arguments, word))
    arguments.done()
    return layer


def _build_sized(arguments: Arguments, sized: re.Match[str], width: int) -> Layer:
    """conv3, conv5x3, conv3x3x1, avgpool2: the numbers inside the word are its size, one for every axis or one for each."""

    def number(group: int) -> int:
        token = Token("number", sized.group(group), arguments.owner.start + sized.start(group))
        return whole(arguments.source, token, "the size")

    if sized.group(1) is None:
        return Upsample(number(6), mode="nearest" if sized.group(5) == "up" else "zeros")
    numbers = [number(group) for group in (2, 3, 4) if sized.group(group) is not None]
    size = numbers[0] if len(numbers) == 1 else tuple(numbers)
    return _conv(arguments, size, width) if sized.group(1) == "conv" else _POOLS[sized.group(1)](arguments, size)


def _conv(arguments: Arguments, kernel: Size, width: int) -> Layer:
    return Conv(
        arguments.integer("width", width, first=True),
        kernel=kernel,
        stride=arguments.integer("stride", 1),
        padding=arguments.choice("padding", PADDINGS, "circular"),
        dilation=arguments.integer("dilation", 1),
        groups=arguments.integer("groups", 1),
        weights=_weights(arguments),
        bias=_bias(arguments),
        margin=_optional(arguments, "margin", low=0),
    )


def _dense(arguments: Arguments, width: int) -> Layer:
    units = arguments.integer("width", width, first=True)
    return Dense(units, weights=_weights(arguments), bias=_bias(arguments))


def _weights(arguments: Arguments) -> WeightLaw:
    """init=he, init=laplace(1)."""
    value = arguments.take("init")
    if value is None:
        return weights.by_name("he")
    if value.token.kind != "word":
        arguments.source.refuse(value.token, f"init is {value.token}, expected a weight law", "write init=he")
    return _law(arguments, value)


def _bias(arguments: Arguments) -> Bias:
    """bias=0.1, bias=pytorch, bias=uniform_fixed(0.01)."""
    value = arguments.take("bias")
    if value is None:
        return 0.0
    if value.token.kind != "word":
        return real(arguments.source, value, "bias")
    law = _law(arguments, value)
    if not isinstance(law, Independent):
        problem = f"bias is {value.token}, expected a number or a law of independent weights"
        arguments.source.refuse(value.token, problem, "write bias=0.1 or bias=pytorch")
    return law


def _law(arguments: Arguments, value: Value) -> WeightLaw:
    word = value.token.text
    numbers = [real(arguments.source, number, word) for number in value.arguments]
    try:
        return weights.by_name(word, *numbers)
    except BadInput as error:
        raise arguments.source.complaint(value.token, error.problem, error.remedy) from None


def _optional(arguments: Arguments, name: str, low: int = 1) -> int | None:
    value = arguments.take(name)
    return None if value is None else whole(arguments.source, value.token, name, low=low)


def _pool_options(arguments: Arguments) -> _PoolOptions:
    return {
        "stride": _optional(arguments, "stride"),
        "padding": arguments.choice("padding", POOL_PADDINGS, "valid"),
        "margin": _optional(arguments, "margin", low=0),
    }


def _average_pool(arguments: Arguments, window: Size) -> Layer:
    return AveragePool(window, **_pool_options(arguments), edges=arguments.choice("edges", EDGES, "count"))


_POOLS: dict[str, Callable[[Arguments, Size], Layer]] = {
    "avgpool": _average_pool,
    "maxpool": lambda arguments, window: MaxPool(window, **_pool_options(arguments)),
    "l2pool": lambda arguments, window: L2Pool(window, **_pool_options(arguments)),
}


def _window(pool: Callable[[Arguments, Size], Layer]) -> Callable[[Arguments, int], Layer]:
    """avgpool(3, stride=2): the size as the first argument."""
    return lambda arguments, width: pool(arguments, arguments.integer("window", None, first=True))


def _layer_norm(arguments: Arguments, width: int) -> Layer:
    """ln, ln(channels), ln(0, 2)."""
    if not arguments.positional or arguments.positional[0].token.kind != "number":
        return LayerNorm(over=arguments.choice("over", OVER, "all", first=True))
    axes = [whole(arguments.source, value.token, "an axis", low=0) for value in arguments.positional]
    arguments.positional = []
    return LayerNorm(over=tuple(axes))


FIXED: dict[str, Callable[[Arguments, int], Layer]] = {
    "dense": _dense,
    **{word: _window(pool) for word, pool in _POOLS.items()},
    "gap": lambda arguments, width: GlobalAveragePool(),
    "gmp": lambda arguments, width: GlobalMaxPool(),
    "bn": lambda arguments, width: BatchNorm(),
    "ln": _layer_norm,
    "gn": lambda arguments, width: GroupNorm(arguments.integer("groups", None, first=True)),
    "flatten": lambda arguments, width: Flatten(),
    "dropout": lambda arguments, width: Dropout(arguments.number("p", None, first=True)),
    "scale": lambda arguments, width: Scale(arguments.number("factor", None, first=True)),
}


def _activation(arguments: Arguments, word: str) -> Activation:
    numbers = [_number(arguments, value, word) for value in arguments.positional]
    arguments.positional = []
    return _named(word, *numbers)


def _number(arguments: Arguments, value: Value, word: str) -> float:
    """Whole numbers stay whole: the order of a polynomial is one."""
    number = real(arguments.source, value, word)
    if word in ("hermite", "relupower") and number > _HIGHEST_ORDER:
        arguments.source.refuse(value.token, f"the order is {value.token}, at most {_HIGHEST_ORDER}", "use a lower one")
    return int(number) if value.token.text.isdigit() and number < 2**53 else number


@cache
def _named(word: str, *numbers: float) -> Activation:
    """One object per text: activations compare by identity, and equal texts are to give equal networks."""
    return activations.by_name(word, *numbers)


def default_words() -> list[str]:
    """Every layer word with its usual size, for suggestions."""
    sized = ["conv1", "conv3", "conv5", "avgpool2", "maxpool2", "l2pool2", "up2", "zeroup2"]
    return sorted({*sized, *FIXED, "res", "cat", "sum", "prod", "masked", *ACTIVATIONS})
