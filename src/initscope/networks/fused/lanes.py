"""As many numbers at once as a vector register holds, for the compiled loops: what is written is what runs, in this order.

A `Lanes` is one value of the compiled code that holds `LANES` numbers of one type; arithmetic, `abs`, `min`, `max` and
`np.sqrt` act on each of them, and a number beside it counts for all. Loops written with it need no vectoriser, which would have
to prove that arrays do not overlap, and their digits do not depend on what a compiler makes of a sum.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import extending
from numba.core import config, types
from numba.extending import models, overload, register_model


def _widest() -> int:
    """Numbers of float32 in a vector register of the processor that numba compiles for."""
    told = vars(config)["CPU_FEATURES"]  # which numba sets as it is imported
    wide = "+avx512f" in told.split(",") if told is not None else binding.get_host_cpu_features().get("avx512f", False)
    return 16 if wide else 8


_COUNT = _widest()
LANES = np.uint64(_COUNT)
_INDEX = ir.IntType(32)


def intrinsic(function: Callable[..., Any]) -> Any:
    """What it makes is called without the first argument."""
    return extending.intrinsic(function)


class Lanes(types.Type):
    """The type of `LANES` numbers of type `scalar`."""

    def __init__(self, scalar: Any) -> None:
        self.scalar = scalar
        super().__init__(name=f"Lanes({scalar})")


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:
        element = ir.FloatType() if kind.scalar == types.float32 else ir.DoubleType()
        super().__init__(manager, kind, ir.VectorType(element, _COUNT))  # type: ignore[no-untyped-call]


def is_single(value: Any) -> bool:
    """Whether a type is that of float32 lanes."""
    return isinstance(value, Lanes) and value.scalar == types.float32


def _indices(values: Any) -> Any:
    values = list(values)
    return ir.Constant(ir.VectorType(_INDEX, len(values)), values)


def _spread(builder: Any, value: Any) -> Any:
    nothing = ir.Constant(ir.VectorType(value.type, _COUNT), ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(one, nothing, _indices([0] * _COUNT))


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any, lanes: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), lanes.as_pointer())


@intrinsic
def load(typing: Any, array: Any, at: Any) -> Any:
    """`LANES` numbers of a flat array, from a place on; whether they are inside is not looked at."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        place = _place(context, builder, array, arguments[0], arguments[1], kind)
        return builder.load(place, align=array.dtype.bitwidth // 8)

    return Lanes(array.dtype)(array, at), build


@intrinsic
def store(typing: Any, array: Any, at: Any, value: Any) -> Any:
    """Write lanes to a flat array, from a place on."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, array, arguments[0], arguments[1], context.get_value_type(value))
        builder.store(arguments[2], place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, at, value), build


@intrinsic
def spread(typing: Any, value: Any) -> Any:
    """The same number in all lanes."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _spread(builder, arguments[0])

    return Lanes(value)(value), build


@intrinsic
def first(typing: Any, value: Any, count: Any) -> Any:
    """The first `count` lanes, zeros behind them."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        limit = _spread(builder, builder.trunc(arguments[1], _INDEX))
        inside = builder.icmp_unsigned("<", _indices(range(_COUNT)), limit)
        return builder.select(inside, arguments[0], ir.Constant(arguments[0].type, [0.0] * _COUNT))

    return value(value, count), build


@intrinsic
def where_less(typing: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """`yes` in the lanes in which a < b, else `no`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", *arguments[:2]), *arguments[2:])

    return yes(a, b, yes, no), build


@intrinsic
def power_of_two(typing: Any, n: Any) -> Any:
    """2^n of whole numbers for which it is a normal number of the type."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits, digits, bias = (32, 23, 127) if n.scalar == types.float32 else (64, 52, 1023)
        whole = ir.VectorType(ir.IntType(bits), _COUNT)
        exponent = builder.add(builder.fptosi(arguments[0], whole), ir.Constant(whole, [bias] * _COUNT))
        return builder.bitcast(builder.shl(exponent, ir.Constant(whole, [digits] * _COUNT)), arguments[0].type)

    return n(n), build


@intrinsic
def added(typing: Any, value: Any) -> Any:
    """The sum of all lanes: halves upon halves."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (lanes,), half = arguments, _COUNT // 2
        while half:
            low, high = _indices(range(half)), _indices(range(half, 2 * half))
            lanes = builder.fadd(builder.shuffle_vector(lanes, lanes, low), builder.shuffle_vector(lanes, lanes, high))
            half //= 2
        return builder.extract_element(lanes, ir.Constant(_INDEX, 0))

    return value.scalar(value), build


@intrinsic
def uncounted(typing: Any, array: Any) -> Any:
    """The same array without its count of references, for as long as somebody else holds it.

    Every call of a compiled function counts its arrays up and down, which two threads do to the same memory: it takes longer than
    a row of an image.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(array)(context, builder, arguments[0])
        view.meminfo, view.parent = (ir.Constant(x.type, None) for x in (view.meminfo, view.parent))
        return view._getvalue()

    return array(array), build


@intrinsic
def apart(typing: Any) -> Any:
    """Keeps the function it is called in out of others: inside a loop that calls more, no constant would stay in a register."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), build


@intrinsic
def within(typing: Any) -> Any:
    """Puts the function it is called in into those that call it: what would be handed over stays in registers."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("alwaysinline")
        return context.get_dummy_value()

    return types.void(), build


def _two(make: Callable[[Any, Any, Any], Any]) -> Any:
    """An operation on two lanes, or on lanes and a number in either order, from what it is in LLVM."""

    @intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        kind = a if isinstance(a, Lanes) else b

        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            both = (x if isinstance(k, Lanes) else _spread(builder, x) for k, x in zip((a, b), arguments, strict=True))
            return make(builder, *both)

        return kind(a, b), build

    def lanes(a: Any, b: Any) -> Any:
        return operation(a, b)

    def choose(a: Any, b: Any) -> Any:
        kinds = {k.scalar if isinstance(k, Lanes) else k for k in (a, b)}
        some = isinstance(a, Lanes) or isinstance(b, Lanes)
        return lanes if some and len(kinds) == 1 else None  # a number of another type is a mistake: nothing is promoted

    return choose


def _one(name: str) -> Any:
    """A function of LLVM, for each of the lanes."""

    @intrinsic
    def operation(typing: Any, a: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = arguments[0].type
            full = f"{name}.v{_COUNT}f{a.scalar.bitwidth}"
            function = builder.module.globals.get(full) or ir.Function(
                builder.module, ir.FunctionType(kind, [kind]), full
            )
            return builder.call(function, arguments)

        return a(a), build

    def lanes(x: Any) -> Any:
        return operation(x)

    def choose(x: Any) -> Any:
        return lanes if isinstance(x, Lanes) else None

    return choose


def nearest(x: Any) -> Any:
    """The nearest whole number in each lane."""
    raise NotImplementedError


overload(nearest)(_one("llvm.rint"))
overload(operator.add)(_two(lambda builder, a, b: builder.fadd(a, b)))
overload(operator.sub)(_two(lambda builder, a, b: builder.fsub(a, b)))
overload(operator.mul)(_two(lambda builder, a, b: builder.fmul(a, b)))
overload(operator.truediv)(_two(lambda builder, a, b: builder.fdiv(a, b)))
overload(min)(_two(lambda builder, a, b: builder.select(builder.fcmp_ordered("<", a, b), a, b)))
overload(max)(_two(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b)))
overload(np.sqrt)(_one("llvm.sqrt"))
overload(abs)(_one("llvm.fabs"))
