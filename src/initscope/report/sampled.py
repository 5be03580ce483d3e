"""Simulations as terminal tables, the exact prediction beside the sampled networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich import box
from rich.table import Table
from rich.text import Text

from initscope.finite import Estimate, GradientSimulation, LayerEstimate, Simulation
from initscope.networks import Prediction
from initscope.report.tables import LayerRow, cosine_text, layer_rows

NOTHING = "-"


@dataclass(frozen=True)
class SampledRow:
    """One layer, means over all pairs; margins are half the width of the interval.

    All pairs go through the same networks, so their errors may all point the same way: the margin of a mean is the mean of
    the margins. `exact` is None where nothing was predicted.
    """

    name: str
    norm_ratio: float
    norm_ratio_margin: float
    cosine_mean: float
    cosine_margin: float
    defect_mean: float
    angle_deg: float
    angle_deg_margin: float
    exact: LayerRow | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def sampled_rows(simulation: Simulation, prediction: Prediction | None = None) -> list[SampledRow]:
    """Summaries over the pairs; the norm ratio is |output| / |input|, root mean square per unit, of both sides."""
    exact = [None] * len(simulation.layers) if prediction is None else layer_rows(prediction.layers)
    start, _ = _root_mean_square(simulation.layers[0], simulation.level)
    rows = []
    for layer, beside in zip(simulation.layers, exact, strict=True):
        length, reach = _root_mean_square(layer, simulation.level)
        cosine, cosine_margin = _mean(layer.cosine, simulation.level)
        angle, angle_margin = _mean(layer.angle, simulation.level)
        rows.append(
            SampledRow(
                name=layer.name,
                norm_ratio=_nanmean(length / start),
                norm_ratio_margin=_nanmean(reach / start),
                cosine_mean=cosine,
                cosine_margin=cosine_margin,
                defect_mean=_nanmean(layer.defect.value),
                angle_deg=math.degrees(angle),
                angle_deg_margin=math.degrees(angle_margin),
                exact=beside,
            )
        )
    return rows


def sampled_table(rows: Sequence[SampledRow], title: str, level: float) -> Table:
    """A line per layer: norm ratio, cosine and angle, each exact (where known) and sampled with its interval."""
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("layer", no_wrap=True)
    for heading in ("norm ratio", "cosine", "angle"):
        table.add_column(f"{heading}\nexact", justify="right", no_wrap=True)
        table.add_column(f"\nsampled, {100 * level:g} %", justify="right", no_wrap=True)
    for row in rows:
        exact = row.exact
        table.add_row(
            Text(row.name),
            NOTHING if exact is None else f"{exact.norm_ratio:.4g}",
            f"{row.norm_ratio:.4g} ± {row.norm_ratio_margin:.1g}",
            NOTHING if exact is None else cosine_text(exact.defect_mean),
            f"{cosine_text(row.defect_mean)} ± {row.cosine_margin:.1g}",
            NOTHING if exact is None else f"{exact.angle_deg:.4g}°",
            f"{row.angle_deg:.4g}° ± {row.angle_deg_margin:.1g}",
        )
    return table


@dataclass(frozen=True)
class GradientRow:
    """One weight layer, means over all inputs, and the range of the weight ratio over them."""

    name: str
    weight_ratio: float
    weight_ratio_margin: float
    weight_ratio_min: float
    weight_ratio_max: float
    output_ratio: float
    output_ratio_margin: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def gradient_rows(simulation: GradientSimulation) -> list[GradientRow]:
    rows = []
    for layer in simulation.layers:
        known = layer.weight.value[~layer.weight.value.isnan()]
        low, high = (known.min().item(), known.max().item()) if known.numel() else (math.nan, math.nan)
        weight, output = _mean(layer.weight, simulation.level), _mean(layer.output, simulation.level)
        rows.append(GradientRow(layer.name, *weight, low, high, *output))
    return rows


def gradient_table(rows: Sequence[GradientRow], title: str, level: float) -> Table:
    """A line per weight layer: its weight-gradient ratio (OP eq. 2), the range over inputs, and the output-gradient ratio."""
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("layer", no_wrap=True)
    for heading in (f"|dL/dW| / |δ||x|, {100 * level:g} %", "min .. max", f"|dL/da| / |δ|, {100 * level:g} %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(row.name),
            f"{row.weight_ratio:.4g} ± {row.weight_ratio_margin:.1g}",
            f"{row.weight_ratio_min:.4g} .. {row.weight_ratio_max:.4g}",
            f"{row.output_ratio:.4g} ± {row.output_ratio_margin:.1g}",
        )
    return table


def _root_mean_square(layer: LayerEstimate, level: float) -> tuple[torch.Tensor, torch.Tensor]:
    """√((|h(x)|² + |h(y)|²) / 2 units), and how far it reaches if both norms err the same way."""
    units = math.prod(layer.shape)
    x, y = layer.norm_x, layer.norm_y
    length = ((x.value.square() + y.value.square()) / (2 * units)).sqrt()
    moved = (x.value * x.reach(level) + y.value * y.reach(level)) / (2 * units)
    return length, torch.where(length > 0, moved / length, 0.0)


def _mean(estimate: Estimate, level: float) -> tuple[float, float]:
    return _nanmean(estimate.value), _nanmean(estimate.reach(level))


def _nanmean(values: torch.Tensor) -> float:
    return float(values[values.isfinite()].mean()) if bool(values.isfinite().any()) else math.nan
