"""What planted mistakes cost and what the remedies of `fix` bring: the loss after 100 steps of Adam.

    python benchmarks/planted.py [--page docs/planted.md] [--again remedies|all] [--only TEXT]

Every row of tests/probe/planted.py is trained as it is, without its mistake, and with the remedy that `fix` applies, at a
rate of 1e-3: on new batches of its task (the table), and on one batch over and over (in planted.jsonl beside this file). What is
in that file is not run again: the command may be stopped at any time. One thread; the remedies alone take 12 minutes.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import initscope as iscope
from initscope.errors import InitscopeError
from probe.planted import PLANTED
from probe.planting.row import Planted

RESULTS = Path(__file__).with_suffix(".jsonl")
STEPS, RATE, LAST = 100, 1e-3, 5
PARTS = ("as it is", "without", "remedy")
MARK = "benchmarks/planted.py"

Found = dict[tuple[str, str], dict[str, Any]]


def mean_loss(row: Planted, output: Tensor, target: Tensor) -> Tensor:
    """The loss of the row, cross-entropy for classes, or the squared error."""
    own: Callable[[Tensor, Tensor], Tensor] | None = row.options.get("loss")
    if own is not None:
        return own(output, target)
    if target.is_floating_point():
        return F.mse_loss(output, target)
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def train(row: Planted, model: nn.Module, *, new: bool) -> list[float | None]:
    """The first loss, and the mean of the last five; None where it is no finite number."""
    assert row.fresh is not None
    torch.manual_seed(0)
    model.train(row.options.get("train", True))
    weights = [p for p in model.parameters() if p.requires_grad]
    adam = torch.optim.Adam(weights, RATE) if weights else None
    losses: list[float] = []
    for step in range(STEPS):
        inputs, target = row.fresh(5000 * (step + 1) + 1 if new else 1)
        assert target is not None
        value = mean_loss(row, model(*inputs) if isinstance(inputs, tuple) else model(inputs), target)
        losses.append(float(value.detach()))
        if not math.isfinite(losses[-1]):
            return [losses[0] if step else None, None]
        if adam is not None:
            adam.zero_grad()
            value.backward()
            adam.step()
    return [losses[0], statistics.fmean(losses[-LAST:])]


def both(row: Planted, build: Callable[[], nn.Module]) -> dict[str, list[float | None]]:
    return {"new_batches": train(row, build(), new=True), "one_batch": train(row, build(), new=False)}


def remedied(row: Planted) -> dict[str, Any]:
    """What `fix` does to the model, and how it trains then."""
    try:
        fixed = iscope.fix(row.build(), row.batch(), seeds=1, **row.options)
    except InitscopeError as error:
        return {"applied": [], "message": str(error)}
    before, after = fixed.before, fixed.after
    said = {"verdict": before.verdict, "score": before.score, "step": before.first_bad_layer, "message": fixed.message}
    names = [remedy.name for remedy in fixed.applied]
    if not names:
        return {"applied": names, **said}
    return {"applied": names, **said, "after": after.verdict, **both(row, lambda: copy.deepcopy(fixed.model))}


def measure(name: str, part: str) -> dict[str, Any]:
    row = PLANTED[name]
    if part == "remedy":
        return remedied(row)
    other = row if part == "as it is" else row.twin
    return {} if other is None else both(other, other.build)


def rows() -> list[dict[str, Any]]:
    """What the file holds; a last line cut short is left out."""
    whole = RESULTS.read_text() if RESULTS.exists() else ""
    return [json.loads(line) for line in whole[: whole.rfind("\n") + 1].splitlines()]


def run(only: str, again: str | None) -> None:
    """All that is not in the file yet."""
    torch.set_num_threads(1)
    kept = [row for row in rows() if row["name"] in PLANTED and not _repeat(row, only, again)]
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in kept))
    known = {(row["name"], row["part"]) for row in kept}
    todo = [(name, part) for name in PLANTED for part in PARTS if only in name and (name, part) not in known]
    for number, (name, part) in enumerate(todo, 1):
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = measure(name, part)
        seconds = time.perf_counter() - started
        with RESULTS.open("a") as file:
            file.write(json.dumps({"name": name, "part": part, **found}) + "\n")
        print(f"{number}/{len(todo)} {name}, {part}: {seconds:.1f} s", file=sys.stderr, flush=True)


def _repeat(row: dict[str, Any], only: str, again: str | None) -> bool:
    return only in row["name"] and (again == "all" or (again == "remedies" and row["part"] == "remedy"))


def number(value: float | None) -> str:
    """Two digits."""
    if value is None:
        return "NaN"
    return f"{value:.2g}" if value < 100 else f"{value:.0f}" if value < 1e4 else f"{value:.1e}".replace("e+0", "e")


def last(found: dict[str, Any]) -> str:
    return number(found["new_batches"][1]) if "new_batches" in found else ""


def summary(found: Found) -> str:
    """What `check` says and what the remedies bring, in four sentences."""
    mistakes = [name for name, row in PLANTED.items() if row.kind]
    fine = [name for name, row in PLANTED.items() if not row.kind]
    names = [name for name in mistakes if found[name, "remedy"].get("applied")]
    losses = [[_loss(found[name, part]) for name in names] for part in PARTS]
    given, twin, fixed = (statistics.median(part) for part in losses)
    falls = sum(after < 0.9 * before for before, _, after in zip(*losses, strict=True))
    return (
        f"Of the {len(mistakes)} mistakes, {_verdicts(found, mistakes)}. "
        f"Of the {len(fine)} models that only look like one, {_verdicts(found, fine)}.\n"
        f"`fix` changes the weights for {len(names)} of the mistakes: their median loss after {STEPS} steps is {number(given)} "
        f"as they are, {number(fixed)} after the remedy and {number(twin)} without the mistake. "
        f"For {falls} of them the loss falls by more than a tenth.\n"
    )


def _loss(found: dict[str, Any]) -> float:
    value = found["new_batches"][1]
    return math.inf if value is None else value


def _verdicts(found: Found, names: list[str]) -> str:
    said = [found[name, "remedy"]["verdict"] for name in names]
    return ", ".join(f"{said.count(v)} {v}" for v in ("fail", "warn", "healthy") if v in said)


def tables(found: Found) -> str:
    """Three tables: mistakes for which `fix` changes the weights, other mistakes, and models that are fine."""
    repaired, others, fine = [], [], []
    for name, row in PLANTED.items():
        given, twin, fixed = (found[name, part] for part in PARTS)
        step = f"`{fixed['step']}`" if fixed.get("step") else ""
        start = [name, row.kind or "", step, last(given)]
        if row.kind is None:
            fine.append([name, fixed["verdict"], number(given["new_batches"][0]), last(given), last(twin)])
        elif fixed["applied"]:
            repaired.append([*start, f"`{fixed['applied'][0]}`", last(fixed), last(twin)])
        else:
            others.append([*start, row.advice or "`fix` finds no better weights", last(twin)])
    head = ["mistake", "finding", "first bad layer", "loss as it is"]
    return "\n".join(
        (
            summary(found),
            "### Mistakes for which `fix` changes the weights\n",
            table([*head, "remedy", "loss after the remedy", "loss without the mistake"], repaired),
            "### Mistakes for which it does not\n",
            table([*head, "what to do", "loss without the mistake"], others),
            "### What only looks like a mistake\n",
            table(["model", "verdict", "first loss", "loss after 100 steps", "loss of the plain model"], fine),
        )
    )


def table(head: list[str], lines: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *lines))


def put(page: Path, name: str, text: str) -> None:
    """Replace what a page has between the marks of a name."""
    begin, end, old = f"<!-- output of {name} -->\n", f"<!-- end of {name} -->", page.read_text()
    page.write_text(old[: old.index(begin) + len(begin)] + text + old[old.index(end) :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, metavar="FILE", help="also put the tables into FILE, between their marks")
    parser.add_argument("--again", choices=["remedies", "all"], help="run these again although they are in the file")
    parser.add_argument("--only", default="", metavar="TEXT", help="run only rows whose name contains TEXT")
    asked = parser.parse_args()
    run(asked.only, asked.again)
    found = {(row["name"], row["part"]): row for row in rows()}
    missing = [name for name in PLANTED if any((name, part) not in found for part in PARTS)]
    if missing:
        print(f"{len(missing)} rows have no results yet; run without --only", file=sys.stderr)
        return
    text = tables(found)
    print(text)
    if asked.page:
        put(asked.page, MARK, text)


if __name__ == "__main__":
    main()
