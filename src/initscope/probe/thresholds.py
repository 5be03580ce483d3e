"""Every threshold of the diagnosis, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """When a layer is worth a warning and when it fails; ratios count in both directions.

    `angle`: mean angle between samples, in degrees, from where it does not open again; `norm`: root mean square of the units
    against that after the last normalization, or the data's; `gradient`: norm of the activations' gradient against the one at
    the output; `dead`: share of units that never fire; `saturated`: share of values at the ends of the activation's range.

    The first three are set on the first half of the networks of benchmarks/trainability: beyond a warning at most one in four
    trains, beyond a failure none (`python benchmarks/trainability/fit.py`). The other two are not calibrated.
    """

    angle: tuple[float, float] = (15.0, 1.0)
    norm: tuple[float, float] = (300.0, 5000.0)
    gradient: tuple[float, float] = (100.0, 1000.0)
    dead: tuple[float, float] = (0.5, 0.95)
    saturated: tuple[float, float] = (0.5, 0.95)


DEFAULT = Thresholds()
