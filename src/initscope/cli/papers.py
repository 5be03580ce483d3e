"""`initscope papers`: figures, tables and theorems of the papers, run again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from initscope.cli.common import Settings, common_options, progress_bar
from initscope.errors import BadInput

if TYPE_CHECKING:
    from initscope.papers import Item, Plan, Record
    from initscope.papers.runner import Spread

FAILED = 1  # exit code: an item stopped with an error


@click.group("papers", short_help="Run figures, tables and theorems of the papers again.")
def command() -> None:
    """Figures, tables and theorems of the papers, each by one command."""


@command.command("list", short_help="What can be run.")
@common_options
def list_items(settings: Settings) -> None:
    """Every item with its claim, the data it asks for, and how long --full takes where that differs."""
    from initscope.papers import PAPERS, items, published
    from initscope.report import papers_list

    if not settings.json:
        out = settings.stdout()
        out.print(papers_list(items()))
        out.print(f"run one, all of a paper ({', '.join(PAPERS)}) or all: initscope papers run KEY", markup=False)
        return
    names = ("key", "title", "says", "sets", "full_minutes")
    lines = [{**{n: getattr(item, n) for n in names}, "published": published(item.key)} for item in items()]
    settings.print_json("papers.list", {"papers": PAPERS, "items": lines})


@command.command("run", short_help="Run items and compare them with what is printed.")
@common_options
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(path_type=Path), default=None,
    help="Folder for figures, data and index.html; what is finished there is not run again.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="Smaller sizes: seconds for each item.")
@click.option("--full", is_flag=True, help="The papers' own sizes where those take long; says first how long.")
@click.option(
    "--data", default=None, metavar="PLACE",
    help="Folder with files such as cifar10.npz, or a source in place of all sets, such as folder:PATH "
    "[default: $INITSCOPE_DATA, else photographs].",
)  # fmt: skip
@click.option(
    "--workers", type=int, default=None,
    help="Processes that share the items [default: 2 for all where the scale extra is installed, else this one alone].",
)  # fmt: skip
@click.option("--scheduler", default=None, metavar="ADDRESS", help="A Dask scheduler whose workers share them.")
def run(
    settings: Settings,
    keys: Sequence[str],
    out: Path | None,
    quick: bool,
    full: bool,
    data: str | None,
    workers: int | None,
    scheduler: str | None,
) -> None:
    """Run items (nachum2022/fig1c), all of a paper (nachum2022), or all.

    The table holds what is published beside what is exact and what was sampled, with an interval. Exit codes: 0 everything
    ran, whether or not it agrees, 1 an item stopped with an error, 2 wrong use, 70 an error that nobody expected, 130
    interrupted: what is finished stays in the folder, and the same command goes on.
    """
    from initscope.papers import Plan, choose_source, find_all

    if quick and full:
        raise BadInput("--quick", "cannot be had together with --full", "leave one of them out")
    chosen = find_all(keys)
    size = "quick" if quick else "full" if full else "normal"
    plan = Plan(choose_source(data), size=size, seed=settings.seed, folder=out)
    spread = _spread(_usual_workers(keys, scheduler) if workers is None else workers, scheduler)
    _announce(settings, chosen, plan)
    made = _run(settings, chosen, plan, spread)
    _print(settings, made, plan)
    if any(record.failed for record in made):
        click.get_current_context().exit(FAILED)


def _announce(settings: Settings, chosen: Sequence[Item], plan: Plan) -> None:
    """How long --full takes, which sets are replaced by other pictures, and which results by new ones."""
    from initscope.papers.desk import stand_ins

    if plan.size == "full":
        slow = {item.key: item.full_minutes for item in chosen if item.full_minutes and plan.finished(item) is None}
        each = ", ".join(f"{key} {minutes:g}" for key, minutes in slow.items())
        total = sum(minutes for minutes in slow.values() if minutes)
        settings.say(
            f"full size takes about {total:g} minutes on two cores ({each}), besides the other items"
            if slow
            else "full size: none of these items takes longer than at normal size"
        )
    replaced = stand_ins(plan.source.words(name) for item in chosen for name in item.sets)
    if replaced:
        settings.say(f"note: {'; '.join(replaced)}; figures that are printed for these sets stay open")
    _announce_replaced(settings, chosen, plan)


def _announce_replaced(settings: Settings, chosen: Sequence[Item], plan: Plan) -> None:
    """How many finished items of another size or seed this run writes over."""
    from initscope.papers import read_record

    if plan.folder is None:
        return
    kept = [found for item in chosen if (found := read_record(plan.folder, item.key)) is not None]
    others = [found for found in kept if (found.size, found.seed) != (plan.size, plan.seed)]
    if others:
        kinds = ", ".join(dict.fromkeys(f"size {found.size} with seed {found.seed}" for found in others))
        count = "1 finished item" if len(others) == 1 else f"{len(others)} finished items"
        settings.say(f"note: {count} in {plan.folder} ({kinds}) will be replaced; --out another folder keeps both")


def _usual_workers(keys: Sequence[str], scheduler: str | None) -> int:
    """Two for a whole run, whose long items use one core each; none where processes cannot be had."""
    able = (os.cpu_count() or 1) > 1 and find_spec("distributed") is not None
    return 2 if tuple(keys) == ("all",) and scheduler is None and able else 0


def _spread(workers: int, scheduler: str | None) -> Spread | None:
    """How items are shared among processes; None for this one alone."""
    if not workers and scheduler is None:
        return None
    from initscope.scale.tasks import Cluster, completed

    cluster = Cluster(workers, scheduler)
    return lambda function, keys: completed(function, keys, cluster)


def _run(settings: Settings, chosen: Sequence[Item], plan: Plan, spread: Spread | None) -> list[Record]:
    """All records of this call; the page in the folder is written anew after each."""
    from initscope.papers import run_items

    made: list[Record] = []
    with progress_bar(settings) as bar:
        job = bar.add_task("papers", total=len(chosen))

        def advance(item: Item, done: int, total: int) -> None:
            text = f"{len(made) + 1}/{len(chosen)} {item.key}"
            bar.update(job, description=text, completed=len(made) + min(done / max(total, 1), 1.0))

        rewrite = _page_writer(chosen, plan)
        try:
            for record in run_items(chosen, plan, advance, spread):
                made.append(record)
                bar.update(job, completed=len(made))
                rewrite(made)
                if record.failed:
                    settings.say(f"failed: {record.key}: {record.problem}")
        except KeyboardInterrupt:
            kept = (
                f"kept in {plan.folder}; the same command goes on" if plan.folder else "nothing is kept without --out"
            )
            settings.say(f"{len(made)} of {len(chosen)} items finished, {kept}")
            raise
    place = {item.key: number for number, item in enumerate(chosen)}
    return sorted(made, key=lambda record: place[record.key])


def _page_writer(chosen: Sequence[Item], plan: Plan) -> Callable[[Sequence[Record]], None]:
    """Writes index.html: what this call made, beside what earlier ones left in the folder."""
    if plan.folder is None:
        return lambda made: None
    from initscope.papers import items, read_record
    from initscope.report import write_papers_page

    folder = plan.folder
    others = [item.key for item in items() if item.key not in {one.key for one in chosen}]
    earlier = {key: found for key in others if (found := read_record(folder, key)) is not None}

    def rewrite(made: Sequence[Record]) -> None:
        known = {**earlier, **{record.key: record for record in made}}
        pending = [item.key for item in chosen if item.key not in known]
        ordered = [known[item.key] for item in items() if item.key in known]
        write_papers_page(ordered, folder, pending=pending)

    return rewrite


def _print(settings: Settings, made: Sequence[Record], plan: Plan) -> None:
    from initscope.report import papers_table, tally
    from initscope.report.papers_table import circumstances

    if plan.folder is not None:
        settings.say(f"wrote {plan.folder / 'index.html'}")
    if settings.json:
        content: dict[str, Any] = {"size": plan.size, "seed": plan.seed, "summary": tally(made)}
        settings.print_json("papers.run", {**content, "items": [record.to_dict() for record in made]})
        return
    out = settings.stdout()
    out.print(papers_table(made))
    for record in made:
        for line in (*(f"data: {words}" for words in record.given), *record.notes):
            out.print(f"{record.key}: {line}", markup=False)
    for line in circumstances(made):
        out.print(line, markup=False)
    out.print(tally(made), markup=False)
