"""The judge of the differential suite: both kernels of a network from textbook formulas in covariances.

It shares no code with either side. Long doubles, or 40 digits with the argument "digits".
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from judge_duals import DIGITS, DUALS, LONG, Arithmetic, Dual
from random_networks import every

Node = dict[str, Any]


@dataclass(frozen=True)
class State:
    """Covariances and tangent kernel of all pairs: (inputs, inputs, positions, positions), as numbers of the judge."""

    product: Any
    tangent: Any
    size: tuple[int, ...]
    channels: int
    m: Arithmetic
    pooled: bool  # otherwise only pairs of equal positions are kept right, which is all that the output needs

    def both(self, change: Callable[[Any], Any], **others: Any) -> State:
        return replace(self, product=change(self.product), tangent=change(self.tangent), **others)


def enter(inputs: Any, m: Arithmetic, pooled: bool) -> State:
    x = np.asarray(inputs, np.float64)
    x = np.array([m.number(v) for v in x.ravel()]).reshape(*x.shape[:2], -1)  # (inputs, channels, positions)
    product = sum(x[:, None, c, :, None] * x[None, :, c, None, :] for c in range(x.shape[1])) / x.shape[1]
    return State(product, product * 0, np.shape(inputs)[2:], x.shape[1], m, pooled)


def weigh(node: Node, averaged: State, fan_in: int, standard: bool) -> State:
    """Weights of variance w²/fan_in and biases of variance b² on what they see, averaged over the fan-in."""
    w, b = averaged.m.number(node["w"]), averaged.m.number(node["b"])
    product = w**2 * averaged.product + b**2
    own = fan_in * averaged.product + (1 if node["b"] else 0) if standard else product
    return replace(averaged, product=product, tangent=own + w**2 * averaged.tangent, channels=node["width"])


def read(t: Any, places: list[int]) -> Any:
    """Positions `places` of both axes, zeros for place -1."""
    wide = np.pad(t, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=0)
    return wide[:, :, places][:, :, :, places]


def windows(
    size: tuple[int, ...], kernel: Sequence[int], stride: Sequence[int], padding: str
) -> tuple[Any, tuple[int, ...]]:
    """For each tap the place that each output position reads, and the output size."""
    reads, out = [], []
    for n, k, s in zip(size, kernel, stride, strict=True):
        before = 0 if padding == "valid" else (k - 1) // 2
        count = (n - k) // s + 1 if padding == "valid" else -(-n // s)
        places = np.arange(count)[None] * s + np.arange(k)[:, None] - before
        inside = (places >= 0) & (places < n)
        reads.append(places % n if padding == "circular" else np.where(inside, places, -1))
        out.append(count)
    rows, columns = reads
    taps = []
    for r in rows:
        for c in columns:
            place = np.where((r[:, None] < 0) | (c < 0), -1, r[:, None] * size[1] + c)
            taps.append(place.ravel().tolist())
    return taps, tuple(out)


def activate(state: State, make: Callable[..., Dual], numbers: Sequence[float]) -> State:
    n, _, p, _ = state.product.shape
    product, tangent = state.product.copy(), state.tangent.copy()
    norm = np.array([np.diagonal(state.product[i, i]) for i in range(n)])  # (n, p)
    i, j, q, r = np.indices(product.shape).reshape(4, -1)
    once = (i * p + q <= j * p + r) & (state.pooled | (q == r))
    i, j, q, r = i[once], j[once], q[once], r[once]
    value, slope = make(state.m, *numbers)(norm[i, q], norm[j, r], product[i, j, q, r])
    slopes = np.zeros_like(tangent)
    for t, v in ((product, value), (slopes, slope)):
        t[i, j, q, r] = v
        t[j, i, r, q] = v
    return replace(state, product=product, tangent=slopes * tangent)


def normalize(state: State, over: str, epsilon: float) -> State:
    norm = np.array([np.diagonal(state.product[i, i]) for i in range(len(state.product))])  # (n, p)
    if over == "all":
        norm = np.broadcast_to(norm.mean(1, keepdims=True), norm.shape)
    root = 1 / state.m.sqrt(norm + state.m.number(epsilon))
    return state.both(lambda t: t * root[:, None, :, None] * root[None, :, None, :])


def drop(state: State, p: float) -> State:
    """An input meets itself under one mask: the same unit's square is divided by the share that is kept."""

    def change(t: Any) -> Any:
        t = t.copy()
        for i in range(len(t)):
            for q in range(t.shape[-1]):
                t[i, i, q, q] = t[i, i, q, q] / (1 - state.m.number(p))
        return t

    return state.both(change)


def flat(state: State) -> State:
    """Vectors of all channels and positions: the mean over equal positions."""
    count = state.product.shape[-1]
    return state.both(
        lambda t: np.trace(t, axis1=2, axis2=3)[:, :, None, None] / count, size=(), channels=state.channels * count
    )


def dense(state: State, node: Node, standard: bool) -> State:
    seen = flat(state)
    return weigh(node, seen, seen.channels, standard)


def conv(state: State, node: Node, standard: bool) -> State:
    taps, size = windows(state.size, node["kernel"], node["stride"], node["padding"])
    seen = state.both(lambda t: sum(read(t, places) for places in taps) / len(taps), size=size)
    return weigh(node, seen, state.channels * len(taps), standard)


def merge(state: State, node: Node, standard: bool) -> State:
    """Branches with weights of their own are independent: covariances add up, or are averaged over all channels."""
    branches = [run(state, branch, standard) for branch in node["branches"]]
    add = node["op"] == "sum"
    total = branches[0].channels if add else sum(b.channels for b in branches)
    shares = [state.m.number(1) if add else state.m.number(b.channels) / total for b in branches]
    product = sum(s * b.product for s, b in zip(shares, branches, strict=True))
    tangent = sum(s * b.tangent for s, b in zip(shares, branches, strict=True))
    return replace(branches[0], product=product, tangent=tangent, channels=total)


def average_pool(state: State, node: Node, standard: bool) -> State:
    taps, size = windows(state.size, (node["window"],) * 2, (node["stride"],) * 2, "valid")

    def pool(t: Any) -> Any:
        t = sum(t[:, :, places] for places in taps)
        return sum(t[:, :, :, places] for places in taps) / len(taps) ** 2

    return state.both(pool, size=size)


def repeat(state: State, node: Node, standard: bool) -> State:
    k = node["factor"]
    h, w = (n * k for n in state.size)
    places = [r // k * state.size[1] + c // k for r in range(h) for c in range(w)]
    return state.both(lambda t: read(t, places), size=(h, w))


LAYERS: dict[str, Callable[[State, Node, bool], State]] = {
    "dense": dense,
    "conv": conv,
    "sum": merge,
    "cat": merge,
    "avgpool": average_pool,
    "up": repeat,
    "act": lambda state, node, _: activate(state, DUALS[node["name"]], node["numbers"]),
    "gap": lambda state, node, _: state.both(lambda t: t.mean((2, 3), keepdims=True), size=()),
    "scale": lambda state, node, _: state.both(lambda t: state.m.number(node["factor"]) ** 2 * t),
    "ln": lambda state, node, _: normalize(state, node["over"], node["epsilon"]),
    "dropout": lambda state, node, _: drop(state, node["p"]),
    "flatten": lambda state, node, _: flat(state),
}


def run(state: State, layers: list[Node], standard: bool) -> State:
    for node in layers:
        state = LAYERS[node["op"]](state, node, standard)
    return state


def answer(network: Node, m: Arithmetic) -> dict[str, Any]:
    pooled = any(node["op"] in ("avgpool", "gap") for node in every(network["layers"]))
    state = run(enter(network["inputs"], m, pooled), network["layers"], network["parametrization"] == "standard")
    if state.size:
        state = flat(state)
    return {name: getattr(state, name)[:, :, 0, 0].astype(float).tolist() for name in ("product", "tangent")}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), DIGITS if "digits" in sys.argv else LONG)), file=answers, flush=True)


if __name__ == "__main__":
    main()
