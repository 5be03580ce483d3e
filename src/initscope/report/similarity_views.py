"""Predictions and simulations as they are printed, shown in notebooks, and said in a few sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Group
from rich.text import Text

from initscope.figures import shorten
from initscope.finite import GradientSimulation, Simulation
from initscope.networks import Prediction
from initscope.report.notebook import WIDTH, html_fragment, html_soft, html_table, html_title, terminal_text
from initscope.report.sampled import (
    gradient_cells,
    gradient_headings,
    gradient_rows,
    margin_text,
    sampled_cells,
    sampled_headings,
    sampled_rows,
)
from initscope.report.tables import LAYER_HEADINGS, Z95, cosine_text, layer_cells, layer_rows, text_table

MOST_ROWS = 40  # of a longer network the first and the last layers are shown
_LEFT = ("layer", "method")
_BETWEEN, _LEAST_NAME = 3, 12  # columns between two cells of a table; letters of a layer's name that are always shown
_METHODS = {
    "own dual": "from the activation's own dual",
    "quadrature": "by quadrature",
    "monte carlo": "by Monte Carlo",
}


@dataclass(frozen=True)
class _View:
    """A titled table, and notes below it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    @property
    def shown(self) -> list[Sequence[str]]:
        """At most MOST_ROWS rows; one line says how many are left out."""
        hidden = len(self.rows) - MOST_ROWS + 1
        if hidden <= 1:
            return list(self.rows)
        kept = MOST_ROWS // 2
        gap = (f"… {hidden} more", *("" for _ in self.headings[1:]))
        return [*self.rows[:kept], gap, *self.rows[kept + hidden :]]

    def text(self) -> str:
        table = text_table(self.title, self.headings, self._fitted(WIDTH), left=_LEFT)
        return terminal_text(Group(table, *(Text(f"note: {note}") for note in self.notes)), WIDTH)

    def _fitted(self, width: int) -> list[Sequence[str]]:
        """Numbers are never cut: the names of layers take what the other columns leave."""
        others = [[heading.split("\n")[-1] for heading in self.headings[1:]], *(row[1:] for row in self.shown)]
        left = width - 2 - sum(_BETWEEN + max(map(len, column)) for column in zip(*others, strict=True))
        return [(shorten(row[0], max(left, _LEAST_NAME)), *row[1:]) for row in self.shown]

    def html(self) -> str:
        notes = [html_soft(note) for note in self.notes]
        return html_fragment(html_title(self.title), html_table(self.headings, self.shown, left=_LEFT), *notes)


def prediction_text(prediction: Prediction) -> str:
    """The table of `initscope predict`."""
    return _prediction(prediction).text()


def prediction_html(prediction: Prediction) -> str:
    return _prediction(prediction).html()


def prediction_summary(prediction: Prediction) -> str:
    """Angle and size from the input to the output, where the angle changes most, and how far to trust the numbers."""
    rows = layer_rows(prediction.layers)
    angles = [row.angle_deg for row in rows]
    start, end = rows[0], rows[-1]
    cosines = f"cosine {cosine_text(start.defect_mean)} -> {cosine_text(end.defect_mean)}"
    sentences = [
        f"{_count(len(prediction.layers[0].cosine), 'pair')} through {_count(len(rows) - 1, 'layer')}: the mean angle goes "
        f"from {_degrees(angles[0])} to {_degrees(angles[-1])} ({cosines}){_steepest([row.name for row in rows], angles)}.",
        f"At the output the root mean square of a unit is {_number(end.norm_ratio)} times the input's.",
    ]
    rough = next((row for row in rows if row.method != "exact"), None)
    if rough is None:
        sentences.append("All numbers are exact.")
    else:
        error = Z95 * end.stderr if end.stderr is not None else end.error
        margin = f", the output's cosine to ± {error:.1g}" if error > 0 else ""
        how = _METHODS.get(end.method, end.method)
        sentences.append(f"The numbers are exact before {rough.name} and {how} from there on{margin}.")
    return " ".join(sentences)


def simulation_text(simulation: Simulation) -> str:
    """The table of `initscope simulate`, without the exact prediction."""
    return _simulation(simulation).text()


def simulation_html(simulation: Simulation) -> str:
    return _simulation(simulation).html()


def simulation_summary(simulation: Simulation) -> str:
    """Angle and size from the input to the output, each with its interval, and whether the wanted precision was reached."""
    rows = sampled_rows(simulation)
    angles = [row.angle_deg for row in rows]
    end, level = rows[-1], f"{100 * simulation.level:g} %"
    pairs = _count(len(simulation.layers[0].cosine.value), "pair")
    size = f"{_number(end.norm_ratio)} ± {margin_text(end.norm_ratio_margin)}"
    return (
        f"{pairs} through {_count(len(rows) - 1, 'layer')} of {_count(simulation.draws, 'random network')}: the mean angle "
        f"goes from {_degrees(angles[0])} to {_degrees(angles[-1])} ± {margin_text(end.angle_deg_margin)} ({level} interval)"
        f"{_steepest([row.name for row in rows], angles)}. "
        f"At the output the root mean square of a unit is {size} times the input's. {_precision(simulation, 'cosine')}"
    )


def gradients_text(simulation: GradientSimulation) -> str:
    """The table of `initscope simulate --gradients`."""
    return _gradients(simulation).text()


def gradients_html(simulation: GradientSimulation) -> str:
    return _gradients(simulation).html()


def gradients_summary(simulation: GradientSimulation) -> str:
    """The weight ratio of the first and the last weight layer, and whether the wanted precision was reached."""
    rows = gradient_rows(simulation)
    first, last = rows[0], rows[-1]
    inputs = _count(len(simulation.layers[0].weight.value), "input")
    return (
        f"{inputs}, {_count(simulation.draws, 'random network')}, {simulation.loss}: the weight gradient over |δ||x| is "
        f"{_number(first.weight_ratio)} ± {margin_text(first.weight_ratio_margin)} at {first.name} and "
        f"{_number(last.weight_ratio)} ± {margin_text(last.weight_ratio_margin)} at {last.name}. "
        f"{_precision(simulation, 'weight ratio')}"
    )


def _prediction(prediction: Prediction) -> _View:
    rows = layer_rows(prediction.layers)
    notes = dict.fromkeys(row.note for row in rows if row.note)
    title = f"{_count(len(prediction.layers[0].cosine), 'pair')}, infinite width"
    return _View(title, LAYER_HEADINGS, [layer_cells(row) for row in rows], tuple(notes))


def _simulation(simulation: Simulation) -> _View:
    rows = sampled_rows(simulation)
    pairs = _count(len(simulation.layers[0].cosine.value), "pair")
    title = f"{pairs}, {_count(simulation.draws, 'random network')}"
    return _View(title, sampled_headings(rows, simulation.level), [sampled_cells(row, exact=False) for row in rows])


def _gradients(simulation: GradientSimulation) -> _View:
    inputs = _count(len(simulation.layers[0].weight.value), "input")
    title = f"Gradients of {inputs}, {simulation.loss}, {_count(simulation.draws, 'random network')}"
    rows = gradient_rows(simulation)
    return _View(title, gradient_headings(simulation.level), [gradient_cells(row) for row in rows])


def _steepest(names: Sequence[str], angles: Sequence[float]) -> str:
    """The layer at which the angle changes most, if there are several and it changes at all."""
    changes = [abs(b - a) for a, b in pairwise(angles)]
    known = [i for i, change in enumerate(changes) if math.isfinite(change)]
    if len(known) < 2:
        return ""
    place = max(known, key=lambda i: changes[i])
    if changes[place] < 1e-9:
        return ""
    return f"; it changes most at {names[place + 1]}, {_degrees(angles[place])} -> {_degrees(angles[place + 1])}"


def _precision(simulation: Simulation | GradientSimulation, what: str) -> str:
    said = f"The widest {100 * simulation.level:g} % interval of a {what} is {simulation.widest:.2g}"
    if simulation.reached is None:
        return f"{said}."
    return f"{said}, {'as' if simulation.reached else 'not yet the'} {simulation.until:g} asked for."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _degrees(angle: float) -> str:
    return "undefined" if math.isnan(angle) else f"{angle:.3g}°"


def _number(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.3g}"
