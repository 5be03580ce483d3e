"""anyinit: its report on a model with a batch, "analytic" (theory, one measured pass) or "empirical" (layer by layer).

It has no call that only looks: `initialize` traces the model, sets its weights, measures and reports; the same work every time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import anyinit
import torch
from models import build
from serve import serve


def prepare(setting: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any], dict[str, str]]:
    warnings.simplefilter("ignore")
    model, x = build(setting["model"])

    def run() -> float:
        report = anyinit.initialize(model, setting["mode"], x)
        return float(report.max_deviation or 0.0)

    return run, run, {"anyinit": anyinit.__version__, "torch": torch.__version__}


if __name__ == "__main__":
    serve(prepare)
