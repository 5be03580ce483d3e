"""E f(u) f(v) and E f'(u) f'(v) of Gaussian pairs with 40 digits, from the textbook; a, b are the variances, c the covariance.

Shares no code with initscope. Smooth functions without a closed form are integrated in float64 by the trapezoidal rule, which
converges exponentially for them. Derivatives count where they exist: those of `sign` and `step` are zero, as automatic
differentiation has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 40
Pair = tuple[Any, Any]  # E f(u) f(v) and E f'(u) f'(v)
Dual = Callable[[Any, Any, Any], Pair]


def _arc(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """σ_u σ_v, and the angle whose cosine is the correlation."""
    size = mp.sqrt(a * b)
    return size, mp.acos(max(mp.mpf(-1), min(mp.mpf(1), c / size))) if size else mp.pi / 2


def _arc_cosine(order: int, a: Any, b: Any, c: Any) -> Any:
    """E relu(u)^k relu(v)^k = (σ_u σ_v)^k J_k(θ) / 2π (Cho & Saul 2009)."""
    size, t = _arc(a, b, c)
    s, co, rest = mp.sin(t), mp.cos(t), mp.pi - t
    j = (rest, s + rest * co, 3 * s * co + rest * (1 + 2 * co**2), 15 * s - 11 * s**3 + rest * (9 * co + 6 * co**3))[
        order
    ]
    return size**order * j / (2 * mp.pi)


def two_slopes(below: Any, above: Any) -> Dual:
    """f = above·relu(u) - below·relu(-u), from E relu(u) relu(v) and E relu(u) relu(-v)."""

    def dual(a: Any, b: Any, c: Any) -> Pair:
        same, other = _arc_cosine(1, a, b, c), _arc_cosine(1, a, b, -c)
        same_slope, other_slope = _arc_cosine(0, a, b, c), _arc_cosine(0, a, b, -c)
        squares, cross = mp.mpf(below) ** 2 + mp.mpf(above) ** 2, 2 * mp.mpf(below) * mp.mpf(above)
        return squares * same - cross * other, squares * same_slope + cross * other_slope

    return dual


def relu_power(order: int) -> Dual:
    return lambda a, b, c: (
        _arc_cosine(order, a, b, c),
        order**2 * _arc_cosine(order - 1, a, b, c) if order else mp.mpf(0),
    )


def sign(a: Any, b: Any, c: Any) -> Pair:
    _, t = _arc(a, b, c)
    return 1 - 2 * t / mp.pi, mp.mpf(0)


def erf(scale: Any = 1, times: Any = 1, plus: Any = 0) -> Dual:
    """times · erf(scale · u) + plus (Williams 1997)."""

    def dual(a: Any, b: Any, c: Any) -> Pair:
        q = mp.mpf(scale) ** 2
        volume = (1 + 2 * q * a) * (1 + 2 * q * b)
        product = 2 / mp.pi * mp.asin(2 * q * c / mp.sqrt(volume))
        slope = 4 * q / mp.pi / mp.sqrt(volume - 4 * q**2 * c**2)
        return mp.mpf(times) ** 2 * product + mp.mpf(plus) ** 2, mp.mpf(times) ** 2 * slope

    return dual


def gelu(a: Any, b: Any, c: Any) -> Pair:
    """u Φ(u). By Stein's lemma twice: E uv ΦΦ = c E ΦΦ + (a b + c²) E φφ + (a c E φ'(u)Φ(v) + c b E Φ(u)φ'(v))."""
    volume = (1 + a) * (1 + b)
    det = volume - c**2
    both = mp.mpf(1) / 4 + mp.asin(c / mp.sqrt(volume)) / (2 * mp.pi)  # E Φ(u) Φ(v)
    density = 1 / (2 * mp.pi * mp.sqrt(det))  # E φ(u) φ(v)
    left = -c * density / (1 + a)  # E φ'(u) Φ(v) = -E u φ(u) Φ(v)
    right = -c * density / (1 + b)
    product = c * both + (a * b + c**2) * density + a * c * left + b * c * right
    cross = c * density / det  # E u v φ(u) φ(v)
    # f' = Φ + u φ: E ΦΦ + E uφ(u)Φ(v) + E Φ(u) vφ(v) + E uv φφ
    return product, both - left - right + cross


def gaussian(a: Any, b: Any, c: Any) -> Pair:
    det = (1 + a) * (1 + b) - c**2
    return 1 / mp.sqrt(det), c / det ** (mp.mpf(3) / 2)


def gabor(a: Any, b: Any, c: Any) -> Pair:
    """exp(-u²) sin u: the factor exp(-u² - v²) tilts the Gaussian to the covariance Σ (1 + 2Σ)⁻¹."""

    def product(c: Any) -> Any:
        det = (1 + 2 * a) * (1 + 2 * b) - 4 * c**2
        one, two = (a + 2 * (a * b - c**2)) / det, (b + 2 * (a * b - c**2)) / det
        return mp.exp(-(one + two) / 2) * mp.sinh(c / det) / mp.sqrt(det)

    return product(c), mp.diff(product, c)


def polynomial(coefficients: Sequence[float]) -> Dual:
    """Σ_l l! r_l(a) r_l(b) c^l with r_l = Σ_i coef_{l+2i} (l+2i)! / (l! i! 2^i) a^i (Wick)."""

    def moments(coef: Sequence[Any], a: Any) -> list[Any]:
        return [
            sum(
                coef[i]
                * mp.factorial(i)
                / (mp.factorial(low) * mp.factorial((i - low) // 2))
                * (a / 2) ** ((i - low) // 2)
                for i in range(low, len(coef), 2)
            )
            for low in range(len(coef))
        ]

    def expect(coef: Sequence[Any], a: Any, b: Any, c: Any) -> Any:
        pairs = zip(moments(coef, a), moments(coef, b), strict=True)
        return sum((mp.factorial(i) * x * y * c**i for i, (x, y) in enumerate(pairs)), mp.mpf(0))

    whole = [mp.mpf(x) for x in coefficients]
    slope = [i * x for i, x in enumerate(whole)][1:]
    return lambda a, b, c: (expect(whole, a, b, c), expect(slope, a, b, c))


def hermite(order: int) -> Dual:
    powers = {2: [-1, 0, 1], 3: [0, -3, 0, 1]}[order]
    return polynomial([x / mp.sqrt(mp.factorial(order)) for x in powers])


def numerical(fn: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Dual:
    """Trapezoidal rule with step 1/8 over ±10 deviations, in float64."""
    z = np.arange(-80, 81) / 8
    weight = np.exp(-z * z / 2) / 8 / np.sqrt(2 * np.pi)
    grid = np.outer(weight, weight)

    def dual(a: Any, b: Any, c: Any) -> Pair:
        rest = mp.sqrt(max(mp.mpf(0), b - c * c / a)) if a else mp.sqrt(b)
        u = float(mp.sqrt(a)) * z[:, None]
        v = float(c / mp.sqrt(a) if a else 0) * z[:, None] + float(rest) * z
        return mp.mpf(float((grid * fn(u) * fn(v)).sum())), mp.mpf(float((grid * slope(u) * slope(v)).sum()))

    return dual


def _sigmoid(z: Any) -> Any:
    return np.exp(-np.logaddexp(0, -z))


def exponential(a: Any, b: Any, c: Any) -> Pair:
    value = mp.exp((a + b) / 2 + c)
    return value, value


def wave(a: Any, b: Any, c: Any) -> Pair:
    """sin: E sin u sin v = exp(-(a+b)/2) sinh c."""
    return mp.exp(-(a + b) / 2) * mp.sinh(c), mp.exp(-(a + b) / 2) * mp.cosh(c)


def rbf(gamma: float) -> Dual:
    def dual(a: Any, b: Any, c: Any) -> Pair:
        value = mp.exp(-mp.mpf(gamma) * (a + b - 2 * c))
        return value, 2 * mp.mpf(gamma) * value

    return dual


DUALS: dict[str, Callable[..., Dual]] = {
    "relu": lambda: two_slopes(0, 1),
    "leaky": lambda slope: two_slopes(slope, 1),
    "abs": lambda: two_slopes(-1, 1),
    "abrelu": two_slopes,
    "identity": lambda: lambda a, b, c: (c, mp.mpf(1)),
    "sign": lambda: sign,
    "step": lambda: relu_power(0),
    "erf": erf,
    "sigmoid_like": lambda: erf(1 / mp.mpf("2.4020563531719796"), 0.5, 0.5),
    "gelu": lambda: gelu,
    "sin": lambda: wave,
    "cos": lambda: lambda a, b, c: wave(a, b, c)[::-1],
    "exp": lambda: exponential,
    "gaussian": lambda: gaussian,
    "gabor": lambda: gabor,
    "rbf": rbf,
    "poly": lambda *coefficients: polynomial(coefficients),
    "monomial": lambda order: polynomial([0] * order + [1]),
    "relupower": relu_power,
    "hermite": hermite,
    "tanh": lambda: numerical(np.tanh, lambda z: 1 / np.cosh(z) ** 2),
    "sigmoid": lambda: numerical(_sigmoid, lambda z: _sigmoid(z) * _sigmoid(-z)),
    "silu": lambda: numerical(lambda z: z * _sigmoid(z), lambda z: _sigmoid(z) * (1 + z * _sigmoid(-z))),
    "softplus": lambda: numerical(lambda z: np.logaddexp(0, z), _sigmoid),
}
