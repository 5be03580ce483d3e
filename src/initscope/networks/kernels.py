"""`kernel`: the matrix of all pairs of inputs after an infinitely wide random network."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from initscope.errors import BadInput, NoExactForm, SimulatedKernel, UndefinedSimilarity
from initscope.geometry import Inputs, check_inputs
from initscope.layers import Layer, Trace
from initscope.networks.composition import Sequential
from initscope.networks.fast import FastPlan, fast_plan
from initscope.networks.memory import budget, pair_bytes
from initscope.networks.prediction import REPLICATES, UNITS, Progress, geometry, totals

Quantity = Literal["product", "cosine", "distance", "defect"]
Method = Literal["fused", "tiles", "joint"]


@dataclass(frozen=True)
class KernelEstimate:
    """What a kernel will need, before it is computed."""

    method: Method  # fused loops, generic tiles, or the whole batch at once
    pairs: int  # pairs of inputs, each counted once
    updates: int  # pairs of units carried through a layer: the work
    output_bytes: int
    peak_bytes: int  # beside the inputs
    tile: int  # inputs along one side of a tile


def kernel(
    net: Layer,
    x: Tensor,
    y: Tensor | None = None,
    *,
    quantity: Quantity = "product",
    dtype: torch.dtype | None = None,
    memory: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tensor:
    """The (n, m) matrix over all pairs of x (n, ...) and y (m, ...); y defaults to x, and each pair is computed once.

    quantity: "product" is E h(x) h(y), the mean over units (the NNGP kernel); "distance" is the root of E (h(x) - h(y))²;
    "cosine", and "defect" = 1 - cosine without cancellation. Computed in x's dtype unless `dtype` says otherwise, in tiles
    that fit `memory` bytes (default: a quarter of what is free). Batch norm sees x and y as one batch. A network with
    layers that have no closed form is simulated from `seed`, with a warning that says how precise the result is.

    >>> from initscope.layers import Activate, Dense
    >>> from initscope.activations import RELU
    >>> kernel(Sequential(Dense(10), Activate(RELU)), torch.eye(2), quantity="cosine")
    tensor([[1.0000, 0.3183],
            [0.3183, 1.0000]])
    """
    _check(x, y, quantity, dtype, memory)
    net = net if isinstance(net, Sequential) else Sequential(net)
    net.output_shape(tuple(x.shape[1:]))
    dtype = dtype or (x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32)
    x, y = x.detach().to(dtype), None if y is None else y.detach().to(dtype)
    plan = kernel_estimate(net, x, y, memory=memory)
    fast = fast_plan(net, tuple(x.shape[1:])) if plan.method == "fused" else None
    if fast is not None:
        return _fused(fast, x, y, quantity, progress)
    if plan.method == "tiles":
        try:
            return _tiled(net, x, y, quantity, plan.tile, progress)
        except NoExactForm:
            _require_memory(_joint_bytes(net, x, y), budget(memory, x.device))
    return _joint(net, x, y, quantity, seed)


def kernel_estimate(net: Layer, x: Tensor, y: Tensor | None = None, *, memory: int | None = None) -> KernelEstimate:
    """How `kernel` will go about it and what it will use; raises BadInput where it does not fit."""
    net = net if isinstance(net, Sequential) else Sequential(net)
    n, m = len(x), len(x if y is None else y)
    pairs = n * (n + 1) // 2 if y is None else n * m
    positions = math.prod(x.shape[2:])
    dtype = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    all_positions = net.needs_all_positions and positions > 1
    updates = pairs * len(net.layers) * (positions**2 if all_positions else positions)
    output = n * m * dtype.itemsize
    allowed = budget(memory, x.device)
    if net.needs_joint_batch or (net.needs_draws and positions > 1):
        needed = _joint_bytes(net, x, y)
        _require_memory(needed, allowed)
        return KernelEstimate("joint", pairs, updates, output, needed, n + (0 if y is None else m))
    fast = fast_plan(net, tuple(x.shape[1:]))
    if fast is not None:
        peak = fast.peak_bytes(x, m)
        if peak <= allowed:
            return KernelEstimate("fused", pairs, updates, output, peak, n)
    per_pair = pair_bytes(positions, all_positions, dtype)
    own = 3 * per_pair if all_positions else 0  # pairs of positions within each image of a tile
    free = allowed - 2 * output
    _require_memory(2 * output + per_pair + own, allowed)
    tile = int((math.sqrt(own**2 + per_pair * free) - own) / per_pair)  # tile² pairs + 2 tile images
    tile = max(1, min(tile, max(n, m), 256))
    return KernelEstimate("tiles", pairs, updates, output, 2 * output + tile * tile * per_pair + 2 * tile * own, tile)


def _check(x: Tensor, y: Tensor | None, quantity: str, dtype: torch.dtype | None, memory: int | None) -> None:
    check_inputs(x, y, zipped=False)
    if quantity not in get_args(Quantity):
        raise BadInput("kernel", f"quantity is {quantity!r}", f"choose from {', '.join(get_args(Quantity))}")
    if dtype not in (None, torch.float32, torch.float64):
        raise BadInput("kernel", f"dtype is {dtype}", "use torch.float32 or torch.float64")
    if memory is not None and memory <= 0:
        raise BadInput("kernel", f"memory is {memory}, expected a positive number of bytes", "pass memory > 0")


def _joint_bytes(net: Layer, x: Tensor, y: Tensor | None) -> int:
    count, positions = len(x) + (0 if y is None else len(y)), math.prod(x.shape[2:])
    return count**2 * pair_bytes(positions, positions > 1 and net.needs_all_positions, torch.float64)


def _require_memory(needed: int, allowed: int) -> None:
    if needed > allowed:
        raise BadInput(
            "kernel",
            f"needs about {needed / 2**30:.2f} GiB, {allowed / 2**30:.2f} GiB are allowed",
            "use smaller or fewer images, or raise memory=",
        )


def _fused(fast: FastPlan, x: Tensor, y: Tensor | None, quantity: Quantity, progress: Progress | None) -> Tensor:
    if quantity == "product":
        return fast.run(x, y, "product", progress)
    distance = fast.run(x, y, "distance", progress)
    if quantity == "distance":
        return distance.sqrt()
    a = fast.norms(x)
    return _finish(a, a if y is None else fast.norms(y), distance, quantity)


def _finish(a: Tensor, b: Tensor, distance: Tensor, quantity: Quantity) -> Tensor:
    """From squared norms (n,), (m,) and squared distances (n, m) to the quantity asked for."""
    if quantity == "product":
        return (a[:, None] + b - distance) / 2
    if quantity == "distance":
        return distance.sqrt()
    zero = [*(f"x[{i}]" for i in (a == 0).nonzero().flatten().tolist()[:8])]
    if a is not b:
        zero += [f"y[{j}]" for j in (b == 0).nonzero().flatten().tolist()[:8]]
    if zero:
        warnings.warn(
            f"kernel: {', '.join(zero)} is zero: its angle is undefined, NaN", UndefinedSimilarity, stacklevel=4
        )
    return geometry(a[:, None].to(distance), b.to(distance), distance)[quantity]


def _tiles(n: int, m: int, tile: int, symmetric: bool) -> Iterator[tuple[slice, slice]]:
    for i in range(0, n, tile):
        for j in range(i if symmetric else 0, m, tile):
            yield slice(i, min(i + tile, n)), slice(j, min(j + tile, m))


def _tiled(
    net: Sequential, x: Tensor, y: Tensor | None, quantity: Quantity, tile: int, progress: Progress | None
) -> Tensor:
    other = x if y is None else y
    distance = x.new_zeros(len(x), len(other))
    a, b = x.new_empty(len(x)), x.new_empty(len(other))
    tiles = list(_tiles(len(x), len(other), tile, y is None))
    for done, (rows, columns) in enumerate(tiles):
        if progress is not None:
            progress(done, len(tiles))
        inputs = Inputs(x[rows], other[columns], zipped=False, all_positions=net.needs_all_positions)
        a[rows], b[columns], distance[rows, columns] = totals(net.propagate(inputs))
    if y is None:
        distance = distance.triu() + distance.triu(1).T  # tiles below the diagonal were not computed
    if progress is not None:
        progress(len(tiles), len(tiles))
    return _finish(a, a if y is None else b, distance, quantity)


def _joint(net: Sequential, x: Tensor, y: Tensor | None, quantity: Quantity, seed: int) -> Tensor:
    """The whole batch at once, in float64; simulated layers are repeated and averaged."""
    both = (x if y is None else torch.cat([x, y])).double()
    inputs = Inputs(both, both, zipped=False, all_positions=net.needs_all_positions, joint=True)
    moments = []
    for replicate in range(REPLICATES):
        trace = Trace(torch.Generator().manual_seed(seed * 1_000_003 + replicate), UNITS)
        moments.append(totals(net.propagate(inputs, trace)))
        if not trace.simulated:
            break
    norms, distances = torch.stack([a for a, _, _ in moments]), torch.stack([d for _, _, d in moments])
    norm, distance = norms.mean(0), distances.mean(0)
    distance = (distance + distance.T) / 2
    if len(moments) > 1:
        products = (norms[:, :, None] + norms[:, None] - distances) / 2
        spread = products.std(0) / math.sqrt(len(moments)) / (norm[:, None] * norm).sqrt().clamp_min(1e-300)
        warnings.warn(
            f"kernel: simulated from {len(moments) * UNITS} units; standard error of the entries about "
            f"{float(spread.median()):.1e} of the diagonal",
            SimulatedKernel,
            stacklevel=3,
        )
    columns = slice(0, None) if y is None else slice(len(x), None)
    left = norm[: len(x)]
    right = left if y is None else norm[columns]
    return _finish(left, right, distance[: len(x), columns], quantity).to(x.dtype)
