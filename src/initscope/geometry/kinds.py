"""Kinds of units: what groups of filters see of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from initscope.geometry.state import Side, State


def merge_kinds(state: State) -> State:
    """All kinds taken together, each with its share: what a filter over all channels sees."""
    return state if len(state.shares) == 1 else _along_kinds(state, state.collapse_kinds, 1)


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
        return _along_kinds(state, lambda t: t.repeat_interleave(groups // kinds, 0), groups)
    if kinds % groups == 0:
        return _along_kinds(state, lambda t: t.reshape(groups, kinds // groups, *t.shape[1:]).mean(1), groups)
    return None


def equal_shares(state: State) -> bool:
    return bool(torch.allclose(state.shares, torch.full_like(state.shares, 1 / len(state.shares))))


def _along_kinds(state: State, change: Callable[[Tensor], Tensor], kinds: int) -> State:
    """The same change to every tensor's first axis, leaving `kinds` equal kinds."""

    def side(s: Side) -> Side:
        return Side(change(s.norm), change(s.mean), None if s.within is None else change(s.within))

    x = side(state.x)
    shares = torch.full((kinds,), 1 / kinds, dtype=state.shares.dtype, device=state.shares.device)
    return replace(
        state,
        x=x,
        y=x if state.joint else side(state.y),
        distance=change(state.distance),
        shares=shares,
    )
