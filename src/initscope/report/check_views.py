"""A checked model as it is printed and shown in notebooks."""

from __future__ import annotations

from markupsafe import Markup

from initscope.probe import Report
from initscope.report.check_table import check_view
from initscope.report.console import shown
from initscope.report.drawings import drawings
from initscope.report.notebook import (
    WIDTH,
    html_figures,
    html_fragment,
    html_soft,
    html_table,
    html_verdict,
    terminal_text,
)
from initscope.report.wording import advice_text, draws_text, facts, finding_text, score_text, verdict_text

_FIGURES = 3  # of the page, those that are shown in a cell: angle, norm, gradient


def check_text(report: Report) -> str:
    """What `initscope check` prints."""
    return terminal_text(check_view(report, width=WIDTH), WIDTH)


def check_html(report: Report) -> str:
    """The first screen of the page: verdict, score, findings with advice, and the curves over the layers."""
    report = shown(report)
    parts: list[str | Markup] = [
        html_verdict(report.verdict, f"{verdict_text(report)}."),
        score_text(report),
        html_soft(facts(report)),
    ]
    if report.findings:
        rows = [(f.status, f"{finding_text(f)}.\n{advice_text(f)}") for f in report.findings]
        parts.append(html_table(("status", "finding"), rows, left=("status",), wrap=("finding",)))
    parts.append(html_figures(drawings(report)[:_FIGURES]))
    parts += [html_soft(draws_text(report))] if report.draws else []
    return html_fragment(*parts)
