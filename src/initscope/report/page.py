"""A checked model as one HTML page that needs nothing else: no request leaves it, and it opens without a network."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from initscope import __version__
from initscope.files import check_writable, write_atomically
from initscope.probe import Fixed, LayerReport, Remedy, Report
from initscope.report.console import shown
from initscope.report.drawings import Drawing, drawings, training_drawing
from initscope.report.remedy_words import remedy_views
from initscope.report.wording import (
    advice_text,
    angle_text,
    draws_text,
    facts,
    finding_text,
    followed_text,
    interval_text,
    note_texts,
    number_text,
    percent_text,
    predicted_text,
    prediction,
    resolution_text,
    score_text,
    shape_text,
    verdict_text,
)

TITLE = "Check at initialization"
_RANK = {"fail": 0, "warn": 1, "healthy": 2}  # the order of statuses when sorted


@dataclass(frozen=True)
class Column:
    """One column of the table: what stands above it, and what that means."""

    heading: str
    words: str
    number: bool = True


@dataclass(frozen=True)
class Cell:
    """What is shown, and the value by which the column is sorted, empty where there is none."""

    text: str
    value: str
    kind: str = ""


@dataclass(frozen=True)
class Row:
    status: str
    search: str
    first: bool
    cells: tuple[Cell, ...]


COLUMNS = (
    Column("#", "Place in the forward pass"),
    Column("layer", "Path of the module, or of the module that made the call", number=False),
    Column("op", "Function that was called", number=False),
    Column("status", "Verdict on this step", number=False),
    Column("reason", "What was found", number=False),
    Column("norm", "Root mean square of the units against the data's"),
    Column("gradient", "Norm of the gradient by the activations against the one at the output"),
    Column("angle", "Mean over all pairs of samples, in degrees"),
    Column("cosine", "Measured mean over the pairs of samples that theory follows"),
    Column(
        "theory",
        "Mean cosine of the same pairs at infinite width; ! where this width does not explain the measured one",
    ),
    Column("interval", "Of the mean cosine of these pairs at this width, 95 %", number=False),
    Column("rank", "Effective rank of the batch"),
    Column("dead", "Units that are zero for every sample"),
    Column("shape", "Of one sample's values", number=False),
    Column("± seeds", "Standard deviation over the seeds of the mean cosine of all pairs"),
)


def write_check_page(report: Report, path: str | Path, *, title: str = TITLE) -> Path:
    """Write the page of one report; a reader never meets half of it.

    >>> import tempfile, torch
    >>> from initscope.probe import check
    >>> report = check(torch.nn.Linear(4, 4), torch.eye(4), seeds=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_check_page(report, f"{folder}/report.html").name
    'report.html'
    """
    return write_page(check_page(report, title=title), path)


def write_fix_page(fixed: Fixed, path: str | Path, *, title: str = TITLE) -> Path:
    """Write the page of a repaired model, before and after side by side."""
    return write_page(fix_page(fixed, title=title), path)


def write_page(text: str, path: str | Path) -> Path:
    target = Path(path)
    check_writable(target, "page")
    write_atomically(target, lambda file: file.write(text.encode()), "page")
    return target


def check_page(report: Report, *, title: str = TITLE) -> str:
    """The page as text."""
    report = shown(report)
    return render(report, title=shown(title), figures=drawings(report))


def fix_page(fixed: Fixed, *, title: str = TITLE) -> str:
    """The page as text; where nothing was applied, that of the model as it is, with all that was tried."""
    fixed, title = shown(fixed), shown(title)
    before = fixed.before if fixed.applied else None
    figures = drawings(fixed.after, before)
    if fixed.training is not None:
        both = {"before": fixed.training.before.losses, "after": fixed.training.after.losses}
        figures.append(training_drawing(both))
    return render(
        fixed.after,
        title=title,
        figures=figures,
        before=before,
        summary=fixed.summary(),
        remedies=fixed.before.remedies,
        further=fixed.after.remedies if fixed.applied else (),
    )


def render(
    report: Report,
    *,
    title: str,
    figures: Sequence[Drawing],
    before: Report | None = None,
    summary: str = "",
    remedies: Sequence[Remedy] | None = None,
    further: Sequence[Remedy] = (),
) -> str:
    """The template filled in; everything that a user's model could have named is escaped."""
    environment, style, script = _environment()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = environment.get_template("page.html").render(
        title=title,
        report=report,
        before=before,
        summary=summary.splitlines(),
        drawings=figures,
        remedies=remedy_views(report.remedies if remedies is None else remedies),
        further=remedy_views(further),
        notes=note_texts(report.notes),
        columns=COLUMNS,
        version=__version__,
        style=Markup(style),
        script=Markup(script),
        script_hash=Markup(f"sha256-{digest}"),
    )
    return text.lstrip()


def table_rows(layers: Sequence[LayerReport], first_bad: str | None) -> list[Row]:
    """The table's content; numbers keep all digits for sorting."""
    return [_row(i, layer, layer.name == first_bad) for i, layer in enumerate(layers)]


def _row(place: int, layer: LayerReport, first: bool) -> Row:
    theory, spread = prediction(layer), layer.cosine_seeds.stdev
    sign = "" if theory is None or theory.explained else " !"
    cells = (
        Cell(str(place + 1), str(place + 1), "n"),
        Cell(layer.name, layer.name, "name"),
        Cell(layer.op, layer.op),
        Cell(layer.status, str(_RANK[layer.status]), "status"),
        Cell(layer.reason, layer.reason, "reason"),
        _number(layer.norm_ratio),
        _number(layer.grad_norm_ratio),
        Cell(angle_text(layer.angle_deg), _key(layer.angle_deg), "n"),
        # By the defect: close to one, cosines have lost the digits that tell them apart.
        Cell(followed_text(layer), _key(None if theory is None else -theory.measured), "n"),
        Cell(predicted_text(layer) + sign, _key(None if theory is None else -theory.defect), "n"),
        Cell(interval_text(layer), _key(None if theory is None else -theory.most), "interval"),
        _number(layer.effective_rank),
        Cell(percent_text(layer.dead_fraction), _key(layer.dead_fraction), "n"),
        Cell(shape_text(layer.shape), str(math.prod(layer.shape)), "tight"),
        _number(spread),
    )
    return Row(layer.status, f"{layer.name} {layer.op} {layer.kind} {layer.reason}".lower(), first, cells)


def _number(value: float | None) -> Cell:
    return Cell(number_text(value), _key(value), "n")


def _key(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.9g}".replace("inf", "Infinity")


@cache
def _environment() -> tuple[Environment, str, str]:
    """The template engine, the style sheet and the script."""
    loader = PackageLoader("initscope.report", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(
        verdict_text=verdict_text,
        score_text=score_text,
        draws_text=draws_text,
        finding_text=finding_text,
        advice_text=advice_text,
        facts=facts,
        resolution_text=resolution_text,
    )
    environment.filters.update(
        rows=table_rows,
        count_status=lambda layers, status: sum(layer.status == status for layer in layers),
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )
    style, script = (loader.get_source(environment, name)[0] for name in ("page.css", "page.js"))
    return environment, style, script
