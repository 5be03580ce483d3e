"""How the states of branches become one: added up, multiplied, or side by side along channels or positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Generator, Tensor

from initscope.errors import NoExactForm
from initscope.geometry import Block, Inputs, Side, State, draw_units


def add(one: State | Inputs, two: State | Inputs) -> State | Inputs:
    if isinstance(one, Inputs) and isinstance(two, Inputs):
        return replace(one, x=one.x + two.x, y=one.y + two.y)
    a, b = _fitting("sum", one, two)

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


def multiply(one: State | Inputs, two: State | Inputs) -> State:
    """Independent branches: A' = A₁A₂, m' = m₁m₂, and with S = A + B of each branch

    D' = ½ [(A₁ - B₁)(A₂ - B₂) + S₁D₂ + S₂D₁ - D₁D₂], which is A₁A₂ + B₁B₂ - 2 (E u₁v₁)(E u₂v₂).
    """
    a, b = _fitting("prod", one, two)

    def side(s: Side, t: Side, within: Tensor | None) -> Side:
        return Side(s.norm * t.norm, s.mean * t.mean, within)

    def distance(s: Block | None, t: Block | None) -> Tensor | None:
        if s is None or t is None:
            return None
        sums, gaps = (s.norm_a + s.norm_b, t.norm_a + t.norm_b), (s.norm_a - s.norm_b) * (t.norm_a - t.norm_b)
        return (gaps + sums[0] * t.distance + sums[1] * s.distance - s.distance * t.distance) / 2

    cross, within_x, within_y = (distance(s, t) for s, t in zip(a.blocks(), b.blocks(), strict=True))
    assert cross is not None
    x = side(a.x, b.x, within_x)
    return _merged(
        [a, b],
        lambda parts: parts[0] * parts[1],
        x=x,
        y=x if a.joint else side(a.y, b.y, within_y),
        distance=cross,
        law="other",
    )


def join(states: list[State], axis: int) -> State:
    """Side by side along the position axis `axis`, the branches independent: between their positions E uv = m_u m_v."""
    for other in states[1:]:
        _fitting("cat", states[0], other)
    kinds = max(len(s.shares) for s in states)
    size = len(states[0].positions)

    def along(parts: list[Tensor], first: int) -> Tensor:
        """`first`: where the position axes begin, from the end."""
        return torch.cat([t.expand(kinds, *t.shape[1:]) for t in parts], axis - first)

    def pairs(blocks: list[Block]) -> Tensor:
        """Blocks on the diagonal are the branches' own distances, the others A + B - 2 m_a m_b."""

        def entry(i: int, j: int) -> Tensor:
            if i == j:
                return blocks[i].distance
            a, b = blocks[i], blocks[j]
            return a.norm_a + b.norm_b - 2 * a.mean_a * b.mean_b

        count = range(len(blocks))
        return along([along([entry(i, j) for j in count], size) for i in count], 2 * size)

    def side(sides: list[Side], within: list[Block]) -> Side:
        norm, mean = (along([getattr(s, name) for s in sides], size) for name in ("norm", "mean"))
        return Side(norm, mean, pairs(within) if within else None)

    cross, within_x, within_y = (
        [b for b in blocks if b is not None] for blocks in zip(*(s.blocks() for s in states), strict=True)
    )
    everywhere = states[0].all_positions
    x = side([s.x for s in states], within_x)
    positions = list(states[0].positions)
    positions[axis] = sum(s.positions[axis] for s in states)
    gaussian = all(s.law == "gaussian" for s in states)
    return _merged(
        states,
        lambda parts: along(parts, size),
        x=x,
        y=x if states[0].joint else side([s.y for s in states], within_y),
        distance=pairs(cross) if everywhere else along([b.distance for b in cross], size),
        positions=tuple(positions),
        law="gaussian" if gaussian else "other",
    )


def _merged(states: list[State], merge: Callable[[list[Tensor]], Tensor], **changes: object) -> State:
    """The first state with these changes, and what holds of the merged units if it holds in every branch."""

    def draw(units: int, generator: Generator) -> Tensor:
        return merge([draw_units(s, units, generator) for s in states])

    known = changes["law"] == "gaussian" and all(s.draw is None for s in states)
    merged = {
        "shares": max((s.shares for s in states), key=len),
        "independent_units": all(s.independent_units for s in states),
        "alike": all(s.alike for s in states),
        "tied": False,
        "draw": None if known else draw,
        "activation": None,
        "before": None,
        "tilts": (),
    }
    return replace(states[0], **{**merged, **changes})  # type: ignore[arg-type]


def _fitting(place: str, one: State | Inputs, two: State | Inputs) -> tuple[State, State]:
    """Both as states, or a clear error where their units do not go together one by one."""
    a, b = (s.state() if isinstance(s, Inputs) else s for s in (one, two))
    if a.tied or b.tied:
        raise NoExactForm(
            place, "a depthwise branch is tied to the other one unit by unit", "end the branch with conv1 or dense"
        )
    if len(a.shares) == len(b.shares):
        fits = bool(torch.allclose(a.shares, b.shares))
    else:
        fits = any(len(s.shares) == 1 and s.alike for s in (a, b))
    if not fits:
        raise NoExactForm(place, "the branches split their units into kinds in different ways", "mix one with conv1")
    return a, b


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
