"""Layer and group normalisation: over channels, with or without positions, each input by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from initscope.activations import Pair
from initscope.errors import BadInput, NoExactForm
from initscope.geometry import Block, Pairs, Side, State, draw_units, push, regroup
from initscope.geometry.inputs import MOST_AXES
from initscope.layers.layer import Shape, SingleLayer, Trace, require_number, require_positive

FEW_CHANNELS = 32
Over = Literal["all", "channels"] | tuple[int, ...]


@dataclass(frozen=True, repr=False)
class LayerNorm(SingleLayer):
    """Centre and scale each input over its channels and positions (`all`), or over channels at each position (`channels`).

    `over` may also list axes of one input, 0 for the channels and 1, 2, ... for positions: (0, 2) normalizes each row of
    an image by itself. Channels are always among them.

    With many channels the statistics are the expectations: μ = mean of the units' means m, σ² = mean of V + (m - μ)²,
    where V = A - m² is the variance of a unit. Then A' = (V + (m - μ)²)/σ², and see `centred_pairs`.
    """

    over: Over = "all"
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        require_number("ln", epsilon=self.epsilon)
        if self.over in ("all", "channels"):
            return
        if not isinstance(self.over, tuple) or not all(type(a) is int and 0 <= a <= MOST_AXES for a in self.over):
            raise BadInput("ln", f"over is {self.over!r}", "use 'all', 'channels', or axes such as (0, 2)")
        if 0 not in self.over or len(set(self.over)) < len(self.over):
            raise BadInput(
                "ln",
                f"axes {self.over} lack the channels (0), or name an axis twice",
                "list 0 and each position axis once; for each channel by itself use GroupNorm(channels)",
            )

    @property
    def word(self) -> str:
        inside = self.over if isinstance(self.over, str) else ", ".join(map(str, self.over))
        return "ln" if self.over == "all" else f"ln({inside})"

    def output_shape(self, shape: Shape) -> Shape:
        if isinstance(self.over, tuple) and max(self.over) >= len(shape):
            raise BadInput(
                self.word, f"the input {shape} has no axis {max(self.over)}", f"use axes 0 to {len(shape) - 1}"
            )
        return shape

    def axes(self, positions: int) -> tuple[int, ...]:
        """The position axes, counted from 0, that are normalized together, of so many."""
        if isinstance(self.over, tuple):
            return tuple(sorted(a - 1 for a in self.over if a > 0))
        return tuple(range(positions)) if self.over == "all" else ()

    def _exact(self, state: State, trace: Trace) -> State:
        return normalise(state, self.axes(len(state.positions)), self.epsilon)

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return StandardiseAxes(self.axes(len(shape) - 1), self.epsilon)


@dataclass(frozen=True, repr=False)
class GroupNorm(SingleLayer):
    """Layer norm within `groups` groups of channels, exact for many channels in each group.

    Groups of one channel (instance norm) have no closed form: units are drawn and measured, and the trace says so.
    """

    groups: int
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        require_positive("gn", groups=self.groups)
        require_number("gn", epsilon=self.epsilon)

    @property
    def word(self) -> str:
        return f"gn({self.groups})"

    def output_shape(self, shape: Shape) -> Shape:
        if shape[0] % self.groups:
            raise BadInput(self.word, f"{shape[0]} channels do not split into {self.groups} groups", "use a divisor")
        return shape

    def _exact(self, state: State, trace: Trace) -> State:
        per_group = state.channels // self.groups
        if self.groups == 1:
            return normalise(state, tuple(range(len(state.positions))), self.epsilon)
        if per_group == 1:
            if state.positions and not state.all_positions:
                raise NoExactForm(
                    self.word,
                    "groups of one channel (instance norm) are not known at equal positions",
                    "use fewer groups",
                )
            trace.simulated = True
            return push(state, self._normalise_unit, state.channels, trace.units, trace.generator)
        grouped = regroup(state, self.groups)
        if grouped is None:
            raise NoExactForm(
                self.word,
                f"{self.groups} groups of channels cut across {len(state.shares)} kinds of units",
                "use as many groups as branches of equal width, or layer norm",
            )
        if per_group < FEW_CHANNELS:
            trace.note(f"{self.word}: {per_group} channels in a group; exact for many")
        return normalise(grouped, tuple(range(len(state.positions))), self.epsilon, by_kind=True)

    def _normalise_unit(self, samples: Tensor) -> Tensor:
        """Groups of one channel: each unit over its own positions (instance norm)."""
        axes = tuple(range(3, samples.ndim))
        if not axes:
            return torch.zeros_like(samples)
        centred = samples - samples.mean(axes, keepdim=True)
        return centred * (centred.square().mean(axes, keepdim=True) + self.epsilon).rsqrt()

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return StandardiseGroups(self.groups, self.epsilon)


class StandardiseAxes(nn.Module):
    """The finite face of layer norm: over channels and the position axes `axes`."""

    def __init__(self, axes: tuple[int, ...], epsilon: float) -> None:
        super().__init__()
        self.axes, self.epsilon = axes, epsilon

    def forward(self, x: Tensor) -> Tensor:
        if len(self.axes) == x.ndim - 2:
            return F.group_norm(x, 1, eps=self.epsilon)
        together = (1, *(a + 2 for a in self.axes))
        centred = x - x.mean(together, keepdim=True)
        return centred * (centred.square().mean(together, keepdim=True) + self.epsilon).rsqrt()


class StandardiseGroups(nn.Module):
    """The finite face of group norm."""

    def __init__(self, groups: int, epsilon: float) -> None:
        super().__init__()
        self.groups, self.epsilon = groups, epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(x, self.groups, eps=self.epsilon)


def normalise(
    state: State,
    axes: tuple[int, ...],
    epsilon: float,
    by_kind: bool = False,
    shares: tuple[Tensor, Tensor] | None = None,
) -> State:
    """See `LayerNorm`; over the position axes `axes`, and over all kinds of units together unless `by_kind`.

    `shares`: of the positions that count, for each side, where units at the others are zero and are to be left out.
    """
    size = len(state.positions)

    def pooled(t: Tensor) -> Tensor:
        """Mean over kinds (unless they are the groups) and the axes: broadcastable to t."""
        t = t if by_kind else state.collapse_kinds(t)
        return t.mean(tuple(a - size for a in axes), keepdim=True) if axes else t

    def statistics(s: Side) -> _Centred:
        variance, share = _variance(state, s), 1.0 if shares is None else shares[0] if s is state.x else shares[1]
        centre = pooled(s.mean) / share
        away = s.mean - centre
        # Units that do not count are zero: they lie `centre` away.
        spread = (pooled(variance + away.square()) - (1 - share) * centre.square()) / share
        return _Centred(variance, s.mean, away, centre, (spread + epsilon).rsqrt())

    stats = {s: statistics(s) for s in (state.x, state.y)}

    def norm(s: Side) -> Tensor:
        return stats[s].scale.square() * stats[s].square

    def mean(s: Side) -> Tensor:
        return stats[s].scale * stats[s].away

    def pairs(block: Block, *_: Tensor) -> Pairs:
        a, b = stats[block.a].seen(block.left), stats[block.b].seen(block.right)
        excess, product = centred_pairs(block, a, b)
        return Pairs(a.scale * b.scale * excess, a.scale * b.scale * product)

    def tangent(t: Tensor) -> Tensor:
        block = state.cross()
        return block.left(stats[block.a].scale) * block.right(stats[block.b].scale) * t

    def draw(units: int, generator: Generator) -> Tensor:
        x, y = stats[state.x], stats[state.y]
        centre, scale = x.centre, x.scale
        if not state.joint:
            centre, scale = torch.cat([centre, y.centre], 1), torch.cat([scale, y.scale], 1)
        return (draw_units(state, units, generator) - centre[:, None]) * scale[:, None]

    keeps = state.law == "gaussian" and not bool(state.x.mean.any()) and not bool(state.y.mean.any())
    return state.map(
        norm,
        pairs,
        mean,
        tangent=tangent,
        law="gaussian" if keeps else "other",
        draw=None if keeps and state.draw is None else draw,
    )


@dataclass(frozen=True, eq=False)
class _Centred:
    """One side's units around the centre μ that is taken off them."""

    variance: Tensor  # V = E u² - m²
    mean: Tensor  # m
    away: Tensor  # m - μ
    centre: Tensor  # μ
    scale: Tensor  # 1/σ

    @property
    def square(self) -> Tensor:
        """E (u - μ)²."""
        return self.variance + self.away.square()

    def seen(self, view: Callable[[Tensor], Tensor]) -> _Centred:
        return _Centred(*(view(t) for t in (self.variance, self.mean, self.away, self.centre, self.scale)))


def _variance(state: State, side: Side) -> Tensor:
    """V = E u² - (E u)² of one side's units.

    Behind an activation it is half the distance of independent f(u), f(v) of equal variance: dark images leave cos(z) close
    to 1, and the difference of its moments has no digits left.
    """
    f, before = state.activation, state.before
    if f is None or before is None or len(before.shares) not in (1, len(state.shares)):  # kinds that were mixed since
        return (side.norm - side.mean.square()).clamp_min(0)
    a = (before.x if side is state.x else before.y).norm
    root = f.second_moment(a).sqrt()
    return f.carry(Pair(a, a, 2 * a, torch.zeros_like(a)), root, root).excess / 2


def centred_pairs(block: Block, a: _Centred, b: _Centred) -> tuple[Tensor, Tensor]:
    """Excess and product of u - μ_a and v - μ_b.

    The covariance P - m_a m_b stays: with G(d) = √((V_a + d_a²)(V_b + d_b²)) - d_a d_b,
    E' = 2 (G(m - μ) - P + m_a m_b) = E + 2 (G(m - μ) - G(m)). Lagrange's identity takes out what both have in common,
    G(d) = √(V_a V_b) + (σ_a d_b - σ_b d_a)² / (√((V_a + d_a²)(V_b + d_b²)) + √(V_a V_b) + d_a d_b): a small E' keeps its digits.
    """
    sigma_a, sigma_b = a.variance.sqrt(), b.variance.sqrt()

    def unlike(d_a: Tensor, d_b: Tensor) -> Tensor:
        """G(d) - √(V_a V_b)."""
        whole = (a.variance + d_a.square()).sqrt() * (b.variance + d_b.square()).sqrt()
        common = sigma_a * sigma_b + d_a * d_b
        gap = (sigma_a * d_b - sigma_b * d_a).square() / (whole + common).clamp_min(torch.finfo(whole.dtype).tiny)
        return torch.where(common < 0, whole - common, gap)

    excess = (block.excess + 2 * (unlike(a.away, b.away) - unlike(a.mean, b.mean))).clamp_min(0)
    both = a.square.sqrt() * b.square.sqrt()
    excess = torch.where(both == 0, 0, torch.minimum(excess, 4 * both))
    shift = a.mean * b.mean
    product = block.product - shift + a.away * b.away
    return excess, torch.where(
        shift.abs() > both, both - excess / 2, product
    )  # of two differences, the one with digits left
