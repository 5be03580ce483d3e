"""Simulations as terminal tables, the exact prediction beside the sampled networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.table import Table

from initscope.finite import Estimate, GradientSimulation, LayerEstimate, Simulation
from initscope.networks import Prediction
from initscope.report.tables import LayerRow, cosine_text, layer_rows, text_table

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


def margin_text(margin: float) -> str:
    """Half an interval in one digit.

    >>> margin_text(0.0123), margin_text(12.3), margin_text(0.0)
    ('0.01', '10', '0')
    """
    return f"{float(f'{margin:.1g}'):g}"


def sampled_headings(rows: Sequence[SampledRow], level: float) -> tuple[str, ...]:
    """Norm ratio, cosine and angle: with its interval, and, where any layer was predicted, exact beside it."""
    names, interval = ("norm ratio", "cosine", "angle"), f"{100 * level:g} %"
    if all(row.exact is None for row in rows):
        return "layer", *(f"{name}, {interval}" for name in names)
    return "layer", *(heading for name in names for heading in (f"{name}\nexact", f"\nsampled, {interval}"))


def sampled_cells(row: SampledRow, exact: bool) -> tuple[str, ...]:
    """One layer in words, a cell for each heading; `exact`: whether there are columns for the prediction."""
    known = row.exact
    found = (
        f"{row.norm_ratio:.4g} ± {margin_text(row.norm_ratio_margin)}",
        f"{cosine_text(row.defect_mean)} ± {margin_text(row.cosine_margin)}",
        f"{row.angle_deg:.4g}° ± {margin_text(row.angle_deg_margin)}",
    )
    if not exact:
        return row.name, *found
    texts = (NOTHING,) * 3 if known is None else (
        f"{known.norm_ratio:.4g}", cosine_text(known.defect_mean), f"{known.angle_deg:.4g}°"
    )  # fmt: skip
    return row.name, *(cell for pair in zip(texts, found, strict=True) for cell in pair)


def sampled_table(rows: Sequence[SampledRow], title: str, level: float) -> Table:
    """A line per layer: norm ratio, cosine and angle, each exact (where known) and sampled with its interval."""
    exact = any(row.exact is not None for row in rows)
    return text_table(title, sampled_headings(rows, level), [sampled_cells(row, exact) for row in rows])


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


def gradient_headings(level: float) -> tuple[str, ...]:
    interval = f"{100 * level:g} %"
    return "layer", f"|dL/dW| / |δ||x|, {interval}", "min .. max", f"|dL/da| / |δ|, {interval}"


def gradient_cells(row: GradientRow) -> tuple[str, ...]:
    return (
        row.name,
        f"{row.weight_ratio:.4g} ± {margin_text(row.weight_ratio_margin)}",
        f"{row.weight_ratio_min:.4g} .. {row.weight_ratio_max:.4g}",
        f"{row.output_ratio:.4g} ± {margin_text(row.output_ratio_margin)}",
    )


def gradient_table(rows: Sequence[GradientRow], title: str, level: float) -> Table:
    """A line per weight layer: its weight-gradient ratio (OP eq. 2), the range over inputs, and the output-gradient ratio."""
    return text_table(title, gradient_headings(level), [gradient_cells(row) for row in rows])


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
