"""Activations made of straight pieces, at any numbers: what torch clamps, shrinks and cuts off."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from initscope.activations.activation import Activation
from initscope.activations.catalogue import HARDTANH, IDENTITY, RELU, RELU6
from initscope.activations.remembering import remembered
from initscope.errors import BadInput

HARDSIGMOID = Activation.from_function(
    functional.hardsigmoid,
    name="hardsigmoid",
    kinks=(-3.0, 3.0),
    pieces=((0,), (1 / 2, 1 / 6), (1,)),
    monotone=True,
)


@remembered
def clip(low: float, high: float) -> Activation:
    """u between low and high, else the nearer of the two.

    >>> clip(0.0, 6.0).name, clip(-2.0, 2.0).name
    ('relu6', 'clip(-2, 2)')
    """
    if low >= high:
        raise BadInput("clip", f"low is {low:g}, high is {high:g}", "give a lower number first")
    for known, ends in ((HARDTANH, (-1.0, 1.0)), (RELU6, (0.0, 6.0))):
        if (low, high) == ends:
            return known
    return Activation.from_function(
        lambda z: z.clamp(low, high),
        name=f"clip({low:g}, {high:g})",
        kinks=(low, high),
        pieces=((low,), (0, 1), (high,)),
        monotone=True,
    )


@remembered
def clip_below(low: float) -> Activation:
    """max(u, low)."""
    if low == 0:
        return RELU
    return Activation.from_function(
        lambda z: z.clamp(min=low), name=f"clip_below({low:g})", kinks=(low,), pieces=((low,), (0, 1)), monotone=True
    )


@remembered
def clip_above(high: float) -> Activation:
    """min(u, high)."""
    return Activation.from_function(
        lambda z: z.clamp(max=high),
        name=f"clip_above({high:g})",
        kinks=(high,),
        pieces=((0, 1), (high,)),
        monotone=True,
    )


@remembered
def threshold(cut: float, value: float) -> Activation:
    """u above the cut, else the value: a jump unless the two are equal."""
    if cut == value:
        return clip_below(cut)
    return Activation.from_function(
        lambda z: torch.where(z > cut, z, value),
        name=f"threshold({cut:g}, {value:g})",
        kinks=(cut,),
        monotone=value <= cut,
        derivative=lambda z: (z > cut).to(z.dtype),
    )


@remembered
def soft_shrink(width: float = 0.5) -> Activation:
    """u moved towards 0 by the width, 0 where it would pass it."""
    if width < 0:
        raise BadInput("soft_shrink", f"the width is {width:g}", "give a number of at least 0")
    if width == 0:
        return IDENTITY
    return Activation.from_function(
        lambda z: torch.where(z > width, z - width, torch.where(z < -width, z + width, torch.zeros_like(z))),
        name=f"soft_shrink({width:g})",
        kinks=(-width, width),
        pieces=((width, 1), (0,), (-width, 1)),
        monotone=True,
    )


@remembered
def hard_shrink(width: float = 0.5) -> Activation:
    """u where |u| is above the width, else 0: two jumps."""
    if width <= 0:
        return IDENTITY

    def outside(z: Tensor) -> Tensor:
        return (z.abs() > width).to(z.dtype)

    return Activation.from_function(
        lambda z: outside(z) * z,
        name=f"hard_shrink({width:g})",
        kinks=(-width, width),
        monotone=True,
        derivative=outside,
    )
