"""The tape that a network is written on: steps in order, the registers they use, and sums and products of what lies in them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from initscope.networks.machine.cells import Laid
from initscope.networks.machine.frames import Code, Step

_NOTHING = Step(*(0 for _ in Step._fields))._replace(slope_a=-1, slope_out=-1)


class Unknown(Exception):
    """A layer that the machine has no step for; the text says which and why."""


@dataclass(frozen=True, eq=False)
class OfNorms:
    """The numbers of a step that follow from the squared norms (images, places)."""

    how: Callable[[Tensor], Tensor] | Laid
    norm: Tensor

    def __call__(self, images: slice) -> Tensor:
        return self.how(self.norm[images])


Fields = Callable[[slice], Tensor] | OfNorms  # (images, places, fields) of some of the images


@dataclass(frozen=True, eq=False)
class Kind:
    """Units of one law: the registers of their products and of their tangent kernel (-1: none), and their moments.

    `error`: that of all series so far, relative to their second moments. `rounding`: what the steps so far may have made of
    rounding, in units of the last place of the norms; roundings of different steps are independent.
    """

    register: int
    slopes: int
    norm: Tensor  # (images, height, width), E u²
    mean: Tensor  # E u
    gaussian: bool = True
    error: float = 0.0
    rounding: float = 1.0


@dataclass(frozen=True, eq=False)
class Value:
    """What is between two layers; `shares` of the kinds sum to one, `stride`: places of the first window between two of these."""

    kinds: tuple[Kind, ...]
    shares: tuple[float, ...]
    channels: int
    stride: tuple[int, int] = (1, 1)

    @property
    def size(self) -> tuple[int, int]:
        height, width = self.kinds[0].norm.shape[1:]
        return int(height), int(width)


@dataclass(frozen=True)
class Reach:
    """The smallest and the largest squared norm above zero; infinity and 0 where there is none."""

    lowest: float
    highest: float
    zeros: bool = False  # whether some are zero

    @classmethod
    def of(cls, kinds: tuple[Kind, ...]) -> Reach:
        """Of all their units; NaN stays NaN."""
        lowest, highest, zeros = math.inf, 0.0, False
        for kind in kinds:
            norm = kind.norm.numpy()  # not torch's threads, see `norms.first_moments`
            low, high = float(norm.min()), float(norm.max())
            if math.isnan(low) or math.isnan(high):
                return cls(math.nan, math.nan)
            zeros = zeros or low <= 0
            if low <= 0 < high:
                low = float(kind.norm[kind.norm > 0].min())
            if high > 0:
                lowest, highest = min(lowest, low), max(highest, high)
        return cls(lowest, highest, zeros)

    @property
    def some(self) -> bool:
        """Whether there is a norm above zero."""
        return self.lowest <= self.highest

    @property
    def finite(self) -> bool:
        return math.isfinite(self.highest)


def largest(part: Tensor, whole: Tensor) -> float:
    """Of the ratios at places where something is."""
    some = whole > 0
    return float((part[some] / whole[some]).max()) if bool(some.any()) else 0.0


@dataclass(eq=False)
class Tape:
    """Steps with their constants and the numbers that they need of every input."""

    steps: list[Step] = field(default_factory=list)
    constants: list[tuple[float, ...]] = field(default_factory=list)
    fields: list[Fields | None] = field(default_factory=list)
    registers: int = 0
    _free: list[int] = field(default_factory=list)

    def take(self) -> int:
        """A register that nobody uses."""
        if self._free:
            return self._free.pop()
        self.registers += 1
        return self.registers - 1

    def release(self, *registers: int) -> None:
        """Registers that are no longer read; negative numbers are none."""
        self._free += [r for r in registers if r >= 0]

    def emit(self, code: Code, constants: tuple[float, ...], fields: Fields | None, /, **places: int) -> None:
        """One step more; what is not said of it is zero."""
        self.steps.append(_NOTHING._replace(code=int(code), **places))
        self.constants.append(constants)
        self.fields.append(fields)

    def place(self, value: Value) -> dict[str, int]:
        """What every step says of its window."""
        (height, width), (stride_y, stride_x) = value.size, value.stride
        return {"height": height, "width": width, "stride_y": stride_y, "stride_x": stride_x}

    def add(self, value: Value, a: Kind, b: Kind) -> Kind:
        """a + b of independent units, in the registers of a."""
        self.mix(value, a.register, a.register, b.register, 1.0, 1.0, 0.0)
        slopes = a.slopes
        if a.slopes >= 0 and b.slopes >= 0:
            self.mix(value, a.slopes, a.slopes, b.slopes, 1.0, 1.0, 0.0)
            self.release(b.slopes)
        elif b.slopes >= 0:
            slopes = b.slopes
        self.release(b.register)
        norm = a.norm + b.norm + 2 * a.mean * b.mean
        if bool(a.mean.any()) and bool(b.mean.any()):  # m₁m₂' + m₂m₁' = (m₁+m₂)(m₁+m₂)' - m₁m₁' - m₂m₂'
            one = torch.ones_like(a.mean)
            self.by_sides(value, a.register, (one, a.mean + b.mean, a.mean), 1.0, -1.0)
            self.by_sides(value, a.register, (one, b.mean, b.mean), -1.0, 0.0)
        norm = norm.clamp_min(0)
        error = largest(a.error * a.norm + b.error * b.norm, norm)
        rounding = math.hypot(1, largest((a.rounding * a.norm).hypot(b.rounding * b.norm), norm))
        return Kind(a.register, slopes, norm, a.mean + b.mean, a.gaussian and b.gaussian, error, rounding)

    def multiply(self, value: Value, a: Kind, b: Kind) -> Kind:
        """a b of independent units, in the registers of a."""
        place = self.place(value)
        for mine, other in ((a, b), (b, a)):
            if mine.slopes >= 0:
                self.emit(Code.TIMES, (), None, out=mine.slopes, a=mine.slopes, b=other.register, **place)
        slopes = max(a.slopes, b.slopes)
        if a.slopes >= 0 and b.slopes >= 0:
            slopes = a.slopes
            self.mix(value, slopes, a.slopes, b.slopes, 1.0, 1.0, 0.0)
            self.release(b.slopes)
        self.emit(Code.TIMES, (), None, out=a.register, a=a.register, b=b.register, **place)
        self.release(b.register)
        error, rounding = a.error + b.error, math.hypot(1, a.rounding, b.rounding)
        return Kind(a.register, slopes, a.norm * b.norm, a.mean * b.mean, False, error, rounding)

    def merged(self, value: Value) -> Value:
        """All kinds as one: the mean over them by their shares."""
        if len(value.kinds) == 1:
            return value
        first, *rest = value.kinds
        weight = value.shares[0]
        norm, mean, slopes = weight * first.norm, weight * first.mean, first.slopes
        error = max(kind.error for kind in value.kinds)
        rounding = math.hypot(1, max(kind.rounding for kind in value.kinds))
        if slopes >= 0:
            self.mix(value, slopes, slopes, slopes, weight, 0.0, 0.0)
        self.mix(value, first.register, first.register, first.register, weight, 0.0, 0.0)
        for share, kind in zip(value.shares[1:], rest, strict=True):
            self.mix(value, first.register, first.register, kind.register, 1.0, share, 0.0)
            norm, mean = norm + share * kind.norm, mean + share * kind.mean
            if kind.slopes >= 0 and slopes >= 0:
                self.mix(value, slopes, slopes, kind.slopes, 1.0, share, 0.0)
                self.release(kind.slopes)
            elif kind.slopes >= 0:
                slopes = kind.slopes
                self.mix(value, slopes, slopes, slopes, share, 0.0, 0.0)
            self.release(kind.register)
        merged = Kind(first.register, slopes, norm, mean, False, error, rounding)
        return Value((merged,), (1.0,), value.channels, value.stride)

    def scaled(self, kind: Kind, value: Value, factor: float) -> Kind:
        """All units times a factor."""
        square = factor * factor
        for register in (kind.register, kind.slopes):
            if register >= 0:
                self.mix(value, register, register, register, square, 0.0, 0.0)
        return replace(kind, norm=square * kind.norm, mean=factor * kind.mean)

    def copied(self, kind: Kind, value: Value) -> Kind:
        """The same in registers of its own."""
        twins = [self.take() if r >= 0 else -1 for r in (kind.register, kind.slopes)]
        for register, twin in zip((kind.register, kind.slopes), twins, strict=True):
            if register >= 0:
                self.mix(value, twin, register, register, 1.0, 0.0, 0.0)
        return replace(kind, register=twins[0], slopes=twins[1])

    def mix(self, value: Value, out: int, a: int, b: int, alpha: float, beta: float, shift: float) -> None:
        """alpha a + beta b + shift."""
        self.emit(Code.MIX, (alpha, beta, shift), None, out=out, a=a, b=b, **self.place(value))

    def by_sides(self, value: Value, register: int, parts: tuple[Tensor, ...], alpha: float, beta: float) -> None:
        """a s_x s_y + alpha t_x t_y + beta m_x m_y in place; parts: s, t, m of every input."""
        stacked = torch.stack([t.expand(parts[0].shape).flatten(1) for t in parts], -1)
        self.emit(
            Code.SIDES, (alpha, beta), lambda images: stacked[images], out=register, a=register, **self.place(value)
        )  # fmt: skip
