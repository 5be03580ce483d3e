"""The judge of the differential suite: both kernels of a network with 40 digits, from textbook formulas in covariances.

It shares no code with either side.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mpmath as mp
import numpy as np
from judge_duals import DUALS, Dual, Pair
from random_networks import every

Node = dict[str, Any]


@dataclass(frozen=True)
class State:
    """Covariances and tangent kernel of all pairs: (inputs, inputs, positions, positions), as matrices of 40 digits."""

    product: Any
    tangent: Any
    size: tuple[int, ...]
    channels: int
    pooled: bool  # otherwise only pairs of equal positions are kept right, which is all that the output needs

    def both(self, change: Callable[[Any], Any], **others: Any) -> State:
        return replace(self, product=change(self.product), tangent=change(self.tangent), **others)


def enter(inputs: Any, pooled: bool) -> State:
    x = np.vectorize(mp.mpf, otypes=[object])(np.asarray(inputs, np.float64))
    x = x.reshape(*x.shape[:2], -1)  # (inputs, channels, positions)
    product = np.einsum("icp,jcq->ijpq", x, x) / x.shape[1]
    return State(product, product * 0, np.shape(inputs)[2:], x.shape[1], pooled)


def weigh(node: Node, averaged: State, fan_in: int, standard: bool) -> State:
    """Weights of variance w²/fan_in and biases of variance b² on what they see, averaged over the fan-in."""
    w, b = mp.mpf(node["w"]), mp.mpf(node["b"])
    product = w**2 * averaged.product + b**2
    own = fan_in * averaged.product + (1 if node["b"] else 0) if standard else product
    return replace(averaged, product=product, tangent=own + w**2 * averaged.tangent, channels=node["width"])


def read(t: Any, places: list[int]) -> Any:
    """Positions `places` of both axes, zeros for place -1."""
    wide = np.pad(t, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=mp.mpf(0))
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


def activate(state: State, dual: Dual) -> State:
    n, _, p, _ = state.product.shape
    product, tangent = state.product.copy(), state.tangent.copy()
    norm = [[state.product[i, i, q, q] for q in range(p)] for i in range(n)]
    known: dict[tuple[Any, ...], Pair] = {}
    for i, j, q, r in np.ndindex(product.shape):
        if q != r and not state.pooled:
            continue
        key = ((i, q), (j, r)) if (i, q) <= (j, r) else ((j, r), (i, q))
        if key not in known:
            known[key] = dual(norm[i][q], norm[j][r], state.product[i, j, q, r])
        value, slope = known[key]
        product[i, j, q, r] = value
        tangent[i, j, q, r] = slope * tangent[i, j, q, r]
    return replace(state, product=product, tangent=tangent)


def normalize(state: State, over: str, epsilon: float) -> State:
    diagonal = np.array([np.diagonal(state.product[i, i]) for i in range(len(state.product))], dtype=object)  # (n, p)
    if over == "all":
        diagonal = np.broadcast_to(diagonal.mean(1, keepdims=True), diagonal.shape)
    root = np.vectorize(lambda v: 1 / mp.sqrt(v + mp.mpf(epsilon)), otypes=[object])(diagonal)
    return state.both(lambda t: t * root[:, None, :, None] * root[None, :, None, :])


def drop(state: State, p: float) -> State:
    """An input meets itself under one mask: the same unit's square is divided by the share that is kept."""

    def change(t: Any) -> Any:
        t = t.copy()
        for i in range(len(t)):
            for q in range(t.shape[-1]):
                t[i, i, q, q] = t[i, i, q, q] / (1 - mp.mpf(p))
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
    shares = [mp.mpf(1) if add else mp.mpf(b.channels) / total for b in branches]
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
    "act": lambda state, node, _: activate(state, DUALS[node["name"]](*node["numbers"])),
    "gap": lambda state, node, _: state.both(lambda t: t.mean((2, 3), keepdims=True), size=()),
    "scale": lambda state, node, _: state.both(lambda t: mp.mpf(node["factor"]) ** 2 * t),
    "ln": lambda state, node, _: normalize(state, node["over"], node["epsilon"]),
    "dropout": lambda state, node, _: drop(state, node["p"]),
    "flatten": lambda state, node, _: flat(state),
}


def run(state: State, layers: list[Node], standard: bool) -> State:
    for node in layers:
        state = LAYERS[node["op"]](state, node, standard)
    return state


def answer(network: Node) -> dict[str, Any]:
    pooled = any(node["op"] in ("avgpool", "gap") for node in every(network["layers"]))
    state = run(enter(network["inputs"], pooled), network["layers"], network["parametrization"] == "standard")
    if state.size:
        state = flat(state)
    return {name: getattr(state, name)[:, :, 0, 0].astype(float).tolist() for name in ("product", "tangent")}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
