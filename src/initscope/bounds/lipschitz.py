"""Lipschitz constants of the named activations: how fast each can grow, which the concentration bounds need."""

from __future__ import annotations

import math

import torch

from initscope.activations import Activation, catalogue
from initscope.errors import BadInput
from initscope.finite.one_layer import homogeneous_slopes

# Largest |f'|, rounded up in the last digit where it has no closed form.
_CONSTANTS: dict[Activation, float] = {
    catalogue.TANH: 1.0,
    catalogue.SIGMOID: 0.25,
    catalogue.ERF: 2 / math.sqrt(math.pi),
    catalogue.GELU: 1.1289042,  # at u = √2, Φ(u) + u φ(u)
    catalogue.SILU: 1.0998394,
    catalogue.SOFTPLUS: 1.0,
    catalogue.ELU: 1.0,
    catalogue.SELU: 1.7580994,  # scale times alpha, below zero
    catalogue.HARDSWISH: 1.5,
    catalogue.MISH: 1.0884982,
    catalogue.RELU6: 1.0,
    catalogue.HARDTANH: 1.0,
    catalogue.SIN: 1.0,
    catalogue.COS: 1.0,
    catalogue.GAUSSIAN: math.exp(-0.5),
}


def lipschitz_constant(activation: Activation, given: float | None = None) -> float | None:
    """L with |f(u) - f(v)| ≤ L |u - v|: `given`, or known; None where nothing is known or f has none.

    >>> from initscope.activations import RELU, STEP, leaky_relu
    >>> lipschitz_constant(RELU), lipschitz_constant(leaky_relu(-2.0)), lipschitz_constant(STEP)
    (1.0, 2.0, None)
    """
    slopes = homogeneous_slopes(activation)
    least = steepest(activation) if slopes is None else max(map(abs, slopes))
    if given is None:
        return least if slopes is not None else _CONSTANTS.get(activation)
    if isinstance(given, bool) or not isinstance(given, int | float) or not least * (1 - 1e-9) <= given < math.inf:
        problem = f"lipschitz is {given!r}, but {activation.name} has slopes of {least:.6g}"
        raise BadInput("lipschitz", problem, f"pass a number of at least {least:.6g}")
    return float(given)


def steepest(activation: Activation) -> float:
    """The steepest slope on a fine grid of [-20, 20]: a lower bound on L, which catches a constant given too small.

    >>> from initscope.activations import TANH
    >>> round(steepest(TANH), 5)
    1.0
    """
    grid = torch.linspace(-20, 20, 40001, dtype=torch.float64)
    values = activation(grid)
    return float((values.diff().abs() / grid.diff()).max())
