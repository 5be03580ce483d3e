"""Numbers of the inputs that follow from their variances by a formula, laid out and summed up on several threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.activations import Activation
from initscope.networks.fused.threads import finish
from initscope.networks.machine.cells import Laid

Array = np.ndarray[Any, Any]
_PART = (
    1 << 14
)  # variances of one task: torch takes several threads for more, which wait for work where ours need their cores


@dataclass(frozen=True, eq=False)
class Formulas(Laid):
    """`count` numbers of a variance; `of` maps an array of variances to that many arrays."""

    count: int
    of: Callable[[Array], tuple[Array, ...]]

    @property
    def fields(self) -> int:
        return self.count

    def filling(self, a: Tensor, out: Array, width: int) -> list[Callable[[], None]]:
        return [partial(self._write, some, part, width) for some, part in self.parts(a, out, width)]

    def _write(self, a: Array, out: Array, width: int) -> None:
        images, places = a.shape
        laid = out.reshape(-1, places, self.count, width)
        for field, numbers in enumerate(self.of(a)):
            for block, first in enumerate(range(0, images, width)):
                some = numbers[first : first + width].T
                laid[block, :, field, : some.shape[1]] = some


def norms(a: Array) -> tuple[Array, ...]:
    """√a and 1/√a, which is 0 at 0."""
    root = np.sqrt(a)
    return root, np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)


def erf_root(a: Array) -> tuple[Array, ...]:
    """1/√(1/2 + a)."""
    return (1 / np.sqrt(0.5 + a),)


def gelu_roots(a: Array) -> tuple[Array, ...]:
    """a and 1/√(1 + a)."""
    return a, 1 / np.sqrt(1 + a)


def exact_moments(f: Activation, a: Tensor) -> tuple[Tensor, Tensor]:
    """E f(u)² and E f(u)."""
    flat = a.flatten()
    parts = [flat[i : i + _PART] for i in range(0, len(flat), _PART)]
    found = finish([partial(_moments, f, part) for part in parts])
    squares, means = (torch.cat(some).view(a.shape) for some in zip(*found, strict=True))
    return squares, means


def _moments(f: Activation, a: Tensor) -> tuple[Tensor, Tensor]:
    return f.second_moment(a), f.mean(a)
