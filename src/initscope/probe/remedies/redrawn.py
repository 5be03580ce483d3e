"""Remedies that draw the weights anew from a law: He with three fans, orthogonal, delta-orthogonal, filters that sum to zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Generator, Tensor, nn

from initscope.probe.batches import Batch
from initscope.probe.remedies.places import Plan, Site
from initscope.probe.remedies.recipes import law_code as code
from initscope.probe.remedies.remedy import Candidate
from initscope.weights import DeltaOrthogonal, Fan, Fans, He, Orthogonal, ZeroSum

Draw = Callable[[Site, Generator], Tensor]


def candidates(plan: Plan, model: nn.Module) -> list[Candidate]:
    """One for each law; delta-orthogonal only where there are filters larger than one tap."""
    if not plan.sites:
        return []
    filters = any(site.fans.taps > 1 for site in plan.sites)
    return [
        Candidate(
            name,
            "weights",
            text,
            treat=partial(redraw, sites=plan.sites, draw=draw),
            note=plan.note,
            code=code(name, plan, model),
        )
        for name, (text, draw) in LAWS.items()
        if filters or name != "delta-orthogonal"
    ]


def redraw(model: nn.Module, batch: Batch, seed: int, *, sites: Sequence[Site], draw: Draw) -> None:
    """New weights at every site, in execution order, and biases of zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for site in sites:
            site.write(model, draw(site, generator))
            if site.bias is not None:
                model.get_parameter(site.bias).zero_()


def he(site: Site, generator: Generator, *, fan: Fan) -> Tensor:
    """Var(w) = gain / fan, gain = 2 before a ReLU."""
    # An output of a transposed convolution sees one in `stride` of the taps; what leaves an input is the whole filter.
    seen = {"in": site.stride, "geometric": math.sqrt(site.stride)}.get(fan, 1.0)
    return He(fan, site.gain * seen).sample(site.shape, site.fans, generator, torch.float64)


def orthogonal(site: Site, generator: Generator) -> Tensor:
    """Orthonormal rows or columns, times what makes fan_in · Var(w) the gain."""
    scale = site.gain * site.stride / Orthogonal(1.0).gain(site.fans)
    return Orthogonal(scale).sample(site.shape, site.fans, generator, torch.float64)


def delta_orthogonal(site: Site, generator: Generator) -> Tensor:
    """An orthogonal matrix over channels at the centre tap of a filter with any number of axes, zeros at the others."""
    channels = Fans(site.fans.inputs, site.fans.outputs)
    scale = site.gain * site.stride / DeltaOrthogonal(1.0).gain(channels)
    matrix = DeltaOrthogonal(scale).sample(site.shape[:2], channels, generator, torch.float64)
    weight = torch.zeros(site.shape, dtype=torch.float64)
    centre = weight
    for axis, k in enumerate(site.shape[2:]):
        centre = centre.narrow(axis + 2, (k - 1) // 2, 1)
    centre.copy_(matrix.reshape(centre.shape))
    return weight


def zero_sum(site: Site, generator: Generator) -> Tensor:
    """Gaussian filters minus their mean; the gain makes up for the mean of the inputs, which they do not see (JL §4.2)."""
    if site.fans.fan_in == 1:
        return he(site, generator, fan="in")
    scale = site.gain * site.stride / (1 - site.before.mean_share)  # E (f - E f)² = E f² (1 - share)
    return ZeroSum(scale).sample(site.shape, site.fans, generator, torch.float64)


LAWS: dict[str, tuple[str, Draw]] = {
    "he-fan-in": (
        "Draw the weights from He's law with fan-in: activations keep their size.",
        partial(he, fan="in"),
    ),
    "he-fan-out": (
        "Draw the weights from He's law with fan-out: gradients keep their size.",
        partial(he, fan="out"),
    ),
    "he-geometric": (
        "Draw the weights from He's law with the geometric mean of the fans: activations and gradients share the drift.",
        partial(he, fan="geometric"),
    ),
    "orthogonal": (
        "Draw orthogonal weight matrices: all directions of the input are treated alike.",
        orthogonal,
    ),
    "delta-orthogonal": (
        "Draw filters that are orthogonal at the centre tap and zero elsewhere: signals keep their place and their size.",
        delta_orthogonal,
    ),
    "zero-sum": (
        "Draw filters that sum to zero: they do not see the mean of their input, which is what samples have in common.",
        zero_sum,
    ),
}
