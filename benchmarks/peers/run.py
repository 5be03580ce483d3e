"""initscope beside its peers: the same inputs, both sides in turns, each peer in its best setting and its own environment.

    python benchmarks/peers/run.py [--only W7,W8 ...] [--again] [--records docs/peers.json] [--page docs/benchmarks.md]

--only takes names or their first words, separated by commas or spaces: W7 stands for "W7 gelu" and "W7 erf", W10 for other
activations beside our own ReLU, plain for the plain torch path beside the compiled one, first for first calls. Workloads that
the file of records has are not measured again unless --again is given, so a run that was stopped goes on. Prints the tables of
docs/benchmarks.md, for the rows that are on record.

A peer is tried in float32 and float64, with its own batching and by hand each pair once, then with other block sizes in the
fastest of these; a setting whose first blocks are much slower than the best is not run to its end. What was tried is kept in
settings.json (--try-again: tried anew). Then both sides take turns, and the medians are compared. Errors are those of our
float32 against the peer's float64.

--peer-only tries the settings and measures the best alone. --agree compares both sides in float64. --tiny makes everything small,
to try the harness; its records go to build.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from measure import Run, agreement, alone, compare, compare_pair, put
from own import OWN, Own, measure
from settings import load, store
from sides import BUILD, HERE
from works import PAIRS, WORKS, Pair, Work

from report import page, picture

DOCS = HERE.parents[1] / "docs"
JOBS: dict[str, Any] = {job.name: job for job in (*WORKS, *PAIRS, *OWN)}


def chosen(asked: list[str] | None, names: list[str]) -> list[str]:
    """Names as they are, or all that begin with a word that is no name itself; ValueError for what there is not."""
    if not asked:
        return names
    found = []
    for word in (part.strip() for text in asked for part in text.split(",")):
        own = [word] if word in names else [name for name in names if name.split()[0] == word]
        if not own:
            raise ValueError(f"no workload {word}; there are {', '.join(names)}")
        found += own
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of the workloads")
    parser.add_argument("--again", action="store_true", help="measure again what is on record")
    parser.add_argument("--try-again", action="store_true", help="try all settings of the peers again")
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS", help="for one call of one setting")
    parser.add_argument("--peer-only", action="store_true", help="measure the peers alone, into the file of settings")
    parser.add_argument("--agree", action="store_true", help="only compare both sides in float64")
    parser.add_argument("--tiny", action="store_true", help="small inputs, to try the harness")
    parser.add_argument("--records", type=Path, help="default: docs/peers.json")
    parser.add_argument("--settings", type=Path, help="default: settings.json beside this file")
    parser.add_argument("--page", type=Path, help="a page that has the tables between two marks")
    parser.add_argument("--figure", type=Path, help="default: docs/figures/peers.svg")
    options = parser.parse_args()
    defaults = {
        "records": BUILD / "peers" / "tiny.json" if options.tiny else DOCS / "peers.json",
        "settings": BUILD / "peers" / "tiny-settings.json" if options.tiny else HERE / "settings.json",
        "figure": BUILD / "peers" / "tiny.svg" if options.tiny else DOCS / "figures" / "peers.svg",
    }
    for name, path in defaults.items():
        setattr(options, name, getattr(options, name) or path)
    try:
        options.names = chosen(options.only, list(JOBS))
    except ValueError as error:
        parser.error(str(error))
    if options.tiny and options.page:
        parser.error("--page is for numbers of full size; leave out --tiny")
    return options


def forget(path: Path, names: list[str]) -> None:
    """What was tried for these workloads."""
    store(path, {name: record for name, record in load(path).items() if name not in names})


def peers_alone(options: argparse.Namespace, run: Run) -> None:
    """Peers by themselves, or both sides in float64; only workloads that are kernels with a peer."""
    for name in options.names:
        if name not in {work.name for work in WORKS}:
            continue
        if options.agree:
            print(f"{name}: {agreement(JOBS[name], run):.1e}", flush=True)
        elif options.again or "alone" not in load(run.settings).get(name, {}):
            print(name, file=sys.stderr, flush=True)
            print(name, alone(JOBS[name], run), flush=True)


def record(job: Work | Pair | Own, run: Run) -> dict[str, Any]:
    match job:
        case Work():
            return compare(job, run)
        case Pair():
            return compare_pair(job)
        case Own():
            return measure(job, run)


def measured(options: argparse.Namespace, run: Run) -> dict[str, Any]:
    """All records, those of the chosen workloads measured if they are not there."""
    records = load(options.records)
    for name in options.names:
        if name in records and not options.again:
            continue
        print(name, file=sys.stderr, flush=True)
        job = JOBS[name]
        records[name] = record(job, run)
        records = {key: records[key] for key in JOBS if key in records}
        store(options.records, records)
    return records


def main() -> None:
    options = parse()
    run = Run(options.settings, options.limit, options.tiny)
    if options.try_again:
        forget(options.settings, options.names)
    if options.peer_only or options.agree:
        peers_alone(options, run)
        return
    records = measured(options, run)
    if any("best_setting" in record for record in records.values()):
        picture(records).save(options.figure)
    text = page(records)
    if options.page is not None:
        put(options.page, "benchmarks/peers", text)
    print(text, end="")


if __name__ == "__main__":
    main()
