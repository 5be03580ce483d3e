"""How the states of branches become one: added up, or side by side."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

from initscope.errors import NoExactForm
from initscope.geometry import Block, Inputs, Side, State, balance, draw_units, unequal


def add(one: State | Inputs, two: State | Inputs) -> State | Inputs:
    if isinstance(one, Inputs) and isinstance(two, Inputs):
        return replace(one, x=one.x + two.x, y=one.y + two.y)
    a, b = (s.state() if isinstance(s, Inputs) else s for s in (one, two))
    _require_addable(a, b)

    def norm(s: Side, t: Side) -> Side:
        return Side((s.norm + t.norm + 2 * s.mean * t.mean).clamp_min(0), s.mean + t.mean)

    def excess(s: Block | None, t: Block | None, x: Side, y: Side) -> Tensor | None:
        """E_1 + E_2 + Σ_i (s α_i - β_i/s)² + 2 Π_i (s m_i^a - m_i^b/s), s² = √B'/√A'."""
        if s is None or t is None:
            return None
        a, b = s.left(x.root), s.right(y.root)
        w = balance(a, b)
        parts = unequal(((s.root_a, s.root_b), (t.root_a, t.root_b)), a, b)
        means = 2 * (w * s.mean_a - s.mean_b / w) * (w * t.mean_a - t.mean_b / w)
        total = (s.excess + t.excess + parts + means).clamp_min(0)
        return torch.where((a > 0) & (b > 0), torch.minimum(total, 4 * a * b), 0)

    first, second = a.blocks(), b.blocks()
    x = norm(a.x, b.x)
    y = x if a.joint else norm(a.y, b.y)
    cross = excess(first[0], second[0], x, y)
    assert cross is not None
    x = replace(x, within=excess(first[1], second[1], x, x))
    y = x if a.joint else replace(y, within=excess(first[2], second[2], y, y))
    one_block, two_block = first[0], second[0]
    means = one_block.mean_a * two_block.mean_b + one_block.mean_b * two_block.mean_a
    gaussian = a.law == b.law == "gaussian"

    def draw(units: int, generator: Generator) -> Tensor:
        return draw_units(a, units, generator) + draw_units(b, units, generator)

    return State(
        x=x,
        y=y,
        excess=cross,
        product=a.product + b.product + means,
        tangent=_plus(a.tangent, b.tangent),
        shares=a.shares if len(a.shares) > 1 else b.shares,
        channels=a.channels,
        positions=a.positions,
        zipped=a.zipped,
        all_positions=a.all_positions,
        law="gaussian" if gaussian else "other",
        joint=a.joint,
        independent_units=a.independent_units and b.independent_units,
        alike=a.alike and b.alike,
        draw=None if gaussian and a.draw is None and b.draw is None else draw,
    )


def _plus(one: Tensor | None, two: Tensor | None) -> Tensor | None:
    """A branch without weights has no tangent kernel of its own."""
    if one is None or two is None:
        return two if one is None else one
    return one + two


def _beside(states: list[State]) -> Tensor | None:
    if all(s.tangent is None for s in states):
        return None
    return torch.cat([torch.zeros_like(s.product) if s.tangent is None else s.tangent for s in states])


def _require_addable(a: State, b: State) -> None:
    if a.tied or b.tied:
        raise NoExactForm(
            "sum", "a depthwise branch is tied to the other one unit by unit", "end the branch with conv1 or dense"
        )
    if len(a.shares) == len(b.shares):
        fits = bool(torch.allclose(a.shares, b.shares))
    else:
        fits = any(len(s.shares) == 1 and s.alike for s in (a, b))
    if not fits:
        raise NoExactForm("sum", "the branches split their units into kinds in different ways", "mix one with conv1")


def concatenate(states: list[State]) -> State:
    total = sum(s.channels for s in states)
    first = states[0]

    def side(sides: list[Side]) -> Side:
        withins = [s.within for s in sides if s.within is not None]
        return Side(
            torch.cat([s.norm for s in sides]),
            torch.cat([s.mean for s in sides]),
            torch.cat(withins) if len(withins) == len(sides) else None,
        )

    def draw(units: int, generator: Generator) -> Tensor:
        return torch.cat([draw_units(s, units, generator) for s in states])

    x = side([s.x for s in states])
    gaussian = all(s.law == "gaussian" for s in states)
    return State(
        x=x,
        y=x if first.joint else side([s.y for s in states]),
        excess=torch.cat([s.excess for s in states]),
        product=torch.cat([s.product for s in states]),
        tangent=_beside(states),
        shares=torch.cat([s.shares * (s.channels / total) for s in states]),
        channels=total,
        positions=first.positions,
        zipped=first.zipped,
        all_positions=first.all_positions,
        law="gaussian" if gaussian else "other",
        joint=first.joint,
        independent_units=False,
        alike=all(s.alike for s in states),
        tied=any(s.tied for s in states),
        draw=None if gaussian and all(s.draw is None for s in states) else draw,
    )
