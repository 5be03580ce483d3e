"""`tangent_kernel`: the matrix of inner products of a network's gradients by its weights, infinitely wide (NTK).

The gradients of one unit's output for two inputs have the inner product Θ = Σ_l J_l[k_l]: k_l is what the weights of layer l
contribute where they act, and J_l how a small change of the covariance there changes the covariance at the output, norms kept
(for an activation f that factor is E f'(u) f'(v), by Price's theorem). So Θ travels with the covariance, layer by layer: weights
add their k_l, linear layers act on Θ as on the covariance, activations multiply it. Nothing is differentiated, so that nothing
depends on how close two inputs are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import torch
from torch import Tensor

from initscope.errors import BadInput, NoExactForm
from initscope.geometry import Inputs, check_inputs
from initscope.layers import Conv, Dense, Dropout, Layer, Shape, Trace
from initscope.networks.accuracy import Accuracy, KernelResult, warn_inexact
from initscope.networks.branches import Concat, Product, Residual, Sum
from initscope.networks.composition import Composition, Sequential, as_network
from initscope.networks.fast import FastPlan, fast_accuracy, fast_plan
from initscope.networks.machine import Unknown, answer, without_series
from initscope.networks.masks import Masked
from initscope.networks.own_share import OwnShare, Parametrization
from initscope.networks.planning import budget, entry_bytes, require_memory, require_range, simulates, working_dtype
from initscope.networks.prediction import totals
from initscope.networks.progress import Progress
from initscope.networks.tiles import tiles

_TWIN = "take finite.simulate_tangent"
PARALLEL = 1e-4  # 1 - |cosine| up to which inputs are taken for parallel
SAME_LENGTH = 0.01  # relative difference of lengths up to which float32 knows the angle well enough
PARALLEL_ROWS = 256  # inputs whose cosines are computed at once
LARGEST_TILE = 64  # images along one side; larger ones leave the cache


def tangent_kernel(
    net: Layer,
    x: Tensor,
    y: Tensor | None = None,
    *,
    parametrization: Parametrization = "ntk",
    dtype: torch.dtype | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """The tangent kernel over all pairs of x (n, ...) and y (m, ...): the mean over output units and positions, (n, m).

    "ntk": weights are written as √Var(w) ω with ω of variance 1 and the gradient is by ω, so that the kernel has a limit;
    "standard": the gradient is by w itself, as PyTorch takes it, at the widths that the layers have. Layers that have no
    closed form, and batch norm, which couples the pairs, are refused. Dropout gives each input a mask of its own, an input
    beside itself one and the same: the mean over masks of the gradients' inner products. Gradients do not pass an
    activation that is piecewise constant (sign, step): what is left is the kernel of the weights behind it, as in every
    finite network.

    >>> from initscope.layers import Activate, Dense
    >>> from initscope.activations import RELU
    >>> net = Sequential(Dense(100), Activate(RELU), Dense(1))
    >>> tangent_kernel(net, torch.eye(2, dtype=torch.float64) * 2**0.5) * torch.pi  # J0 + J1
    tensor([[12.5664,  2.0000],
            [ 2.0000, 12.5664]], dtype=torch.float64)
    """
    result = tangent_kernel_with_error(
        net, x, y, parametrization=parametrization, dtype=dtype, memory=memory, progress=progress
    )
    warn_inexact("tangent_kernel", result.accuracy, result.value.dtype)
    return result.value


def tangent_kernel_with_error(
    net: Layer,
    x: Tensor,
    y: Tensor | None = None,
    *,
    parametrization: Parametrization = "ntk",
    dtype: torch.dtype | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> KernelResult:
    """`tangent_kernel`, beside how it was found and an estimate of its error."""
    check_inputs(x, y, zipped=False)
    if parametrization not in get_args(Parametrization):
        raise BadInput("tangent_kernel", f"parametrization is {parametrization!r}", "choose 'ntk' or 'standard'")
    if dtype not in (None, torch.float32, torch.float64):
        raise BadInput("tangent_kernel", f"dtype is {dtype}", "use torch.float32 or torch.float64")
    net = as_network("tangent_kernel", net)
    net.output_shape(tuple(x.shape[1:]))
    dtype = dtype or (x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32)
    x, other = x.detach().to(dtype), (x if y is None else y).detach().to(dtype)
    fast = fast_plan(net, tuple(x.shape[1:]))
    standard = parametrization == "standard"
    fits = fast is not None and fast.tangent_bytes(x, len(other), standard) <= budget(memory, x.device)
    if fast is not None and fits and fast.in_range(x, other):
        quick = _fused(fast, x, None if y is None else other, standard, progress)
        if quick is not None:
            return KernelResult(quick, fast_accuracy(net, x, None if y is None else other))
    quick_steps = _stepped(net, x, None if y is None else other, standard, memory, progress)
    if quick_steps is not None:
        return quick_steps
    require_closed_forms(net, x)
    out = x.new_empty(len(x), len(other))
    side = _tile(net, x, len(other), memory)
    work = tiles(len(x), len(other), side, y is None)
    wide = working_dtype(x)
    traces = []
    for done, (rows, columns) in enumerate(work):
        if progress is not None:
            progress(done, len(work))
        one_pass = y is None and rows == columns and drops_units(net)
        traces.append(Trace(own=OwnShare(parametrization)))
        out[rows, columns] = _tangents(net, x[rows].to(wide), other[columns].to(wide), one_pass, traces[-1])
    if progress is not None:
        progress(len(work), len(work))
    require_range("tangent_kernel", out)
    return KernelResult(out.triu() + out.triu(1).T if y is None else out, Accuracy.of(traces))


def _stepped(
    net: Sequential, x: Tensor, y: Tensor | None, standard: bool, memory: int | None, progress: Progress | None
) -> KernelResult | None:
    """By compiled steps: of series in float64, which leave out less of slopes then."""
    if drops_units(net):
        return None  # an input beside itself is one pass
    wide = x.dtype if without_series(net) else torch.float64
    other = None if y is None else y.to(wide)
    try:
        found = answer(net, x.to(wide), other, standard=standard, progress=progress, allowed=budget(memory, x.device))
    except Unknown:
        return None
    assert found.tangent is not None
    return KernelResult(found.tangent.to(x.dtype), found.accuracy)


def _fused(fast: FastPlan, x: Tensor, y: Tensor | None, standard: bool, progress: Progress | None) -> Tensor | None:
    """By the compiled loops, if they can be used.

    float32 knows the angle of parallel inputs of unequal norms only to the root of its rounding, and slopes go with the angle:
    they are answered in float64, in halves that take no more memory.
    """
    other = x if y is None else y
    if x.dtype != torch.float32 or not parallel(x, other):
        return fast.tangents(x, y, standard, progress)
    wide = other.double()
    halves = [fast.tangents(part.double(), wide, standard, progress) for part in x.tensor_split(2) if len(part)]
    found = [half.float() for half in halves if half is not None]
    if len(found) < len(halves):
        return None
    whole = torch.cat(found)
    return whole if y is not None else whole.triu() + whole.triu(1).T


def parallel(x: Tensor, y: Tensor) -> bool:
    """Whether inputs of x and of y lie on one line, or nearly, at different places."""
    lengths = [torch.linalg.vector_norm(t.flatten(1), dim=1) for t in (x, y)]
    left, right = (torch.nn.functional.normalize(t.flatten(1), dim=1) for t in (x, y))
    for start in range(0, len(left), PARALLEL_ROWS):
        rows = slice(start, start + PARALLEL_ROWS)
        cosine, ratio = left[rows] @ right.T, lengths[0][rows, None] / lengths[1]
        same = (cosine > 0) & ((ratio - 1).abs() < SAME_LENGTH)
        if bool(((cosine.abs() > 1 - PARALLEL) & ~same).any()):
            return True
    return False


def require_closed_forms(net: Sequential, x: Tensor) -> None:
    """Refuse what has no exact tangent kernel."""
    if net.needs_joint_batch:
        raise NoExactForm("tangent_kernel", "batch norm couples the inputs", f"use layer norm, or {_TWIN}")
    if simulates(net, x):
        problem = "some layer has no closed form on this network, its units would have to be drawn"
        raise NoExactForm("tangent_kernel", problem, f"leave it out, or {_TWIN}")


def _parts(layer: Layer) -> Iterator[Layer]:
    yield layer
    for part in layer.parts if isinstance(layer, Composition) else ():
        yield from _parts(part)


def _tile(net: Sequential, x: Tensor, m: int, memory: int | None) -> int:
    """Images along one side of a tile."""
    shape, allowed = tuple(x.shape[1:]), budget(memory, x.device)
    each = entry_bytes(net, shape, working_dtype(x))
    output = 2 * len(x) * m * x.element_size()
    require_memory("tangent_kernel", output + each, allowed, "use smaller or fewer inputs, or raise memory=")
    return max(1, min(int(((allowed - output) / each) ** 0.5), max(len(x), m), LARGEST_TILE))


def drops_units(net: Layer) -> bool:
    """Whether each pass of an input goes through a network of its own."""
    return any(isinstance(part, Dropout) for part in _parts(net))


def _tangents(net: Sequential, x: Tensor, y: Tensor, one_pass: bool, trace: Trace) -> Tensor:
    """`one_pass`: x and y are the same batch, each input under one mask of dropout."""
    inputs = Inputs(x, y, zipped=False, all_positions=net.needs_all_positions, joint=one_pass)
    found = totals(net.propagate(inputs, trace))
    return torch.zeros_like(found.product) if found.tangent is None else found.tangent  # None: no weights at all


def parameters(layer: Layer, shape: Shape) -> list[tuple[Dense | Conv, Shape]]:
    """The layers with weights and the shape of what they get, in the order in which `sample` makes their modules."""
    if isinstance(layer, Residual):
        layer = layer.sum
    if isinstance(layer, Sum | Product | Concat):
        return [found for branch in layer.branches for found in parameters(branch, shape)]
    if isinstance(layer, Sequential | Masked):
        found = []
        for part in layer.layers:
            found += parameters(part, shape)
            shape = part.output_shape(shape)
        return found
    if isinstance(layer, Conv):
        return [(layer.on(len(shape) - 1), shape)]
    return [(layer, shape)] if isinstance(layer, Dense) else []
