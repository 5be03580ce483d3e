"""What every kernel and every tangent kernel of a network must be: symmetric, positive semidefinite, continuous.

The limits come from the arithmetic, not from what networks were seen to do. Sums of positive terms and closed forms hold to
`ROUNDING` (positive semidefinite) and `FLOOR` (continuous). The inputs themselves are rounded, an average over positions and
filters with dependent taps subtract, and layers behind them can magnify the rounding of that: a jump makes the root of it. How
much is measured for every network: the last digit of the inputs and the subtractions within their accuracy
(`laws.rounding`) are moved at random and the matrix is computed again. It may be off by `MARGIN` times as much, and never by
more than `MOST`.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from initscope.errors import InitscopeError, SimulatedKernel
from initscope.networks import Sequential, kernel, predict, tangent_kernel
from laws.rounding import SHARE, subtractions_moved

STEPS = (1e-3, 1e-5, 1e-7, 1e-9, 1e-10, 1e-12)
ROUNDING = 1e-9  # of the largest diagonal entry: what the integrals of activations without a closed form may leave
SHRINKS = 0.9  # how much smaller a difference becomes at least from one step to the next
FLOOR = 1e-7  # relative differences below this are rounding
MOST = 0.05  # that may be put down to rounding at all
DRAWS = 3  # times that the subtractions are moved
MARGIN = 3  # between the largest of these few draws and the worst case
UNUSUAL = 1e8  # norms beyond this, or below its inverse

Matrix = Callable[..., Tensor]


@dataclass
class Findings:
    """Of one network: what was asked of it, what was violated, and how much was put down to rounding."""

    asked: Counter[str] = field(default_factory=Counter)
    violated: list[str] = field(default_factory=list)
    rounding: float = 0.0  # the largest allowance beyond the plain limits


@dataclass(frozen=True)
class Allowance:
    """What rounding of subtractions may do, beyond the plain limits, to eigenvalues and to x against x(1 + h)."""

    eigenvalue: float = 0.0
    across: float = 0.0


def examine(net: Sequential, x: Tensor) -> Findings:
    """All properties of both matrices; what the network does not have is left out.

    Drawn units depend on their covariance without continuity, and have the positive semidefinite matrix of another network in
    each replicate, but for layers behind them: of simulated kernels symmetry is asked, and the rest within their error.
    Of networks with norms beyond `UNUSUAL` only symmetry is asked: sin of a variance of 1e30 is not continuous at any h.
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
            allowed = _allowance(function, net, x, whole) if usual and not simulated else Allowance()
            found.rounding = max(found.rounding, allowed.eigenvalue, allowed.across)
            found.asked[f"{name}, symmetry"] += 1
            problems = _symmetry(whole)
            if usual and not problems:
                found.asked[f"{name}, eigenvalues"] += 1
                problems += _eigenvalues(whole, x, 0.1 if simulated else ROUNDING + allowed.eigenvalue)
            if usual and not simulated:
                found.asked[f"{name}, continuity"] += 1
                problems += _continuity(function, net, x, FLOOR + allowed.across)
        if max(allowed.eigenvalue, allowed.across) > MOST:
            problems.append(f"rounding alone makes {max(allowed.eigenvalue, allowed.across):.3g}")
        found.violated += [f"{name}: {problem}" for problem in problems]
    return found


def _usual(net: Sequential, x: Tensor) -> bool:
    """Whether every layer leaves norms of a usual size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            layers = predict(net, x, x.flip(0)).layers
        except InitscopeError:
            return False
    squares = torch.stack([layer.norm_x.square() / math.prod(layer.shape) for layer in layers])
    return bool(((squares > 1 / UNUSUAL) & (squares < UNUSUAL)).all())


def _allowance(function: Matrix, net: Sequential, x: Tensor, whole: Tensor) -> Allowance:
    """How far the matrix moves with its subtractions and with the last digit of the inputs.

    By Weyl's inequality no eigenvalue moves further than the norm of that.
    """
    eigenvalue = across = 0.0
    own = _across(function, net, x, 0.0)
    usable = _usable(own, x)
    for seed in range(DRAWS):
        g = torch.Generator().manual_seed(seed)
        y = x * (1 + torch.finfo(x.dtype).eps * (2 * torch.rand(x.shape, generator=g, dtype=x.dtype) - 1))
        with subtractions_moved(seed):
            other, twin = function(net, y), _beside(function, net, x, y)
        off, _ = _unit(other - whole, whole.diagonal(), x)
        if len(off):
            eigenvalue = max(eigenvalue, float(torch.linalg.matrix_norm(off, 2)) / len(off))
        across = max(across, float(torch.where(usable, (twin / own - 1).abs(), 0).max()))
    return Allowance(MARGIN * eigenvalue, MARGIN * across)


def _unit(matrix: Tensor, own: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix over the roots of the diagonal, without inputs of which nothing but rounding is left; and which are kept."""
    kept = _usable(own, x)
    scale = own[kept].sqrt()
    return matrix[kept][:, kept] / (scale[:, None] * scale), kept


def _usable(own: Tensor, x: Tensor) -> Tensor:
    """Entries that are more than rounding."""
    return own.isfinite() & (own > SHARE * float(x.square().mean()))


def _symmetry(whole: Tensor) -> list[str]:
    if bool(whole.diagonal().isinf().any()):  # exp of exp leaves the range of float64
        return []
    if not bool(whole.isfinite().all()):
        return ["NaN"]
    return [] if torch.equal(whole, whole.T) else ["not symmetric"]


def _eigenvalues(whole: Tensor, x: Tensor, rounding: float) -> list[str]:
    own = whole.diagonal()
    if bool((own < -SHARE * float(x.square().mean())).any()):
        return [f"diagonal {float(own.min()):.3g}"]
    unit, _ = _unit(whole, own, x)
    lowest = float(torch.linalg.eigvalsh(unit)[0]) if len(unit) else 0.0
    return [f"eigenvalue {lowest:.3g}"] if lowest < -rounding * len(unit) else []


def _across(function: Matrix, net: Sequential, x: Tensor, h: float) -> Tensor:
    """Each x beside x(1 + h)."""
    return _beside(function, net, x, x * (1 + h))


def _beside(function: Matrix, net: Sequential, x: Tensor, y: Tensor) -> Tensor:
    """Each x beside its y."""
    if net.needs_joint_batch:  # the two sides are one batch
        return function(net, torch.cat([x, y]))[: len(x), len(x) :].diagonal()
    return function(net, x, y).diagonal()


def _continuity(function: Matrix, net: Sequential, x: Tensor, floor: float) -> list[str]:
    """x against x(1 + h): the difference to x against x shrinks with h, to rounding.

    It does not shrink steadily behind jumps, where it goes with a root of h and may change its sign: all inputs together do.
    """
    own = _across(function, net, x, 0.0)
    usable = _usable(own, x)
    problems: list[str] = []
    before = math.inf
    for h in STEPS:
        here = _across(function, net, x, h)
        gap = torch.where(usable, (here / own - 1).abs(), 0)
        largest = float(gap.max())
        if largest > max(SHRINKS * before, floor) or bool(here.isnan().any()):
            problems.append(f"x against x(1 + {h:g}) is off by {largest:.3g}")
        before = largest
    return problems
