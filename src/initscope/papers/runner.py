"""Runs items one after another, or spread over processes; what is finished is kept, what fails is reported."""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from initscope.errors import InitscopeError
from initscope.papers import record as records
from initscope.papers.desk import Source, make_desk
from initscope.papers.item import Check, Item
from initscope.papers.record import Record
from initscope.papers.registry import find

Progress = Callable[[Item, int, int], None]
# Applies a function to each of the keys, somewhere, and yields place and result in the order in which they finish.
Spread = Callable[[Callable[[str], Record], Sequence[str]], Iterable[tuple[int, Record]]]


@dataclass(frozen=True)
class Plan:
    """How to run: the size of the work ("quick", "normal", "full"), the seed, the source of the data, and the folder.

    Without a folder nothing is kept.
    """

    source: Source
    size: str = "normal"
    seed: int = 0
    folder: Path | None = None

    def finished(self, item: Item) -> Record | None:
        """The kept result of an item, if it was made with these settings by this code on this data."""
        if self.folder is None:
            return None
        found = records.read(self.folder, item.key)
        return found if found is not None and found.digest == self.digest(item) else None

    def digest(self, item: Item) -> str:
        return records.digest_of(item, self.source, size=self.size, seed=self.seed)


def run_items(
    chosen: Sequence[Item], plan: Plan, progress: Progress | None = None, spread: Spread | None = None
) -> Iterator[Record]:
    """Run items and yield each result as it is there, after it was written: in turn, or as `spread` finishes them.

    An interrupt leaves what is finished in the folder; the same call then goes on where it was.
    """
    if plan.folder is not None:
        records.check_folder(plan.folder)
        records.sweep(plan.folder)
    if spread is None:
        for item in chosen:
            yield plan.finished(item) or _kept(run_item(item, plan, progress), plan)
        return
    left = []
    for item in chosen:
        found = plan.finished(item)
        if found is not None:
            yield found
        else:
            left.append(item.key)
    for _, made in spread(functools.partial(_run_key, plan=plan), left):
        yield _kept(made, plan)


def _run_key(key: str, plan: Plan) -> Record:
    (item,) = find(key)
    return run_item(item, plan)


def _kept(made: Record, plan: Plan) -> Record:
    if plan.folder is not None:
        if made.failed:
            records.forget(plan.folder, made.key)
        else:
            records.save(made, plan.folder)
    return made


def run_item(item: Item, plan: Plan, progress: Progress | None = None) -> Record:
    """Run one item; an exception becomes a record that says what went wrong."""
    advance = None if progress is None else lambda done, total: progress(item, done, total)
    desk, told = make_desk(item, plan.source, size=plan.size, seed=plan.seed, progress=advance)
    blank = Record(item.key, item.title, item.says, plan.size, plan.seed, digest=plan.digest(item))
    start = time.perf_counter()
    try:
        # Items draw from generators of their own; what a library draws from the global one is settled here.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(plan.seed)
            outcome = item.run(desk)
        made = replace(
            blank,
            checks=tuple(_on_stand_ins(check, told.stand_ins) for check in outcome.checks),
            data=records.plain(outcome.data),
            notes=outcome.notes,
            svg=None if outcome.picture is None else outcome.picture.svg(),
        )
    except InitscopeError as error:
        made = replace(blank, problem=str(error))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        made = replace(blank, problem=f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})")
    return replace(made, given=tuple(told.words), seconds=round(time.perf_counter() - start, 2))


def _on_stand_ins(check: Check, stand_ins: Sequence[str]) -> Check:
    """A figure that is printed for a set says nothing about other pictures: held against them it is open."""
    if check.published is None or not stand_ins:
        return check
    why = f"the printed figure is not about these pictures: {', '.join(stand_ins)}"
    return replace(check, agrees=None, why=f"{why}; {check.why}" if check.why else why)
