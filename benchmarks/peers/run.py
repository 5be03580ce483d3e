"""initscope beside its peers: the same inputs, both sides in turns, each peer in its best setting and its own environment.

    python benchmarks/peers/run.py [--only NAME ...] [--again] [--records docs/peers.json] [--page docs/benchmarks.md]

Workloads that the file of records has are not measured again unless --again is given, so a run that was stopped goes on.
Prints the tables of docs/benchmarks.md. A peer is tried in float32 and float64, with its own batching and by hand each pair
once, then with other block sizes in the fastest of these; then both sides take turns, and the medians are compared. Errors are
those of our float32 against the peer's float64.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from measure import compare, compare_pair, load, put, store
from works import PAIRS, WORKS

from report import page, picture

DOCS = Path(__file__).parents[2] / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of the workloads")
    parser.add_argument("--again", action="store_true", help="measure again what is on record")
    parser.add_argument("--records", type=Path, default=DOCS / "peers.json")
    parser.add_argument("--page", type=Path, help="a page that has the tables between two marks")
    parser.add_argument("--figure", type=Path, default=DOCS / "figures" / "peers.svg")
    options = parser.parse_args()
    works = {work.name: work for work in WORKS}
    pairs = {pair.name: pair for pair in PAIRS}
    order = [*works, *pairs]
    unknown = set(options.only or ()) - set(order)
    if unknown:
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(order)}")
    records = load(options.records)
    for name in options.only or order:
        if name in records and not options.again:
            continue
        print(name, file=sys.stderr, flush=True)
        records[name] = compare(works[name]) if name in works else compare_pair(pairs[name])
        records = {key: records[key] for key in order if key in records}
        store(options.records, records)
    if any("best_setting" in record for record in records.values()):
        picture(records).save(options.figure)
    text = page(records)
    if options.page is not None:
        put(options.page, "benchmarks/peers", text)
    print(text, end="")


if __name__ == "__main__":
    main()
