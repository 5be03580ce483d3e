"""What every kernel and every tangent kernel of a network must be: symmetric, positive semidefinite, continuous."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from initscope.errors import InitscopeError, SimulatedKernel
from initscope.networks import Sequential, kernel, predict, tangent_kernel

STEPS = (1e-3, 1e-6, 1e-9, 1e-12)
ROUNDING = 1e-9  # of the largest diagonal entry: what the integrals of activations without a closed form may leave
SHRINKS = 0.9  # how much smaller a difference becomes at least for inputs that are a thousand times closer
FLOOR = 1e-7  # relative differences below this are rounding
ANGLE = 1e-6  # that rounding leaves between equal inputs behind a pooling that nearly cancels them
UNUSUAL = 1e8  # norms beyond this, or below its inverse

Matrix = Callable[..., Tensor]


@dataclass
class Findings:
    """Of one network: which matrices were computed, and what was violated."""

    computed: list[str] = field(default_factory=list)
    violated: list[str] = field(default_factory=list)


def examine(net: Sequential, x: Tensor) -> Findings:
    """All properties of both matrices; what the network does not have is left out.

    Drawn units depend on their covariance without continuity, and have the positive semidefinite matrix of another network in
    each replicate, but for layers behind them: of simulated kernels symmetry is asked, and the rest within their error.
    """
    found = Findings()
    functions: dict[str, Matrix] = {"kernel": kernel, "tangent": tangent_kernel}
    usual = _usual(net, x)
    for name, function in functions.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                whole = function(net, x)
            except InitscopeError:
                continue
            simulated = any(issubclass(warning.category, SimulatedKernel) for warning in caught)
            found.computed.append(name)
            problems = _matrix(whole, x, 0.1 if simulated else max(ROUNDING, _blur(net, name)), usual)
            if usual and not simulated:
                found.computed.append(f"{name}, continuity")
                problems += _continuity(function, net, x, max(FLOOR, _blur(net, name)))
        found.violated += [f"{name}: {problem}" for problem in problems]
    return found


def _usual(net: Sequential, x: Tensor) -> bool:
    """Whether every layer leaves norms of a usual size: sin of a variance of 1e30 is not continuous at any h of float64."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            layers = predict(net, x, x.flip(0)).layers
        except InitscopeError:
            return False
    squares = torch.stack([layer.norm_x.square() / math.prod(layer.shape) for layer in layers])
    return bool(((squares > 1 / UNUSUAL) & (squares < UNUSUAL)).all())


def _matrix(whole: Tensor, x: Tensor, rounding: float, usual: bool) -> list[str]:
    own = whole.diagonal()
    if bool(own.isinf().any()):  # exp of exp leaves the range of float64
        return []
    if not bool(whole.isfinite().all()):
        return ["NaN"]
    if not torch.equal(whole, whole.T):
        return ["not symmetric"]
    if not usual:  # filters that sum to zero leave the rounding of 1e30
        return []
    nothing = ROUNDING**1.5 * float(x.square().mean())  # filters that sum to zero leave rounding of a constant
    if bool((own < -nothing).any()):
        return [f"diagonal {float(own.min()):.3g}"]
    scale = own.sqrt().clamp_min(1e-150)
    unit = whole / (scale[:, None] * scale)
    unit = unit[own > nothing][:, own > nothing]
    lowest = float(torch.linalg.eigvalsh(unit)[0]) if len(unit) else 0.0
    return [f"eigenvalue {lowest:.3g}"] if lowest < -rounding * len(unit) else []


def _blur(net: Sequential, name: str) -> float:
    """What that angle becomes: jumps of f, and of f' in tangent kernels, go with it, jumps behind them with its root."""
    text = repr(net)
    angle = ANGLE if any(word in text for word in ("gap", "avgpool", "l2pool")) else ROUNDING
    jumps = sum(text.count(word) for word in ("sign", "step")) + (name == "tangent")
    return angle ** (0.5 ** (jumps - 1)) if jumps else 0.0


def _continuity(function: Matrix, net: Sequential, x: Tensor, floor: float) -> list[str]:
    """x against x(1 + h): the difference to x against x shrinks with h, to rounding.

    It does not shrink steadily behind jumps, where it goes with a root of h and may change its sign: all inputs together do.
    """

    def across(h: float) -> Tensor:
        y = x * (1 + h)
        if net.needs_joint_batch:  # the two sides are one batch
            return function(net, torch.cat([x, y]))[: len(x), len(x) :].diagonal()
        return function(net, x, y).diagonal()

    own = across(0.0)
    usable = own.isfinite() & (own > 0)
    problems: list[str] = []
    before = math.inf
    for h in STEPS:
        here = across(h)
        gap = torch.where(usable, (here / own - 1).abs(), 0)
        largest = float(gap.max())
        if largest > SHRINKS * max(before, floor) or bool(here.isnan().any()):
            problems.append(f"x against x(1 + {h:g}) is off by {largest:.3g}")
        before = largest
    return problems
