"""`kernel`: the matrix of all pairs of inputs after an infinitely wide random network."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from initscope.errors import BadInput, SimulatedKernel
from initscope.geometry import Inputs, check_inputs, excess_of, generator, warn_undefined
from initscope.layers import Layer, Trace
from initscope.networks.accuracy import Accuracy, KernelResult, warn_inexact
from initscope.networks.composition import Sequential, as_network
from initscope.networks.fast import FastPlan, fast_accuracy, fast_plan
from initscope.networks.machine import steps_bytes, unknown
from initscope.networks.planning import (
    REPLICATES,
    UNITS,
    budget,
    entry_bytes,
    joint_bytes,
    require_memory,
    require_range,
    simulates,
    size_text,
    working_dtype,
)
from initscope.networks.prediction import Totals, geometry, totals
from initscope.networks.progress import Progress
from initscope.networks.stepping import Quantity, has_digits, near_pairs, steps_dtype, totals_by_steps
from initscope.networks.tiles import tiles

Method = Literal["fused", "steps", "tiles", "joint"]
UNEQUAL = 2.0  # ratio of norms from which angles are computed in float64


@dataclass(frozen=True)
class KernelEstimate:
    """What a kernel will need, before it is computed."""

    method: Method  # fused loops, compiled steps, generic tiles, or the whole batch at once
    why: str
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
    "cosine", and "defect" = 1 - cosine, from distances (after average pooling these are differences of products: ask for
    float64 where inputs nearly agree). The answer has x's dtype unless `dtype` says otherwise. Computed in tiles
    that fit `memory` bytes (default: a quarter of what is free). Batch norm sees x and y as one batch. A network with
    layers that have no closed form is simulated from `seed`, with a warning that says how precise the result is; so are
    activations whose integrals are less precise than 1e-6. `kernel_with_error` returns that precision beside the matrix.

    >>> from initscope.layers import Activate, Dense
    >>> from initscope.activations import RELU
    >>> kernel(Sequential(Dense(10), Activate(RELU)), torch.eye(2), quantity="cosine")
    tensor([[1.0000, 0.3183],
            [0.3183, 1.0000]])
    """
    result = kernel_with_error(net, x, y, quantity=quantity, dtype=dtype, memory=memory, seed=seed, progress=progress)
    warn_inexact("kernel", result.accuracy, result.value.dtype)
    return result.value


def kernel_with_error(
    net: Layer,
    x: Tensor,
    y: Tensor | None = None,
    *,
    quantity: Quantity = "product",
    dtype: torch.dtype | None = None,
    memory: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> KernelResult:
    """`kernel`, beside how it was found and an estimate of its error."""
    _check(x, y, quantity, dtype)
    net = as_network("kernel", net)
    net.output_shape(tuple(x.shape[1:]))
    dtype = dtype or (x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32)
    x, y = x.detach().to(dtype), None if y is None else y.detach().to(dtype)
    allowed = budget(memory, x.device)
    fast = _fast(net, x, y, allowed)
    if fast is not None:
        return KernelResult(_fused(fast, x, y, quantity, progress), fast_accuracy(net, x, y))
    stepped = _stepped(net, x, y, quantity, allowed, progress)
    if stepped is not None:
        return stepped
    plan = _layerwise(net, x, y, allowed)
    if plan.method == "tiles":
        return _tiled(net, x, y, quantity, plan.tile, progress)
    return _joint(net, x, y, quantity, seed, progress)


def _stepped(
    net: Sequential, x: Tensor, y: Tensor | None, quantity: Quantity, allowed: int, progress: Progress | None
) -> KernelResult | None:
    """By compiled steps; distances of inputs that nearly agree layer by layer. None where either cannot be had."""
    stepped = totals_by_steps(net, x, y, quantity, allowed, progress)
    if stepped is None:
        return None
    found, accuracy = stepped
    rows, columns = near_pairs(found, accuracy, y is None) if quantity in ("distance", "defect") else (x[:0],) * 2
    if len(rows):
        left, right = x[rows], (x if y is None else y)[columns]
        plan = _layerwise(net, left, right, allowed)
        if 2 * len(rows) * len(columns) > found.excess.numel() or plan.method != "tiles":
            return None
        found.excess[rows[:, None], columns] = _tile_totals(net, left, right, plan.tile, None)[0].excess
        if y is None:
            found.excess.copy_(found.excess.triu(1) + found.excess.triu(1).T)
    return KernelResult(_finish(found, quantity).to(x.dtype), accuracy)


def kernel_estimate(
    net: Layer, x: Tensor, y: Tensor | None = None, *, quantity: Quantity = "product", memory: int | None = None
) -> KernelEstimate:
    """How `kernel` will go about it, why, and what it will use; raises BadInput where it does not fit.

    >>> from initscope.networks import parse
    >>> images = torch.ones(2, 3, 8, 8)
    >>> kernel_estimate(parse("conv3 relu gap"), images).method, kernel_estimate(parse("conv3 relu maxpool2 gap"), images).method
    ('fused', 'joint')
    """
    check_inputs(x, y, zipped=False)
    net = as_network("kernel", net)
    net.output_shape(tuple(x.shape[1:]))
    dtype = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    x, y = x.to(dtype), None if y is None else y.to(dtype)
    allowed = budget(memory, x.device)
    fast = _fast(net, x, y, allowed)
    if fast is not None:
        count = len(x if y is None else y)
        why = "a stack of conv or dense layers with leaky ReLU"
        return _estimate("fused", why, net, x, y, fast.peak_bytes(x, count), len(x))
    wide = steps_dtype(quantity, dtype)
    x_wide, y_wide = x.to(wide), None if y is None else y.to(wide)
    why_not = unknown(net, x_wide, y_wide) if has_digits(quantity, dtype) else "steps carry products, not distances"
    if why_not is None:
        needed = steps_bytes(net, x_wide, y_wide)
        if needed <= allowed:
            return _estimate("steps", "every layer has a compiled step", net, x, y, needed, len(x))
        why_not = f"compiled steps need {size_text(needed)}"
    plan = _layerwise(net, x, y, allowed)
    return replace(plan, why=plan.why or why_not)


def _fast(net: Sequential, x: Tensor, y: Tensor | None, allowed: int) -> FastPlan | None:
    """The fused loops, if they serve the network, fit and hold its norms."""
    fast = fast_plan(net, tuple(x.shape[1:]))
    if fast is None or fast.peak_bytes(x, len(x if y is None else y)) > allowed:
        return None
    return fast if fast.in_range(*((x,) if y is None else (x, y))) else None


def _estimate(
    method: Method, why: str, net: Sequential, x: Tensor, y: Tensor | None, peak: int, tile: int
) -> KernelEstimate:
    n, m = len(x), len(x if y is None else y)
    pairs = n * (n + 1) // 2 if y is None else n * m
    positions = math.prod(x.shape[2:])
    updates = pairs * len(net.layers) * (positions**2 if net.needs_all_positions else positions)
    return KernelEstimate(method, why, pairs, updates, n * m * x.dtype.itemsize, peak, tile)


def _layerwise(net: Sequential, x: Tensor, y: Tensor | None, allowed: int) -> KernelEstimate:
    """In tiles that fit, or the whole batch at once."""
    n, m = len(x), len(x if y is None else y)
    shape, output = tuple(x.shape[1:]), n * m * x.dtype.itemsize
    remedy = "use smaller or fewer inputs, or raise memory="
    simulated = simulates(net, x)
    if net.needs_joint_batch or simulated:
        count = n + (0 if y is None else m)
        needed = joint_bytes(net, shape, count, simulated)
        require_memory("kernel", needed, allowed, remedy)
        why = "some layer has no closed form" if simulated else "batch norm couples the inputs"
        return _estimate("joint", why, net, x, y, needed, count)
    per_pair = entry_bytes(net, shape, working_dtype(x))
    own = (
        per_pair if net.needs_all_positions and math.prod(shape[1:]) > 1 else 0
    )  # pairs of positions within each image
    require_memory("kernel", 2 * output + per_pair + own, allowed, remedy)
    free = allowed - 2 * output
    tile = int((math.sqrt(own**2 + per_pair * free) - own) / per_pair)  # tile² pairs + 2 tile images
    tile = max(1, min(tile, max(n, m), 256))
    return _estimate("tiles", "", net, x, y, 2 * output + tile * tile * per_pair + 2 * tile * own, tile)


def _check(x: Tensor, y: Tensor | None, quantity: str, dtype: torch.dtype | None) -> None:
    check_inputs(x, y, zipped=False)
    if quantity not in get_args(Quantity):
        raise BadInput("kernel", f"quantity is {quantity!r}", f"choose from {', '.join(get_args(Quantity))}")
    if dtype not in (None, torch.float32, torch.float64):
        raise BadInput("kernel", f"dtype is {dtype}", "use torch.float32 or torch.float64")


def _fused(fast: FastPlan, x: Tensor, y: Tensor | None, quantity: Quantity, progress: Progress | None) -> Tensor:
    if quantity == "product":
        return fast.run(x, y, "product", progress)
    if quantity == "distance":
        return fast.run(x, y, "distance", progress).sqrt()
    if fast.pooled:  # whose distance is a difference of products
        product = fast.run(x, y, "product", progress).double()
        a, b = (product.diagonal(),) * 2 if y is None else (fast.norms(x), fast.norms(y))
        excess = 2 * ((a[:, None] * b).sqrt() - product).clamp_min(0)
        return _finish(Totals(a, b, excess, product), quantity).to(x.dtype)
    a = fast.norms(x)
    b = a if y is None else fast.norms(y)
    wide, other = x, y
    if float(torch.cat([a, b]).max()) > UNEQUAL**2 * float(torch.cat([a, b]).min()):
        wide = x.to(working_dtype(x))
        other = None if y is None else y.to(wide.dtype)  # the distance of their norms hides the angle
    distance = fast.run(wide, other, "distance", progress)
    found = Totals(a, b, excess_of(a[:, None], b, distance.double()), distance)
    return _finish(found, quantity).to(x.dtype)


def _finish(found: Totals, quantity: Quantity) -> Tensor:
    """The quantity asked for."""
    a, b = found.a, found.b
    if quantity == "product":
        return found.product
    if quantity == "distance":
        return ((a.sqrt()[:, None] - b.sqrt()).square() + found.excess).sqrt()
    warn_undefined("kernel", a == 0, torch.zeros_like(b, dtype=torch.bool) if a is b else b == 0)
    return geometry(a[:, None], b, found.excess)[quantity]


def _tiled(
    net: Sequential, x: Tensor, y: Tensor | None, quantity: Quantity, tile: int, progress: Progress | None
) -> KernelResult:
    found, accuracy = _tile_totals(net, x, y, tile, progress)
    return KernelResult(_finish(found, quantity).to(x.dtype), accuracy)


def _tile_totals(
    net: Sequential, x: Tensor, y: Tensor | None, tile: int, progress: Progress | None
) -> tuple[Totals, Accuracy]:  # fmt: skip
    wide = working_dtype(x)
    other = x if y is None else y
    excess, product = (torch.zeros(len(x), len(other), dtype=wide, device=x.device) for _ in range(2))
    a, b = (torch.zeros(len(t), dtype=wide, device=x.device) for t in (x, other))
    work = tiles(len(x), len(other), tile, y is None)
    traces = [Trace() for _ in work]
    for done, (rows, columns) in enumerate(work):
        if progress is not None:
            progress(done, len(work))
        left, right = x[rows].to(wide), other[columns].to(wide)
        inputs = Inputs(left, right, zipped=False, all_positions=net.needs_all_positions)
        found = totals(net.propagate(inputs, traces[done]))
        a[rows], b[columns] = found.a, found.b
        excess[rows, columns], product[rows, columns] = found.excess, found.product
    if y is None:
        # Tiles below the diagonal were not computed; an input and itself are one pass, also through dropout.
        excess = excess.triu(1) + excess.triu(1).T
        product = product.triu(1) + product.triu(1).T + a.diag()
    if progress is not None:
        progress(len(work), len(work))
    require_range("kernel", product)
    return Totals(a, a if y is None else b, excess, product), Accuracy.of(traces)


def _joint(
    net: Sequential, x: Tensor, y: Tensor | None, quantity: Quantity, seed: int, progress: Progress | None
) -> KernelResult:
    """The whole batch at once, in float64; simulated layers are repeated and averaged."""
    both = (x if y is None else torch.cat([x, y])).double()
    inputs = Inputs(both, both, zipped=False, all_positions=net.needs_all_positions, joint=True)
    moments, traces = [], []
    for replicate in range(REPLICATES):
        if progress is not None:
            progress(replicate, REPLICATES)
        trace = Trace(generator(seed, replicate), UNITS)
        moments.append(totals(net.propagate(inputs, trace)))
        traces.append(trace)
        if not trace.simulated:
            break
    if progress is not None:
        progress(REPLICATES, REPLICATES)
    norms = torch.stack([found.a for found in moments])
    products = torch.stack([found.product for found in moments])
    norm, product = norms.mean(0), products.mean(0)
    require_range("kernel", product)
    excess = moments[0].excess
    if len(moments) > 1:
        distances = torch.stack([(f.a.sqrt()[:, None] - f.a.sqrt()).square() + f.excess for f in moments])
        excess = excess_of(norm[:, None], norm, distances.mean(0))
    excess, product = (excess + excess.T) / 2, (product + product.T) / 2
    excess.fill_diagonal_(0)
    product.diagonal().copy_(norm)  # written, not added: a norm that overflows stays infinite
    accuracy = Accuracy.of(traces)
    if len(moments) > 1:
        spread = products.std(0) / math.sqrt(len(moments)) / (norm[:, None] * norm).sqrt().clamp_min(1e-300)
        accuracy = replace(accuracy, method="simulated", error=float(spread.median()))
        warnings.warn(
            f"kernel: simulated from {len(moments) * UNITS} units; standard error of the entries about "
            f"{accuracy.error:.1e} of the diagonal",
            SimulatedKernel,
            stacklevel=4,
        )
    columns = slice(0, None) if y is None else slice(len(x), None)
    left = norm[: len(x)]
    right = left if y is None else norm[columns]
    found = Totals(left, right, excess[: len(x), columns], product[: len(x), columns])
    return KernelResult(_finish(found, quantity).to(x.dtype), accuracy)
