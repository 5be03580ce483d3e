"""What it takes to start: `import initscope` and `initscope --help`, each in a fresh interpreter.

    python benchmarks/startup.py [--repeats N]

Best and median of N runs, the time of an empty interpreter beside them, and whether torch was imported. The target is
0.3 s for the import and 0.5 s for the help, the interpreter's own start included.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

HELP = "from initscope.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
KERNEL_HELP = HELP.replace("['--help']", "['kernel', '--help']")
ASK = "import sys\nprint('torch' in sys.modules, file=sys.stderr)\n"
CASES = (
    ("an empty interpreter", "", None),
    ("import initscope", "import initscope\n", 0.3),
    ("initscope --help", HELP, 0.5),
    ("initscope kernel --help", KERNEL_HELP, 0.5),
)


def run(code: str) -> tuple[float, bool]:
    """Seconds of a fresh interpreter, and whether it imported torch."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code + ASK], capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done.stderr.strip() == "True"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=15)
    repeats = options.parse_args().repeats
    print("| | best | median | target | torch imported |\n| --- | --- | --- | --- | --- |")
    for name, code, target in CASES:
        run(code)  # writes the compiled files
        found = [run(code) for _ in range(repeats)]
        times = [seconds for seconds, _ in found]
        torch = "yes" if any(imported for _, imported in found) else "no"
        limit = "" if target is None else f"{target:g} s"
        print(f"| {name} | {min(times):.3f} s | {statistics.median(times):.3f} s | {limit} | {torch} |", flush=True)


if __name__ == "__main__":
    main()
