"""Symmetry, positive semidefiniteness and continuity of kernels and tangent kernels over random networks of the language.

    python benchmarks/properties.py [--networks 5000] [--seed 0] [--integrated 0.1] [--show]

Every network has six inputs: near copies, opposites, dark and partly flat ones. Prints how often each property was asked for,
each violation with its network, and in how many networks rounding was allowed for; the exit code is 1 if anything is violated.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from laws.properties import examine
from laws.random_networks import networks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--integrated", type=float, default=0.1, help="share of activations without a closed form")
    parser.add_argument("--show", action="store_true", help="print every network before it is examined")
    options = parser.parse_args()
    asked: Counter[str] = Counter()
    roundings: list[float] = []
    violations, start = 0, time.perf_counter()
    for number, (text, net, x) in enumerate(networks(options.networks, options.seed, options.integrated)):
        if options.show:
            print(f"{number} [{time.perf_counter() - start:.0f} s] {text}", flush=True)
        found = examine(net, x)
        asked.update(found.asked)
        roundings.append(found.rounding)
        violations += bool(found.violated)
        for problem in found.violated:
            print(f"network {number}, {tuple(x.shape[1:])}: {text}\n    {problem}", flush=True)
    seconds = time.perf_counter() - start
    counts = ", ".join(f"{name} {count}" for name, count in sorted(asked.items()))
    print(f"{options.networks} networks in {seconds:.0f} s; asked for: {counts}")
    shares = ", ".join(f"more than {limit:g}: {sum(r > limit for r in roundings)}" for limit in (1e-7, 1e-5, 1e-3))
    print(f"networks in which rounding behind a subtraction is allowed {shares}; most {max(roundings):.2g}")
    print(f"networks with a violation: {violations}")
    return int(violations > 0)


if __name__ == "__main__":
    sys.exit(main())
