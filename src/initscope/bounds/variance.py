"""How far the output image of a finite random CNN strays from its limit: DC Theorems 2, 6 and 8, and a sharper bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from initscope.bounds.convergence import head_squares
from initscope.bounds.random_cnn import (
    Filters,
    RandomCNN,
    Step,
    check_images,
    check_not_zero,
    read_random_cnn,
    require_independent_filters,
)
from initscope.bounds.result import Bound
from initscope.errors import BadInput, NoExactForm
from initscope.layers import Conv, Layer, Scale
from initscope.networks import Sequential
from initscope.networks.tiles import tiles

_DC = "Randomness in Deconvolutional Networks (DC)"
_FILTERS = (
    "filters isotropic, independent of each other and between layers",
    "l2 pooling or none; the output is the mean over channels of the last ReLU",
)
_VACUOUS = "vacuous: no sine is larger than 1"
_POWER_STEPS = 10
_TIGHT = 1e-9  # relative distance of upper and lower bound on a norm at which the steps may stop
_WIDE = 1 << 14  # positions; in larger images ten steps do not carry the edge to the middle, where the bound is decided
_TILE = 512  # positions on each side of a block of pairs, which then stays in the cache
_MOST_POSITIONS = 20_000  # where the first order over all pairs of positions is still a matter of seconds


@dataclass(frozen=True)
class AngleToLimit:
    """The angle Θ between the output of a finite random CNN and its limit f*; tensors of shape (n,).

    theorem: what DC guarantees for sin Θ with probability 1 - delta; sharper: the same from `mean_square`, a bound on E sin²Θ
    that needs neither λ nor a hypothesis on routes; first_order: E sin²Θ to first order in 1/N, for one layer of filters;
    factors: DC's λ_0 ... λ_(L-2), (n, L - 1).
    """

    theorem: Bound[Tensor]
    sharper: Bound[Tensor]
    mean_square: Bound[Tensor]
    first_order: Bound[Tensor] | None
    factors: Tensor

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        bounds = {name: getattr(self, name).to_dict() for name in ("theorem", "sharper", "mean_square")}
        first = None if self.first_order is None else self.first_order.to_dict()
        return {**bounds, "first_order": first, "factors": self.factors.tolist()}


def angle_to_limit(net: Layer, images: Tensor, delta: float = 0.05) -> AngleToLimit:
    """What is known of the angle Θ between a finite random CNN's output and its limit, DC's bounds and sharper ones.

    DC Theorem 6 (one layer of N filters): `sin Θ <= sqrt(K1 / (N delta))`. DC Theorem 8 (deeper), with
    `s² = (K1/N_(L-1) + Σ K2/N_i) / delta`: `sin Θ <= s + sqrt((L-2) s Π λ_i)`. Sharper, for all depths:
    `E sin²Θ <= 1 - 1/((1 + K1/N_(L-1)) Π (1 + K2/N_i))`, hence `sin Θ <= sqrt(that / delta)`.

    `net` as in `convergence_image`, with l2 pooling; `images`: (n, c, h, w); `delta`: probability of failure, in (0, 1).

    >>> from initscope.layers import Conv, ReLU
    >>> angles = angle_to_limit(Sequential(Conv(1000), ReLU()), torch.rand(1, 3, 8, 8), delta=0.1)
    >>> float(angles.theorem.value)  # sqrt((π - 1) / 100)
    0.146...
    """
    place = "angle_to_limit"
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 < delta < 1:
        raise BadInput(place, f"delta is {delta!r}, expected a probability between 0 and 1", "pass for example 0.05")
    pixels = check_images(place, images)
    cnn = read_random_cnn(place, net, tuple(pixels.shape[1:]))
    require_independent_filters(place, cnn)
    if cnn.averages_features:
        raise NoExactForm(
            place,
            "DC bounds the angle for l2 pooling, and this network averages features",
            "use L2Pool, or measure_angle",
        )
    start = head_squares(cnn, pixels, place, None)
    check_not_zero(place, cnn.squares(start))
    factors, disjoint = _factors(cnn, start)
    mean_square = _mean_square(cnn, len(pixels), pixels)
    return AngleToLimit(
        _theorem(cnn, factors, disjoint, float(delta)),
        _sharper(mean_square.value, float(delta)),
        mean_square,
        _first_order(cnn, pixels),
        factors,
    )


def _theorem(cnn: RandomCNN, factors: Tensor, disjoint: bool, delta: float) -> Bound[Tensor]:
    shares = [cnn.last.K1 / cnn.last.count, *(f.K2 / f.count for f in cnn.filters[:-1])]
    sine = math.sqrt(sum(shares) / delta)  # sqrt((L-1) / (N δ)), N the harmonic mean of Theorem 8
    two = len(cnn.filters) == 1  # layers before the only filters just prepare the image
    earlier = 0 if two else cnn.depth - 2
    value = sine + (earlier * sine * factors.prod(1)).sqrt()
    notes = []
    if not two:
        notes.append(
            "pooling and upsampling count in L, not in N; λ is taken of z*², as Theorem 8 has it, not of z* (Theorem 2)"
        )
        if not disjoint:
            notes.append(
                "windows overlap or differ in size, where Lemma 7's λ is not defined: "
                "λ_i = |φ_i| |z²| / |φ_i z²| with the operator norm |φ_i| stands in, which is the same where it is"
            )
    if bool((value >= 1).any()):
        notes.append(_VACUOUS if bool((value >= 1).all()) else f"{_VACUOUS}, which some of the values are")
    return Bound(
        value,
        delta=delta,
        assumes=_FILTERS if two else (*_FILTERS, "λ from the limit z* (DC: at most one route between two pixels)"),
        source=f"{_DC}, {'Theorem 6' if two else 'Theorems 2 and 8'}",
        note="; ".join(notes),
    )


def _mean_square(cnn: RandomCNN, count: int, like: Tensor) -> Bound[Tensor]:
    """E cos²Θ >= (E<f,f*>)² / (E|f|² |f*|²), with E|f|² = (1 + K1/N)|f*|² and E z >= z* / sqrt(Π(1 + K2/N))."""
    growth = (1 + cnn.last.K1 / cnn.last.count) * math.prod(1 + f.K2 / f.count for f in cnn.filters[:-1])
    return Bound(
        torch.full((count,), 1 - 1 / growth, dtype=like.dtype, device=like.device),
        assumes=_FILTERS,
        source="initscope, docs/reconstruction.md",
        note="of the square of the sine, in the mean over filters; holds for any windows and any number of routes",
    )


def _sharper(mean_square: Tensor, delta: float) -> Bound[Tensor]:
    value = (mean_square / delta).sqrt()  # Markov's inequality for sin²Θ
    return Bound(
        value,
        delta=delta,
        assumes=_FILTERS,
        source="initscope, docs/reconstruction.md",
        note=_VACUOUS if bool((value >= 1).any()) else "",
    )


def _factors(cnn: RandomCNN, squares: Tensor) -> tuple[Tensor, bool]:
    """λ_0 ... λ_(L-2) of DC Theorem 8, (n, L - 1), and whether Lemma 7's hypothesis on the windows holds."""
    steps = [step for step in cnn.steps[cnn.head :] if not isinstance(step.layer, Scale)]
    found, disjoint = [], True
    current = steps[0].gather(squares)  # (z*_0)²
    for before, step in itertools.pairwise(steps):

        def transition(t: Tensor, before: Step = before, step: Step = step) -> Tensor:
            return step.gather(before.spread(t))  # φ_i without its constant, which cancels in λ_i

        norm, one_route = _operator(transition, current[:1])
        after = transition(current)
        found.append(norm * _length(current) / _length(after))
        current = after / after.amax((1, 2), keepdim=True)  # λ does not see the scale, and deep networks would overflow
        disjoint = disjoint and one_route
    positions = math.prod(current.shape[1:])
    found.append(math.sqrt(positions) * _length(current) / current.sum((1, 2)))  # λ_(L-2): one window over everything
    skipped = cnn.depth - 1 - len(found)
    return torch.stack([torch.ones_like(found[-1])] * skipped + found, 1), disjoint


def _length(t: Tensor) -> Tensor:
    return t.square().sum((1, 2)).sqrt()


def _operator(function: Callable[[Tensor], Tensor], like: Tensor) -> tuple[float, bool]:
    """An upper bound on the norm of a non-negative linear map, and whether it sums disjoint windows of equal size.

    For any positive vector v, the largest eigenvalue of φ'φ is at most the largest (φ'φ v)_j / v_j (Collatz, Wielandt); power
    steps bring v to the leading eigenvector, where this is an equality.
    """
    vector = torch.ones_like(like)
    rows = function(vector)
    columns = adjoint(function, torch.ones_like(rows), like)
    disjoint = bool((columns == 1).all()) and bool((rows == rows.flatten()[0]).all())
    best = math.inf
    for _ in range(_POWER_STEPS):
        image = function(vector)
        least = float(image.square().sum() / vector.square().sum())  # Rayleigh's quotient, a lower bound
        after = adjoint(function, image, like)
        most = float(torch.where(vector > 0, after / vector, 0.0).max())
        stays = most >= best and like.numel() > _WIDE
        best = min(best, most)
        if best <= least * (1 + _TIGHT) or stays:
            break
        vector = after / after.max()
    return math.sqrt(best), disjoint


def adjoint(function: Callable[[Tensor], Tensor], outputs: Tensor, like: Tensor) -> Tensor:
    """The transpose of a linear map at `outputs`; `like` has the shape of its inputs."""
    with torch.enable_grad():
        inputs = torch.zeros_like(like, requires_grad=True)
        (result,) = torch.autograd.grad(function(inputs), inputs, outputs)
    return result


def _first_order(cnn: RandomCNN, pixels: Tensor) -> Bound[Tensor] | None:
    """E sin²Θ = tr(P C) / (N |f*|²) + O(1/N²), C the covariance over positions of one ReLU map, P the projection off f*."""
    if len(cnn.filters) > 1:
        return None
    data = pixels
    if cnn.data_layers():
        module = Sequential(*cnn.data_layers()).sample(tuple(pixels.shape[1:]), generator=torch.Generator())
        data = module(pixels)
    conv = cnn.last.conv
    patches = _patches(conv, data)
    if patches.shape[1] > _MOST_POSITIONS:
        return None
    return Bound(
        torch.stack([_off_limit(cnn, p) for p in patches]) / cnn.last.count,
        kind="asymptotic",
        assumes=(*_FILTERS, "one layer of filters; to first order in 1/N"),
        source="initscope, docs/reconstruction.md; covariance from DC Lemma 5",
    )


def _patches(conv: Conv, data: Tensor) -> Tensor:
    """What the filters see at each position, (n, positions, channels·taps)."""
    return conv.window.patches(data).transpose(1, 2)


def _off_limit(cnn: RandomCNN, patches: Tensor) -> Tensor:
    """E|g - <g, f*>f*/|f*|²|² / |f*|² for the map g of one filter: (m2 |z|⁴ - Σ z_p z_q E g_p g_q) / (m1² |z|⁴)."""
    squares = patches.square().sum(1)
    unit = patches / squares.sqrt().clamp_min(torch.finfo(patches.dtype).tiny)[:, None]
    along = patches.new_zeros(())
    for rows, columns in tiles(len(patches), len(patches), _TILE, symmetric=True):
        pairs = _unit_products(cnn.last, (unit[rows] @ unit[columns].T).clamp_(-1, 1))
        part = squares[rows] @ pairs @ squares[columns]  # E g_p g_q = pairs z_p z_q
        along += part if rows == columns else 2 * part
    return (cnn.last.square - along / squares.sum().square()) / cnn.last.mean**2


def _unit_products(filters: Filters, cosine: Tensor) -> Tensor:
    """E f(wy) f(wy') for unit patches at this cosine: with J(t) = (sin t + (π - t) cos t) k2 / π (DC Lemma 5),

    (rise² + fall²) J(t) + 2 rise fall J(π - t).
    """
    angle, sine = cosine.acos(), (1 - cosine.square()).sqrt_()
    same = sine + (math.pi - angle) * cosine
    products = (filters.rise**2 + filters.fall**2) * same
    if filters.rise * filters.fall:
        products += 2 * filters.rise * filters.fall * (sine - angle * cosine)
    return products * (filters.moments.k2 / math.pi)
