"""Sums of failure probabilities over the layers of a network of one width, for the price of one layer.

The laws of |h_1|², ..., |h_L|² have the transforms M, M², ..., M^L: a weighted sum of their tails is one contour
integral of Σ w_l M^l, and the positive measure behind it is treated like any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from initscope.finite.contour import Along, Floors, Kind, Saddle, integrate, newton_saddle
from initscope.finite.mellin import Complex, Factor, Real, Tilted, active_units, log_dead, log_transform, tilted
from initscope.finite.tails import log_values, surely_less, without_the_rarest


@dataclass(frozen=True)
class Depths:
    """Networks of `depths[i]` equal layers, counted `weights[i]` times each."""

    layer: Factor
    depths: tuple[int, ...]
    weights: tuple[float, ...]
    floor: int

    @property
    def pole(self) -> float:
        return -self.floor / 2

    def tilted(self, c: float) -> Tilted:
        one = tilted(self.layer, c, self.floor)
        depths = np.array(self.depths, dtype=np.float64)
        logs = np.log(self.weights) + depths * one.log_moment
        total = float(logsumexp(logs))
        shares = np.exp(logs - total)
        mean = float(shares @ depths) * one.mean
        second = float(shares @ (depths * one.variance + (depths * one.mean) ** 2))
        return Tilted(total, mean, second - mean * mean)

    def log_moment(self, c: float) -> float:
        return self.tilted(c).log_moment

    def saddle(self, x: float, kind: Kind) -> Saddle:
        return newton_saddle(self, x, kind)

    def along(self, c: float) -> Along:
        units = active_units(self.layer, c, self.floor)
        depths, logs = np.array(self.depths, dtype=np.float64)[:, None], np.log(self.weights)[:, None]

        def transform(s: Complex) -> tuple[Complex, Real]:
            one, most = log_transform(self.layer, s, units)
            powers, most_powers = logs + depths * one, logs + depths * most
            top = most_powers.max(axis=0)
            with np.errstate(divide="ignore"):
                value = np.log(np.exp(powers - top).sum(axis=0)) + top
            return value, np.log(np.exp(most_powers - top).sum(axis=0)) + top

        return transform


def log_outside_sum(layer: Factor, weights: Mapping[int, float], low: float, high: float) -> float:
    """log of Σ w_l P(R_l < low or R_l > high), R_l the ratio after l layers like `layer`; `weights` maps l >= 1 to w_l.

    In logarithms, so that it may be far below what a double can hold.

    >>> from initscope.finite.norm_law import relu_norm_law
    >>> apart = [relu_norm_law([60] * l).outside(0.5, 1.5) for l in (1, 2, 3)]
    >>> together = math.exp(log_outside_sum(Factor(60, 2 / 60), {1: 1, 2: 1, 3: 1}, 0.5, 1.5))
    >>> bool(abs(together / sum(apart) - 1) < 1e-11)
    True
    """
    layer = replace(layer, count=1)
    depths, counted = tuple(weights), tuple(float(w) for w in weights.values())
    above = Depths(layer, depths, counted, 1)
    x = np.log([high])
    logs = [float(integrate(above, x, "above", above.saddle(float(x[0]), "above"))[0][0])]
    logs += [math.log(weight) + log_dead(replace(layer, count=depth)) for depth, weight in weights.items()]

    def with_floors(floors: Floors) -> Depths:
        return Depths(layer, depths, counted, floors[0])

    x = np.log([low])
    deepest = (replace(layer, count=max(depths)),)
    if not surely_less(deepest, with_floors, float(x[0]), logs[0]):
        below = without_the_rarest(deepest, with_floors, x, "below")
        if below is not None:
            logs.append(float(below[0]))
        else:
            for depth, weight in weights.items():
                one = log_values([replace(layer, count=depth)], x, "below")
                logs.append(math.log(weight) + float(one[0]))
    return float(logsumexp(logs))
