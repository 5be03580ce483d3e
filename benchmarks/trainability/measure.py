"""What `check` and the baselines say about every network before training, appended to a file.

    INITSCOPE_DATA=folder python benchmarks/trainability/measure.py

All see the same 64 images and labels. An interrupted run goes on where it stopped; `--again` starts over.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch
from baselines import baselines
from training import load

from initscope.probe import check
from networks import NETWORKS, build, design

HERE = Path(__file__).parent


def measure(number: int) -> dict[str, object]:
    chosen = design(number)
    net, images = build(chosen), load(chosen.data).probe()
    report = check(net, (images.x, images.y), seeds=1, theory=False)
    return {
        "number": number,
        "verdict": report.verdict,
        "score": report.score,
        "signs": asdict(report.chance.signs),
        "baselines": baselines(chosen, net, images),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=NETWORKS)
    parser.add_argument("--results", type=Path, default=HERE / "measures.jsonl")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.again:
        options.results.unlink(missing_ok=True)
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    known = {json.loads(line)["number"] for line in lines}
    with options.results.open("a") as file:
        for number in sorted(set(range(options.networks)) - known):
            file.write(json.dumps(measure(number)) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
