"""The Hermite coefficients of named activations, for loops of one's own."""

from __future__ import annotations

import math
import threading
from weakref import WeakKeyDictionary

from torch import Tensor

from initscope.activations.activation import Activation
from initscope.activations.batches import autograd_derivative, jumps
from initscope.activations.hermite import Expansion
from initscope.activations.quadrature import QuadratureDual
from initscope.activations.series_losses import Span
from initscope.activations.series_pairs import reaches
from initscope.activations.series_table import SeriesTable, table_of

_expansions: WeakKeyDictionary[Activation, Expansion] = WeakKeyDictionary()
_lock = threading.RLock()


def series_table(
    activation: Activation,
    low: float,
    high: float,
    tolerance: float,
    most: int = 128,
    *,
    slope_tolerance: float = math.inf,
    powers: int = 3,
) -> SeriesTable | None:
    """The Hermite coefficients of an activation for standard deviations from `low` to `high`.

    Args:
        activation: any; with kinks at 0 the rectified powers there are taken out.
        low, high: the smallest and the largest standard deviation; rounded outwards to steps of an eighth of an octave.
        tolerance: largest error of E f(u) f(v), in units of √(E f(u)² E f(v)²).
        most: largest order.
        slope_tolerance: the same for E f'(u) f'(v), which is also what a small 1 - cosine needs.
        powers: how many rectified powers are taken out of a kink at 0; more leave fewer orders.

    Returns:
        The shortest table that meets the tolerances, or None where there is none.
    """
    return table_of(expansion_of(activation), Span.of(low, high), (tolerance, slope_tolerance), most, powers)


def series_reaches(activation: Activation, A: Tensor) -> bool:
    """Whether a series serves all of these variances in float64; what lies beyond is integrated, which takes longer."""
    return isinstance(activation.dual, QuadratureDual) and reaches(activation.dual.expansion, A)


def expansion_of(activation: Activation) -> Expansion:
    """The coefficients of an activation, shared with its dual where that is the quadrature rung."""
    if isinstance(activation.dual, QuadratureDual):
        return activation.dual.expansion
    with _lock:
        if activation not in _expansions:
            slope = activation.derivative or autograd_derivative(activation.fn)
            kinks = activation.kinks
            _expansions[activation] = Expansion(activation.fn, slope, kinks, jumps(activation.fn, kinks))
        return _expansions[activation]
