"""Trains the random networks and appends what came out to a file; an interrupted run goes on where it stopped.

    INITSCOPE_DATA=folder python benchmarks/trainability/train.py --workers 2

The folder holds `fashion_mnist.npz`. One line per network and optimizer; the second optimizer
trains the half on which results are reported.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from training import MAIN, SECOND, train

from networks import NETWORKS, design, halves

HERE = Path(__file__).parent


def done(path: Path) -> set[tuple[int, str]]:
    """What the file holds; a last line cut short by an interruption is dropped from it."""
    if not path.exists():
        return set()
    whole = path.read_text()
    kept = whole[: whole.rfind("\n") + 1]
    if kept != whole:
        path.write_text(kept)
    rows = [json.loads(line) for line in kept.splitlines()]
    return {(row["number"], row["optimizer"]) for row in rows}


def work(task: tuple[int, str]) -> dict[str, object]:
    number, optimizer = task
    torch.set_num_threads(1)
    chosen = design(number)
    return {"number": number, "optimizer": optimizer, **train(chosen, optimizer), "design": asdict(chosen)}


def results(tasks: list[tuple[int, str]], workers: int) -> Iterator[dict[str, object]]:
    if workers == 1:
        yield from map(work, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(workers, os.nice, (10,)) as pool:
        yield from pool.imap_unordered(work, tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=NETWORKS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=HERE / "training.jsonl")
    options = parser.parse_args()
    known = done(options.results)
    wanted = [(number, MAIN) for number in range(options.networks)]
    wanted += [(number, SECOND) for number in sorted(halves(options.networks)[1])]
    tasks = [task for task in wanted if task not in known]
    print(f"{len(wanted) - len(tasks)} of {len(wanted)} trainings are in {options.results.name}")
    with options.results.open("a") as file:
        for count, row in enumerate(results(tasks, options.workers), start=1):
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{count}/{len(tasks)}: network {row['number']} with {row['optimizer']}", flush=True)


if __name__ == "__main__":
    main()
