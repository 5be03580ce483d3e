"""Every elementwise call of torch is the activation that theory takes it for, whatever its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from initscope.activations import Activation, Pair
from initscope.layers import Activate
from initscope.probe.batches import as_batch
from initscope.probe.elementwise import ELEMENTWISE
from initscope.probe.inspection import inspect_model
from initscope.probe.translation import layer_for


class Apply(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def prelu(*slopes: float) -> nn.PReLU:
    module = nn.PReLU(len(slopes))
    module.weight.data = torch.tensor(slopes)
    return module


MODULES: dict[str, nn.Module] = {
    "ReLU": nn.ReLU(),
    "ReLU in place": nn.ReLU(inplace=True),
    "ReLU6": nn.ReLU6(),
    "LeakyReLU": nn.LeakyReLU(0.3),
    "LeakyReLU falling": nn.LeakyReLU(-0.7),
    "PReLU": nn.PReLU(),
    "PReLU falling": prelu(-0.4),
    "PReLU equal slopes": prelu(0.6, 0.6, 0.6, 0.6),
    "RReLU": nn.RReLU(0.1, 0.7).eval(),
    "ELU": nn.ELU(),
    "ELU 2.5": nn.ELU(2.5),
    "CELU": nn.CELU(),
    "CELU 2": nn.CELU(2.0),
    "CELU 0.3": nn.CELU(0.3, inplace=True),
    "SELU": nn.SELU(),
    "GELU": nn.GELU(),
    "GELU tanh": nn.GELU("tanh"),
    "SiLU": nn.SiLU(),
    "Mish": nn.Mish(),
    "Softplus": nn.Softplus(),
    "Softplus 3": nn.Softplus(3.0),
    "Softplus 0.2, 30": nn.Softplus(0.2, 30.0),
    "Softplus 1, 1": nn.Softplus(1.0, 1.0),
    "Tanh": nn.Tanh(),
    "Sigmoid": nn.Sigmoid(),
    "LogSigmoid": nn.LogSigmoid(),
    "Softsign": nn.Softsign(),
    "Tanhshrink": nn.Tanhshrink(),
    "Softshrink": nn.Softshrink(),
    "Softshrink 1.3": nn.Softshrink(1.3),
    "Softshrink 0": nn.Softshrink(0.0),
    "Hardshrink": nn.Hardshrink(),
    "Hardshrink 1.3": nn.Hardshrink(1.3),
    "Hardshrink 0": nn.Hardshrink(0.0),
    "Hardsigmoid": nn.Hardsigmoid(),
    "Hardswish": nn.Hardswish(),
    "Hardtanh": nn.Hardtanh(),
    "Hardtanh -2, 0.5": nn.Hardtanh(-2.0, 0.5),
    "Hardtanh 0.2, 0.7": nn.Hardtanh(0.2, 0.7),
    "Threshold": nn.Threshold(0.5, -2.0),
    "Threshold that is a clamp": nn.Threshold(0.5, 0.5),
    "Threshold that is a ReLU": nn.Threshold(0.0, 0.0),
}
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "F.relu": F.relu,
    "torch.relu": torch.relu,
    "Tensor.relu_": lambda x: x.relu_(),
    "F.leaky_relu": lambda x: F.leaky_relu(x, negative_slope=0.2),
    "F.rrelu": lambda x: F.rrelu(x),
    "F.elu": lambda x: F.elu(x, alpha=0.4),
    "F.celu": lambda x: torch.celu(x, 3.0),
    "F.gelu": lambda x: F.gelu(x, approximate="tanh"),
    "F.softplus": lambda x: F.softplus(x, beta=2, threshold=4),
    "torch.tanh": torch.tanh,
    "Tensor.tanh": lambda x: x.tanh(),
    "F.tanh": F.tanh,
    "torch.sigmoid": torch.sigmoid,
    "torch.special.expit": torch.special.expit,
    "F.logsigmoid": F.logsigmoid,
    "F.softsign": F.softsign,
    "F.tanhshrink": F.tanhshrink,
    "F.softshrink": lambda x: F.softshrink(x, lambd=0.8),
    "F.hardshrink": lambda x: x.hardshrink(0.8),
    "F.hardsigmoid": F.hardsigmoid,
    "F.hardswish": F.hardswish,
    "F.hardtanh": lambda x: F.hardtanh(x, min_val=-0.3),
    "F.relu6": F.relu6,
    "F.threshold": lambda x: F.threshold(x, 0.1, value=20.0),
    "torch.threshold": lambda x: torch.threshold(x, -0.5, -0.5),
    "clamp both": lambda x: x.clamp(-0.2, 1.0),
    "clamp by name": lambda x: torch.clamp(x, max=0.4, min=-3),
    "clip": lambda x: x.clip(-0.2, 1.0),
    "clamp below": lambda x: torch.clamp(x, -1.0),
    "clamp above": lambda x: torch.clamp(x, max=1.5),
    "clamp wide": lambda x: torch.clamp(x, -1e9, 1e9),
    "clamp_min": lambda x: x.clamp_min(0),
    "clamp_max": lambda x: torch.clamp_max(x, 0.3),
    "abs": torch.abs,
    "Tensor.absolute": lambda x: x.absolute(),
    "square": torch.square,
    "pow": lambda x: x.pow(3),
    "operator pow": lambda x: x**2,
    "torch.pow": lambda x: torch.pow(x, 1),
    "sin": torch.sin,
    "cos": lambda x: x.cos(),
    "sinc": torch.sinc,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.arcsinh,
    "atan": torch.arctan,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "erf": torch.erf,
    "torch.special.erf": torch.special.erf,
    "erfc": torch.erfc,
}
ALL = {**MODULES, **{name: Apply(f) for name, f in FUNCTIONS.items()}}
NOT_TRANSLATED: dict[str, nn.Module] = {
    "slopes that the model does not own": Apply(lambda x: F.prelu(x, torch.tensor([0.1]))),
    "slopes by channel": prelu(0.1, 0.2, 0.3, 0.4),
    "random slopes": nn.RReLU().train(),
    "softplus that jumps by 1e-5": nn.Softplus(1.0, 11.0),
    "softplus of -x": nn.Softplus(-1.0),
    "clamp to a tensor": Apply(lambda x: torch.clamp(x, min=torch.zeros(4))),
    "clamp by the data": Apply(lambda x: torch.clamp(torch.zeros(len(x), 4), min=x)),
    "clamp to a point": Apply(lambda x: torch.clamp(x, 1.0, 1.0)),
    "a root": Apply(lambda x: x.pow(0.5)),
    "a pole": Apply(lambda x: x**-1),
    "powers of a number": Apply(lambda x: 2.0**x),
}


def translated(module: nn.Module) -> Activation | None:
    module.train(module.training)
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    batch = as_batch(x, module)
    steps = inspect_model(module, batch, backward=False, train=module.training).steps
    layer = layer_for(steps[-1].call)
    assert layer is None or isinstance(layer, Activate)
    return None if layer is None else layer.activation


def points(f: Activation) -> Tensor:
    """Between -30 and 30, denser at 0, and around the kinks, but not on a kink."""
    z = torch.linspace(-29.7, 29.9, 1204, dtype=torch.float64)
    near = torch.tensor([k + d for k in f.kinks for d in (-0.3, -1e-3, 1e-3, 0.3)], dtype=torch.float64)
    return torch.cat([z, z / 30, near])


def given(module: nn.Module, z: Tensor) -> Tensor:
    """The module's values in float64; a module with a slope for each channel takes any slope, as they are equal."""
    if isinstance(module, nn.PReLU):
        return F.prelu(z, module.weight.detach()[:1].double())
    out: Tensor = module(1 * z)  # some write into what they are given
    return out


@pytest.mark.parametrize("name", ALL)
def test_values_and_slopes_are_those_of_torch(name: str) -> None:
    module = ALL[name]
    f = translated(module)
    assert f is not None
    z = points(f)
    torch.testing.assert_close(f(z), given(module, z), rtol=1e-12, atol=1e-8 if "oftplus" in name else 1e-13)
    if f.derivative is None:
        return
    x = z.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(given(module, 1 * x).sum(), x)
    # The gradients of torch hold some constants in single precision.
    torch.testing.assert_close(f.derivative(z), slope, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", NOT_TRANSLATED)
def test_what_theory_cannot_follow_is_not_translated(name: str) -> None:
    assert translated(NOT_TRANSLATED[name]) is None


def test_no_row_is_left_untested() -> None:
    def function(module: nn.Module) -> str:
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
        return inspect_model(module, as_batch(x, module), backward=False, train=module.training).steps[-1].call.function

    assert {function(module) for module in ALL.values()} >= set(ELEMENTWISE)


def axis(s: float, kinks: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre points between -11 s and 11 s, in panels that end at the kinks."""
    inside = [k for k in kinks if abs(k) < 11 * s]
    edges = np.unique(np.concatenate([np.linspace(-11 * s, 11 * s, 67), inside]))
    nodes, weights = np.polynomial.legendre.leggauss(10)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (nodes + 1)).ravel(), (half * weights).ravel()


def integrated(f: Activation, a: float, b: float, rho: float) -> tuple[float, float, float]:
    """E f(u) f(v), E (f(u)-f(v))² and E f(u) by the density of the plane: nothing of what the library uses."""
    (u, wu), (v, wv) = axis(a, f.kinks), axis(b, f.kinks)
    fu, fv = (f(torch.from_numpy(z)).numpy() for z in (u, v))
    x, y = (u / a)[:, None], (v / b)[None, :]
    density = np.exp(-(x * x - 2 * rho * x * y + y * y) / (2 * (1 - rho * rho)))
    density *= wu[:, None] * wv[None, :] / (2 * math.pi * a * b * math.sqrt(1 - rho * rho))
    product = fu @ density @ fv
    distance = ((fu[:, None] - fv[None, :]) ** 2 * density).sum()
    mean = (fu * wu * np.exp(-u * u / (2 * a * a))).sum() / math.sqrt(2 * math.pi) / a
    return float(product), float(distance), float(mean)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("many", [False, True], ids=["few", "many"])
def test_moments_are_those_of_an_independent_integral(name: str, many: bool) -> None:
    f = translated(ALL[name])
    assert f is not None
    states = [(0.3, 0.3, 0.5), (1.0, 1.0, 0.9), (1.0, 1.2, -0.7), (0.4, 1.5, 0.2)]
    a, b, rho = (torch.tensor(column, dtype=torch.float64) for column in zip(*states, strict=True))
    if many:  # a series or an interpolant answers
        a, b, rho = (t.repeat(60) for t in (a, b, rho))
        a = a * torch.linspace(1, 1.2, len(a), dtype=torch.float64).roll(4)
        if f.rung == "quadrature" and len(f.kinks) > 0 and not f.dual.pieces and f.dual.jumps:  # type: ignore[attr-defined]
            pytest.skip("jumps are integrated one by one")
    A, B, both = a * a, b * b, a * b
    pair = Pair(A, B, 2 * both * (1 - rho), both * rho)
    roots = f.second_moment(A).sqrt(), f.second_moment(B).sqrt()
    value, means = f.carry(pair, *roots), f.mean(A)
    distance = f.distance(A, B, (a - b).square() + 2 * both * (1 - rho))
    for i in range(0, 4 if not many else len(a), 1 if not many else 37):
        product, gap, mean = integrated(f, float(a[i]), float(b[i]), float(rho[i]))
        size = float(roots[0][i] * roots[1][i])
        assert float(value.product[i]) == pytest.approx(product, rel=0, abs=1e-8 * size)
        assert float(value.excess[i]) == pytest.approx(2 * (size - product), rel=1e-7, abs=1e-8 * size)
        assert float(distance[i]) == pytest.approx(gap, rel=1e-7)
        assert float(means[i]) == pytest.approx(mean, rel=1e-8, abs=1e-8 * float(roots[0][i]))
