"""Hostile inputs for as long as wanted: what was tried, what came of it, and every case that broke a promise.

    python benchmarks/fuzz.py --seconds 3600 [--first N] [--only NAME] [--page docs/reliability.md]

The same cases as in tests/fuzz, where the first few seconds of them are run by `make test`. Case N of a target is always the
same; --first starts with another one. --page puts the table into FILE, between its marks. Exit code 1: a promise was broken.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from pathlib import Path

import torch

# In place of this script's own folder, where `fuzz` would be the script.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fuzz.harness import REFUSED, Tally, Target, run_target
from fuzz.targets import TARGETS
from initscope import __version__

NAME = "benchmarks/fuzz.py"


def table(found: dict[str, Tally], targets: list[Target]) -> str:
    """What was tried and what held, as Markdown."""
    lines = [
        "| tried | cases | refused | answered | promises broken | what has to hold |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for target in targets:
        tally = found[target.name]
        answers = [f"{count:,} {word}" for word, count in tally.outcomes.most_common() if word != REFUSED]
        refused = f"{tally.outcomes[REFUSED]:,}"
        cells = (
            target.what,
            f"{tally.tried:,}",
            refused,
            ", ".join(answers) or "0",
            str(len(tally.broken)),
            target.holds,
        )
        lines.append(f"| {' | '.join(cells)} |")
    total, broken = sum(t.tried for t in found.values()), sum(len(t.broken) for t in found.values())
    seconds = sum(t.seconds for t in found.values())
    where = f"initscope {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    said = f"\n\n{total:,} cases in {seconds / 60:.0f} minutes, {broken} broken promises; {where}.\n"
    return "\n".join(lines) + said + "".join(f"- {line}\n" for line in _broken(found))


def _broken(found: dict[str, Tally]) -> list[str]:
    """What was broken, each kind once, with the case that shows it."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for name, tally in found.items():
        for number, said in tally.broken:
            kinds.setdefault((name, said), []).append(number)
    return [f"{name}, {len(cases)} times, first in case {cases[0]}: {said}" for (name, said), cases in kinds.items()]


def put(page: Path, text: str) -> None:
    """Replace what a page has between its marks."""
    begin, end, old = f"<!-- output of {NAME} -->\n", f"<!-- end of {NAME} -->", page.read_text()
    page.write_text(old[: old.index(begin) + len(begin)] + text + old[old.index(end) :])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, in all")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", choices=[target.name for target in TARGETS], action="append", help="this target")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the table into FILE, between its marks")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    targets = [target for target in TARGETS if asked.only is None or target.name in asked.only]
    shares = sum(target.share for target in targets)
    found: dict[str, Tally] = {}
    for target in targets:
        with tempfile.TemporaryDirectory() as folder:
            seconds = asked.seconds * target.share / shares
            tally = run_target(target, Path(folder), seconds, first=asked.first, most_broken=1000)
        found[target.name] = tally
        print(f"{target.name}: {tally.tried:,} cases, {len(tally.broken)} broken promises", file=sys.stderr)
        for number, said in tally.broken:
            print(f"  case {number}: {said}", file=sys.stderr)
    text = table(found, targets)
    print(text)
    if asked.page is not None:
        put(asked.page, text)
    return int(any(tally.broken for tally in found.values()))


if __name__ == "__main__":
    sys.exit(main())
