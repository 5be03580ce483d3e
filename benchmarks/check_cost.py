"""What `check` costs beside the plain forward and backward pass of the same model on the same batch, in one run.

    python benchmarks/check_cost.py

Time: the best of three, taken in turn. Memory: the growth of the process's peak over what it holds before the first pass, each
way in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from peers.models import cnn, mlp
from torch import Tensor, nn

from initscope.probe import check

REPEATS = 3


def peak_kib() -> int:
    """The peak of this process alone; getrusage remembers that of the process which started it."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def resnet50() -> tuple[nn.Module, Tensor]:
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=1000)), torch.randn(8, 3, 224, 224)


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "ResNet-50, 8 x 224 x 224": resnet50,
    "50-layer MLP, width 1000, 64 samples": mlp,
    "50-layer CNN with batch norm, 64 channels, 16 x 32 x 32": cnn,
}


def plain(model: nn.Module, x: Tensor) -> None:
    out = model(x)
    out = out.logits if hasattr(out, "logits") else out
    torch.autograd.grad(out.square().mean(), list(model.parameters()))


def checked(model: nn.Module, x: Tensor) -> None:
    check(model, x, seeds=1)


def seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def memory(name: str, way: str) -> int:
    """Bytes by which the peak grows in a fresh process."""
    command = [sys.executable, __file__, "--memory", name, way]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(found.stdout)["bytes"])


def measure_memory(name: str, way: str) -> None:
    model, x = MODELS[name]()
    model.train()
    (plain if way == "plain" else checked)(
        nn.Sequential(nn.Linear(4, 4)), torch.randn(4, 4)
    )  # load what is loaded once
    before = peak_kib()
    (plain if way == "plain" else checked)(model, x)
    print(json.dumps({"bytes": 1024 * (peak_kib() - before)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--memory", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.memory:
        measure_memory(*chosen.memory)
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print("| model | forward + backward | check, one seed | (check - 1 s) / plain | check / plain | peak memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, make in MODELS.items():
        torch.manual_seed(0)
        model, x = make()
        model.train()
        plain(model, x)
        checked(model, x)
        times = [
            (seconds(lambda m=model, x=x: plain(m, x)), seconds(lambda m=model, x=x: checked(m, x)))
            for _ in range(REPEATS)
        ]
        one, two = (min(column) for column in zip(*times, strict=True))
        del model, x
        ratio = memory(name, "check") / max(memory(name, "plain"), 1)
        print(
            f"| {name} | {one:.2f} s | {two:.2f} s | {max(two - 1, 0) / one:.2f} | {two / one:.2f} | {ratio:.2f} x |",
            flush=True,
        )


if __name__ == "__main__":
    main()
