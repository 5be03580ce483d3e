"""initscope itself: `kernel` or `tangent_kernel` of one workload."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import numba  # noqa: F401 - a library, as JAX is the peer's: held before memory is measured
import numpy as np
import torch
from serve import serve

import initscope as iscope
from initscope.networks import tangent_kernel


def prepare(setting: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any], dict[str, str]]:
    x = torch.from_numpy(np.load(setting["inputs"])).to(torch.float64 if setting["dtype"] == "f64" else torch.float32)
    net = iscope.parse(setting["net"])
    take = tangent_kernel if setting["get"] == "ntk" else iscope.kernel
    run = lambda: take(net, x)  # noqa: E731
    versions = {name: importlib.metadata.version(name) for name in ("torch", "numba", "numpy")}
    return run, run, {"initscope": iscope.__version__, **versions}


if __name__ == "__main__":
    serve(prepare)
