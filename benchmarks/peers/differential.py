"""initscope against neural-tangents on random networks, with a judge that shares no code with either.

    python benchmarks/peers/differential.py [--networks 500] [--seed 0] [--only INDEX ...] [--limit 600] [--page docs/PAGE.md]

Both kernels of every network, in float64 and float32, are compared with the peer's float64: largest error of an entry, relative
to the root of the two diagonal entries that belong to it. The judge (formulas of the textbook in long doubles; in mpmath's 40
digits when differ_judge.py is asked for them) says who is right where they differ by more than 1e-6 (float32: 1e-4).

The peer's environment is made in build on first use. Answers are kept in build/differential and asked for once; initscope is
asked again when its source has changed. differences.md there lists every difference; what is printed groups them by cause.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import references
import verdicts
from random_networks import Network, network
from sides import BUILD, HERE, interpreter

SOURCE = HERE.parents[1] / "src" / "initscope"
SIDES = {
    "initscope": ("differ_initscope.py", None),
    "neural-tangents": ("differ_neural_tangents.py", "peer-nt"),
    "judge": ("differ_judge.py", None),
}


class Worker:
    """A process that answers one network at a time; killed and started again when it takes longer than the limit."""

    def __init__(self, side: str, limit: float) -> None:
        self.side, self.limit = side, limit
        self.process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        script, folder = SIDES[self.side]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        if folder is not None:
            environment.pop("PYTHONPATH", None)
        return subprocess.Popen(
            [interpreter(folder), str(HERE / script)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip

    def ask(self, question: Network) -> dict[str, Any]:
        self.process = self.process or self._start()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], self.limit)
        line = self.process.stdout.readline() if ready else ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.stop()
        return {"crashed": "the process died"} if ready else {"timeout": self.limit}

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.process = None


def answers(side: str, folder: Path, networks: Iterable[Network], limit: float) -> dict[int, dict[str, Any]]:
    """What a side says about each network; what it said before is read from its file."""
    path = folder / f"{side}{f'-{digest()}' if side == 'initscope' else ''}.jsonl"
    known: dict[int, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            record = json.loads(line)
            known[record.pop("index")] = record
    worker = Worker(side, limit)
    wanted = list(networks)
    with path.open("a") as file:
        for one in wanted:
            if one["index"] not in known:
                known[one["index"]] = worker.ask(one)
                if "timeout" not in known[one["index"]]:  # the next run tries again
                    print(json.dumps({"index": one["index"], **known[one["index"]]}), file=file, flush=True)
                print(f"{side} {one['index']}", file=sys.stderr, flush=True)
    worker.stop()
    return {one["index"]: known[one["index"]] for one in wanted}


def digest() -> str:
    """Of initscope's source."""
    found = hashlib.sha256()
    for path in sorted(SOURCE.rglob("*.py")):
        found.update(path.read_bytes())
    found.update((HERE / "differ_initscope.py").read_bytes())
    return found.hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="+", metavar="INDEX", help="some of the networks")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one network on one side")
    parser.add_argument("--page", type=Path, help="a page that has the tables between two marks")
    parser.add_argument("--records", type=Path, default=BUILD / "differential")
    parser.add_argument(
        "--references", type=Path, metavar="FILE", help="write the peer's kernels of 60 networks to FILE (.npz)"
    )
    options = parser.parse_args()
    networks = [network(options.seed, i) for i in options.only or range(options.networks)]
    folder = options.records / f"seed-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    interpreter("peer-nt")
    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(
            lambda side: answers(side, folder, networks, options.limit), ("initscope", "neural-tangents")
        )
    truth = answers("judge", folder, networks, options.limit)
    found = [verdicts.judge(one, *(side[one["index"]] for side in (ours, theirs, truth))) for one in networks]
    (folder / "differences.md").write_text(verdicts.differences(found))
    if options.references is not None:
        references.save(options.references, references.choose(found, theirs, 60), theirs)
    text = verdicts.page(found)
    if options.page is not None:
        verdicts.put(options.page, text)
    print(text, end="")


if __name__ == "__main__":
    main()
