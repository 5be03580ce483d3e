"""Random units: samples from a Gaussian state, and the state that a set of samples estimates.

Where a layer has no closed form, units of the infinitely wide network are drawn from the exact law of the layer before it,
sent through the layer, and their second moments measured. No finite-width error enters, only the sampling error of that step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Generator, Tensor

from initscope.errors import BadInput, NoExactForm
from initscope.geometry.state import Draw, Law, Side, State

_JITTER = 1e-10  # relative to the mean variance, for the quicker root of large matrices
_EIGEN_SIZE = 768


def generator(seed: int, *parts: int) -> Generator:
    """A random source for one part (layer, repetition, pair, ...) of the work that `seed` governs.

    >>> a, b = generator(0, 1), generator(1, 0)
    >>> a.initial_seed() != b.initial_seed()
    True
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise BadInput("seed", f"got {seed!r}, expected a whole number", "pass for example seed=0")
    mixed = np.random.SeedSequence([abs(seed), int(seed < 0), len(parts), *parts]).generate_state(1, np.uint64)
    return Generator().manual_seed(int(mixed[0] >> np.uint64(1)))


def draw_units(state: State, units: int, generator: Generator) -> Tensor:
    """Samples of `units` units of each kind, (K, units, images, *positions)."""
    if state.draw is not None:
        return state.draw(units, generator)
    if state.law == "gaussian":
        return _draw_gaussian(state, units, generator)
    raise NoExactForm(
        "draw", f"units of a state with law {state.law!r} cannot be drawn", "put a conv or dense layer before"
    )


def covariance(state: State) -> Tensor:
    """Second moments E u v between all images and positions that the state relates, (K, groups, size, size).

    A group is one pair (x_i, y_i) for zipped pairs, the whole batch otherwise; positions are taken apart (each its own
    group) where the state has only equal positions.
    """
    products = [b.product for b in state.blocks() if b is not None]
    if not all(bool(p.isfinite().all()) for p in products):
        problem = "norms leave the range of float64 inside the network, units cannot be drawn"
        raise BadInput("draw", problem, "use smaller inputs or gains, or an activation that grows less than exp")
    size = len(state.positions)
    if state.zipped:
        if state.all_positions:
            xy, xx, yy = (p.flatten(2 + size).flatten(2, 1 + size) for p in products)  # (K, n, P, P)
            return torch.cat([torch.cat([xx, xy], -1), torch.cat([xy.transpose(-1, -2), yy], -1)], -2)
        xy = products[0].flatten(1)
        xx, yy = state.x.norm.flatten(1), state.y.norm.flatten(1)
        return torch.stack([torch.stack([xx, xy], -1), torch.stack([xy, yy], -1)], -2)  # (K, n·P, 2, 2)
    if not state.joint:
        raise NoExactForm(
            "draw", "units for every pair need the whole batch at once", "use kernel, or predict on pairs"
        )
    k, n = state.x.norm.shape[:2]
    if state.all_positions:
        count = math.prod(state.positions)
        matrix = products[0].reshape(k, n, n, count, count).transpose(2, 3)
        return matrix.reshape(k, 1, n * count, n * count)
    return products[0].reshape(k, n, n, -1).permute(0, 3, 1, 2)  # (K, P, N, N)


def _draw_gaussian(state: State, units: int, generator: Generator) -> Tensor:
    root = _root_of(state)
    k, groups, size, _ = root.shape
    noise = torch.randn(k, groups, size, units, generator=generator, dtype=root.dtype).to(root.device)
    values = torch.matmul(root, noise).to(state.excess.dtype)  # (K, groups, size, units)
    shape = state.positions
    n = state.x.norm.shape[1]
    if state.zipped and state.all_positions:
        return values.reshape(k, n, 2, *shape, units).movedim(-1, 1).transpose(2, 3).flatten(2, 3)
    if state.zipped:
        return values.reshape(k, n, *shape, 2, units).movedim((-1, -2), (1, 2)).flatten(2, 3)
    if state.all_positions:
        return values.reshape(k, n, *shape, units).movedim(-1, 1)
    return values.reshape(k, *(shape or (1,)), n, units).movedim((-1, -2), (1, 2)).reshape(k, units, n, *shape)


# A simulated layer draws from one state many times; the root is the costly part.
_ROOTS: WeakKeyDictionary[State, Tensor] = WeakKeyDictionary()


def _root_of(state: State) -> Tensor:
    if state not in _ROOTS:
        _ROOTS[state] = _root(covariance(state).double())
    return _ROOTS[state]


def _root(matrix: Tensor) -> Tensor:
    """A square root of positive semidefinite matrices, which are singular where inputs or patches repeat."""
    if matrix.shape[-1] > _EIGEN_SIZE:
        scale = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        root: Tensor
        root, info = torch.linalg.cholesky_ex(matrix + _JITTER * scale * eye)
        if int(info.abs().max()) == 0:
            return root
    values, vectors = torch.linalg.eigh(matrix)
    return torch.mul(vectors, values.clamp_min(0).sqrt()[..., None, :])


def state_from_samples(like: State, samples: Tensor, channels: int, draw: Draw, law: Law = "other") -> State:
    """The state that samples (K, units, images, *positions) estimate; pairing and layout as in `like`."""
    positions = tuple(samples.shape[3:])
    all_positions = like.all_positions and bool(positions)
    n = like.x.norm.shape[1]
    parts = [samples, samples] if like.joint else [samples[:, :, :n], samples[:, :, n:]]
    sides = [
        Side(s.square().mean(1), s.mean(1), _moments(s, s, True, True)[0] if all_positions else None) for s in parts
    ]
    excess, product = _moments(parts[0], parts[1], like.zipped, all_positions)
    return State(
        x=sides[0],
        y=sides[0] if like.joint else sides[1],
        excess=excess,
        product=product,
        shares=like.shares,
        channels=channels,
        positions=positions,
        zipped=like.zipped,
        all_positions=all_positions,
        law=law,
        joint=like.joint,
        independent_units=like.independent_units,
        alike=like.alike,
        tied=like.tied,
        draw=draw,
    )


def _moments(a: Tensor, b: Tensor, zipped: bool, all_positions: bool) -> tuple[Tensor, Tensor]:
    """Excess and product, means over units; a, b: (K, units, images, *positions)."""
    if zipped and not all_positions:
        root_a, root_b = (t.square().mean(1, keepdim=True).sqrt() for t in (a, b))
        unit_a, unit_b = a / torch.where(root_a > 0, root_a, 1), b / torch.where(root_b > 0, root_b, 1)
        return (unit_a - unit_b).square().mean(1) * (root_a * root_b)[:, 0], (a * b).mean(1)
    units, positions = a.shape[1], a.shape[3:]
    flat_a, flat_b = (t.reshape(*t.shape[:3], -1) for t in (a, b))
    if all_positions:
        left, right = flat_a.permute(0, 2, 3, 1), flat_b.permute(0, 2, 1, 3)  # (K, n, P, u), (K, m, u, P)
        if not zipped:
            left, right = left[:, :, None], right[:, None]
    else:
        left, right = flat_a.permute(0, 3, 2, 1), flat_b.permute(0, 3, 1, 2)  # (K, P, n, u), (K, P, u, m)
    product = left @ right / units
    root_a, root_b = left.square().mean(-1).sqrt()[..., None], right.square().mean(-2).sqrt()[..., None, :]
    excess = 2 * (root_a * root_b - product).clamp_min(0)

    def shaped(t: Tensor) -> Tensor:
        if all_positions:
            return t.reshape(*t.shape[:-2], *positions, *positions)
        return t.permute(0, 2, 3, 1).reshape(t.shape[0], a.shape[2], b.shape[2], *positions)

    return shaped(excess), shaped(product)


def push(state: State, function: Callable[[Tensor], Tensor], channels: int, units: int, generator: Generator) -> State:
    """Draw units, send each through `function` (any number of units at once, position axes last), measure what comes out."""
    if units < 1:
        raise NoExactForm(
            "draw", "there is no closed form, and drawing units is not affordable here", "allow more work"
        )

    def draw(count: int, g: Generator) -> Tensor:
        return function(draw_units(state, count, g))

    return state_from_samples(state, draw(units, generator), channels, draw)


def then(state: State, function: Callable[[Tensor], Tensor]) -> Draw:
    """How units are drawn after an elementwise or positionwise deterministic step."""
    return lambda units, generator: function(draw_units(state, units, generator))
