"""What a filter of independent weights makes of the squared norms of single inputs, in compiled loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.networks.fused.loops import Array, kept
from initscope.networks.fused.threads import finish
from initscope.networks.machine.steps import Taps, tap_place

_PART = 1 << 15  # places of one task


@kept
def average_taps(norm: Array, out: Array, taps: Taps, wraps: bool, scale: float, shift: float) -> None:
    """scale Σ_taps + shift of (images, places); beyond borders that do not wrap are zeros. Columns of taps are summed first."""
    row = np.empty(taps.in_width)
    for image in range(norm.shape[0]):
        for y in range(taps.height):
            row[:] = 0.0
            for tap in range(taps.taps_y):
                at = tap_place(y, tap, taps.step_y, taps.between_y, taps.before_y, taps.in_height, wraps)
                if 0 <= at < taps.in_height:
                    start = at * taps.in_width
                    for x in range(taps.in_width):
                        row[x] += norm[image, start + x]
            for x in range(taps.width):
                total = 0.0
                for tap in range(taps.taps_x):
                    at = tap_place(x, tap, taps.step_x, taps.between_x, taps.before_x, taps.in_width, wraps)
                    if 0 <= at < taps.in_width:
                        total += row[at]
                out[image, y * taps.width + x] = total * scale + shift


def first_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """E u² and E u over axis 1 of inputs, in float64.

    Not by torch: its threads would wait for more work where those of `run` need their cores.
    """
    u = x.detach().numpy()
    square = np.einsum("nc...,nc...->n...", u, u, dtype=np.float64) / u.shape[1]
    mean = np.add.reduce(u, axis=1, dtype=np.float64) / u.shape[1]
    return torch.from_numpy(np.asarray(square)), torch.from_numpy(np.asarray(mean))


def averaged(norm: Tensor, geometry: dict[str, int], wraps: bool, scale: float, shift: float) -> Tensor:
    """Squared norms (images, height, width) behind a filter; `geometry`: fields of a step."""
    taps = Taps(**{name: geometry[name] for name in Taps._fields})
    numbers = norm.contiguous().numpy().reshape(len(norm), -1)
    out = np.empty((len(norm), taps.height * taps.width))
    step = max(1, _PART // max(1, numbers.shape[1]))
    parts = [slice(i, i + step) for i in range(0, len(norm), step)]
    calls: list[Any] = [partial(average_taps, numbers[p], out[p], taps, wraps, scale, shift) for p in parts]
    finish(calls)
    return torch.from_numpy(out).view(-1, taps.height, taps.width)
