"""Remedies in words: what each would change, what that did when it was tried, and the line that does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from initscope.probe.remedies import Health, Remedy
from initscope.report.console import shown
from initscope.report.tables import house_table
from initscope.report.wording import angle_text, number_text


@dataclass(frozen=True)
class RemedyView:
    """A remedy as text only."""

    name: str
    changes: str
    description: str
    effect: str
    command: str
    code: str
    applied: bool


def remedy_views(remedies: Sequence[Remedy]) -> list[RemedyView]:
    """In the order given, which is by measured effect."""
    return [
        RemedyView(r.name, r.changes, r.description, effect_text(r), r.command, r.code, r.applied) for r in remedies
    ]


def effect_text(remedy: Remedy) -> str:
    """The numbers before and after, or why there are none; a note in any case."""
    before, after = remedy.effect.before, remedy.effect.after
    if after is None:
        return remedy.note or "not measured"
    parts = [
        f"{what} {old} → {new}"
        for what, old, new in zip(("angle", "norm", "gradient"), _numbers(before), _numbers(after), strict=True)
        if (old, new) != ("-", "-")
    ]
    text = f"verdict {before.verdict} → {after.verdict}; output {', worst '.join(parts)}"
    return f"{text} ({remedy.note})" if remedy.note else text


def remedies_table(remedies: Sequence[Remedy], *, most: int = 5) -> Table:
    """The remedies that helped most; the worst norm and gradient of any layer, the angle before the readout."""
    remedies = [shown(remedy) for remedy in remedies]
    table = house_table(
        f"Remedies, each tried on a copy (the best {most} of {len(remedies)})"
        if len(remedies) > most
        else "Remedies, each tried on a copy"
    )
    table.show_edge, table.padding = False, (0, 1, 0, 0)
    for name in ("remedy", "changes"):
        table.add_column(name, overflow="fold")
    for name in ("angle", "norm", "gradient"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    if remedies:
        table.add_row(
            Text("as it is", style="dim"), "", *_numbers(remedies[0].effect.before), remedies[0].effect.before.verdict
        )
    for remedy in remedies[:most]:
        after = remedy.effect.after
        numbers = ("-", "-", "-") if after is None else _numbers(after)
        table.add_row(
            Text(remedy.name, style="bold" if remedy.applied else ""),
            remedy.changes,
            *numbers,
            "not measured" if after is None else after.verdict,
        )
    return table


def _numbers(health: Health) -> tuple[str, str, str]:
    return angle_text(health.angle_deg), number_text(health.norm_ratio), number_text(health.grad_norm_ratio)
