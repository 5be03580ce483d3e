"""One side of a comparison, in a process of its own: gets ready, then runs once each time it is asked to.

Runs in the environment of every peer, so it needs nothing but numpy. Questions and answers are lines of JSON on standard
input and output; what the libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def kib(field: str) -> int:
    """VmHWM, the peak of this process, or VmRSS, what it holds now."""
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0])


def serve(prepare: Callable[[dict[str, Any]], tuple[Callable[[], Any], Callable[[], Any], dict[str, str]]]) -> None:
    """`prepare(setting)` gives what is timed, what is called once before (compiles), and the versions."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    setting = json.loads(sys.stdin.readline())
    run, warm, versions = prepare(setting)
    held = kib("VmRSS")
    if not setting.get("cold"):
        warm()
    print(json.dumps({"versions": versions}), file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        start, cpu = time.perf_counter(), time.process_time()
        found = warm() if question.get("part") else run()
        answer = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
        target = question.get("save")
        if target:
            np.save(target, np.asarray(found, dtype=np.float64))
        answer["peak_mb"] = (kib("VmHWM") - held) / 1024
        print(json.dumps(answer), file=answers, flush=True)
