"""Hermite coefficients of a series as short polynomials of log s, cell by cell: what compiled loops need of every input.

A `SeriesTable` interpolates whole octaves to the last digit. Steps of the machine ask for millions of variances in a narrow
range, in the order in which their inputs lie in memory: here one variance takes a few operations for each coefficient.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.activations import SeriesTable
from initscope.networks.fused.threads import finish

Array = np.ndarray[Any, Any]
DEGREES = {torch.float32: 5, torch.float64: 9}
_CELLS = (8, 16, 32, 64)  # to an octave, as they are tried
_BETWEEN = (-0.93, -0.41, 0.13, 0.77)  # places in a cell where it is compared with the table
_SHARE = 0.01  # of the tolerance, that the cells may add
_LEAST = 1e-15  # rounding
_PART = 1 << 13  # variances of one task


class Laid(ABC):
    """Numbers of every input that compiled loops write to their place."""

    @property
    @abstractmethod
    def fields(self) -> int:
        """How many there are for one variance."""

    @abstractmethod
    def filling(self, a: Tensor, out: Array, width: int) -> list[Callable[[], None]]:
        """The tasks that `fill` consists of."""

    def __call__(self, a: Tensor) -> Tensor:
        """(images, places) -> (images, places, fields)."""
        out = np.empty((*a.shape, self.fields))
        self.fill(a, out.reshape(-1), 1)
        return torch.from_numpy(out)

    def fill(self, a: Tensor, out: Array, width: int) -> None:
        """The same into flat memory of whole blocks, (block, place, field, width), which is zero behind the last image."""
        finish(self.filling(a, out, width))

    def parts(self, a: Tensor, out: Array, width: int) -> list[tuple[Array, Array]]:
        """Whole blocks of images and of memory, one pair for each task."""
        numbers = a.contiguous().numpy()
        images, places = numbers.shape
        step = max(1, _PART // max(1, places * width)) * width
        size = places * self.fields
        return [(numbers[i : i + step], out[i * size : (i + step) * size]) for i in range(0, images, step)]


@dataclass(frozen=True, eq=False)
class Cells(Laid):
    """a_0 and a_k/s of `rows` coefficients, over variances a: fields 1/s, shares c_j s^j, then the coefficients.

    `zero`: the row of a_0, -1 without one; `at_zero` is f(0).
    """

    low: float
    per: float  # cells to a unit of log s
    values: Array  # (cells, degree + 1, rows), highest degree first
    zero: int
    at_zero: float
    shares: Array  # c_j
    exponents: Array  # j
    error: float  # relative to the second moment

    @property
    def fields(self) -> int:
        return 1 + len(self.shares) + int(self.values.shape[2])

    def filling(self, a: Tensor, out: Array, width: int) -> list[Callable[[], None]]:
        from initscope.networks.machine.filling import fill_series

        return [
            partial(
                fill_series, some, self.values, self.low, self.per, self.zero, self.at_zero, self.shares, self.exponents,
                part, width,
            )
            for some, part in self.parts(a, out, width)
        ]  # fmt: skip

    def moments(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Σ a_k² of the rows, and a_0."""
        from initscope.networks.machine.filling import sum_squares

        flat = a.flatten().contiguous().numpy()
        squares, means = np.empty_like(flat), np.zeros_like(flat)
        step = max(_PART, -(-len(flat) // (4 * torch.get_num_threads())))
        tasks = [
            partial(
                sum_squares, flat[i : i + step], self.values, self.low, self.per, self.zero, self.at_zero,
                squares[i : i + step], means[i : i + step],
            )
            for i in range(0, len(flat), step)
        ]  # fmt: skip
        finish(tasks)
        return torch.from_numpy(squares).view(a.shape), torch.from_numpy(means).view(a.shape)


def cells_of(
    table: SeriesTable, rows: Tensor, count: int, span: tuple[float, float], tolerance: float, dtype: torch.dtype,
    shares: tuple[float, ...] = (), exponents: tuple[int, ...] = (),
) -> Cells | None:  # fmt: skip
    """Cells for standard deviations in `span`; coefficient k of the table goes to row rows[k]; None if none are exact enough."""
    low, high = (math.log(end) for end in span)
    degree = DEGREES[dtype]
    for per_octave in _CELLS:
        per = per_octave / math.log(2)
        number = max(1, math.ceil((high - low) * per * (1 + 1e-12)))
        nodes = np.cos(np.pi * (2 * np.arange(degree + 1) + 1) / (2 * degree + 2))
        found = _scaled(table, rows, count, low, per, number, nodes)
        values = np.linalg.solve(np.vander(nodes), found.transpose(1, 0, 2).reshape(degree + 1, -1))
        values = np.ascontiguousarray(values.reshape(degree + 1, number, count).transpose(1, 0, 2))
        error = 2 * _missed(table, rows, values, low, per)
        if error <= max(_SHARE * tolerance, _LEAST):
            zero = int(rows[table.orders.index(0)]) if 0 in table.orders else -1
            return Cells(
                low, per, values, zero, table.at_zero[0], np.array(shares), np.array(exponents, dtype=np.int64), error
            )
    return None


def _scaled(
    table: SeriesTable, rows: Tensor, count: int, low: float, per: float, number: int, places: Array
) -> Array:  # fmt: skip
    """a_0 and a_k/s at places of every cell, (cells, places, rows)."""
    logs = low + (np.arange(number)[:, None] + (places + 1) / 2) / per
    out = np.zeros((count, logs.size))
    out[rows.numpy()] = table.scaled(torch.from_numpy(np.exp(2 * logs).reshape(-1))).numpy()
    return out.T.reshape(number, len(places), count)


def _missed(table: SeriesTable, rows: Tensor, values: Array, low: float, per: float) -> float:
    """The largest √(Σ (Δa_k)² / Σ a_k²) in between."""
    places = np.array(_BETWEEN)
    number, _, count = values.shape
    true = _scaled(table, rows, count, low, per, number, places)
    got = np.zeros_like(true)
    for degree in range(values.shape[1]):
        got = got * places[None, :, None] + values[:, degree, None, :]
    weight = np.exp(low + (np.arange(number)[:, None] + (places + 1) / 2) / per)[..., None] * np.ones(count)
    if 0 in table.orders:
        weight[..., int(rows[table.orders.index(0)])] = 1.0
    miss, whole = ((np.square(t * weight)).sum(-1) for t in (got - true, true))
    return float(np.sqrt((miss / np.maximum(whole, 1e-300)).max()))
