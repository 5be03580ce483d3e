"""A repaired model as it is printed and shown in notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from initscope.probe import Fixed, Health, Remedy
from initscope.report.console import shown
from initscope.report.drawings import drawings
from initscope.report.fix_table import fix_view
from initscope.report.notebook import (
    WIDTH,
    html_figures,
    html_fragment,
    html_list,
    html_table,
    html_title,
    html_verdict,
    terminal_text,
)
from initscope.report.wording import angle_text, number_text, verdict_text

_FIGURES = 3  # of the page, those that are shown in a cell: angle, norm, gradient
_REMEDIES = 5
_HEADINGS = ("remedy", "changes", "angle", "norm", "gradient", "verdict")


def fix_text(fixed: Fixed) -> str:
    """What `initscope fix` prints."""
    return terminal_text(fix_view(fixed, width=WIDTH), WIDTH)


def fix_html(fixed: Fixed) -> str:
    """The first screen of the page: both verdicts, what was done, the curves before and after, what else was tried."""
    fixed = shown(fixed)
    both = [("before", fixed.before), ("after", fixed.after)] if fixed.applied else [("", fixed.before)]
    parts: list[str | Markup] = [
        html_verdict(report.verdict, f"{label}: {verdict_text(report)}" if label else verdict_text(report))
        for label, report in both
    ]
    parts.append(html_list(fixed.summary().splitlines()))
    parts.append(html_figures(drawings(fixed.after, fixed.before if fixed.applied else None)[:_FIGURES]))
    if fixed.before.remedies:
        parts += [html_title("Remedies, each tried on a copy"), _remedies(fixed.before.remedies)]
    return html_fragment(*parts)


def _remedies(remedies: Sequence[Remedy]) -> Markup:
    """The best ones: angle in front of the readout, worst norm and gradient of any layer."""
    rows: list[tuple[str, ...]] = [("as it is", "", *_numbers(remedies[0].effect.before))]
    for remedy in remedies[:_REMEDIES]:
        after = remedy.effect.after
        numbers = ("-", "-", "-", "not measured") if after is None else _numbers(after)
        rows.append((f"{remedy.name} (applied)" if remedy.applied else remedy.name, remedy.changes, *numbers))
    if len(remedies) > _REMEDIES:
        rows.append((f"… {len(remedies) - _REMEDIES} more", *("" for _ in _HEADINGS[1:])))
    return html_table(_HEADINGS, rows, left=("remedy", "changes", "verdict"))


def _numbers(health: Health) -> tuple[str, str, str, str]:
    ratios = number_text(health.norm_ratio), number_text(health.grad_norm_ratio)
    return angle_text(health.angle_deg), *ratios, health.verdict
