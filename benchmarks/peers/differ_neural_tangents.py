"""neural-tangents as one side of the differential suite: one line of JSON per network, its kernels in float64 as the answer."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from neural_tangents import stax
from random_networks import activations

Node = dict[str, Any]
Shape = tuple[int, ...]
DEGREES = (40, 56)  # nodes of its quadrature along one axis; the difference of the two answers is its error
PADDING = {"circular": "CIRCULAR", "zero": "SAME", "valid": "VALID"}
NUMERICAL = {
    "tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "silu": jax.nn.silu, "softplus": jax.nn.softplus,
}  # fmt: skip
FIXED = {
    "relu": stax.Relu, "abs": stax.Abs, "identity": stax.Identity, "sign": stax.Sign, "erf": stax.Erf, "gelu": stax.Gelu,
    "sin": stax.Sin, "cos": stax.Cos, "exp": stax.Exp, "gabor": stax.Gabor, "sigmoid_like": stax.Sigmoid_like,
    "step": lambda: stax.RectifiedMonomial(0), "gaussian": lambda: stax.Gaussian(1, -0.5),
    "leaky": stax.LeakyRelu, "abrelu": stax.ABRelu, "rbf": stax.Rbf, "monomial": stax.Monomial,
    "relupower": stax.RectifiedMonomial, "hermite": stax.Hermite, "poly": lambda *c: stax.Polynomial(c),
}  # fmt: skip


@stax.layer
def times(factor: float) -> Any:
    """All units times a constant."""
    return lambda rng, shape: (shape, ()), lambda params, x, **_: factor * x, lambda k, **_: k * factor


def translate(layers: list[Node], shape: Shape, parametrization: str, degree: int) -> tuple[Any, Shape]:
    """One serial layer, and the shape (c, h, w) or (d,) behind it."""
    parts = []
    for node in layers:
        part, shape = one(node, shape, parametrization, degree)
        parts += part
    return stax.serial(*(parts or [stax.Identity()])), shape


def weights(node: Node, shape: Shape, parametrization: str, degree: int) -> tuple[list[Any], Shape]:
    given = {"W_std": node["w"], "b_std": node["b"] or None, "parameterization": parametrization}
    if node["op"] == "dense":
        return [*([stax.Flatten()] if len(shape) > 1 else []), stax.Dense(node["width"], **given)], (node["width"],)
    size = [
        (n - k) // s + 1 if node["padding"] == "valid" else -(-n // s)
        for n, k, s in zip(shape[1:], node["kernel"], node["stride"], strict=True)
    ]
    place = (tuple(node["kernel"]), tuple(node["stride"]), PADDING[node["padding"]])
    return [stax.Conv(node["width"], *place, **given)], (node["width"], *size)


def merge(node: Node, shape: Shape, parametrization: str, degree: int) -> tuple[list[Any], Shape]:
    branches = [translate(branch, shape, parametrization, degree) for branch in node["branches"]]
    add = node["op"] == "sum"
    channels = branches[0][1][0] if add else sum(s[0] for _, s in branches)
    inner = [branch for branch, _ in branches]
    fan_in = stax.FanInSum() if add else stax.FanInConcat(-1)
    return [stax.FanOut(len(inner)), stax.parallel(*inner), fan_in], (channels, *branches[0][1][1:])


def without_weights(node: Node, shape: Shape, degree: int) -> tuple[Any, Shape]:
    op = node["op"]
    if op == "act":
        if node["name"] in NUMERICAL:
            return stax.ElementwiseNumerical(NUMERICAL[node["name"]], deg=degree), shape
        return FIXED[node["name"]](*node["numbers"]), shape
    if op == "avgpool":
        size = [(n - node["window"]) // node["stride"] + 1 for n in shape[1:]]
        return stax.AvgPool((node["window"],) * 2, (node["stride"],) * 2), (shape[0], *size)
    if op == "up":
        size = [n * node["factor"] for n in shape[1:]]
        return stax.ImageResize((-1, *size, -1), "nearest"), (shape[0], *size)
    if op == "ln":
        axes = (1, 2, 3) if node["over"] == "all" and len(shape) == 3 else -1
        return stax.LayerNorm(axes, eps=node["epsilon"]), shape
    if op == "gap":
        return stax.GlobalAvgPool(), shape[:1]
    if op == "flatten":
        return stax.Flatten(), (math.prod(shape),)
    return stax.Dropout(1 - node["p"]) if op == "dropout" else times(node["factor"]), shape


def one(node: Node, shape: Shape, parametrization: str, degree: int) -> tuple[list[Any], Shape]:
    if node["op"] in ("dense", "conv"):
        return weights(node, shape, parametrization, degree)
    if node["op"] in ("sum", "cat"):
        return merge(node, shape, parametrization, degree)
    part, shape = without_weights(node, shape, degree)
    return [part], shape


def answer(network: dict[str, Any]) -> dict[str, Any]:
    """Both kernels and, where it integrates numerically, how much they change with the degree."""
    x = np.asarray(network["inputs"], np.float64)
    x = np.moveaxis(x, 1, -1)
    integrates = any(node["name"] in NUMERICAL for node in activations(network["layers"]))
    found = []
    for degree in DEGREES if integrates else DEGREES[:1]:
        (_, _, kernel), _ = translate(network["layers"], tuple(network["shape"]), network["parametrization"], degree)
        both = kernel(x, None, ("nngp", "ntk"))
        found.append({"product": np.asarray(both.nngp), "tangent": np.asarray(both.ntk)})
    last = found[-1]
    out = {key: last[key].tolist() for key in last}
    if len(found) > 1:
        out |= {f"{key} error": np.abs(last[key] - found[0][key]).tolist() for key in last}
    return out


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Exception as error:  # a refusal is a result here
            found = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
