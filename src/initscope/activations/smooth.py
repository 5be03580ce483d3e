"""Smooth activations of torch without a closed form, and those that bend only at 0."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from initscope.activations.activation import Activation
from initscope.activations.catalogue import ELU, SOFTPLUS
from initscope.activations.remembering import remembered
from initscope.errors import BadInput

_FRACTION = 10  # levels of a continued fraction, which up to |z| = 1 leave only rounding
_CLEAR, _SURE = 8.0, 18.0  # torch's softplus jumps by e^-threshold: a jump as any other, or less than float32 sees
_CUBIC = 0.044715  # Hendrycks & Gimpel 2016


def _tanh_shrink(z: Tensor) -> Tensor:
    """z - tanh z, without the difference where it would be small: tanh z = z / (1 + z²/(3 + z²/(5 + ...)))."""
    square, rest = z.square(), torch.full_like(z, 2.0 * _FRACTION + 1)
    for odd in range(2 * _FRACTION - 1, 1, -2):
        rest = odd + square / rest
    share = square / rest
    return torch.where(z.abs() < 1, z * (share / (1 + share)), z - torch.tanh(z))


def _gelu_tanh_slope(z: Tensor) -> Tensor:
    scale = math.sqrt(2 / math.pi)
    t = torch.tanh(scale * (z + _CUBIC * z**3))
    return (1 + t) / 2 + z / 2 * (1 - t) * (1 + t) * scale * (1 + 3 * _CUBIC * z * z)


def _sinc_slope(z: Tensor) -> Tensor:
    """(cos πz - sinc z) / z, by its series where that is a small difference."""
    w = (math.pi * z).square()
    near = -(math.pi**2) * z / 3 * (1 - w / 10 * (1 - w / 28 * (1 - w / 54 * (1 - w / 88))))
    far = (torch.cos(math.pi * z) - torch.sinc(z)) / torch.where(z == 0, 1, z)
    return torch.where(z.abs() < 0.05, near, far)


GELU_TANH = Activation.from_function(
    lambda z: functional.gelu(z, approximate="tanh"), name="gelu_tanh", derivative=_gelu_tanh_slope
)
LOG_SIGMOID = Activation.from_function(
    functional.logsigmoid, name="log_sigmoid", monotone=True, derivative=lambda z: torch.sigmoid(-z)
)
SOFTSIGN = Activation.from_function(
    lambda z: z / (1 + z.abs()),
    name="softsign",
    kinks=(0.0,),  # of f''
    monotone=True,
    derivative=lambda z: (1 + z.abs()) ** -2,
)
TANH_SHRINK = Activation.from_function(
    _tanh_shrink, name="tanh_shrink", monotone=True, derivative=lambda z: torch.tanh(z).square()
)
ATAN = Activation.from_function(torch.atan, name="atan", monotone=True, derivative=lambda z: 1 / (1 + z * z))
ASINH = Activation.from_function(torch.asinh, name="asinh", monotone=True, derivative=lambda z: (1 + z * z).rsqrt())
SINH = Activation.from_function(torch.sinh, name="sinh", monotone=True, derivative=torch.cosh)
COSH = Activation.from_function(torch.cosh, name="cosh", derivative=torch.sinh)
EXPM1 = Activation.from_function(torch.expm1, name="expm1", monotone=True, derivative=torch.exp)
EXP2 = Activation.from_function(
    torch.exp2, name="exp2", monotone=True, derivative=lambda z: math.log(2) * torch.exp2(z)
)
ERFC = Activation.from_function(
    torch.erfc, name="erfc", derivative=lambda z: -2 / math.sqrt(math.pi) * torch.exp(-z * z)
)
SINC = Activation.from_function(torch.sinc, name="sinc", derivative=_sinc_slope)


@remembered
def celu(alpha: float = 1.0) -> Activation:
    """u for u > 0, alpha (e^(u/alpha) - 1) below.

    >>> celu(1.0).name
    'elu(1)'
    """
    if alpha <= 0:
        raise BadInput("celu", f"alpha is {alpha:g}", "give a number above 0")
    if alpha == 1:
        return ELU
    return Activation.from_function(
        lambda z: torch.where(z > 0, z, alpha * torch.expm1(z.clamp(max=0) / alpha)),
        name=f"celu({alpha:g})",
        kinks=(0.0,),
        monotone=True,
        derivative=lambda z: torch.where(z > 0, 1.0, torch.exp(z.clamp(max=0) / alpha)),
    )


@remembered
def softplus(beta: float = 1.0, threshold: float = 20.0) -> Activation:
    """log(1 + e^(beta u)) / beta, and u itself where beta u is above the threshold, as in torch.

    >>> softplus().name, softplus(2.0).name
    ('softplus', 'softplus(2, 20)')
    """
    if beta <= 0:
        raise BadInput("softplus", f"beta is {beta:g}", "give a number above 0")
    if _CLEAR < threshold < _SURE:
        raise BadInput("softplus", f"the threshold is {threshold:g}", f"take {_SURE:g} or more, or at most {_CLEAR:g}")
    sharp = threshold <= _CLEAR
    if beta == 1 and not sharp:
        return SOFTPLUS

    def value(z: Tensor) -> Tensor:
        soft = torch.logaddexp(beta * z, torch.zeros_like(z)) / beta
        return torch.where(beta * z > threshold, z, soft) if sharp else soft

    def slope(z: Tensor) -> Tensor:
        soft = torch.sigmoid(beta * z)
        return torch.where(beta * z > threshold, 1.0, soft) if sharp else soft

    return Activation.from_function(
        value,
        name=f"softplus({beta:g}, {threshold:g})",
        kinks=(threshold / beta,) if sharp else (),
        monotone=not sharp,
        derivative=slope,
    )
