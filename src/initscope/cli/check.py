"""`initscope check`: what a model does to the geometry of its data at initialization, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from initscope.cli.common import Settings, common_options, progress_bar, staging
from initscope.cli.cost import load_subject
from initscope.cli.models import MODEL_HELP, users_code
from initscope.cli.probing import Job, Subject, job_options
from initscope.errors import BadInput

if TYPE_CHECKING:
    from initscope.probe import Remedy, Report
    from initscope.probe.progress import Progress

FAILED = 1  # exit code: the model's verdict is fail

html_option = click.option(
    "--html", type=click.Path(path_type=Path), default=None, help="Also write this page: one file, works offline."
)
all_option = click.option(
    "--all", "everything", is_flag=True, help="Show every layer, also long stretches of like ones."
)


class Predicting(NamedTuple):
    """How theory is computed, as `check` takes it."""

    how: bool | Literal["full"]
    seconds: float | None


@click.command("check", short_help="Find what collapses in an untrained model, layer by layer.", epilog=MODEL_HELP)
@common_options
@job_options
@html_option
@all_option
@click.option("--full-theory", is_flag=True, help="Predict also the steps that take longer to predict than to measure.")
@click.option(
    "--theory-seconds",
    type=click.FloatRange(0),
    default=None,
    help="How long theory may take [default: as long as the measured pass, 0.2 to 30 s].",
)
@click.option("--no-remedies", is_flag=True, help="Do not try remedies on a model that is not healthy.")
def command(
    settings: Settings,
    job: Job,
    html: Path | None,
    everything: bool,
    full_theory: bool,
    theory_seconds: float | None,
    no_remedies: bool,
) -> None:
    """Norms, angles, gradients and rank of a batch after every step of MODEL, beside what theory predicts.

    Exit codes: 0 healthy or with warnings, 1 the verdict is fail, 2 bad input, also where the model stops on the batch,
    70 an internal error.
    """
    check_page_path(html)
    with users_code(settings.seed):
        subject = load_subject(settings, job)
        with progress_bar(settings) as bar:
            told = staging(bar, bar.add_task("check", total=None))
            theory = Predicting("full" if full_theory else True, theory_seconds)
            report = _measure(settings, job, subject, remedies=not no_remedies, theory=theory, progress=told)
    if html is not None:
        from initscope.report import write_check_page

        write_check_page(report, html, title=f"{job.model} on {subject.description}")
        settings.say(f"wrote {html}")
    if settings.json:
        settings.print_json("check", {**report.to_dict(), "model": job.model, "data": subject.description})
    else:
        _print(settings, job, subject, report, everything)
    finish(report)


def check_page_path(path: Path | None) -> None:
    """Refuse, before the work, a page that could not be written."""
    if path is not None:
        from initscope.files import check_writable

        check_writable(path, "--html")


def finish(report: Report) -> None:
    """The exit code of a report."""
    if report.failure is not None:
        said = report.failure.strip().splitlines()[0]
        raise BadInput("model", f"it does not run on this batch: {said}", "check --data, --size, --shape or --ints")
    if report.verdict == "fail":
        click.get_current_context().exit(FAILED)


def _measure(
    settings: Settings,
    job: Job,
    subject: Subject,
    *,
    remedies: bool,
    theory: Predicting,
    progress: Progress,
) -> Report:
    from dataclasses import replace

    from torch import nn

    from initscope.probe import Conditions, check, prescribe
    from initscope.probe.checking import build
    from initscope.probe.progress import part
    from initscope.probe.remedies.remedy import curable

    options = {"loss": subject.loss, "seed": settings.seed, "train": not job.evaluate}
    told = part(progress, 0.0, 0.3 if remedies else 1.0)
    report = check(
        subject.model,
        subject.batch,
        seeds=job.seeds,
        theory=theory.how,
        theory_seconds=theory.seconds,
        progress=told,
        **options,  # type: ignore[arg-type]
    )
    if not remedies or report.verdict == "healthy" or report.failure is not None:
        return report
    model = subject.model if isinstance(subject.model, nn.Module) else build(subject.model, settings.seed)
    conditions = Conditions(**options)  # type: ignore[arg-type]
    found = prescribe(
        model,
        subject.batch,
        report,
        conditions=conditions,
        changes=("weights", "data", "architecture") if curable(report) else ("data", "architecture"),
        shell=job.shell(settings),
        progress=part(progress, 0.3, 1.0),
    )
    return replace(report, remedies=found)


def _print(settings: Settings, job: Job, subject: Subject, report: Report, everything: bool) -> None:
    from initscope.report import check_view, remedies_table

    out = settings.stdout()
    title = f"{job.model} on {subject.description}"
    out.print(check_view(report, width=out.width, everything=everything, title=title))
    if report.remedies:
        out.print()
        out.print(remedies_table(report.remedies))
        for best in _best(report):
            out.print(f"{best.name}: {best.description}", markup=False)
            if best.note:
                out.print(f"  {best.note}", markup=False)
            out.print(f"  {best.command}", markup=False, soft_wrap=True)
            for line in best.code.splitlines():
                out.print(f"    {line}", markup=False, highlight=False, soft_wrap=True)


def _best(report: Report) -> list[Remedy]:
    """The remedy that helped most, and, if that changes more than weights, the best one that does not."""
    good = [r for r in report.remedies if r.effect.helps()]
    weights = [r for r in good if r.changes == "weights"]
    return list(dict.fromkeys([*good[:1], *weights[:1]]))
