"""The exact law of squared norms, forwards and backwards, in random ReLU networks of any depth and widths.

With Gaussian weights of variance v and no biases a layer of m units multiplies |h|² by v χ²_K, K ~ Binomial(m, 1/2),
independently of the layers before it: |h_L|²/|x|² is a product of independent factors, at any width.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

import numpy as np
from scipy.special import ndtri
from torch import Tensor

from initscope.errors import BadInput
from initscope.finite.contour import Alive, Kind
from initscope.finite.mellin import WIDEST, Factor, Real, Tilted, dead
from initscope.finite.tails import log_values, surely_less
from initscope.weights.law import Fan, Fans

Numbers = TypeVar("Numbers", float, Real, Tensor)


@dataclass(frozen=True)
class NormLaw:
    """The law of a ratio R of squared norms: with probability `dead` it is 0, otherwise it has a density.

    `factors` holds widths, variances and how often each occurs; `quantity` says what R is. Probabilities have a
    relative error of about 1e-12, in both tails, as far down as doubles go.

    >>> law = relu_norm_law([100] * 10)
    >>> law.quantity, round(law.mean, 12), round(law.variance, 12) == round(1.05**10 - 1, 12)
    ('|h|²/|x|²', 1.0, True)
    >>> round(law.cdf(0.5) + law.sf(1.5), 3)
    0.448
    """

    factors: tuple[Factor, ...]
    quantity: str = "|h|²/|x|²"

    def pdf(self, ratio: Numbers) -> Numbers:
        """The density of the part that is alive; it integrates to 1 - dead. Infinite at 0."""
        if not self.factors:
            raise BadInput("pdf", f"{self.quantity} is exactly 1: no random layer changes it", "use cdf or sf")
        return _each(ratio, self._pdf)

    def cdf(self, ratio: Numbers) -> Numbers:
        """P(R <= ratio), the dead event included."""
        return _each(ratio, lambda r: self._tail(r, "below"))

    def sf(self, ratio: Numbers) -> Numbers:
        """P(R > ratio)."""
        return _each(ratio, lambda r: self._tail(r, "above"))

    def quantile(self, probability: Numbers) -> Numbers:
        """The smallest ratio r with P(R <= r) >= probability; 0 as long as the dead event suffices.

        >>> law = relu_norm_law([8, 8])
        >>> round(law.cdf(law.quantile(0.3)), 12)
        0.3
        """
        return _each(probability, lambda q: np.array([self._quantile(float(one)) for one in q]))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The quantiles that leave (1 - level)/2 on either side."""
        if not 0 < level < 1:
            raise BadInput("interval", f"level is {level}, expected a number between 0 and 1", "pass for example 0.95")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def outside(self, low: float, high: float) -> float:
        """P(R < low or R > high), low > 0, accurate however small it is."""
        if not 0 < low <= high:
            raise BadInput("outside", f"got {low} and {high}, expected 0 < low <= high", "swap or correct them")
        if not self.factors:
            return 0.0 if low <= 1 <= high else 1.0
        above = float(log_values(self.factors, np.log([high]), "above")[0])
        total = self.dead + math.exp(above)
        if not surely_less(self.factors, lambda floors: Alive(self.factors, floors), math.log(low), above):
            total += math.exp(float(log_values(self.factors, np.log([low]), "below")[0]))
        return min(1.0, total)

    @property
    def mean(self) -> float:
        """E R = Π v m/2, the dead event counted as 0."""
        return math.prod((f.variance * f.width / 2) ** f.count for f in self.factors)

    @property
    def variance(self) -> float:
        """Var R = (E R)² (Π (1 + 5/m) - 1), from E χ²_K² = m²/4 + 5m/4."""
        return self.mean**2 * math.expm1(sum(f.count * math.log1p(5 / f.width) for f in self.factors))

    def moment(self, order: float) -> float:
        """E R^order, order > 0, the dead event counted as 0."""
        if not (math.isfinite(order) and order > 0):
            raise BadInput("moment", f"order is {order}, expected a positive number", "negative moments do not exist")
        return math.exp(self._everything.log_moment(order)) if self.factors else 1.0

    @property
    def dead(self) -> float:
        """P(R = 0): in some layer no unit is active."""
        return dead(*self.factors)

    @property
    def log_mean(self) -> float:
        """E log R, given R > 0."""
        return self._alive.mean

    @property
    def log_std(self) -> float:
        """Standard deviation of log R, given R > 0."""
        return math.sqrt(self._alive.variance)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        names = ("mean", "variance", "dead", "log_mean", "log_std")
        return {"quantity": self.quantity, **{name: getattr(self, name) for name in names}}

    @property
    def _everything(self) -> Alive:
        return Alive(self.factors, (1,) * len(self.factors))

    @property
    def _alive(self) -> Tilted:
        return self._everything.tilted(0.0) if self.factors else Tilted(0.0, 0.0, 0.0)

    def _pdf(self, ratio: Real) -> Real:
        found = np.where(ratio == 0, np.inf, np.where(np.isnan(ratio), np.nan, 0.0))
        proper = (ratio > 0) & np.isfinite(ratio)
        x = np.log(ratio[proper])
        found[proper] = np.exp(log_values(self.factors, x, "density") - x)
        return found

    def _tail(self, ratio: Real, kind: Kind) -> Real:
        """The tail that was asked for: integrated on its own side of the middle, one minus the other beyond it."""
        if not self.factors:
            return np.where(ratio < 1, 0.0, 1.0) if kind == "below" else np.where(ratio < 1, 1.0, 0.0)
        below, above = np.where(ratio < 0, 0.0, self.dead), np.where(np.isnan(ratio), np.nan, 0.0)
        below[np.isnan(ratio)] = np.nan
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(ratio)
        low, high = np.isfinite(x) & (x < self.log_mean), np.isfinite(x) & (x >= self.log_mean)
        below[low] += np.exp(log_values(self.factors, x[low], "below"))
        above[high] = np.exp(log_values(self.factors, x[high], "above"))
        right = high | (ratio == np.inf)
        below[right], above[~right & ~np.isnan(ratio)] = 1 - above[right], 1 - below[~right & ~np.isnan(ratio)]
        return below if kind == "below" else above

    def _quantile(self, probability: float) -> float:
        if not 0 <= probability <= 1:
            raise BadInput("quantile", f"got {probability}, expected a probability", "pass a number between 0 and 1")
        if not self.factors:
            return 1.0
        dead = self.dead
        if probability <= dead:
            return 0.0
        if probability == 1:
            return math.inf
        from_left, from_right = probability - dead, 1 - probability
        middle = self._tail(np.array([math.exp(self.log_mean)]), "above")[0]
        kind: Kind = "above" if from_right <= middle else "below"
        start = self.log_mean + self.log_std * float(ndtri(from_left / (1 - dead)))
        return math.exp(self._solve(kind, math.log(from_right if kind == "above" else from_left), start))

    def _solve(self, kind: Kind, target: float, x: float) -> float:
        """x at which the log tail is `target`, by Newton's method kept inside a bracket."""
        sign = 1.0 if kind == "below" else -1.0
        low, high = -math.inf, math.inf
        for _ in range(200):
            here = float(log_values(self.factors, np.array([x]), kind)[0])
            gap = sign * (here - target)  # positive: x is too large
            low, high = (low, x) if gap > 0 else (x, high)
            slope = math.exp(float(log_values(self.factors, np.array([x]), "density")[0]) - here)
            step = -gap / slope if slope > 0 else -math.copysign(self.log_std, gap)
            step = max(-3 * self.log_std, min(3 * self.log_std, step))
            if abs(step) <= 1e-15 * max(1.0, abs(x)) or abs(gap) < 1e-14:
                return x
            x = x + step if low < x + step < high else (low + high) / 2
        return x


def relu_norm_law(
    widths: int | Sequence[int], *, inputs: int | None = None, gain: float = 2.0, fan: Fan = "out"
) -> NormLaw:
    """The law of |h_L|²/|x|² after ReLU layers of these widths, for a fixed input x ≠ 0: Π v_l χ²_K.

    Weights are independent N(0, gain/fan), biases zero. gain 2 and fan "out" is He's initialisation as OP has it, "in" as
    PyTorch has it, gain 1 and "mean" is Glorot's. All but "out" need the number of `inputs`. With "in" the ratio of
    mean squares per unit, (|h_L|²/n_L)/(|x|²/n_0), has the law that fan "out" gives to the ratio of norms.

    >>> relu_norm_law([3]).dead
    0.125
    >>> round(relu_norm_law([50, 70], inputs=10, fan="in").mean, 12)
    7.0
    """
    widths, variances = _network("relu_norm_law", widths, inputs, gain, fan)
    return _law(zip(widths, _known("relu_norm_law", variances), strict=True), "|h|²/|x|²")


def relu_backward_law(
    widths: int | Sequence[int], layer: int, *, inputs: int | None = None, gain: float = 2.0, fan: Fan = "out"
) -> NormLaw:
    """The law of |∂ℓ/∂a_l|²/|∂ℓ/∂a_L|² with pre-activations a and l = `layer` from 1 to L: Π_{j=l..L-1} v_{j+1} χ²_{K_j}.

    Exact if ∂ℓ/∂a_L does not depend on the weights below it (OP Lemma 5 assumes more); docs/widths.md has the proof.

    >>> relu_backward_law([64] * 5, layer=2).factors
    (Factor(width=64, variance=0.03125, count=3),)
    """
    widths, variances = _network("relu_backward_law", widths, inputs, gain, fan)
    _check_layer("relu_backward_law", layer, len(widths))
    back = zip(widths[layer - 1 : -1], _known("relu_backward_law", variances[layer:]), strict=True)
    return _law(back, "|∂a|²/|δ|²")


def relu_gradient_law(
    widths: int | Sequence[int], layer: int, *, inputs: int | None = None, gain: float = 2.0, fan: Fan = "out"
) -> NormLaw:
    """The law of |∂ℓ/∂W_l|²/(|δ|²|x|²), δ = ∂ℓ/∂a_L, l = `layer` from 1 to L: |h_{l-1}|²/|x|² times |∂a_l|²/|δ|².

    The two are independent. Exact if δ does not depend on the weights below it; see `relu_backward_law`.

    >>> relu_gradient_law([64] * 5, layer=2).factors  # one layer forwards, three backwards
    (Factor(width=64, variance=0.03125, count=4),)
    """
    widths, variances = _network("relu_gradient_law", widths, inputs, gain, fan)
    _check_layer("relu_gradient_law", layer, len(widths))
    forward = zip(widths[: layer - 1], _known("relu_gradient_law", variances[: layer - 1]), strict=True)
    back = zip(widths[layer - 1 : -1], _known("relu_gradient_law", variances[layer:]), strict=True)
    return _law([*forward, *back], "|∂W|²/(|δ|²|x|²)")


def _law(layers: Any, quantity: str) -> NormLaw:
    counted = Counter(layers)
    return NormLaw(tuple(Factor(width, variance, count) for (width, variance), count in counted.items()), quantity)


def _network(
    place: str, widths: int | Sequence[int], inputs: int | None, gain: float, fan: Fan
) -> tuple[tuple[int, ...], list[float | None]]:
    """The widths as a tuple, and the variance of each layer's weights; None where the number of inputs is missing."""
    given = (widths,) if isinstance(widths, int) else tuple(widths)
    if not given:
        raise BadInput(place, "got no widths", "pass one width for each layer, such as [100, 100]")
    for name, number in (*(("a width", width) for width in given), ("inputs", 1 if inputs is None else inputs)):
        whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not (whole and 1 <= number <= WIDEST):
            raise BadInput(place, f"{name} is {number!r}, expected a whole number", f"use 1 to {WIDEST:,}")
    if not (math.isfinite(gain) and gain > 0):
        raise BadInput(place, f"gain is {gain}, expected a positive number", "He's gain is 2, Glorot's 1")
    if fan not in get_args(Fan):
        raise BadInput(place, f"fan is {fan!r}", f"use one of {', '.join(get_args(Fan))}")
    whole_widths = tuple(int(width) for width in given)
    variances: list[float | None] = []
    for width, before in zip(whole_widths, (inputs, *whole_widths[:-1]), strict=True):
        unknown = before is None and fan != "out"
        variances.append(None if unknown else gain / Fans(int(before or 1), width).count(fan))
    return whole_widths, variances


def _known(place: str, variances: Sequence[float | None]) -> list[float]:
    if None in variances:
        raise BadInput(place, "the first layer's variance needs the number of inputs", "pass inputs=, or use fan='out'")
    return [variance for variance in variances if variance is not None]


def _check_layer(place: str, layer: int, depth: int) -> None:
    if not (isinstance(layer, int) and 1 <= layer <= depth):
        raise BadInput(place, f"layer is {layer!r} in a network of {depth} layers", f"use 1 to {depth}")


def _each(given: Numbers, function: Callable[[Real], Real]) -> Numbers:
    """Apply to every number, and answer in kind: a float for a number, an array for an array, a tensor for a tensor."""
    if isinstance(given, Tensor):
        values = given.detach().cpu().double().numpy()
        return given.new_tensor(function(values.ravel()).reshape(values.shape), dtype=given.dtype)
    values = np.asarray(given, dtype=np.float64)
    found = function(values.ravel()).reshape(values.shape)
    return float(found) if values.ndim == 0 else found  # type: ignore[return-value]
