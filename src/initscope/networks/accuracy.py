"""How certain a matrix is: the least certain way an entry came about, and how far off it may be."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from initscope.errors import InexactIntegral
from initscope.layers import RUNGS, Rung, Trace

TOLERANCES = {torch.float32: 1e-5}  # relative errors above it are announced, in matrices of this type
TOLERANCE = 1e-6  # in others


@dataclass(frozen=True)
class Accuracy:
    """`error` estimates the largest error of an entry beside the diagonal; 0 for closed forms, which only round.

    Each layer's own error is added; that of a Monte Carlo activation is one standard error. `integral_error` is the part
    that comes from activations without a closed form, and not from layers that are simulated or approximate.
    """

    method: Rung = "exact"
    error: float = 0.0
    integral_error: float = 0.0

    @classmethod
    def of(cls, parts: Iterable[Trace]) -> Accuracy:
        """Of several propagations together."""
        return cls.least([cls(part.rung, part.error, part.integral_error) for part in parts])

    @classmethod
    def least(cls, parts: Sequence[Accuracy]) -> Accuracy:
        """The least certain way, and the largest error."""
        parts = [cls(), *parts]
        method = max((part.method for part in parts), key=RUNGS.index)
        return cls(method, max(part.error for part in parts), max(part.integral_error for part in parts))

    def to_dict(self) -> dict[str, str | float]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.method} ± {self.error:.0e}" if self.error > 0 else self.method


@dataclass(frozen=True, eq=False)
class KernelResult:
    """A kernel matrix and how certain it is."""

    value: Tensor
    accuracy: Accuracy


def warn_inexact(place: str, accuracy: Accuracy, dtype: torch.dtype = torch.float64) -> None:
    """A warning where an integral is less certain than anybody would expect of an exact answer.

    Simulations announce themselves, and approximations are noted with the layer.
    """
    if not accuracy.integral_error <= TOLERANCES.get(dtype, TOLERANCE):
        remedy = (
            "use more samples"
            if accuracy.method == "monte carlo"
            else "declare its kinks, give a dual, or scale the inputs"
        )
        warnings.warn(
            f"{place}: the integrals of an activation are off by up to {accuracy.integral_error:.1e} of its second moment "
            f"({accuracy.method}); {remedy}",
            InexactIntegral,
            stacklevel=4,
        )
