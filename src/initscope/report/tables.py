"""Results as terminal tables."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich import box
from rich.table import Table
from rich.text import Text
from torch import Tensor

from initscope.networks import LayerGeometry
from initscope.printable import printable

Z95 = 1.959963984540054  # the normal quantile of a two-sided 95 % interval


@dataclass(frozen=True)
class LayerRow:
    """One layer over all pairs: means, the range of the cosine, and how the numbers came about.

    `defect` is 1 - cosine, accurate where the cosine itself rounds to one; `stderr` is the standard error of the mean
    cosine where the layer was simulated, `error` the relative error estimate where a quadrature was used.
    """

    name: str
    norm_ratio: float
    cosine_mean: float
    cosine_min: float
    cosine_max: float
    defect_mean: float
    defect_min: float
    defect_max: float
    angle_deg: float
    method: str
    error: float
    stderr: float | None
    note: str | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def layer_rows(layers: Sequence[LayerGeometry]) -> list[LayerRow]:
    """Summaries over the pairs; the norm ratio is |output| / |input|, root mean square per unit, of both sides."""
    start = _rms(layers[0])
    rows = []
    for layer in layers:
        ratio = torch.where(start > 0, _rms(layer) / start, torch.nan)  # a zero input has no ratio
        defect = layer.defect.double()
        known = defect[~defect.isnan()]
        low, high = (known.min().item(), known.max().item()) if known.numel() else (math.nan, math.nan)
        mean = known.mean().item() if known.numel() else math.nan
        rows.append(
            LayerRow(
                name=layer.name,
                norm_ratio=ratio.nanmean().item(),
                cosine_mean=1 - mean,
                cosine_min=1 - high,
                cosine_max=1 - low,
                defect_mean=mean,
                defect_min=low,
                defect_max=high,
                angle_deg=math.degrees(layer.angle.double().nanmean().item()),
                method=layer.method,
                error=layer.error,
                stderr=_mean_stderr(layer),
                note=layer.note or None,
            )
        )
    return rows


def _rms(layer: LayerGeometry) -> Tensor:
    """Root mean square of a unit over both inputs: widths differ between layers, units compare."""
    units = math.prod(layer.shape)
    return ((layer.norm_x.double().square() + layer.norm_y.double().square()) / (2 * units)).sqrt()


def _mean_stderr(layer: LayerGeometry) -> float | None:
    """Standard error of the mean cosine, if the pairs' errors are as correlated as can be: the mean of theirs."""
    if layer.stderr is None or "cosine" not in layer.stderr:
        return None
    return float(layer.stderr["cosine"].double().nanmean().item())


def cosine_text(defect: float) -> str:
    """A cosine from its defect: four decimals, or `1 - defect` where those would all be nines.

    >>> cosine_text(0.25), cosine_text(3.2e-7), cosine_text(math.nan)
    ('0.7500', '1 - 3.2e-07', 'undefined')
    """
    if math.isnan(defect):
        return "undefined"
    return f"1 - {defect:.1e}" if 0 < defect < 5e-4 else f"{1 - defect:.4f}"


def _method_text(row: LayerRow) -> str:
    if row.stderr is not None:
        return f"{row.method} ± {Z95 * row.stderr:.1g}"
    return f"{row.method} ± {row.error:.0e}" if row.error > 0 else row.method


LAYER_HEADINGS = ("layer", "norm ratio", "cosine", "min .. max", "angle", "method")


def layer_cells(row: LayerRow) -> tuple[str, ...]:
    """One layer in words, a cell for each of LAYER_HEADINGS."""
    return (
        row.name,
        f"{row.norm_ratio:.4g}",
        cosine_text(row.defect_mean),
        f"{cosine_text(row.defect_max)} .. {cosine_text(row.defect_min)}",
        f"{row.angle_deg:.4g}°",
        _method_text(row),
    )


def layer_table(rows: Sequence[LayerRow], title: str) -> Table:
    """A line per layer: norm ratio, mean cosine, its range over pairs, mean angle, and the method."""
    return text_table(title, LAYER_HEADINGS, [layer_cells(row) for row in rows], left=("layer", "method"))


def text_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str] = ("layer",)
) -> Table:
    """A table in the house style; columns whose heading is not in `left` are numbers."""
    table = house_table(title)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(cell, lines=True)) for cell in row))
    return table


def facts_table(facts: Mapping[str, str]) -> Table:
    """Names and values, two columns, no heading."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(printable(name)), Text(printable(value, lines=True)))
    return table


def house_table(title: str) -> Table:
    """An empty table in the house style."""
    return Table(
        title=Text(printable(title)), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )


@dataclass(frozen=True)
class Compared:
    """Exact and sampled mean cosines of one set of pairs, one number per layer; `margin` is half the 95 % interval."""

    label: str
    exact: Sequence[float]
    sampled: Sequence[float]
    margin: Sequence[float]


def comparison_table(layers: Sequence[str], sets: Sequence[Compared], title: str) -> Table:
    """A line per layer: for each set the exact mean cosine, and the sampled one with its 95 % interval."""
    table = house_table(title)
    table.add_column("layer", no_wrap=True)
    for item in sets:
        table.add_column(Text(f"{item.label}\nexact"), justify="right", no_wrap=True)
        table.add_column("\nsampled, 95 %", justify="right", no_wrap=True)
    for index, name in enumerate(layers):
        cells: list[str | Text] = [Text(name)]
        for item in sets:
            cells.append(f"{item.exact[index]:.4f}")
            cells.append(f"{item.sampled[index]:.4f} ± {item.margin[index]:.4f}")
        table.add_row(*cells)
    return table
