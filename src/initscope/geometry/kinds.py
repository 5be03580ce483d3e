"""Kinds of units: what groups of filters see of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from initscope.geometry.state import Block, Pairs, Side, State, balance


def merge_kinds(state: State) -> State:
    """All kinds taken together, each with its share: what a filter over all channels sees."""
    return state if len(state.shares) == 1 else _mix_kinds(state, state.collapse_kinds, 1)


def regroup(state: State, groups: int) -> State | None:
    """One kind for each of `groups` equal groups of channels, or None where groups cut across kinds."""
    kinds = len(state.shares)
    if kinds == 1 and state.alike:
        return state
    if not equal_shares(state):
        return None
    if kinds == groups:
        return state
    if groups % kinds == 0 and state.alike:
        return _repeat_kinds(state, groups // kinds)
    if kinds % groups == 0:
        return _mix_kinds(state, lambda t: t.reshape(groups, kinds // groups, *t.shape[1:]).mean(1), groups)
    return None


def equal_shares(state: State) -> bool:
    return bool(torch.allclose(state.shares, torch.full_like(state.shares, 1 / len(state.shares))))


def _repeat_kinds(state: State, times: int) -> State:
    """Each kind as several equal ones."""

    def repeat(t: Tensor) -> Tensor:
        return t.repeat_interleave(times, 0)

    def side(s: Side) -> Side:
        return Side(repeat(s.norm), repeat(s.mean), None if s.within is None else repeat(s.within))

    x = side(state.x)
    return replace(
        state,
        x=x,
        y=x if state.joint else side(state.y),
        excess=repeat(state.excess),
        product=repeat(state.product),
        tangent=None if state.tangent is None else repeat(state.tangent),
        shares=_equal(state, times * len(state.shares)),
    )


def _mix_kinds(state: State, mean: Callable[[Tensor], Tensor], kinds: int) -> State:
    """The mean over kinds of units, of all of them or within groups, leaving `kinds` equal kinds."""
    names = {"law", "draw", "activation", "before", "tilts"}  # what is said of the units stays
    return state.map(
        lambda s: mean(s.norm),
        lambda block, a, b: Pairs(mean(block.excess) + mixed(block, a, b, mean), mean(block.product)),
        lambda s: mean(s.mean),
        tangent=mean,
        shares=_equal(state, kinds),
        **{name: getattr(state, name) for name in names},
    )


def together(state: State) -> State:
    """All units of all positions as one kind of units of a vector: what a unit of a dense layer, or an average, sees."""
    state = state.same_position()
    size = len(state.positions)

    def mean(t: Tensor) -> Tensor:
        t = state.collapse_kinds(t)
        return t.flatten(t.ndim - size).mean(-1) if size else t

    def side(s: Side) -> Side:
        return Side(mean(s.norm), mean(s.mean))

    x = side(state.x)
    y = x if state.joint else side(state.y)
    merged = replace(
        state,
        x=x,
        y=y,
        product=mean(state.product),
        tangent=None if state.tangent is None else mean(state.tangent),
        shares=_equal(state, 1),
        positions=(),
    )
    if size == 0 and len(state.shares) == 1:
        return merged
    block, view = state.cross(), merged.cross()
    a, b = view.left(x.root), view.right(y.root)
    s = balance(a, b)
    s = s.reshape(*s.shape, *(1,) * size)
    apart = mean((s * block.root_a - block.root_b / s).square().add_(block.excess))
    return replace(merged, excess=torch.where((a > 0) & (b > 0), apart, 0))


def centred_pairs(block: Block, mean_a: Tensor, mean_b: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Excess and product of u - E u, v - E v, of norms a and b: the excess that is not one of the means."""
    s = balance(a, b)
    apart = (s * block.root_a - block.root_b / s).square() - (s * mean_a - mean_b / s).square()
    excess = torch.where((a > 0) & (b > 0), (block.excess + apart).clamp_min(0), 0)
    return torch.minimum(excess, 4 * a * b), block.product - mean_a * mean_b


def mixed(block: Block, a: Tensor, b: Tensor, mean: Callable[[Tensor], Tensor]) -> Tensor:
    """What units of unequal norm add to the excess of their mean square: `unequal` with one part for each, by `mean`."""
    s = balance(a, b)
    kinds = block.excess.shape[0] // a.shape[0]
    wide = s.repeat_interleave(kinds, 0) if kinds > 1 else s
    return torch.where((a > 0) & (b > 0), mean((wide * block.root_a - block.root_b / wide).square()), 0)


def _equal(state: State, kinds: int) -> Tensor:
    return torch.full((kinds,), 1 / kinds, dtype=state.shares.dtype, device=state.shares.device)
