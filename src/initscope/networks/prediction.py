"""`predict`: what an infinitely wide random network does to pairs of inputs, layer by layer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.geometry import Inputs, State, check_inputs, generator, together, warn_undefined
from initscope.layers import Layer, Rung, Trace
from initscope.networks.accuracy import Accuracy, warn_inexact
from initscope.networks.composition import Sequential, as_network, needed_after
from initscope.networks.planning import (
    REPLICATES,
    UNITS,
    budget,
    joint_bytes,
    pair_bytes,
    require_memory,
    simulates,
    working_dtype,
)
from initscope.networks.progress import Progress
from initscope.results import jsonable, shown

QUANTITIES = ("norm_x", "norm_y", "distance", "defect", "cosine", "angle")


@dataclass(frozen=True)
class LayerGeometry:
    """Pairs of inputs after one layer; tensors of shape (n,).

    norm_x, norm_y, distance: square roots of E|h(x)|², E|h(y)|², E|h(x) - h(y)|² over all units of the finite layer;
    cosine: E<h(x), h(y)> / (norm_x norm_y) (JL eq. 1), defect = 1 - cosine (accurate), angle in radians.
    """

    name: str
    shape: tuple[int, ...]
    norm_x: Tensor
    norm_y: Tensor
    distance: Tensor
    defect: Tensor
    cosine: Tensor
    angle: Tensor
    method: Rung = "exact"  # the least certain way an answer came about up to here
    error: float = 0.0  # relative error estimate, where it is not exact
    stderr: dict[str, Tensor] | None = None  # of each quantity, where a layer was simulated
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        values = {q: getattr(self, q).tolist() for q in QUANTITIES}
        stderr = None if self.stderr is None else {q: t.tolist() for q, t in self.stderr.items()}
        rest = {"method": self.method, "error": self.error, "stderr": stderr, "note": self.note}
        found: dict[str, Any] = jsonable({"name": self.name, "shape": self.shape, **values, **rest})
        return found


@dataclass(frozen=True)
class Prediction:
    """The geometry at the input and after each layer, in order."""

    layers: tuple[LayerGeometry, ...]
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return {"layers": [layer.to_dict() for layer in self.layers], "seed": self.seed}

    def __repr__(self) -> str:
        first, last = (float(self.layers[i].cosine.nanmean()) for i in (0, -1))
        how = f"cosine {first:.4f} -> {last:.4f}, {self.layers[-1].method}"
        pairs = len(self.layers[0].cosine)
        return f"Prediction({pairs} pair{'s' * (pairs != 1)}, {len(self.layers) - 1} layers, {how})"

    def __str__(self) -> str:
        """The table that `initscope predict` prints."""
        return str(shown("similarity_views", "prediction_text", self))

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        return str(shown("similarity_views", "prediction_html", self))

    def summary(self) -> str:
        """What happens to the pairs, in two or three sentences."""
        return str(shown("similarity_views", "prediction_summary", self))


def predict(
    net: Layer,
    x: Tensor,
    y: Tensor,
    *,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Prediction:
    """Norms, distances and angles of zipped pairs (x_i, y_i) after each layer of an infinitely wide network.

    x, y: (n, d) or (n, c, *positions). The answers are float64 unless `dtype` says otherwise or the device has none.
    Pairs are taken in tiles that fit `memory` bytes (default: a quarter of what is free). Batch norm sees x and y as one
    batch. Layers without a closed form are simulated from `seed`; their results carry a standard error.

    >>> from initscope.layers import Activate, Dense
    >>> from initscope.activations import RELU
    >>> x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> p = predict(Sequential(Dense(100), Activate(RELU)), x, y)
    >>> [layer.name for layer in p.layers], round(p.layers[-1].cosine.item(), 6) == round(1 / math.pi, 6)
    (['input', '1 dense(100)', '2 relu'], True)
    """
    check_inputs(x, y, zipped=True)
    dtype = _dtype(dtype, x.device)
    net = as_network("predict", net)
    net.output_shape(tuple(x.shape[1:]))
    x, y = x.detach().to(dtype), y.detach().to(dtype)
    x, y = x.to(working_dtype(x)), y.to(working_dtype(y))
    tile = _tile(net, x, memory)
    parts, traces = [], []
    for start in range(0, len(x), tile):
        if progress is not None:
            progress(start, len(x))
        rows, trace = _propagate(net, x[start : start + tile], y[start : start + tile], seed, start)
        parts.append(rows)
        traces.append(trace)
    if progress is not None:
        progress(len(x), len(x))
    layers = tuple(_as_type(_join(list(tiles)), dtype) for tiles in zip(*parts, strict=True))
    warn_zero_layers("predict", [(layer.name, layer.norm_x, layer.norm_y) for layer in layers])
    warn_inexact("predict", Accuracy.of(traces))
    return Prediction(layers, seed)


def _tile(net: Sequential, x: Tensor, memory: int | None) -> int:
    """How many pairs go through the network at once."""
    n, shape = len(x), tuple(x.shape[1:])
    simulated, allowed = simulates(net, x), budget(memory, x.device)
    if net.needs_joint_batch:
        needed = joint_bytes(net, shape, 2 * n, simulated)
        fits = [s for s in range(1, min(shape[1:], default=0)) if _fits(net, (shape[0], s, s), 2 * n, allowed)]
        size = f"use images of at most {fits[-1]}x{fits[-1]}, or fewer" if fits else "use fewer or smaller inputs"
        require_memory("predict", needed, allowed, f"batch norm relates the whole batch: {size}, or raise memory=")
        return n
    needed = pair_bytes(net, shape, x.dtype, simulated)
    require_memory("predict", needed, allowed, "use smaller images, or raise memory=")
    # Simulated pairs go one by one, each with random numbers of its own: answers do not depend on the memory at hand.
    return 1 if simulated else min(n, allowed // needed)


def _fits(net: Sequential, shape: tuple[int, ...], inputs: int, allowed: int) -> bool:
    try:
        return joint_bytes(net, shape, inputs, True) <= allowed
    except BadInput:
        return False  # a layer does not fit on images of this size


def warn_zero_layers(place: str, layers: list[tuple[str, Tensor, Tensor]]) -> None:
    """One warning for each layer at which inputs become zero: their angle does not exist there."""
    before_x = before_y = torch.zeros((), dtype=torch.bool)
    for name, norm_x, norm_y in layers:
        zero_x, zero_y = (norm_x == 0).cpu(), (norm_y == 0).cpu()
        warn_undefined(f"{place}, {name}", zero_x & ~before_x, zero_y & ~before_y)
        before_x, before_y = zero_x, zero_y


def _dtype(dtype: torch.dtype | None, device: torch.device) -> torch.dtype:
    if dtype is None:
        return torch.float32 if device.type == "mps" else torch.float64
    if dtype not in (torch.float32, torch.float64):
        raise BadInput("dtype", f"got {dtype}", "use torch.float32 or torch.float64")
    return dtype


def _propagate(net: Sequential, x: Tensor, y: Tensor, seed: int, first: int) -> tuple[list[LayerGeometry], Trace]:
    """One tile through all layers; from the first simulated layer on, several replicates travel side by side."""
    if net.needs_joint_batch:
        both = torch.cat([x, y])
        start = Inputs(both, both, zipped=False, all_positions=net.needs_all_positions, joint=True)
    else:
        start = Inputs(x, y, zipped=True, all_positions=net.needs_all_positions)
    states: list[State | Inputs] = [start]
    rows = [_geometry("input", states, Trace())]
    so_far = Trace()
    for i, (layer, rest) in enumerate(zip(net.layers, needed_after(net.layers), strict=True), start=1):
        traces = [_trace(seed, first, i, r, rest) for r in range(len(states))]
        outs = [Sequential(layer).propagate(s, t) for s, t in zip(states, traces, strict=True)]
        if traces[0].simulated and not so_far.simulated:
            so_far.simulated = True
            so_far.answer("simulated", 0.0)
            more = [_trace(seed, first, i, r, rest) for r in range(1, REPLICATES)]
            outs += [Sequential(layer).propagate(states[0], t) for t in more]
        states = outs
        so_far.answer(traces[0].rung, traces[0].error)
        so_far.integral_error += traces[0].integral_error
        so_far.notes = traces[0].notes
        rows.append(_geometry(f"{i} {layer.word}", states, so_far))
    return rows, so_far


def _trace(seed: int, first: int, layer: int, replicate: int, keep: bool) -> Trace:
    return Trace(generator(seed, first, layer, replicate), UNITS, keep_positions=keep)


@dataclass(frozen=True, eq=False)
class Totals:
    """Means over units and positions: (n,) each for zipped pairs; norms (n,), (m,) and the rest (n, m) for every pair."""

    a: Tensor  # A = E|h(x)|²
    b: Tensor
    excess: Tensor
    product: Tensor
    tangent: Tensor | None = None


def totals(state: State | Inputs) -> Totals:
    if isinstance(state, Inputs):
        state = replace(state, all_positions=False).state()
    state = together(state)
    tangent = None if state.tangent is None else state.tangent[0]
    return Totals(state.x.norm[0], state.y.norm[0], state.excess[0], state.product[0], tangent)


def _pairs(state: State | Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """A, B and the excess of the pairs that were asked for."""
    found = totals(state)
    if state.joint:
        half = len(found.a) // 2
        index = torch.arange(half, device=found.a.device)
        return found.a[:half], found.a[half:], found.excess[index, half + index]
    return found.a, found.b, found.excess


def geometry(a: Tensor, b: Tensor, excess: Tensor) -> dict[str, Tensor]:
    """Defect, cosine and angle from squared norms and the excess: 1 - cos t = E / 2√(AB)."""
    product = 2 * a.sqrt() * b.sqrt()
    defect = torch.where(product > 0, (excess / product).clamp(0, 2), torch.nan)
    return {"defect": defect, "cosine": 1 - defect, "angle": 2 * (defect / 2).sqrt().asin()}


def _geometry(name: str, states: list[State | Inputs], trace: Trace) -> LayerGeometry:
    first = states[0]
    shape = first.shape if isinstance(first, Inputs) else (first.channels, *first.positions)
    units = math.prod(shape)
    moments = [_pairs(s) for s in states]
    stack = [torch.stack(m) for m in zip(*moments, strict=True)]

    def quantities(a: Tensor, b: Tensor, excess: Tensor) -> dict[str, Tensor]:
        distance = (a.sqrt() - b.sqrt()).square() + excess
        lengths = {"norm_x": (units * a).sqrt(), "norm_y": (units * b).sqrt(), "distance": (units * distance).sqrt()}
        return {**lengths, **geometry(a, b, excess)}

    value = quantities(*(t.mean(0) for t in stack))
    stderr = None
    if trace.simulated:
        each = quantities(*stack)
        stderr = {q: t.std(0) / math.sqrt(len(t)) for q, t in each.items()}
    return LayerGeometry(
        name=name, shape=tuple(shape), method=trace.rung, error=trace.error, stderr=stderr, note="; ".join(trace.notes), **value
    )  # fmt: skip


def _as_type(row: LayerGeometry, dtype: torch.dtype) -> LayerGeometry:
    stderr = None if row.stderr is None else {q: t.to(dtype) for q, t in row.stderr.items()}
    return replace(row, stderr=stderr, **{q: getattr(row, q).to(dtype) for q in QUANTITIES})


def _join(rows: list[LayerGeometry]) -> LayerGeometry:
    if len(rows) == 1:
        return rows[0]
    first = rows[0]
    joined = {q: torch.cat([getattr(r, q) for r in rows]) for q in QUANTITIES}
    stderr = None
    if first.stderr is not None:
        stderr = {q: torch.cat([r.stderr[q] for r in rows if r.stderr is not None]) for q in QUANTITIES}
    return replace(first, stderr=stderr, error=max(r.error for r in rows), **joined)  # type: ignore[arg-type]
