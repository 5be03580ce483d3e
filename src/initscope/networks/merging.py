"""How the states of branches become one: added up, or side by side."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

from initscope.errors import NoExactForm
from initscope.geometry import Block, Inputs, Side, State, draw_units


def add(one: State | Inputs, two: State | Inputs) -> State | Inputs:
    if isinstance(one, Inputs) and isinstance(two, Inputs):
        return replace(one, x=one.x + two.x, y=one.y + two.y)
    a, b = (s.state() if isinstance(s, Inputs) else s for s in (one, two))
    _require_addable(a, b)

    def side(s: Side, t: Side, within: Tensor | None) -> Side:
        return Side(s.norm + t.norm + 2 * s.mean * t.mean, s.mean + t.mean, within)

    def distance(s: Block | None, t: Block | None) -> Tensor | None:
        if s is None or t is None:
            return None
        return s.distance + t.distance + 2 * (s.mean_a - s.mean_b) * (t.mean_a - t.mean_b)

    cross, within_x, within_y = (distance(s, t) for s, t in zip(a.blocks(), b.blocks(), strict=True))
    assert cross is not None
    x = side(a.x, b.x, within_x)
    gaussian = a.law == b.law == "gaussian"

    def draw(units: int, generator: Generator) -> Tensor:
        return draw_units(a, units, generator) + draw_units(b, units, generator)

    return State(
        x=x,
        y=x if a.joint else side(a.y, b.y, within_y),
        distance=cross,
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
        distance=torch.cat([s.distance for s in states]),
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
