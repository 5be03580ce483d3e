"""`initscope fix`: tries remedies, applies the best one for the weights, and measures again."""

from __future__ import annotations

from pathlib import Path

import click

from initscope.cli.check import all_option, check_page_path, finish, html_option
from initscope.cli.common import Settings, common_options, progress_bar, staging
from initscope.cli.cost import load_subject
from initscope.cli.models import MODEL_HELP, users_code
from initscope.cli.probing import Job, job_options


@click.command("fix", short_help="Try remedies on a model, apply the best, measure again.", epilog=MODEL_HELP)
@common_options
@job_options
@click.option("--remedy", default="auto", show_default=True, metavar="NAME", help="One of those that check shows.")
@click.option(
    "--train-steps", type=click.IntRange(0), default=0, show_default=True,
    help="Also train both for so many steps; without --loss on random labels.",
)  # fmt: skip
@click.option(
    "--lr", type=float, default=None, help="Learning rate for --train-steps [default: the best of three for each]."
)
@click.option("--save", type=click.Path(path_type=Path), default=None, help="Write the new weights, as safetensors.")
@html_option
@all_option
def command(
    settings: Settings, job: Job, remedy: str, train_steps: int, lr: float | None, save: Path | None, html: Path | None,
    everything: bool,
) -> None:  # fmt: skip
    """Every remedy tried on a copy of MODEL; the best one for the weights applied to a copy, and measured again.

    Exit codes: 0 healthy or with warnings afterwards, 1 still failing, 2 bad input, 70 an internal error.
    """
    check_page_path(html)
    if save is not None:
        from initscope.files import check_writable

        check_writable(save, "--save")
    from initscope.probe import fix

    with users_code(settings.seed):
        subject = load_subject(settings, job, tries_remedies=True, train_steps=train_steps)
        with progress_bar(settings) as bar:
            told = staging(bar, bar.add_task("fix", total=None))
            fixed = fix(
                subject.model,
                subject.batch,
                loss=subject.loss,
                seeds=job.seeds,
                seed=settings.seed,
                remedy=remedy,
                train_steps=train_steps,
                lr=lr,
                train=not job.evaluate,
                shell=job.shell(settings),
                progress=told,
            )
    title = f"{job.model} on {subject.description}"
    if save is not None and fixed.before.failure is None:
        fixed.save(save)
        settings.say(f"wrote {save}")
    if html is not None:
        from initscope.report import write_fix_page

        write_fix_page(fixed, html, title=title)
        settings.say(f"wrote {html}")
    if settings.json:
        settings.print_json("fix", {"model": job.model, "data": subject.description, **fixed.to_dict()})
    else:
        from initscope.report import fix_view

        out = settings.stdout()
        out.print(fix_view(fixed, width=out.width, everything=everything, title=title))
    finish(fixed.after)
