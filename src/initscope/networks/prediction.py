"""`predict`: what an infinitely wide random network does to pairs of inputs, layer by layer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from initscope.errors import BadInput, UndefinedSimilarity
from initscope.geometry import Inputs, State, check_inputs
from initscope.layers import Layer, Trace
from initscope.networks.composition import Sequential, needed_after
from initscope.networks.memory import budget, pair_bytes

Method = Literal["exact", "quadrature", "simulated"]
Progress = Callable[[int, int], None]  # done, total

REPLICATES = 16  # independent repetitions of a simulated layer: their spread is the standard error
UNITS = 2048  # units drawn in each
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
    method: Method = "exact"
    error: float = 0.0  # relative error estimate of the quadrature, where one was used
    stderr: dict[str, Tensor] | None = None  # of each quantity, where a layer was simulated
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        values = {q: getattr(self, q).tolist() for q in QUANTITIES}
        stderr = None if self.stderr is None else {q: t.tolist() for q, t in self.stderr.items()}
        rest = {"method": self.method, "error": self.error, "stderr": stderr, "note": self.note}
        return {"name": self.name, "shape": list(self.shape), **values, **rest}


@dataclass(frozen=True)
class Prediction:
    """The geometry at the input and after each layer, in order."""

    layers: tuple[LayerGeometry, ...]
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return {"layers": [layer.to_dict() for layer in self.layers], "seed": self.seed}


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

    x, y: (n, c, h, w) or (n, d). Computed in float64 unless `dtype` says otherwise or the device has none. Pairs are taken
    in tiles that fit `memory` bytes (default: a quarter of what is free). Batch norm sees x and y as one batch. Layers
    without a closed form are simulated from `seed`; their results carry a standard error.

    >>> from initscope.layers import Activate, Dense
    >>> from initscope.activations import RELU
    >>> x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> p = predict(Sequential(Dense(100), Activate(RELU)), x, y)
    >>> [layer.name for layer in p.layers], round(p.layers[-1].cosine.item(), 6) == round(1 / math.pi, 6)
    (['input', '1 dense(100)', '2 relu'], True)
    """
    check_inputs(x, y, zipped=True)
    dtype = _dtype(dtype, x.device)
    net = net if isinstance(net, Sequential) else Sequential(net)
    net.output_shape(tuple(x.shape[1:]))
    x, y = x.detach().to(dtype), y.detach().to(dtype)
    n, positions = len(x), math.prod(x.shape[2:])
    allowed = budget(memory, x.device)
    if net.needs_joint_batch:
        tile = n
        needed = (2 * n) ** 2 * pair_bytes(positions, positions > 1, dtype)
    else:
        needed = pair_bytes(positions, positions > 1 and net.needs_all_positions, dtype)
        tile = max(1, min(n, allowed // needed))
    if needed > allowed:
        raise BadInput(
            "predict",
            f"needs about {needed / 2**30:.1f} GiB, {allowed / 2**30:.1f} GiB are allowed",
            "use smaller or fewer images, or raise memory=",
        )
    parts = []
    for start in range(0, n, tile):
        if progress is not None:
            progress(start, n)
        parts.append(_propagate(net, x[start : start + tile], y[start : start + tile], seed))
    if progress is not None:
        progress(n, n)
    layers = tuple(_join(list(rows)) for rows in zip(*parts, strict=True))
    _warn_undefined(layers)
    return Prediction(layers, seed)


def _dtype(dtype: torch.dtype | None, device: torch.device) -> torch.dtype:
    if dtype is None:
        return torch.float32 if device.type == "mps" else torch.float64
    if dtype not in (torch.float32, torch.float64):
        raise BadInput("dtype", f"got {dtype}", "use torch.float32 or torch.float64")
    return dtype


def _propagate(net: Sequential, x: Tensor, y: Tensor, seed: int) -> list[LayerGeometry]:
    """One tile through all layers; from the first simulated layer on, several replicates travel side by side."""
    if net.needs_joint_batch:
        both = torch.cat([x, y])
        start = Inputs(both, both, zipped=False, all_positions=net.needs_all_positions, joint=True)
    else:
        start = Inputs(x, y, zipped=True, all_positions=net.needs_all_positions)
    states: list[State | Inputs] = [start]
    rows = [_geometry("input", states, Trace(), False)]
    error, simulated = 0.0, False
    for i, (layer, rest) in enumerate(zip(net.layers, needed_after(net.layers), strict=True), start=1):
        traces = [_trace(seed, i, r, rest) for r in range(len(states))]
        outs = [Sequential(layer).propagate(s, t) for s, t in zip(states, traces, strict=True)]
        if traces[0].simulated and not simulated:
            simulated = True
            more = [_trace(seed, i, r, rest) for r in range(1, REPLICATES)]
            outs += [Sequential(layer).propagate(states[0], t) for t in more]
        states, error = outs, max(error, traces[0].error)
        traces[0].error = error
        rows.append(_geometry(f"{i} {layer.word}", states, traces[0], simulated))
    return rows


def _trace(seed: int, layer: int, replicate: int, keep: bool) -> Trace:
    generator = torch.Generator().manual_seed(((seed * 1_000_003 + layer) * 1_000_003 + replicate) % 2**63)
    return Trace(generator, UNITS, keep_positions=keep)


def totals(state: State | Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """Mean over units and positions of A, B and D: (n,) each for zipped pairs, (n,), (m,), (n, m) for every pair."""
    if isinstance(state, Inputs):
        state = replace(state, all_positions=False).state()
    state = state.same_position()
    size = len(state.positions)

    def total(t: Tensor) -> Tensor:
        t = state.collapse_kinds(t)[0]
        return t.mean(tuple(range(-size, 0))) if size else t

    return total(state.x.norm), total(state.y.norm), total(state.distance)


def _pairs(state: State | Inputs) -> tuple[Tensor, Tensor, Tensor]:
    a, b, d = totals(state)
    if state.joint:
        half = len(a) // 2
        index = torch.arange(half, device=a.device)
        return a[:half], a[half:], d[index, half + index]
    return a, b, d


def geometry(a: Tensor, b: Tensor, d: Tensor) -> dict[str, Tensor]:
    """Defect, cosine and angle from squared norms and squared distances: 1 - cos t = (D - (√A - √B)²) / 2√(AB)."""
    alpha, beta = a.sqrt(), b.sqrt()
    product = 2 * alpha * beta
    defect = ((d - (alpha - beta).square()) / product).clamp(0, 2)
    defect = torch.where(product > 0, defect, torch.nan)
    return {"defect": defect, "cosine": 1 - defect, "angle": 2 * (defect / 2).sqrt().asin()}


def _geometry(name: str, states: list[State | Inputs], trace: Trace, simulated: bool) -> LayerGeometry:
    first = states[0]
    shape = first.shape if isinstance(first, Inputs) else (first.channels, *first.positions)
    units = math.prod(shape)
    moments = [_pairs(s) for s in states]
    stack = [torch.stack(m) for m in zip(*moments, strict=True)]

    def quantities(a: Tensor, b: Tensor, d: Tensor) -> dict[str, Tensor]:
        lengths = {"norm_x": (units * a).sqrt(), "norm_y": (units * b).sqrt(), "distance": (units * d).sqrt()}
        return {**lengths, **geometry(a, b, d)}

    value = quantities(*(t.mean(0) for t in stack))
    stderr = None
    if simulated:
        each = quantities(*stack)
        stderr = {q: t.std(0) / math.sqrt(len(t)) for q, t in each.items()}
    method: Method = "simulated" if simulated else "quadrature" if trace.error > 0 else "exact"
    return LayerGeometry(
        name=name, shape=tuple(shape), method=method, error=trace.error, stderr=stderr, note="; ".join(trace.notes), **value
    )  # fmt: skip


def _join(rows: list[LayerGeometry]) -> LayerGeometry:
    if len(rows) == 1:
        return rows[0]
    first = rows[0]
    joined = {q: torch.cat([getattr(r, q) for r in rows]) for q in QUANTITIES}
    stderr = None
    if first.stderr is not None:
        stderr = {q: torch.cat([r.stderr[q] for r in rows if r.stderr is not None]) for q in QUANTITIES}
    return replace(first, stderr=stderr, error=max(r.error for r in rows), **joined)  # type: ignore[arg-type]


def _warn_undefined(layers: tuple[LayerGeometry, ...]) -> None:
    """One warning for each side's zero vectors, where they first appear."""
    for layer in layers:
        for side in ("x", "y"):
            zero = (getattr(layer, f"norm_{side}") == 0).nonzero().flatten().tolist()
            if zero:
                shown = ", ".join(map(str, zero[:8])) + (", ..." if len(zero) > 8 else "")
                warnings.warn(
                    f"predict: {side}[{shown}] is zero at {layer.name}: its angle is undefined, NaN from there on",
                    UndefinedSimilarity,
                    stacklevel=3,
                )
        if any(bool((getattr(layer, n) == 0).any()) for n in ("norm_x", "norm_y")):
            return
