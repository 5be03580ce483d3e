"""Networks back into the architecture language: `parse(unparse(net))` is the same network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, NoReturn

import torch

from initscope import weights
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
from initscope.layers.shifts import Size, size_text
from initscope.networks.branches import Concat, Product, Residual, Sum
from initscope.networks.composition import Composition, Sequential
from initscope.networks.language.reader import parse
from initscope.networks.masks import Masked
from initscope.weights import WeightLaw

_OTHER_NAMES = {"polynomial": "poly", "rectified_power": "relupower"}
_LONGEST_PERIOD = 64


def unparse(net: Layer) -> str:
    """The text of a network, repeats gathered; what the language has no word for raises BadInput.

    >>> unparse(parse("conv3 relu conv3 relu gap"))
    '2x(conv3(64) relu) gap'
    """
    items = [_text(layer) for layer in _flat(net)]
    if not items:
        raise BadInput("unparse", "the language has no word for an empty network", "give it a layer")
    return " ".join(_gathered(items))


def text_of(net: Layer) -> str:
    """`unparse`, or the Python call that makes the network where the language has no words for it.

    >>> text_of(Residual(Conv(8))), text_of(Conv(8, margin=(1, 2)))
    ('res(conv3(8))', 'Conv(8, margin=(1, 2))')
    """
    try:
        return unparse(net)
    except BadInput:
        return python_call(net)


def python_call(layer: object) -> str:
    """The layer as Python code: its constructor with the arguments that are not defaults; activations by their name."""
    if isinstance(layer, Activation):
        return layer.name
    if isinstance(layer, Composition):
        more = [f"scale={layer.scale!r}"] if isinstance(layer, Residual) and layer.scale != 1.0 else []
        more += [f"axis={layer.axis}"] if isinstance(layer, Concat) and layer.axis else []
        more += [f"value={layer.value!r}"] if isinstance(layer, Masked) and layer.value else []
        return f"{type(layer).__name__}({', '.join([*map(python_call, layer.parts), *more])})"
    if not isinstance(layer, Layer):
        return repr(layer)
    given: list[str] = []
    options: Sequence[Field[Any]] = fields(layer) if is_dataclass(layer) else ()
    for i, field in enumerate(options):
        value = getattr(layer, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if value is not default and value != default:
            given.append(python_call(value) if i == 0 else f"{field.name}={python_call(value)}")
    return f"{type(layer).__name__}({', '.join(given)})"


def _flat(net: Layer) -> list[Layer]:
    """A sequence inside a sequence is the same network without the inner parentheses."""
    return [leaf for layer in net.layers for leaf in _flat(layer)] if isinstance(net, Sequential) else [net]


def _text(layer: Layer) -> str:
    write = _WRITERS.get(type(layer))
    if write is None:
        _refuse(layer, f"the language has no word for {type(layer).__name__}")
    text = write(layer)
    # Options that the language does not have (an epsilon, a margin) show as a difference after reading again.
    if not isinstance(layer, Activate | Composition) and parse(text).layers[0] != layer:
        _refuse(layer, f"the language cannot say every option of {python_call(layer)}")
    return text


def _refuse(layer: Layer, problem: str) -> NoReturn:
    raise BadInput("unparse", f"{problem} ({layer.word})", "keep the network as Python code")


def _gathered(items: Sequence[str]) -> list[str]:
    """Repeats as 3x(...): from each place on, the repetition that saves the most items."""
    out: list[str] = []
    place = 0
    while place < len(items):
        period, times = 1, 1
        for trial in range(1, min(_LONGEST_PERIOD, (len(items) - place) // 2) + 1):
            count = 1
            block = items[place : place + trial]
            while items[place + count * trial : place + (count + 1) * trial] == block:
                count += 1
            if trial * (count - 1) > period * (times - 1):
                period, times = trial, count
        written = items[place : place + period * times]
        block = " ".join(_gathered(items[place : place + period])) if times > 1 else ""
        gathered = f"{times}x({block})"
        out += [gathered] if block and len(gathered) < len(" ".join(written)) else written
        place += period * times
    return out


def _called(word: str, *options: str) -> str:
    given = [option for option in options if option]
    return f"{word}({', '.join(given)})" if given else word


def _one(size: Size) -> int:
    return size[0] if isinstance(size, tuple) else size


def _option(name: str, value: object, default: object) -> str:
    return "" if value == default else f"{name}={value!r}" if isinstance(value, float) else f"{name}={value}"


def _law(layer: Layer, law: WeightLaw) -> str:
    name = weights.name_of(law)
    if name is None:
        _refuse(layer, f"the language has no name for the weights {law}")
    return "" if name == "he" else f"init={name}"


def _bias(layer: Layer, bias: Bias) -> str:
    if not isinstance(bias, WeightLaw):
        return _option("bias", float(bias), 0.0)
    name = weights.name_of(bias)
    if name is None:
        _refuse(layer, f"the language has no name for the biases {bias}")
    return f"bias={name}"


def _conv(layer: Conv) -> str:
    return _called(
        f"conv{size_text(layer.kernel)}",
        str(layer.channels),
        _option("stride", _one(layer.stride), 1),
        _option("padding", layer.padding, "circular"),
        _option("dilation", _one(layer.dilation), 1),
        _option("groups", layer.groups, 1),
        _law(layer, layer.weights),
        _bias(layer, layer.bias),
        _margin(layer.margin),
    )


def _margin(margin: Size | None) -> str:
    return "" if margin is None else f"margin={_one(margin)}"


def _dense(layer: Dense) -> str:
    return _called("dense", str(layer.width), _law(layer, layer.weights), _bias(layer, layer.bias))


def _pool(word: str) -> Callable[[Any], str]:
    def write(layer: AveragePool | MaxPool | L2Pool) -> str:
        return _called(
            f"{word}{size_text(layer.window)}",
            "" if layer.stride is None else f"stride={_one(layer.stride)}",
            _option("padding", layer.padding, "valid"),
            _margin(layer.margin),
            _option("edges", layer.edges, "count") if isinstance(layer, AveragePool) else "",
        )

    return write


def _activate(layer: Activate) -> str:
    """The activation's own name, if reading it gives the same function (names may round their parameters)."""
    name, _, numbers = layer.activation.name.partition("(")
    name = _OTHER_NAMES.get(name, name) + (f"({numbers}" if numbers else "")
    try:
        again = parse(name).layers[0]
    except BadInput:
        again = None
    grid = torch.linspace(-4, 4, 161, dtype=torch.float64)
    if not isinstance(again, Activate) or not torch.equal(again.activation(grid), layer.activation(grid)):
        _refuse(layer, f"the language has no word for the activation {name}")
    return name


def _upsample(layer: Upsample) -> str:
    return f"{'up' if layer.mode == 'nearest' else 'zeroup'}{layer.factor}"


def _branches(word: str) -> Callable[[Any], str]:
    return lambda layer: f"{word}({' | '.join(unparse(branch) for branch in layer.branches)})"


def _masked(layer: Masked) -> str:
    value = "" if layer.value == 0 else f", value={layer.value!r}"
    return f"masked({unparse(Sequential(*layer.layers))}{value})"


def _concat(layer: Concat) -> str:
    axis = f", axis={layer.axis}" if layer.axis else ""
    return f"{_branches('cat')(layer)[:-1]}{axis})"


def _residual(layer: Residual) -> str:
    scale = "" if layer.scale == 1.0 else f", scale={float(layer.scale)!r}"
    return f"res({unparse(Sequential(*layer.layers))}{scale})"


_WRITERS: dict[type[Layer], Callable[[Any], str]] = {
    Conv: _conv,
    Dense: _dense,
    Activate: _activate,
    AveragePool: _pool("avgpool"),
    MaxPool: _pool("maxpool"),
    L2Pool: _pool("l2pool"),
    GlobalAveragePool: lambda layer: "gap",
    GlobalMaxPool: lambda layer: "gmp",
    BatchNorm: lambda layer: "bn",
    LayerNorm: lambda layer: layer.word,
    GroupNorm: lambda layer: f"gn({layer.groups})",
    Upsample: _upsample,
    Flatten: lambda layer: "flatten",
    Dropout: lambda layer: f"dropout({float(layer.p)!r})",
    Scale: lambda layer: f"scale({float(layer.factor)!r})",
    Residual: _residual,
    Concat: _concat,
    Sum: _branches("sum"),
    Product: _branches("prod"),
    Masked: _masked,
}
