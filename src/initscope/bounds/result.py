"""What every bound returns: the number, how sure it is, what it assumes and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from torch import Tensor

Value = TypeVar("Value", covariant=True)
Kind = Literal["exact", "bound", "asymptotic"]


@dataclass(frozen=True)
class Interval:
    """A closed interval, or one for each pair: `low` and `high` have the same shape."""

    low: Tensor
    high: Tensor

    def contains(self, value: Tensor) -> Tensor:
        """Where the value lies inside, the ends included.

        >>> import torch
        >>> Interval(torch.zeros(2), torch.ones(2)).contains(torch.tensor([1.0, 1.1]))
        tensor([ True, False])
        """
        return (self.low <= value) & (value <= self.high)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {"low": self.low.tolist(), "high": self.high.tolist()}


@dataclass(frozen=True)
class Bound(Generic[Value]):
    """A value together with its evidence.

    `delta` is the probability with which the statement may fail (None: it cannot), `kind` says whether the value is
    exact, a proved bound or the limit of something, `assumes` lists the hypotheses, `note` holds corrections.

    >>> Bound(0.5, assumes=("unit norms",), source="here").to_dict()["kind"]
    'bound'
    """

    value: Value
    delta: float | None = None
    kind: Kind = "bound"
    assumes: tuple[str, ...] = ()
    source: str = ""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        value: Any = self.value
        if isinstance(value, Interval):
            value = value.to_dict()
        elif isinstance(value, Tensor):
            value = value.tolist()
        return {
            "value": value,
            "delta": self.delta,
            "kind": self.kind,
            "assumes": list(self.assumes),
            "source": self.source,
            "note": self.note,
        }
