"""Widths that preserve the norms of a whole subspace of inputs at once: OP Theorem 2 as printed, repaired, and sharper."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp

from initscope.bounds.printed_width import HE, PAPER, per_layer, rate
from initscope.bounds.result import Bound
from initscope.bounds.targets import share, whole
from initscope.bounds.width_search import smallest_width
from initscope.finite.depths import log_outside_sum
from initscope.finite.mellin import Factor, tilted

_LINKS = 0.05  # the share of δ that goes to the links of the chain
_SUBSPACE = "all layers are equally wide, inputs in a d-dimensional subspace fixed before the weights are drawn"


@dataclass(frozen=True)
class SubspaceAnswer:
    """Widths for which |h_l|²/|x|² stays within 1 ± ε for all x of a d-dimensional subspace and all layers l.

    `printed`: OP Theorem 2, whose proof does not hold. `repaired`: the same with a union bound over the linear pieces of the
    layers before, granting Lemma 3 as it is stated. `chained`: a proof of its own, from the exact law; it stands alone.
    """

    dimension: int
    depth: int
    epsilon: float
    delta: float
    printed: Bound[int]
    repaired: Bound[int]
    chained: Bound[int]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        return {
            "dimension": self.dimension,
            "depth": self.depth,
            "epsilon": self.epsilon,
            "delta": self.delta,
            **{name: getattr(self, name).to_dict() for name in ("printed", "repaired", "chained")},
        }


def width_for_subspace(dimension: int, depth: int, epsilon: float, delta: float) -> SubspaceAnswer:
    """The width for which |h_l|²/|x|² is within 1 ± ε for all x in a subspace and all l <= `depth`, probability 1 - δ.

    He's initialisation (variance 2/fan-out), all layers equally wide; ε is the total distortion.

    >>> answer = width_for_subspace(dimension=3, depth=10, epsilon=0.5, delta=0.05)
    >>> answer.chained.value < answer.printed.value < answer.repaired.value
    True
    """
    place = "width_for_subspace"
    dimension, depth = whole(place, "dimension", dimension), whole(place, "depth", depth)
    epsilon, delta = share(place, "epsilon", epsilon), share(place, "delta", delta)
    slack = f"ε' = {per_layer(epsilon, depth):.6g} in each layer"
    chained = _chained_width(dimension, depth, epsilon, delta)
    return SubspaceAnswer(
        dimension,
        depth,
        epsilon,
        delta,
        Bound(
            _printed_width(dimension, depth, epsilon, delta),
            delta,
            "bound",
            (*HE[:2], _SUBSPACE),
            f"{PAPER}, Theorem 2, eq. 11",
            f"{slack}; not proved: hidden activations do not stay in a d-dimensional subspace",
        ),
        Bound(
            _repaired_width(dimension, depth, epsilon, delta),
            delta,
            "bound",
            (*HE[:2], _SUBSPACE, "Lemma 3 holds as stated, for squared norms (its proof bounds norms)"),
            f"{PAPER}, Lemma 3 for each linear piece of the layers before",
            f"{slack}; union bound over the regions of n hyperplanes in each layer",
        ),
        Bound(
            chained,
            delta,
            "bound",
            (*HE[:2], _SUBSPACE),
            "a net of the sphere, the exact law on it, and chaining between its points (docs/widths.md)",
        ),
    )


def log_regions(hyperplanes: int, dimension: int) -> float:
    """log of 2 Σ_{i<d} C(n-1, i), the regions into which n central hyperplanes in general position cut d dimensions.

    >>> round(math.exp(log_regions(4, 2)), 9), round(math.exp(log_regions(5, 3)), 9)
    (8.0, 22.0)
    """
    i = np.arange(min(dimension, hyperplanes), dtype=np.float64)
    n = float(hyperplanes)
    return math.log(2) + float(logsumexp(gammaln(n) - gammaln(i + 1) - gammaln(n - i)))


def _log_grid(dimension: int, epsilon: float) -> float:
    """d log(2/Δ), Δ = min(ε/(3√d), √ε/(√3 d)), from OP Lemma 3."""
    gap = min(epsilon / (3 * math.sqrt(dimension)), math.sqrt(epsilon / 3) / dimension)
    return dimension * math.log(2 / gap)


def _printed_width(dimension: int, depth: int, epsilon: float, delta: float) -> int:
    each = per_layer(epsilon, depth)
    return math.ceil((_log_grid(dimension, each) + math.log(4 * depth / delta)) / rate(each / 3))  # OP eq. 11


def _repaired_width(dimension: int, depth: int, epsilon: float, delta: float) -> int:
    """The smallest n with Σ_l regions(n, d)^(l-1) · 4 (2/Δ)^d exp(-n rate(ε'/3)) <= δ.

    n rate minus the logarithm of the rest is convex in n and negative at 1: it crosses zero once.
    """
    each = per_layer(epsilon, depth)
    exponent, grid = rate(each / 3), _log_grid(dimension, each) + math.log(4 / delta)
    layers = np.arange(depth, dtype=np.float64)

    def enough(width: int) -> bool:
        pieces = float(logsumexp(layers * log_regions(width, dimension)))
        return width * exponent >= grid + pieces

    fails, holds = 1, 2
    while not enough(holds):
        fails, holds = holds, 2 * holds
    while holds - fails > 1:
        middle = (fails + holds) // 2
        fails, holds = (fails, middle) if enough(middle) else (middle, holds)
    return holds


def _chained_width(dimension: int, depth: int, epsilon: float, delta: float) -> int:
    place, layers = "width_for_subspace", {layer: 1.0 for layer in range(1, depth + 1)}
    if dimension == 1:  # the sphere is two points

        def two_points(width: int) -> float:
            return math.log(2) + log_outside_sum(Factor(width, 2 / width), layers, 1 - epsilon, 1 + epsilon)

        return smallest_width(place, two_points, math.log(delta), 100 * depth)[0]
    mesh, guess = _mesh(dimension, depth, epsilon, delta)
    net = log_net_failure(dimension, depth, epsilon, delta, mesh)
    return smallest_width(place, net, math.log((1 - _LINKS) * delta), guess)[0]


def _mesh(dimension: int, depth: int, epsilon: float, delta: float) -> tuple[float, int]:
    """A good mesh of the net, and about how wide the network has to be with it.

    Any mesh gives a true bound: this one makes 10 L log(points/δ) / log² smallest, in the log-normal approximation.
    """
    best = (math.inf, 0.0)
    room = math.sqrt(1 + epsilon) - 1
    for part in range(2, 61):
        slack = part / 100 * room
        mesh = slack / 2.3  # the chain moves the norm by a little more than twice the mesh
        upper = 2 * math.log(math.sqrt(1 + epsilon) - slack)
        lower = -2 * math.log(math.sqrt(1 - epsilon) + slack)
        reach = min(upper, lower)
        if reach > 0:
            points = dimension * math.log1p(2 / mesh)
            best = min(best, (10 * depth * (points + math.log(depth / delta)) / reach**2, mesh))
    return best[1], math.ceil(best[0])


def log_net_failure(dimension: int, depth: int, epsilon: float, delta: float, mesh: float) -> Callable[[int], float]:
    """The function width -> log of the bound on the chance that some point of the net and some layer fail.

    The net has at most (1 + 2/η)^d points, each outside the narrower interval with the exact probability; the links of
    the chain between finer and finer nets may fail with probability 0.05 δ in all, and make it narrower.
    """
    layers = {layer: 1.0 for layer in range(1, depth + 1)}

    def log_failure(width: int) -> float:
        slack = _chain_length(width, dimension, depth, mesh, _LINKS * delta / depth)
        low, high = math.sqrt(1 - epsilon) + slack, math.sqrt(1 + epsilon) - slack
        if not low < 1 < high:
            return math.log(depth) + dimension * math.log1p(2 / mesh)
        chance = log_outside_sum(Factor(width, 2 / width), layers, low**2, high**2)
        return dimension * math.log1p(2 / mesh) + chance

    return log_failure


def _chain_length(width: int, dimension: int, depth: int, mesh: float, allowed: float) -> float:
    """By how much |h_L| can differ between a point of the sphere and its neighbour in the net: Σ_k η_k √g_k.

    η_k = mesh/2^k; there are at most (1 + 2/η_{k+1})^d links of length η_k, and by Markov's inequality for the power p

        P(|f(y) - f(y')|² > g |y - y'|²) <= E[R_L^p] g^-p,    p >= 1,

    because the squared distance of two hidden activations is at most R_L |y - y'|² in increasing convex order.
    """
    layer = Factor(width, 2 / width, depth)
    least = max(1.0, 0.6 * (dimension + 1))  # from there on the sum over k converges
    powers = least * np.geomspace(1.0, max(4.0, 40 * math.sqrt(width / depth) / least), 24)
    moments = np.array([tilted(layer, float(p)).log_moment for p in powers])
    total = 0.0
    for k in range(200):
        links = dimension * math.log1p(2 ** (k + 2) / mesh) + (k + 1) * math.log(2) - math.log(allowed)
        growth = (moments + links) / powers  # log g for each p
        best = int(growth.argmin())
        term = mesh * 2.0**-k * math.exp(growth[best] / 2)
        total += term
        ratio = 2 ** ((dimension + 1) / (2 * float(powers[best])) - 1)  # bounds all later ratios, with p kept
        if term * ratio / (1 - ratio) < 1e-9 * total:
            break
    return total + term * ratio / (1 - ratio)
