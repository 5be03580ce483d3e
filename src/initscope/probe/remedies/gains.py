"""Moments of an activation of a standard normal variable, from which the gain of the weights around it follows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from initscope import activations
from initscope.layers import Activate
from initscope.probe.trace import Call
from initscope.probe.translation import layer_for

_REACH = 9.0  # standard deviations; what lies beyond weighs 1e-18
_POINTS = 20_001


@dataclass(frozen=True)
class UnitMoments:
    """E f(z) and E f(z)² for a standard normal z."""

    mean: float
    square: float

    @property
    def mean_share(self) -> float:
        """(E f)² / E f²: what filters that sum to zero take away."""
        return self.mean**2 / self.square


ONE = UnitMoments(0.0, 1.0)  # no activation, or one that is not known


def unit_moments(call: Call, model: nn.Module) -> UnitMoments:
    """By the activation's own theory, else by integrating the module that made the call, else those of the identity."""
    known = _known(call)
    if known is not None:
        one = torch.ones((), dtype=torch.float64)
        found = UnitMoments(float(known.mean(one)), float(known.second_moment(one)))
    else:
        found = _integrated(call, model) or ONE
    return found if math.isfinite(found.square) and found.square > 0 else ONE


def _known(call: Call) -> activations.Activation | None:
    layer = layer_for(call)
    if layer is None and call.function == "prelu" and len(call.arguments) > 1 and isinstance(call.arguments[1], Tensor):
        return activations.leaky_relu(float(call.arguments[1].detach().mean()))
    return layer.activation if isinstance(layer, Activate) else None


def _integrated(call: Call, model: nn.Module) -> UnitMoments | None:
    """∫ f(z)^k φ(z) dz of a module without weights, by the trapezoidal rule."""
    module = model.get_submodule(call.module)
    if next(module.children(), None) is not None or next(module.parameters(), None) is not None:
        return None
    z = torch.linspace(-_REACH, _REACH, _POINTS, dtype=torch.float64)
    try:
        with torch.no_grad():
            values = module(z.clone())
    except Exception:  # a user's module may refuse a vector in any way
        return None
    if not isinstance(values, Tensor) or values.shape != z.shape:
        return None
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    mean, square = (float(torch.trapezoid(values.double() ** k * density, z)) for k in (1, 2))
    return UnitMoments(mean, square)
