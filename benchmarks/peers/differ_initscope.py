"""initscope as one side of the differential suite: one line of JSON per network, its kernels in both precisions as the answer."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from typing import Any

import torch
from torch import Tensor

from initscope import activations, layers, networks, weights
from initscope.activations import Activation
from initscope.errors import InitscopeError, SimulatedKernel

OWN = {
    "gabor": lambda z: torch.exp(-z * z) * torch.sin(z),
    "sigmoid_like": lambda z: 0.5 * torch.erf(z / 2.4020563531719796) + 0.5,
}


def rbf(gamma: float) -> Activation:
    return Activation.from_function(
        lambda z: math.sqrt(2) * torch.sin(math.sqrt(2 * gamma) * z + math.pi / 4), name=f"rbf({gamma:g})"
    )


def activation(name: str, numbers: list[float]) -> list[layers.Layer]:
    if name == "abrelu":
        below, above = numbers
        return [layers.Activate(activations.leaky_relu(below / above)), layers.Scale(above)]
    if name == "monomial":
        return [layers.Activate(activations.polynomial([0.0] * numbers[0] + [1.0]))]
    if name == "rbf":
        return [layers.Activate(rbf(*numbers))]
    if name in OWN:
        return [layers.Activate(Activation.from_function(OWN[name], name=name))]
    return [layers.Activate(activations.by_name(name, *numbers))]


def translate(nodes: list[dict[str, Any]]) -> networks.Sequential:
    return networks.Sequential(*(layer for node in nodes for layer in one(node)))


def one(node: dict[str, Any]) -> list[layers.Layer]:
    op = node["op"]
    if op in ("dense", "conv"):
        law = weights.Gaussian(node["w"] ** 2)
        if op == "dense":
            return [layers.Dense(node["width"], law, node["b"])]
        place = {"kernel": tuple(node["kernel"]), "stride": tuple(node["stride"]), "padding": node["padding"]}
        return [layers.Conv(node["width"], **place, weights=law, bias=node["b"])]
    if op == "act":
        return activation(node["name"], node["numbers"])
    if op in ("sum", "cat"):
        branches = [translate(branch) for branch in node["branches"]]
        return [networks.Sum(*branches) if op == "sum" else networks.Concat(*branches)]
    return [
        {
            "avgpool": lambda: layers.AveragePool(node["window"], node["stride"]),
            "up": lambda: layers.Upsample(node["factor"]),
            "ln": lambda: layers.LayerNorm(node["over"], node["epsilon"]),
            "gap": layers.GlobalAveragePool,
            "flatten": layers.Flatten,
            "dropout": lambda: layers.Dropout(node["p"]),
            "scale": lambda: layers.Scale(node["factor"]),
        }[op]()
    ]


def kernels(network: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Both kernels; in place of one, why there is none."""
    net = translate(network["layers"])
    x = torch.tensor(network["inputs"], dtype=dtype)

    def tangent() -> Tensor:
        return networks.tangent_kernel(net, x, parametrization=network["parametrization"])

    found: dict[str, Any] = {}
    for name, take in (("product", lambda: networks.kernel(net, x)), ("tangent", tangent)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", SimulatedKernel)
                found[name] = take().tolist()
        except (InitscopeError, SimulatedKernel) as refusal:
            found[name] = {"refused": f"{type(refusal).__name__}: {refusal}"}
        except Exception as error:  # a crash is a result here
            found[name] = {"crashed": f"{type(error).__name__}: {error}"}
    return found


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        network = json.loads(line)
        try:
            found = {"text": str(translate(network["layers"]))}
            found |= {name: kernels(network, getattr(torch, name)) for name in ("float64", "float32")}
        except InitscopeError as refusal:
            found = {"refused": f"{type(refusal).__name__}: {refusal}"}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
