"""Less work for theory: some of the pairs, or an activation's integral at a random part of the points.

At the other points the integral is read off a smooth fit: a polynomial in log A for what belongs to one side, one in
(log A, log B, z) for z' = log(defect / (2 - defect)) of the pair. The points are a random sample, so that what the fit leaves at
them tells how far off the mean over all points can be (the regression estimator of surveys).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations_with_replacement

import torch
from torch import Generator, Tensor

from initscope.geometry import Inputs, Side, State
from initscope.layers import Activate, Trace
from initscope.probe.capture import Noise

SIDE_TERMS = 9  # of the polynomial for one side
MANY = 160  # points from which on the polynomial for pairs is a cubic, else a quadratic
FLOOR = 1e-290  # below any norm or defect that has a logarithm here


def some_points(state: State, count: int, seed: int) -> Tensor:
    """Indices into those pairs and positions of a state that are not zero, at random and without repeats."""
    alive = (state.x.norm * state.y.norm > 0).reshape(-1).nonzero()[:, 0]
    order = torch.randperm(len(alive), generator=Generator().manual_seed(seed))
    if len(alive) <= count:
        return alive
    ends = torch.cat(
        [t.reshape(-1)[alive].argsort()[[0, -1]] for t in (state.x.norm, state.y.norm)]
    )  # a fit needs these
    chosen: Tensor = torch.unique(torch.cat([order[: max(count - len(ends), 1)].to(alive.device), ends]))
    return alive[chosen]


def at_points(state: State, points: Tensor) -> State:
    """The pairs at these points, each as a pair of vectors by itself."""

    def pick(t: Tensor) -> Tensor:
        return t.reshape(-1)[points][None]

    def side(s: Side) -> Side:
        return Side(pick(s.norm), pick(s.mean))

    return State(
        side(state.x), side(state.y), pick(state.excess), pick(state.product), state.shares.new_ones(1), state.channels,
        (), zipped=True, all_positions=False, law=state.law,
    )  # fmt: skip


def activated(
    layer: Activate, state: State, trace: Trace, points: Tensor, twin: State | None = None
) -> tuple[State, Noise, State]:
    """The activation of the whole state by its integral at some points, and how uncertain the mean defect is by that.

    Third, the same of its `twin`, whose distances differ by little: all excesses grow as their sum does at the points.
    """
    few = at_points(state, points)
    both = layer.propagate(few if twin is None else doubled(few, at_points(twin, points)), trace)
    assert isinstance(both, State)
    small = moments_of(both, slice(0, len(points)))
    zero = float(layer.activation(state.excess.new_zeros(1)))
    fit = _side_fit(few, small)
    x, y = (_filled_side(old, new, points, zero, fit) for old, new in ((state.x, small.x), (state.y, small.y)))
    root = x.root * y.root
    z, noise = _filled_pairs(state, small, points, root)
    defect = 2 * torch.sigmoid(z)
    # One of a pair is zero: f(0) beside the mean of the other.
    product = torch.where(state.x.norm * state.y.norm > 0, root * (1 - defect), x.mean * y.mean)
    excess = (2 * (root - product)).where(state.x.norm * state.y.norm == 0, 2 * root * defect).clamp_min(0)
    for whole, part in ((excess, small.excess), (product, small.product)):
        whole.view(-1)[points] = part[0]
    made = replace(
        state, x=x, y=y, excess=excess, product=product, law="other", draw=None, before=None, tilts=(),
        activation=None,
    )  # fmt: skip
    grown = made if twin is None else _grown(made, small, moments_of(both, slice(len(points), None)))
    return made, noise, grown


def _grown(state: State, small: State, twin: State) -> State:
    """The state with excesses that differ from its own as those of the twin from the small one's."""
    total = float(small.excess.sum())
    factor = float(twin.excess.sum()) / total if total > 0 else 1.0
    return replace(state, excess=factor * state.excess, product=state.product - (factor - 1) / 2 * state.excess)


def _side_fit(old: State, new: State) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """log E f(u)² and E f(u) / √E f(u)² as functions of log E u², from both sides at the points."""
    norm = torch.cat([old.x.norm[0], old.y.norm[0]])
    after = torch.cat([new.x.norm[0], new.y.norm[0]])
    mean = torch.cat([new.x.mean[0], new.y.mean[0]]) / after.clamp_min(FLOOR).sqrt()
    low, high = _log(norm).aminmax()

    def features(t: Tensor) -> Tensor:
        at = (2 * (t - low) / (high - low).clamp_min(1e-12) - 1).clamp(-1, 1)
        return torch.cos(torch.arange(SIDE_TERMS, dtype=t.dtype, device=t.device) * at.acos()[:, None])  # Chebyshev

    known = features(_log(norm))
    log_weights, mean_weights = _solve(known, _log(after)), _solve(known, mean)

    def fit(t: Tensor) -> tuple[Tensor, Tensor]:
        every = features(t)
        return every @ log_weights, every @ mean_weights

    return fit


def _filled_side(
    old: Side, new: Side, points: Tensor, zero: float, fit: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> Side:
    logs, means = fit(_log(old.norm).reshape(-1))
    norm = logs.exp().reshape(old.norm.shape)
    mean = means.clamp(-1, 1).reshape(old.norm.shape) * norm.sqrt()
    norm.view(-1)[points], mean.view(-1)[points] = new.norm[0], new.mean[0]
    return Side(norm.where(old.norm > 0, zero**2), mean.where(old.norm > 0, zero))


def _filled_pairs(state: State, small: State, points: Tensor, root: Tensor) -> tuple[Tensor, Noise]:
    """z' everywhere, and the noise of its mean, each point weighted by its share of the excess."""
    columns = (_log(state.x.norm), _log(state.y.norm), _fisher(state.excess, state.x.root * state.y.root))
    features = _products([_scaled(c.reshape(-1), points) for c in columns], 3 if len(points) >= MANY else 2)
    known = _fisher(small.excess, small.x.root * small.y.root)[0]
    known_features = features[points]
    gone = known - known_features @ (weights := _solve(known_features, known))
    share = small.excess[0] / small.excess[0].sum().clamp_min(FLOOR)
    off = (share * gone).sum()
    z = (features @ weights + off).reshape(root.shape)
    left_out = gone / (1 - _leverage(known_features)).clamp_min(0.05)  # what a fit without the point would leave at it
    unseen = 1 - len(points) / root.numel()
    variance = float((share * (left_out - off)).square().sum()) * unseen
    return z, Noise(variance, variance**2 / max(len(points) - features.shape[1] - 1, 1))


def _leverage(features: Tensor) -> Tensor:
    """How much of its own fitted value each row is, 0 to 1."""
    basis, sizes, _ = torch.linalg.svd(features, full_matrices=False)
    leverage: Tensor = (basis * (sizes > 1e-10 * sizes[0])).square().sum(1)
    return leverage


def _log(t: Tensor) -> Tensor:
    return t.clamp_min(FLOOR).log()


def _fisher(excess: Tensor, root: Tensor) -> Tensor:
    """log(defect / (2 - defect)), which has a value for parallel and opposite pairs too."""
    share = (excess / (2 * root).clamp_min(FLOOR)).clamp(1e-30, 2 - 1e-15)
    return (share / (2 - share)).log()


def _scaled(column: Tensor, points: Tensor) -> Tensor:
    """In standard deviations of the points from their mean; the fit is not used far outside of them."""
    known = column[points]
    spread = known.std(correction=0).clamp_min(1e-12)
    return ((column - known.mean()) / spread).clamp(-6, 6)


def _products(columns: list[Tensor], degree: int) -> Tensor:
    """All products of up to so many of the columns."""
    found = [torch.ones_like(columns[0])]
    for power in range(1, degree + 1):
        found += [math.prod(some[1:], start=some[0]) for some in combinations_with_replacement(columns, power)]
    return torch.stack(found, -1)


def _solve(features: Tensor, values: Tensor) -> Tensor:
    """Least squares, also where columns repeat each other, as those of equal norms do."""
    driver = "gelsd" if features.device.type == "cpu" else None
    found: Tensor = torch.linalg.lstsq(features, values[:, None], driver=driver).solution[:, 0]
    return found


def doubled(one: State, two: State) -> State:
    """The pairs of both states, for layers that look at moments alone."""

    def both(get: Callable[[State], Tensor]) -> Tensor:
        return torch.cat([get(one), get(two)], 1)

    x = Side(both(lambda s: s.x.norm), both(lambda s: s.x.mean))
    y = Side(both(lambda s: s.y.norm), both(lambda s: s.y.mean))
    excess, product = both(lambda s: s.excess), both(lambda s: s.product)
    return replace(one, x=x, y=y, excess=excess, product=product, draw=None, before=None, tilts=())


def fewer_pairs(state: State | Inputs, chosen: Tensor) -> State | Inputs:
    """The same state with some of its pairs."""
    if isinstance(state, Inputs):
        return replace(state, x=state.x[chosen], y=state.y[chosen])
    count, draw, before = state.excess.shape[1], state.draw, state.before

    def drawn(units: int, generator: Generator) -> Tensor:
        assert draw is not None
        return draw(units, generator)[:, :, torch.cat([chosen, count + chosen])]

    def fewer(other: State) -> State:
        made = fewer_pairs(other, chosen)
        assert isinstance(made, State)
        return made

    def made_later(make: Callable[[], State]) -> Callable[[], State]:
        return lambda: fewer(make())

    return replace(
        moments_of(state, chosen),
        draw=None if draw is None else drawn,
        before=None if before is None else fewer(before),
        tilts=tuple(replace(t, make=made_later(t.make)) for t in state.tilts),
    )


def moments_of(state: State, chosen: Tensor | slice) -> State:
    """The moments of some of the pairs; how units are drawn is lost."""

    def side(s: Side) -> Side:
        return Side(s.norm[:, chosen], s.mean[:, chosen])

    return replace(
        state, x=side(state.x), y=side(state.y), excess=state.excess[:, chosen], product=state.product[:, chosen],
        draw=None, before=None, tilts=(),
    )  # fmt: skip
