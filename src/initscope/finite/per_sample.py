"""Norms of the gradient of each sample's loss, layer by layer, from one backward pass.

With δ = ∂ℓ/∂a the gradient at a layer's output and u the patches that its weights read, ∂ℓ/∂W = Σ_p δ_p u_pᵀ over positions p:
a dense layer has one, and |∂ℓ/∂W| = |δ||u| (OP eq. 19).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import Tensor, nn

from initscope.errors import BadInput
from initscope.layers.conv import RandomConv

Loss = Callable[[Tensor], Tensor]
_BLOCK = 1 << 22  # numbers of the per-sample gradients, or of the patches, that exist at once


@dataclass(frozen=True)
class SampleGradients:
    """Of each weight layer l and each sample's own loss: |∂ℓ/∂W_l| and |∂ℓ/∂a_l|, (layers, n); |δ|, (n,); all float64."""

    weight: Tensor
    output: Tensor
    delta: Tensor


def weight_layers(module: nn.Module) -> list[nn.Module]:
    """The dense and convolutional layers inside a module, in order."""
    return [part for part in module.modules() if isinstance(part, nn.Linear | RandomConv)]


def sample_gradients(
    module: nn.Module,
    parts: Sequence[nn.Module],
    inputs: Tensor,
    loss: Loss,
    *,
    at: nn.Module | None = None,
    coupled: bool = False,
) -> SampleGradients:
    """Gradient norms at the weights and outputs of `parts`, weight layers inside `module`, for inputs (n, ...).

    `loss` takes the outputs and gives n losses, or one number to which each sample adds a term of its own. δ is the gradient at
    the output of `at` (default: the last part). `coupled`: samples see each other, as in batch norm, so that each loss needs a
    backward pass of its own.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> found = sample_gradients(layer, [layer], torch.tensor([[3.0, 4.0]]), lambda out: 2 * out.sum(1))
    >>> found.weight, found.output
    (tensor([[10.]], dtype=torch.float64), tensor([[2.]], dtype=torch.float64))
    """
    watched = [*parts, at if at is not None else parts[-1]]
    with _recorded(watched) as calls, torch.enable_grad():
        # Through the input every output is part of the graph, whether or not the weights are trained.
        losses = _losses(loss, module(inputs.detach().requires_grad_()), len(inputs))
        missing = [type(part).__name__ for part in watched if part not in calls]
        if missing:
            raise BadInput("parts", f"{', '.join(missing)} took no part in the forward pass", "leave them out")
        seen, outputs = zip(*(calls[part] for part in watched), strict=True)
        if coupled:
            return _one_by_one(losses, parts, outputs)
        grads = torch.autograd.grad(losses.sum(), outputs, allow_unused=True, materialize_grads=True)
    weight = [_weight_norms(part, h, delta) for part, h, delta in zip(parts, seen, grads, strict=False)]
    *output, delta = (_norms(g) for g in grads)
    return SampleGradients(torch.stack(weight), torch.stack(output), delta)


@contextmanager
def _recorded(parts: Sequence[nn.Module]) -> Iterator[dict[nn.Module, tuple[Tensor, Tensor]]]:
    """Inputs and outputs of each part in the forward passes of the block."""
    calls: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def record(part: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        if part in calls:
            raise BadInput(
                type(part).__name__, "is called more than once in a forward pass", "leave shared layers out of `parts`"
            )
        calls[part] = (arguments[0].detach(), output)

    hooks = [part.register_forward_hook(record) for part in dict.fromkeys(parts)]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _losses(loss: Loss, outputs: Tensor, count: int) -> Tensor:
    value = loss(outputs)
    if not isinstance(value, Tensor) or tuple(value.shape) not in ((), (count,)):
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise BadInput("loss", f"returned {got}, expected ({count},) or a single number", "return one loss per sample")
    if not value.requires_grad:
        raise BadInput("loss", "does not depend on the outputs", "compute it from them with torch operations")
    return value


def _one_by_one(losses: Tensor, parts: Sequence[nn.Module], outputs: Sequence[Tensor]) -> SampleGradients:
    if not losses.ndim:
        raise BadInput(
            "loss", "is one number, but in this network samples see each other", "return one loss per sample"
        )
    wanted = [*(_weights(part) for part in parts), *outputs]
    rows = []
    for value in losses:
        grads = torch.autograd.grad(value, wanted, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.stack([_norms(g.unsqueeze(0)) for g in grads]))
    found = torch.cat(rows, 1)
    return SampleGradients(found[: len(parts)], found[len(parts) : -1], found[-1])


def _weights(part: nn.Module) -> Tensor:
    weights = part.weight
    assert isinstance(weights, Tensor)
    return weights


def _norms(t: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(t.flatten(1), dim=1, dtype=torch.float64)
    return norms


@singledispatch
def positions(part: nn.Module, h: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """What a layer's weights read at each position of its inputs h, (n, groups, positions, fan-in), and δ there, (..., units)."""
    raise BadInput(type(part).__name__, "has weights of an unknown kind", "register it with `positions.register`")


@positions.register
def _(part: nn.Linear, h: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    return h.reshape(len(h), 1, -1, h.shape[-1]), delta.reshape(len(delta), 1, -1, delta.shape[-1])


@positions.register
def _(part: RandomConv, h: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    columns = part.window.patches(h)  # (n, c · taps, positions)
    count = columns.shape[-1]
    both = (t.reshape(len(h), part.groups, -1, count).transpose(2, 3) for t in (columns, delta))
    return next(both), next(both)


def _weight_norms(part: nn.Module, h: Tensor, delta: Tensor) -> Tensor:
    """|∂ℓ/∂W| of each sample, (n,)."""
    lengths = _norms(h) * _norms(delta)  # OP eq. 19
    if isinstance(part, nn.Linear) and h.ndim == 2:
        return lengths
    # Of unit vectors, so that gradients whose squares leave the range of float32 are not lost.
    h, delta = _unit(h), _unit(delta)
    weights = _weights(part)
    step = max(1, _BLOCK // max(weights.numel(), h[0].numel() * math.prod(weights.shape[2:])))
    pieces = zip(torch.split(h, step), torch.split(delta, step), strict=True)
    return torch.cat([_outer_norms(*positions(part, u, d)) for u, d in pieces]) * lengths


def _unit(t: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(t.flatten(1).double(), dim=1).reshape(-1, *(1,) * (t.ndim - 1))
    unit: Tensor = torch.where(length > 0, t.double() / length, 0.0).to(t.dtype)
    return unit


def _outer_norms(u: Tensor, delta: Tensor) -> Tensor:
    """|Σ_p δ_p u_pᵀ| over all groups; u: (n, groups, positions, fan-in), delta: (n, groups, positions, units)."""
    count, fan_in, units = u.shape[2], u.shape[3], delta.shape[3]
    if count * (fan_in + units) < fan_in * units:  # |Σ_p δ_p u_pᵀ|² = Σ_pq <δ_p, δ_q><u_p, u_q> (OP eq. 19 for one p)
        square = ((u @ u.transpose(2, 3)) * (delta @ delta.transpose(2, 3))).double().sum((1, 2, 3))
        norms: Tensor = square.clamp_min(0).sqrt()
        return norms
    return _norms(delta.transpose(2, 3) @ u)
