"""Models that train: shows that they do, and what `check` says about them.

    python benchmarks/zoo.py train [--draws 3]     # appends to zoo.jsonl, goes on where it was stopped
    python benchmarks/zoo.py report                # the losses in zoo.jsonl as a table
    python benchmarks/zoo.py check [--seeds 1] [--page docs/zoo.md]     # verdicts over three draws of the weights

`check` prints a table of all models as it goes; --page puts the counts, the warnings and what they are about into FILE,
between its marks. Seven to eleven minutes on one thread of a busy machine.

The models are those of tests/probe/trainable_zoo.py. `train` takes 150 steps of Adam (400 for one of them) on one batch, with
labels or targets that are to be learned by heart, or with the model's own loss. A model trains if the mean of its last ten
losses is less than half of the first one, and less than half of that of the best constant answer, where that is known.
`--only WORD` picks models by name.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import initscope
from initscope.probe import Report
from initscope.report.finding_words import finding_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from probe.trainable_zoo import TRAINABLE, Trainable  # noqa: E402

RESULTS = HERE / "zoo.jsonl"
DRAWS = 3
Checked = dict[str, list[Report]]


def built(entry: Trainable, draw: int) -> nn.Module:
    torch.manual_seed(draw)
    return entry.build()


def answer(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple) else model(batch)


def first_tensor(output: Any) -> Tensor:
    """The logits, or what comes first."""
    if isinstance(output, Tensor):
        return output
    found: Tensor = output.logits if hasattr(output, "logits") else output[0]
    return found


def target_of(entry: Trainable, batch: Any) -> Tensor | None:
    """What is to be learned: `check`'s target, the goal, or the labels in the batch."""
    if "target" in entry.options:
        found: Tensor = entry.options["target"]
        return found
    if entry.goal is not None:
        return entry.goal()
    return batch.get("labels") if isinstance(batch, Mapping) else None


def loss_of(entry: Trainable, output: Any, target: Tensor | None) -> Tensor:
    """The entry's loss, the model's own, cross-entropy for classes or squared error, as the target is."""
    own = entry.options.get("loss")
    if own is not None:
        loss: Tensor = own(output, target)
        return loss
    if isinstance(getattr(output, "loss", None), Tensor):
        return output.loss
    if target is None:
        raise ValueError("neither a loss nor a target")
    values = first_tensor(output)
    if target.is_floating_point():
        return F.mse_loss(values, target)
    axis = 1 if target.shape == (values.shape[0], *values.shape[2:]) else values.ndim - 1
    return F.cross_entropy(values.movedim(axis, 1), target)


def constant_loss(entry: Trainable, target: Tensor | None) -> float | None:
    """The loss of the best answer that is the same for all samples; None where there is no target to compute it from."""
    if target is None or entry.options.get("loss") not in (None, F.mse_loss, F.cross_entropy):
        return None
    if target.is_floating_point():
        return float((target - target.mean(0)).square().mean())
    share = target[target >= 0].unique(return_counts=True)[1].double()
    return float(-((share / share.sum()) * (share / share.sum()).log()).sum())


def losses_while_training(entry: Trainable, draw: int) -> tuple[list[float], float | None]:
    """The loss before each step, and that of the best constant."""
    model, batch = built(entry, draw).train(), entry.batch()
    target = target_of(entry, batch)
    adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], entry.rate)
    losses = []
    for _ in range(entry.steps):
        loss = loss_of(entry, answer(model, batch), target)
        losses.append(float(loss))
        if not math.isfinite(losses[-1]):
            break
        adam.zero_grad()
        loss.backward()
        adam.step()
    return losses, constant_loss(entry, target)


def rows() -> list[dict[str, Any]]:
    """What the file holds; a last line cut short is left out."""
    if not RESULTS.exists():
        return []
    whole = RESULTS.read_text()
    return [json.loads(line) for line in whole[: whole.rfind("\n") + 1].splitlines()]


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def train(entries: Mapping[str, Trainable], draws: int) -> None:
    """Appends a row for each training that is not there yet."""
    known = {(row["name"], row["draw"], row["rate"]) for row in rows()}
    todo = [(name, draw) for draw in range(draws) for name in entries if (name, draw, entries[name].rate) not in known]
    for number, (name, draw) in enumerate(todo, 1):
        entry, began = entries[name], time.perf_counter()
        losses, constant = losses_while_training(entry, draw)
        first, last = losses[0], statistics.fmean(losses[-10:])
        trains = len(losses) == entry.steps and last < 0.5 * min(first, constant or first)
        numbers = [None if x is None or not math.isfinite(x) else float(f"{x:.5g}") for x in (first, constant, last)]
        row = {
            "name": name,
            "draw": draw,
            "rate": entry.rate,
            **dict(zip(("first", "constant", "last"), numbers, strict=True)),
        }
        row |= {"trains": trains, "seconds": round(time.perf_counter() - began, 1)}
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        say(
            f"{number}/{len(todo)} {name}, draw {draw}: {first:.4g} -> {last:.4g}{'' if trains else ', DOES NOT TRAIN'}"
        )


def report(entries: Mapping[str, Trainable]) -> None:
    """Prints the losses of the last training of each model and draw."""
    found = {(row["name"], row["draw"]): row for row in rows() if row["name"] in entries}
    print("| model | rate | best constant | first loss, by draw | last loss, by draw | trains |\n" + "| --- " * 6 + "|")
    for name in entries:
        some = [row for (named, _), row in sorted(found.items()) if named == name]
        if not some:
            continue
        words = [" ".join("-" if row[key] is None else f"{row[key]:.3g}" for row in some) for key in ("first", "last")]
        constant = "" if some[0]["constant"] is None else f"{some[0]['constant']:.3g}"
        trains = "yes" if all(row["trains"] for row in some) else "**no**"
        print(f"| {name} | {some[0]['rate']:g} | {constant} | {words[0]} | {words[1]} | {trains} |")


def check(entries: Mapping[str, Trainable], draws: int, seeds: int) -> Checked:
    """Prints what `check` says about each model, for several draws of its weights, and returns the reports."""
    found: Checked = {}
    print("| model | verdict, by draw | score, by draw | what decides it | seconds |\n" + "| --- " * 5 + "|")
    for number, (name, entry) in enumerate(entries.items(), 1):
        began = time.perf_counter()
        found[name] = [
            initscope.check(built(entry, draw), entry.batch(), seeds=seeds, seed=draw, **entry.options)
            for draw in range(draws)
        ]
        seconds = (time.perf_counter() - began) / draws
        print(f"| {' | '.join(cells(name, found[name]))} | {seconds:.1f} |", flush=True)
        say(f"{number}/{len(entries)} {name}")
    print(f"\n{counted(found)}")
    return found


def cells(name: str, reports: Sequence[Report]) -> list[str]:
    """The model, its verdicts, its scores, and the finding that decides the worst of them, in words."""
    leading = max(reports, key=lambda r: ("healthy", "warn", "fail").index(r.verdict)).leading
    why = "" if leading is None else f"{leading.kind}: {finding_text(leading)}"
    return [name, " ".join(r.verdict for r in reports), " ".join(f"{r.score:.2f}" for r in reports), why]


def counted(found: Checked) -> str:
    """How many draws of how many models have which verdict, and which ones are called failures although they train."""
    verdicts = [r.verdict for reports in found.values() for r in reports]
    count = ", ".join(f"{verdicts.count(word)} {word}" for word in ("healthy", "warn", "fail"))
    wrong = [name for name, reports in found.items() if any(r.verdict == "fail" for r in reports)]
    text = f"{len(found)} models, {len(verdicts)} checks: {count}."
    return f"{text} Called a failure although it trains: {', '.join(wrong)}." if wrong else text


def learned() -> str:
    """What zoo.jsonl says about the training of the models, in a sentence."""
    last = {(row["name"], row["draw"]): row for row in rows() if row["name"] in TRAINABLE}
    left = [row["last"] / row["first"] if row["trains"] else math.inf for row in last.values()]
    draws = len(last) // len({name for name, _ in last})
    trained = sum(row["trains"] for row in last.values())
    return (
        f"{trained} of {len(last)} trainings ({draws} draws of each model) succeed: the loss falls to "
        f"{statistics.median(left):.2g} of the first one in the median, and to {max(left):.2g} at worst."
    )


def block(found: Checked) -> str:
    """The counts, a table of what is not healthy, with the losses that show that it trains, and the names of the rest."""
    odd = {name: reports for name, reports in found.items() if any(r.verdict != "healthy" for r in reports)}
    lines = [counted(found), learned(), ""]
    lines += ["| model | verdict, by draw | score, by draw | what decides it | loss, by draw |", "| --- " * 5 + "|"]
    for name, reports in odd.items():
        lines.append(f"| {' | '.join([*cells(name, reports), change(name)])} |")
    sound = {name: reports for name, reports in found.items() if name not in odd}
    lowest = min((r.score for reports in sound.values() for r in reports), default=math.nan)
    lines += ["", f"Healthy in all draws, with scores of {lowest:.2f} or more: {'; '.join(sound)}.", ""]
    return "\n".join(lines)


def change(name: str) -> str:
    """The first and the last loss of a model in zoo.jsonl, for each draw."""
    last = {row["draw"]: row for row in rows() if row["name"] == name}
    return ", ".join(f"{row['first']:.2g} to {row['last']:.2g}" for _, row in sorted(last.items()))


def put(page: Path, text: str) -> None:
    """Replaces what a page has between its marks."""
    begin, end, old = "<!-- output of benchmarks/zoo.py -->\n", "<!-- end of benchmarks/zoo.py -->", page.read_text()
    page.write_text(old[: old.index(begin) + len(begin)] + text + old[old.index(end) :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["train", "report", "check"])
    parser.add_argument("--draws", type=int, default=DRAWS, help="draws of the weights")
    parser.add_argument("--seeds", type=int, default=1, help="seeds= of check")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put what check finds into FILE, between its marks")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    entries = {name: entry for name, entry in TRAINABLE.items() if asked.only in name}
    if asked.what == "train":
        train(entries, asked.draws)
    elif asked.what == "report":
        report(entries)
    else:
        found = check(entries, asked.draws, asked.seeds)
        if asked.page:
            put(asked.page, block(found))


if __name__ == "__main__":
    main()
