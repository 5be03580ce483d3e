"""What OP proves about norms in deep ReLU networks with He's initialisation: Lemma 2, Theorems 1 and 3, as formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence

from initscope.finite.mellin import excess

PAPER = "The benefits of over-parameterization at initialization in deep ReLU networks"
HE = ("ReLU layers, biases zero", "weights independent N(0, 2/fan-out)", "inputs fixed before the weights are drawn")


def rate(epsilon: float) -> float:
    """ε/4 + log(2 / (1 + √(1+ε))), the exponent per unit of width in OP eq. 7, without cancellation for small ε.

    >>> round(rate(0.5), 12) == round(0.125 + math.log(2 / (1 + math.sqrt(1.5))), 12), round(rate(1e-9) / 1e-18, 9)
    (True, 0.09375)
    """
    root = 1 + math.sqrt(1 + epsilon)
    u = epsilon / (2 * root)
    return epsilon**2 / (4 * root**2) + (u * u - float(excess(u))) / (1 + u)


def per_layer(epsilon: float, depth: int) -> float:
    """The largest ε' for which (1 ± ε')^depth stays within 1 ± ε.

    >>> round(per_layer(0.5, 10), 6)
    0.04138
    """
    # (1 + ε)^(1/L) - 1 is the smaller of the two: the upper end binds.
    return min(math.expm1(math.log1p(epsilon) / depth), -math.expm1(math.log1p(-epsilon) / depth))


def theorem_width(depth: int, epsilon: float, delta: float, union: float) -> float:
    """n with union · exp(-n rate(ε')) = δ, not rounded; union is 2NL in Theorem 1 and 4NL in Theorem 3.

    >>> [round(theorem_width(1, e, 0.05, 2), 2) for e in (0.1, 0.2, 0.5)], round(theorem_width(10, 0.5, 0.05, 20), 2)
    ([4151.31, 1091.0, 199.35], 38178.35)
    """
    return math.log(union / delta) / rate(per_layer(epsilon, depth))


def theorem_failure(widths: Sequence[int], epsilon: float, factor: float) -> float:
    """min(1, factor · Σ_l exp(-n_l rate(ε'))); factor is 2N in Theorem 1 and 4N in Theorem 3."""
    exponent = rate(per_layer(epsilon, len(widths)))
    return min(1.0, factor * math.fsum(math.exp(-width * exponent) for width in widths))
