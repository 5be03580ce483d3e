"""What a step must know of a variance as polynomials of log s, for compiled loops that take many variances at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor

from initscope.networks.fused.threads import finish
from initscope.networks.machine.cells import Laid
from initscope.networks.machine.curves import NODES, Curve
from initscope.networks.machine.frames import WIDTH

Array = np.ndarray[Any, Any]
_OWN = 1e-9  # error of the own moments, beside them
_PART = 1 << 14  # variances of one task


@dataclass(frozen=True, eq=False)
class Rows(Laid):
    """Fields of a variance: 1/s, then the rows.

    `values`: the rows as polynomials of (log s - middle) per, highest power first; `moments_values` the same of E f² and E f;
    `at_zero`, `moments_at_zero`: what they are at variance 0. `error` is that of the rows, relative to E f².
    """

    middle: float
    per: float
    values: Array  # (degree + 1, rows)
    at_zero: Array
    moments_values: Array
    moments_at_zero: Array
    error: float

    @classmethod
    def of(cls, curve: Curve, points: Array, at_zero: Array, own: Array, allowed: float) -> Rows | None:
        """Rows with these values at the points of a curve; None where no polynomial comes close enough."""
        root = np.sqrt(curve.energies[0])
        rows = _shortest(curve, points, lambda off: np.linalg.norm(off, axis=0) / root, allowed / 3)
        first = curve.table.orders[0] == 0
        moments = np.stack([own, curve.coefficients[0] * first])
        # The mean counts beside the root of the second moment.
        both = _shortest(curve, moments, lambda off: np.abs(off[0]) / own + np.abs(off[1]) / root, _OWN)
        if rows is None or both is None:
            return None
        mean = curve.table.at_zero[0]
        values, missed = rows
        return cls(
            (curve.low + curve.high) / 2, 2 / (curve.high - curve.low), values, at_zero, both[0],
            np.array([mean * mean, mean]), 2 * missed + missed * missed,
        )  # fmt: skip

    @property
    def fields(self) -> int:
        return 1 + len(self.at_zero)

    def filling(self, a: Tensor, out: Array, width: int) -> list[Callable[[], None]]:
        numbers = a.numpy()
        images, places = numbers.shape
        step = max(1, _PART // max(1, places * width)) * width
        size = places * self.fields
        return [
            partial(self._fill, numbers[i : i + step], out[i * size : (i + step) * size], width)
            for i in range(0, images, step)
        ]

    def _fill(self, a: Array, out: Array, width: int) -> None:
        from initscope.networks.machine.filling import fill_rows

        images, places = a.shape
        blocks = -(-images // width)
        if images % width:  # behind the last image there is nothing
            a = np.concatenate([a, np.full((blocks * width - images, places), -1.0)])
        laid = np.ascontiguousarray(a.reshape(blocks, width, places).transpose(0, 2, 1))
        numbers, logs, checked = self._lanes(laid.reshape(-1))
        fill_rows(numbers, logs, self.values, self.at_zero, checked, out, width)

    def moments(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """E f(u)² as the loops have it, and E f(u)."""
        flat = a.flatten().numpy()
        made = np.empty((2, len(flat)))
        parts = [slice(i, i + _PART) for i in range(0, len(flat), _PART)]
        finish([partial(self._moments, flat[p], made[:, p]) for p in parts])
        squares, means = torch.from_numpy(made).view(2, *a.shape)
        return squares, means

    def _moments(self, a: Array, out: Array) -> None:
        from initscope.networks.machine.filling import fill_moments

        numbers, logs, checked = self._lanes(a)
        fill_moments(numbers, logs, self.moments_values, self.moments_at_zero, checked, out)

    def _lanes(self, a: Array) -> tuple[Array, Array, bool]:
        """Variances, filled up to whole lanes, their places on the axis of log s, and whether all are above zero."""
        missing = -len(a) % WIDTH
        if missing:
            a = np.concatenate([a, np.full(missing, -1.0)])
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(a)
        logs -= 2 * self.middle
        logs *= self.per / 2
        return a, logs, bool(a.min() > 0)


def _shortest(
    curve: Curve, points: Array, size: Callable[[Array], Array], allowed: float
) -> tuple[Array, float] | None:  # fmt: skip
    """Coefficients (degree + 1, rows), highest power first, of the shortest polynomials within allowed, and twice their miss."""
    waves = chebyshev.chebvander(curve.places[:NODES], NODES - 1).T @ points[:, :NODES].T * (2 / NODES)
    waves[0] /= 2
    basis = chebyshev.chebvander(curve.places, NODES - 1)
    for degree in range(4, NODES - 4, 2):
        worst = 2 * float(size((basis[:, : degree + 1] @ waves[: degree + 1]).T - points).max())
        if worst <= allowed:
            values = np.zeros((degree + 1, len(points)))
            for r, row in enumerate(waves[: degree + 1].T):
                values[:, r] = _powers(degree) @ row
            return values, worst
    return None


@lru_cache
def _powers(degree: int) -> Array:
    """Powers of x, highest first, of the Chebyshev polynomials up to a degree, (powers, polynomials)."""
    found = np.zeros((degree + 1, degree + 1))
    for n in range(degree + 1):
        found[degree - n :, n] = chebyshev.cheb2poly(np.eye(n + 1)[n])[::-1]
    return found
