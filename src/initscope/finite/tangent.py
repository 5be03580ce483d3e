"""The tangent kernel of finite random networks: the twin of `networks.tangent_kernel`."""

from __future__ import annotations

import math
from typing import get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from initscope.errors import BadInput
from initscope.finite.estimate import Estimate
from initscope.geometry import check_inputs, generator
from initscope.layers import Conv, Layer
from initscope.networks import Sequential, as_network
from initscope.networks.own_share import Parametrization, variances
from initscope.networks.progress import Progress
from initscope.networks.tangent import drops_units, parameters

_BLOCK = 1 << 26  # numbers of per-sample gradients that exist at once


def simulate_tangent(
    net: Layer,
    x: Tensor,
    y: Tensor | None = None,
    *,
    draws: int = 20,
    seed: int = 0,
    parametrization: Parametrization = "ntk",
    progress: Progress | None = None,
) -> Estimate:
    """Inner products of the gradients of `draws` finite networks for all pairs of x (n, ...) and y (m, ...): values (n, m).

    The mean over output units U and positions is estimated with one vector v of random signs per draw, as
    <∇ v·f(x), ∇ v·f(y)>/U, whose mean over v it is. Draw i depends on (seed, i) alone.

    >>> from initscope.layers import Dense, ReLU
    >>> x = torch.eye(2, dtype=torch.float64)
    >>> found = simulate_tangent(Sequential(Dense(512), ReLU(), Dense(1)), x, draws=50)
    >>> low, high = found.interval(0.999)
    >>> bool((low[0, 1] < 1 / torch.pi) & (1 / torch.pi < high[0, 1]))
    True
    """
    check_inputs(x, y, zipped=False)
    if parametrization not in get_args(Parametrization):
        raise BadInput("simulate_tangent", f"parametrization is {parametrization!r}", "choose 'ntk' or 'standard'")
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 2:
        raise BadInput("simulate_tangent", f"draws is {draws!r}, expected a whole number from 2 on", "pass draws >= 2")
    net = as_network("simulate_tangent", net)
    shape = tuple(x.shape[1:])
    net.output_shape(shape)
    scales = _scales(net, shape) if parametrization == "ntk" else None
    dtype = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    both = (x if y is None else torch.cat([x, y])).detach().to(dtype)
    found = []
    for draw in range(draws):
        if progress is not None:
            progress(draw, draws)
        rows = _gradients(net, both, generator(seed, draw), scales)
        found.append((rows[: len(x)] @ (rows if y is None else rows[len(x) :]).T).double())
    if progress is not None:
        progress(draws, draws)
    return Estimate.from_draws(torch.stack(found))


def _scales(net: Sequential, shape: tuple[int, ...]) -> list[float]:
    """The deviation of every parameter tensor, in the order of the sampled module's parameters."""
    found = []
    for layer, inputs in parameters(net, shape):
        weight, bias = variances(layer, inputs[0] if isinstance(layer, Conv) else math.prod(inputs))
        found += [math.sqrt(weight)] + ([] if bias is None else [math.sqrt(bias)])
    return found


def _gradients(net: Sequential, inputs: Tensor, g: torch.Generator, scales: list[float] | None) -> Tensor:
    """Of v·f/√U by all parameters, each times its scale: (n, parameters)."""
    module: nn.Module = net.sample(tuple(inputs.shape[1:]), generator=g, dtype=inputs.dtype).to(inputs.device)
    weights = {name: p.detach() for name, p in module.named_parameters()}
    shape = net.output_shape(tuple(inputs.shape[1:]))
    signs = (2 * torch.randint(2, shape, generator=g) - 1).to(inputs)
    size = math.prod(shape) ** 0.5

    def projected(values: dict[str, Tensor], one: Tensor) -> Tensor:
        out: Tensor = functional_call(module, values, (one[None],))[0]
        total: Tensor = (signs * out).sum() / size
        return total

    if drops_units(net):  # one pass of the batch, so that each input has a mask of its own
        return _one_by_one(module, inputs, signs / size, scales)
    total = sum(p.numel() for p in weights.values())
    each = vmap(grad(projected), in_dims=(None, 0), chunk_size=max(1, _BLOCK // max(total, 1)))
    parts = each(weights, inputs)
    factors = [1.0] * len(parts) if scales is None else scales
    return torch.cat([factor * part.flatten(1) for factor, part in zip(factors, parts.values(), strict=True)], 1)


def _one_by_one(module: nn.Module, inputs: Tensor, signs: Tensor, scales: list[float] | None) -> Tensor:
    weights = list(module.parameters())
    factors = [1.0] * len(weights) if scales is None else scales
    rows = []
    with torch.enable_grad():
        values = (module(inputs) * signs).flatten(1).sum(1)
        for value in values:
            grads = torch.autograd.grad(value, weights, retain_graph=True)
            rows.append(torch.cat([f * g.flatten() for f, g in zip(factors, grads, strict=True)]))
    return torch.stack(rows)
