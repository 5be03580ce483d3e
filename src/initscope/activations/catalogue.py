"""The named activations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from initscope.activations.activation import Activation
from initscope.activations.arc_cosine import JumpDual, LeakyDual
from initscope.activations.closed_forms import CosDual, ErfDual, ExpDual, GaussianDual, GeluDual, SinDual
from initscope.activations.polynomials import HermiteDual, PolynomialDual, differentiate, hermite_coefficients
from initscope.activations.rectified_powers import RectifiedPowerDual
from initscope.activations.remembering import remembered
from initscope.errors import BadInput

_ARC_COSINE = "Cho & Saul 2009, Kernel Methods for Deep Learning"
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717  # Klambauer et al. 2017


def _identity(z: Tensor) -> Tensor:
    return z


def _step(z: Tensor) -> Tensor:
    return (z > 0).to(z.dtype)


def _gelu(z: Tensor) -> Tensor:
    return functional.gelu(z)


def _gaussian(z: Tensor) -> Tensor:
    return torch.exp(-z * z / 2)


def _erf_slope(z: Tensor) -> Tensor:
    return 2 / math.sqrt(math.pi) * torch.exp(-z * z)


def _tanh_slope(z: Tensor) -> Tensor:
    return 1 / torch.cosh(z.clamp(-300, 300)) ** 2


def _sigmoid_slope(z: Tensor) -> Tensor:
    return torch.sigmoid(z) * torch.sigmoid(-z)


def _silu_slope(z: Tensor) -> Tensor:
    share = torch.sigmoid(z)
    return share * (1 + z * torch.sigmoid(-z))


def _selu_slope(z: Tensor) -> Tensor:
    return _SELU_SCALE * torch.where(z > 0, 1.0, _SELU_ALPHA * torch.exp(z.clamp(max=0)))


def _mish_slope(z: Tensor) -> Tensor:
    t = torch.tanh(functional.softplus(z, threshold=50))
    return t + z * torch.sigmoid(z) * (1 - t) * (1 + t)


@remembered
def leaky_relu(slope: float = 0.01) -> Activation:
    """u for u > 0, slope·u below; any slope, negative ones included.

    >>> leaky_relu(0.2).name
    'leaky_relu(0.2)'
    """
    return Activation(
        name=f"leaky_relu({slope:g})",
        fn=lambda z: torch.where(z > 0, z, slope * z),
        derivative=lambda z: torch.where(z > 0, torch.ones_like(z), slope),
        dual=LeakyDual(slope),
        source=f"{_ARC_COSINE}, J1",
        degree=1,
        kinks=(0.0,),
        monotone=slope >= 0,
    )


@remembered
def rectified_power(order: int) -> Activation:
    """relu(u)^k: the step for k = 0, the ReLU for k = 1, then J_2, J_3, ... of the arc-cosine family.

    >>> one = torch.tensor(1.0, dtype=torch.float64)
    >>> float(rectified_power(2).second_moment(one))
    1.5
    """
    order = _whole("rectified_power", order)
    name, source = f"rectified_power({order})", f"{_ARC_COSINE}, J{order}"
    if order == 0:
        return Activation(name, _step, JumpDual(0.0, 0.0, 1.0), source, 0, (0.0,), True)
    dual = LeakyDual(0.0) if order == 1 else RectifiedPowerDual(order)
    return Activation(
        name,
        lambda z: torch.relu(z) ** order,
        dual,
        source,
        order,
        (0.0,),
        True,
        lambda z: (z > 0) * order * torch.relu(z) ** (order - 1),
    )


@remembered
def polynomial(coefficients: Sequence[float]) -> Activation:
    """c_0 + c_1 u + c_2 u² + ...

    >>> one = torch.tensor(1.0, dtype=torch.float64)
    >>> float(polynomial([0.0, 0.0, 1.0]).second_moment(one))
    3.0
    """
    numbers = tuple(float(c) for c in coefficients)
    if not numbers or not all(math.isfinite(c) for c in numbers):
        raise BadInput("polynomial", f"the coefficients are {list(numbers)}", "give at least one finite number")
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers = numbers[:-1]
    powers = [i for i, c in enumerate(numbers) if c]
    odd_and_rising = all(i % 2 == 1 and numbers[i] > 0 for i in powers if i > 0)
    return Activation(
        name=f"polynomial({', '.join(f'{c:g}' for c in numbers)})",
        fn=lambda z: _horner(numbers, z),
        derivative=lambda z: _horner(differentiate(numbers), z),
        dual=PolynomialDual(numbers),
        source="Isserlis 1918 (Wick's theorem)",
        degree=powers[0] if len(powers) == 1 else None,
        monotone=odd_and_rising,
    )


@remembered
def hermite(order: int) -> Activation:
    """The probabilists' Hermite polynomial divided by √k!, of second moment 1 at variance 1, for u of any variance.

    >>> half = torch.tensor(0.5, dtype=torch.float64)
    >>> round(float(hermite(3).product(2 * half, 2 * half, 2 * half)), 12)
    0.125
    """
    order = _whole("hermite", order)
    coefficients = hermite_coefficients(order)
    return Activation(
        name=f"hermite({order})",
        fn=lambda z: _horner(coefficients, z),
        derivative=lambda z: _horner(differentiate(coefficients), z),
        dual=HermiteDual(order),
        source="Mehler 1866",
        degree=order if order < 2 else None,
        monotone=order < 2,
    )


@remembered
def elu(alpha: float = 1.0) -> Activation:
    """u for u > 0, alpha (e^u - 1) below; by quadrature."""
    return Activation.from_function(
        lambda z: torch.where(z > 0, z, alpha * torch.expm1(z.clamp(max=0))),
        derivative=lambda z: torch.where(z > 0, 1.0, alpha * torch.exp(z.clamp(max=0))),
        name=f"elu({alpha:g})",
        kinks=(0.0,),
        monotone=alpha >= 0,
    )


def _horner(coefficients: Sequence[float], z: Tensor) -> Tensor:
    total = torch.zeros_like(z)
    for c in reversed(coefficients):
        total = total * z + c
    return total


def _whole(place: str, order: float) -> int:
    if order != int(order) or order < 0:
        raise BadInput(place, f"the order is {order}", "use a whole number 0, 1, 2, ...")
    return int(order)


_GAUSS = "characteristic function of the Gaussian"

RELU = Activation("relu", torch.relu, LeakyDual(0.0), f"{_ARC_COSINE}, J1", 1, (0.0,), True, _step)
ABS = Activation("abs", torch.abs, LeakyDual(-1.0), f"{_ARC_COSINE}, J1", 1, (0.0,), False, torch.sign)
IDENTITY = Activation("identity", _identity, LeakyDual(1.0), "linear", 1, (), True, torch.ones_like)
STEP = Activation("step", _step, JumpDual(0.0, 0.0, 1.0), f"{_ARC_COSINE}, J0", 0, (0.0,), True)
SIGN = Activation("sign", torch.sign, JumpDual(-1.0, 0.0, 1.0), f"{_ARC_COSINE}, J0", 0, (0.0,), True)
ERF = Activation("erf", torch.erf, ErfDual(), "Williams 1997", None, (), True, _erf_slope)
GELU = Activation("gelu", _gelu, GeluDual(), "Tsuchida et al. 2021, exact form")
SIN = Activation("sin", torch.sin, SinDual(), _GAUSS, derivative=torch.cos)
COS = Activation("cos", torch.cos, CosDual(), _GAUSS, derivative=lambda z: -torch.sin(z))
EXP = Activation("exp", torch.exp, ExpDual(), "moment generating function of the Gaussian", None, (), True, torch.exp)
GAUSSIAN = Activation(
    "gaussian", _gaussian, GaussianDual(), "Gaussian integral", derivative=lambda z: -z * _gaussian(z)
)

TANH = Activation.from_function(torch.tanh, name="tanh", monotone=True, derivative=_tanh_slope)
SIGMOID = Activation.from_function(torch.sigmoid, name="sigmoid", monotone=True, derivative=_sigmoid_slope)
SILU = Activation.from_function(functional.silu, name="silu", derivative=_silu_slope)
SOFTPLUS = Activation.from_function(
    lambda z: torch.logaddexp(z, torch.zeros_like(z)), name="softplus", monotone=True, derivative=torch.sigmoid
)
ELU = elu()
SELU = Activation.from_function(functional.selu, name="selu", kinks=(0.0,), monotone=True, derivative=_selu_slope)
HARDSWISH = Activation.from_function(
    functional.hardswish, name="hardswish", kinks=(-3.0, 3.0), pieces=((0,), (0, 1 / 2, 1 / 6), (0, 1))
)
MISH = Activation.from_function(functional.mish, name="mish", derivative=_mish_slope)
RELU6 = Activation.from_function(
    functional.relu6, name="relu6", kinks=(0.0, 6.0), pieces=((0,), (0, 1), (6,)), monotone=True
)
HARDTANH = Activation.from_function(
    functional.hardtanh, name="hardtanh", kinks=(-1.0, 1.0), pieces=((-1,), (0, 1), (1,)), monotone=True
)
