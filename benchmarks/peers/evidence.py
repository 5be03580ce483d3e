"""The smallest networks on which initscope and neural-tangents differ, with two witnesses: the judge and finite networks.

    python benchmarks/peers/evidence.py [--only NAME ...] [--draws 400] [--width 256]

Prints, for one entry of each case, both sides, the judge's value, and the mean over finite networks (weights drawn by PyTorch,
gradients by autograd) with its standard error.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from differ_initscope import translate
from differential import Worker

from initscope.finite import simulate_tangent

X = torch.randn(2, 2, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    layers: list[dict[str, Any]]
    quantity: str
    x: torch.Tensor
    entry: tuple[int, int]
    why: str

    def network(self, width: int) -> dict[str, Any]:
        layers = [{**node, "width": width} if "w" in node else node for node in self.layers]
        shape = list(self.x.shape[1:])
        return {"index": 0, "shape": shape, "layers": layers, "parametrization": "ntk", "inputs": self.x.tolist()}


def act(name: str, *numbers: float) -> dict[str, Any]:
    return {"op": "act", "name": name, "numbers": list(numbers)}


def conv(w: float = 1.0) -> dict[str, Any]:
    return {"op": "conv", "kernel": (1, 1), "stride": (1, 1), "padding": "circular", "w": w, "b": 0.0}


def dense(w: float = 1.0) -> dict[str, Any]:
    return {"op": "dense", "w": w, "b": 0.0}


UP, GAP, FLATTEN = {"op": "up", "factor": 2}, {"op": "gap"}, {"op": "flatten"}
V = X.flatten(1)
NEAR = X[:1] * (1 + torch.tensor([0, 1e-9], dtype=torch.float64).reshape(2, 1, 1, 1))
CASES = {
    "step": Case([dense(), act("step")], "product", V, (0, 0), "RectifiedMonomial divides by the sine of 0"),
    "relupower": Case(
        [dense(), act("relupower", 2)], "tangent", V, (0, 0), "RectifiedMonomial divides by the sine of 0"
    ),
    "up": Case([conv(), UP, FLATTEN], "product", X, (0, 1), "ImageResize after one convolution takes height for width"),
    "up, two": Case([conv(), conv(), UP, FLATTEN], "product", X, (0, 1), "the same kernel, and right after two"),
    "sign": Case(
        [conv(), act("sign"), GAP, dense(), act("relu")], "product", X, (0, 1), "Sign: positions have covariance 1"
    ),
    "tanh": Case([dense(5.0), act("tanh")], "product", V, (0, 1), "Gauss-Hermite quadrature at variance 25"),
    "sign tangent": Case(
        [dense(), act("sign"), dense()], "tangent", V, (0, 1), "the derivative of a jump is 0 to autograd"
    ),
    "nearly equal": Case([conv(), act("gelu"), GAP], "tangent", NEAR, (0, 1), "inputs that differ by 1e-9"),
}


def finite(case: Case, draws: int, width: int) -> tuple[float, float]:
    """Mean and standard error of the entry over finite networks."""
    net = translate(case.network(width)["layers"])
    if case.quantity == "tangent":
        found = simulate_tangent(net, case.x, draws=draws)
        return float(found.value[case.entry]), float(found.stderr[case.entry])
    generator = torch.Generator().manual_seed(1)
    i, j = case.entry
    values = []
    with torch.no_grad():
        for _ in range(draws):
            out = net.sample(tuple(case.x.shape[1:]), generator=generator, dtype=case.x.dtype)(case.x)
            values.append(float((out[i] * out[j]).mean()))
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(draws))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), metavar="NAME")
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--width", type=int, default=256)
    options = parser.parse_args()
    workers = {side: Worker(side, 600) for side in ("initscope", "neural-tangents", "judge")}
    print(
        "| case | initscope | neural-tangents | judge | finite networks | why |\n| --- | --- | --- | --- | --- | --- |"
    )
    for name in options.only:
        case = CASES[name]
        network = case.network(options.width)
        ours, theirs, truth = (worker.ask(network) for worker in workers.values())
        i, j = case.entry
        cells = [f"{side[case.quantity][i][j]:.8g}" for side in (ours["float64"], theirs, truth)]
        mean, error = finite(case, options.draws, options.width)
        print(f"| {name} | {' | '.join(cells)} | {mean:.4g} ± {error:.1g} | {case.why} |", flush=True)
    for worker in workers.values():
        worker.stop()


if __name__ == "__main__":
    main()
