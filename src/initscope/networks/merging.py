"""How the states of branches become one: added up, multiplied, or side by side along channels or positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Generator, Tensor

from initscope.errors import NoExactForm
from initscope.geometry import Block, Inputs, Side, State, balance, draw_units, unequal


def add(one: State | Inputs, two: State | Inputs) -> State | Inputs:
    if isinstance(one, Inputs) and isinstance(two, Inputs):
        return replace(one, x=one.x + two.x, y=one.y + two.y)
    a, b = _fitting("sum", one, two)

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
    product = a.product + b.product + one_block.mean_a * two_block.mean_b + one_block.mean_b * two_block.mean_a
    tangent = _plus(a.tangent, b.tangent)
    gaussian = a.law == b.law == "gaussian"

    def draw(units: int, generator: Generator) -> Tensor:
        return draw_units(a, units, generator) + draw_units(b, units, generator)

    return State(
        x=x,
        y=y,
        excess=cross,
        product=product,
        tangent=None if tangent is None else tangent.expand_as(product),
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
    """Independent branches: A' = A₁A₂, m' = m₁m₂, P' = P₁P₂, and with r = √(AB) of each branch

    E' = r₁E₂ + r₂E₁ - ½ E₁E₂, which is 2 (r₁r₂ - P₁P₂); Θ' = Θ₁P₂ + P₁Θ₂.
    """
    a, b = _fitting("prod", one, two)

    def side(s: Side, t: Side, within: Tensor | None) -> Side:
        return Side(s.norm * t.norm, s.mean * t.mean, within)

    def excess(s: Block | None, t: Block | None) -> Tensor | None:
        if s is None or t is None:
            return None
        return s.root_a * s.root_b * t.excess + t.root_a * t.root_b * s.excess - s.excess * t.excess / 2

    cross, within_x, within_y = (excess(s, t) for s, t in zip(a.blocks(), b.blocks(), strict=True))
    assert cross is not None
    x = side(a.x, b.x, within_x)
    return _merged(
        [a, b],
        lambda parts: parts[0] * parts[1],
        x=x,
        y=x if a.joint else side(a.y, b.y, within_y),
        excess=cross,
        product=a.product * b.product,
        tangent=_plus(_times(a.tangent, b.product), _times(b.tangent, a.product)),
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

    def tiled(entry: Callable[[int, int], Tensor]) -> Tensor:
        count = range(len(states))
        return along([along([entry(i, j) for j in count], size) for i in count], 2 * size)

    def product(a: Block, b: Block) -> Tensor:
        return a.product if a is b else a.mean_a * b.mean_b

    def excess(a: Block, b: Block) -> Tensor:
        return a.excess if a is b else (2 * (a.root_a * b.root_b - a.mean_a * b.mean_b)).clamp_min(0)

    def tangent(i: int, j: int) -> Tensor:
        """Branches share no weights."""
        known = states[i].tangent
        return torch.zeros_like(product(cross[i], cross[j])) if i != j or known is None else known

    def side(sides: list[Side], own: list[Block]) -> Side:
        norm, mean = (along([getattr(s, name) for s in sides], size) for name in ("norm", "mean"))
        return Side(norm, mean, tiled(lambda i, j: excess(own[i], own[j])) if own else None)

    def pairs(entry: Callable[[int, int], Tensor]) -> Tensor:
        if states[0].all_positions:
            return tiled(entry)
        return along([entry(i, i) for i in range(len(states))], size)

    cross, within_x, within_y = (
        [b for b in blocks if b is not None] for blocks in zip(*(s.blocks() for s in states), strict=True)
    )
    x = side([s.x for s in states], within_x)
    positions = list(states[0].positions)
    positions[axis] = sum(s.positions[axis] for s in states)
    gaussian = all(s.law == "gaussian" for s in states)
    return _merged(
        states,
        lambda parts: along(parts, size),
        x=x,
        y=x if states[0].joint else side([s.y for s in states], within_y),
        excess=pairs(lambda i, j: excess(cross[i], cross[j])),
        product=pairs(lambda i, j: product(cross[i], cross[j])),
        tangent=None if all(s.tangent is None for s in states) else pairs(tangent),
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


def _plus(one: Tensor | None, two: Tensor | None) -> Tensor | None:
    """A branch without weights has no tangent kernel of its own."""
    if one is None or two is None:
        return two if one is None else one
    return one + two


def _times(tangent: Tensor | None, product: Tensor) -> Tensor | None:
    return None if tangent is None else tangent * product


def _beside(states: list[State]) -> Tensor | None:
    if all(s.tangent is None for s in states):
        return None
    return torch.cat([torch.zeros_like(s.product) if s.tangent is None else s.tangent for s in states])


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
