"""The arguments of a traced call, by position or by keyword."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from initscope.probe.trace import Call, Seen


class Unknown(Exception):
    """The call has options that the theory does not cover."""


class Arguments:
    """The arguments of a call by name, whether they were passed by position or by keyword."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def get(self, position: int, name: str, default: Any = None) -> Any:
        if name in self.call.keywords:
            return self.call.keywords[name]
        return self.call.arguments[position] if len(self.call.arguments) > position else default

    @property
    def input_shape(self) -> tuple[int, ...]:
        data = self.get(0, "input")
        if not isinstance(data, Seen):
            raise Unknown
        return data.shape

    def weight(self, position: int, name: str) -> Tensor:
        value = self.get(position, name)
        if not isinstance(value, Tensor):
            raise Unknown  # computed in the forward pass, or shared with the data
        return value

    def bias(self, position: int, name: str) -> float:
        value = self.get(position, name)
        if value is None:
            return 0.0
        if not isinstance(value, Tensor):
            raise Unknown
        return float(value.detach().abs().double().square().mean().sqrt())

    def sizes(self, position: int, name: str, default: int | tuple[int, ...], axes: int) -> tuple[int, ...]:
        """A number for each position axis."""
        value = self.get(position, name, default)
        if value is None or (isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 0):
            value = default
        if isinstance(value, str):
            raise Unknown
        found = tuple(map(int, value)) if isinstance(value, Sequence) else (int(value),)
        return found * axes if len(found) == 1 else found

    def number(self, position: int, name: str, default: float | None = None) -> float:
        """A finite number that does not depend on the data."""
        value = self.get(position, name, default)
        if isinstance(value, Tensor) and value.numel() == 1:
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise Unknown
        return float(value)
