"""The table of planted mistakes, and of what looks like one and is none."""

from __future__ import annotations

from probe.planting import data, drift, fine, reach, samples, values, weights
from probe.planting.row import Planted

PLANTED: dict[str, Planted] = (
    weights.ROWS | drift.ROWS | values.ROWS | reach.ROWS | samples.ROWS | data.ROWS | fine.ROWS
)
MISTAKES = [name for name, row in PLANTED.items() if row.kind is not None]
