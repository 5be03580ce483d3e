"""E f(u) f(v) and E f'(u) f'(v) of Gaussian pairs, from the textbook; a, b are arrays of variances, c of covariances.

Shares no code with initscope, and is written once for two arithmetics: numbers of 40 digits (mpmath), and the long doubles of
numpy (19 digits, quick). Smooth functions without a closed form are integrated in float64 by the trapezoidal rule, which
converges exponentially for them. Derivatives count where they exist: those of `sign` and `step` are zero, as automatic
differentiation has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 40
Pair = tuple[Any, Any]  # E f(u) f(v) and E f'(u) f'(v)
Dual = Callable[[Any, Any, Any], Pair]


@dataclass(frozen=True)
class Arithmetic:
    """Numbers of one kind and the functions of arrays of them."""

    number: Callable[[Any], Any]
    pi: Any
    sqrt: Any
    exp: Any
    sin: Any
    cos: Any
    sinh: Any
    cosh: Any
    asin: Any
    acos: Any

    def angle(self, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
        """σ_u σ_v, and the angle whose cosine is the correlation; a right one where a variance is zero."""
        size = self.sqrt(a * b)
        cosine = np.where(size == 0, self.number(0), c / np.where(size == 0, self.number(1), size))
        return size, self.acos(np.minimum(np.maximum(cosine, self.number(-1)), self.number(1)))

    def relu_power(self, order: int, a: Any, b: Any, c: Any) -> Any:
        """E relu(u)^k relu(v)^k = (σ_u σ_v)^k J_k(θ) / 2π (Cho & Saul 2009)."""
        size, t = self.angle(a, b, c)
        s, co, rest = self.sin(t), self.cos(t), self.pi - t
        j = (
            lambda: rest,
            lambda: s + rest * co,
            lambda: 3 * s * co + rest * (1 + 2 * co**2),
            lambda: 15 * s - 11 * s**3 + rest * (9 * co + 6 * co**3),
        )[order]()
        return size**order * j / (2 * self.pi)


def _each(function: Callable[[Any], Any]) -> Any:
    return np.frompyfunc(function, 1, 1)


LONG = Arithmetic(
    np.longdouble, np.arccos(np.longdouble(-1)), np.sqrt, np.exp, np.sin, np.cos, np.sinh, np.cosh, np.arcsin, np.arccos
)  # fmt: skip
DIGITS = Arithmetic(
    mp.mpf, mp.pi(), *map(_each, (mp.sqrt, mp.exp, mp.sin, mp.cos, mp.sinh, mp.cosh, mp.asin, mp.acos))
)  # fmt: skip


def two_slopes(m: Arithmetic, below: float, above: float) -> Dual:
    """f = above·relu(u) - below·relu(-u), from E relu(u) relu(v) and E relu(u) relu(-v)."""
    squares = m.number(below) ** 2 + m.number(above) ** 2
    cross = 2 * m.number(below) * m.number(above)

    def dual(a: Any, b: Any, c: Any) -> Pair:
        product = squares * m.relu_power(1, a, b, c) - cross * m.relu_power(1, a, b, -c)
        return product, squares * m.relu_power(0, a, b, c) + cross * m.relu_power(0, a, b, -c)

    return dual


def relu_power(m: Arithmetic, order: int) -> Dual:
    def dual(a: Any, b: Any, c: Any) -> Pair:
        return m.relu_power(order, a, b, c), order**2 * m.relu_power(order - 1, a, b, c) if order else 0 * c

    return dual


def sign(m: Arithmetic) -> Dual:
    return lambda a, b, c: (1 - 2 * m.angle(a, b, c)[1] / m.pi, 0 * c)


def erf(m: Arithmetic, scale: Any = 1, times: float = 1, plus: float = 0) -> Dual:
    """times · erf(scale · u) + plus (Williams 1997)."""
    q = m.number(scale) ** 2

    def dual(a: Any, b: Any, c: Any) -> Pair:
        volume = (1 + 2 * q * a) * (1 + 2 * q * b)
        product = 2 / m.pi * m.asin(2 * q * c / m.sqrt(volume))
        slope = 4 * q / m.pi / m.sqrt(volume - 4 * q**2 * c**2)
        return m.number(times) ** 2 * product + m.number(plus) ** 2, m.number(times) ** 2 * slope

    return dual


def gelu(m: Arithmetic) -> Dual:
    """u Φ(u). By Stein's lemma twice: E uv ΦΦ = c E ΦΦ + (ab + c²) E φφ + ac E φ'(u)Φ(v) + bc E Φ(u)φ'(v)."""

    def dual(a: Any, b: Any, c: Any) -> Pair:
        volume = (1 + a) * (1 + b)
        det = volume - c**2
        both = m.number(0.25) + m.asin(c / m.sqrt(volume)) / (2 * m.pi)  # E Φ(u) Φ(v)
        density = 1 / (2 * m.pi * m.sqrt(det))  # E φ(u) φ(v)
        left, right = -c * density / (1 + a), -c * density / (1 + b)  # E φ'(u) Φ(v) = -E u φ(u) Φ(v), and mirrored
        product = c * both + (a * b + c**2) * density + a * c * left + b * c * right
        return product, both - left - right + c * density / det  # f' = Φ + uφ, and E uv φφ = c E φφ / det

    return dual


def gaussian(m: Arithmetic) -> Dual:
    def dual(a: Any, b: Any, c: Any) -> Pair:
        det = (1 + a) * (1 + b) - c**2
        return 1 / m.sqrt(det), c / (det * m.sqrt(det))

    return dual


def gabor(m: Arithmetic) -> Dual:
    """exp(-u²) sin u: the factor exp(-u² - v²) tilts the Gaussian to the covariance Σ (1 + 2Σ)⁻¹."""

    def dual(a: Any, b: Any, c: Any) -> Pair:
        det = (1 + 2 * a) * (1 + 2 * b) - 4 * c**2
        spread, covariance = (a + b + 4 * (a * b - c**2)) / det, c / det
        size = m.exp(-spread / 2) / m.sqrt(det)
        product = size * m.sinh(covariance)
        # By c at fixed a and b: det' = -8c, spread' = -8c (1 - spread) / det, covariance' = 1/det + 8c²/det²
        growth = 4 * c * (1 - spread) / det + 4 * c / det
        return product, growth * product + size * m.cosh(covariance) * (1 + 8 * c**2 / det) / det

    return dual


def polynomial(m: Arithmetic, coefficients: Sequence[Any]) -> Dual:
    """Σ_l l! r_l(a) r_l(b) c^l with r_l = Σ_i coef_{l+2i} (l+2i)! / (l! i! 2^i) a^i (Wick)."""

    def moment(coef: Sequence[Any], low: int, a: Any) -> Any:
        total = 0 * a
        for i in range(low, len(coef), 2):
            half = (i - low) // 2
            factor = m.number(math.factorial(i)) / (math.factorial(low) * math.factorial(half))
            total = total + coef[i] * factor * (a / 2) ** half
        return total

    def expect(coef: Sequence[Any], a: Any, b: Any, c: Any) -> Any:
        total = 0 * c
        for low in range(len(coef)):
            total = total + math.factorial(low) * moment(coef, low, a) * moment(coef, low, b) * c**low
        return total

    whole = [m.number(x) for x in coefficients]
    slope = [i * x for i, x in enumerate(whole)][1:]
    return lambda a, b, c: (expect(whole, a, b, c), expect(slope, a, b, c))


def hermite(m: Arithmetic, order: int) -> Dual:
    powers = {2: [-1, 0, 1], 3: [0, -3, 0, 1]}[order]
    return polynomial(m, [x / m.sqrt(m.number(math.factorial(order))) for x in powers])


def numerical(m: Arithmetic, fn: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Dual:
    """Trapezoidal rule over ±9 deviations, in float64; its error is exp(-2π distance / step), poles being π/2 away or more."""

    def one(a: Any, b: Any, c: Any) -> Pair:
        half = math.ceil(36 * max(1.0, math.sqrt(max(a, b))))
        z = np.arange(-half, half + 1) * (9 / half)
        weight = np.exp(-z * z / 2) * (9 / half) / np.sqrt(2 * np.pi)
        rest = m.sqrt(max(m.number(0), b - c * c / a)) if a else m.sqrt(b)
        u = float(m.sqrt(a)) * z
        v = float(c / m.sqrt(a) if a else 0) * z[:, None] + float(rest) * z
        product, slopes = (m.number(float((weight * f(u)) @ f(v) @ weight)) for f in (fn, slope))
        return product, slopes

    def dual(a: Any, b: Any, c: Any) -> Pair:
        both = [one(*state) for state in zip(a, b, c, strict=True)]
        return np.array([p for p, _ in both]), np.array([s for _, s in both])

    return dual


def _pieces(breaks: Any) -> tuple[Any, Any]:
    """Gauss-Legendre nodes and weights times the normal density between breaks along the last axis, within ±9 deviations."""
    ends = np.full((*breaks.shape[:-1], 1), 9.0)
    edges = np.sort(np.concatenate([-ends, np.clip(breaks, -9, 9), ends], -1), -1)
    nodes, weights = np.polynomial.legendre.leggauss(48)
    half = np.diff(edges)[..., None] / 2
    z = edges[..., :-1, None] + half * (1 + nodes)
    density = half * weights * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    return z.reshape(*breaks.shape[:-1], -1), density.reshape(*breaks.shape[:-1], -1)


def kinked(m: Arithmetic, fn: Callable[[Any], Any], slope: Callable[[Any], Any], kinks: Sequence[float]) -> Dual:
    """Smooth between kinks, in float64: pieces of u, and for each node pieces of v given u.

    Seen from u a kink of v is smooth, over a few deviations of v given u around where its mean is the kink.
    """
    places = np.array(kinks)

    def one(a: float, b: float, c: float) -> Pair:
        root, rest = math.sqrt(a), math.sqrt(max(0.0, b - c * c / a))
        slanted = c / root if abs(c) > 1e-12 else 1e-12
        around = [(places + shift * rest) / slanted for shift in (-6, 0, 6)]
        z, outer = _pieces(np.concatenate([places / root, *around]))
        mean = c / root * z[:, None]
        if rest < 1e-9 * math.sqrt(b):
            v, inner = mean, np.ones_like(mean)
        else:
            w, inner = _pieces((places - mean) / rest)
            v = mean + rest * w
        found = (m.number(float((outer * f(root * z)) @ (inner * f(v)).sum(1))) for f in (fn, slope))
        return next(found), next(found)

    def dual(a: Any, b: Any, c: Any) -> Pair:
        both = [one(*map(float, state)) for state in zip(a, b, c, strict=True)]
        return np.array([p for p, _ in both]), np.array([s for _, s in both])

    return dual


def elu(m: Arithmetic, alpha: float = 1.0, times: float = 1.0) -> Dual:
    """times · (u above 0, alpha (exp u - 1) below)."""
    return kinked(
        m,
        lambda z: times * np.where(z > 0, z, alpha * np.expm1(np.minimum(z, 0))),
        lambda z: times * np.where(z > 0, 1, alpha * np.exp(np.minimum(z, 0))),
        (0.0,),
    )


def hardswish(m: Arithmetic) -> Dual:
    def slope(z: Any) -> Any:
        return np.where(z > 3, 1, np.where(z < -3, 0, (2 * z + 3) / 6))

    return kinked(m, lambda z: z * np.clip(z + 3, 0, 6) / 6, slope, (-3.0, 3.0))


def mish(m: Arithmetic) -> Dual:
    """u tanh(log(1 + exp u)); its nearest poles are 3π/4 away."""

    def slope(z: Any) -> Any:
        inner = np.tanh(np.logaddexp(0, z))
        return inner + z * (1 - inner**2) * _sigmoid(z)

    return numerical(m, lambda z: z * np.tanh(np.logaddexp(0, z)), slope)


def _sigmoid(z: Any) -> Any:
    return np.exp(-np.logaddexp(0, -z))


def exponential(m: Arithmetic) -> Dual:
    return lambda a, b, c: (m.exp((a + b) / 2 + c),) * 2


def wave(m: Arithmetic) -> Dual:
    """sin: E sin u sin v = exp(-(a+b)/2) sinh c, in exponentials that do not overflow."""

    def dual(a: Any, b: Any, c: Any) -> Pair:
        near, far = m.exp(c - (a + b) / 2) / 2, m.exp(-c - (a + b) / 2) / 2
        return near - far, near + far

    return dual


def rbf(m: Arithmetic, gamma: float) -> Dual:
    def dual(a: Any, b: Any, c: Any) -> Pair:
        value = m.exp(-m.number(gamma) * (a + b - 2 * c))
        return value, 2 * m.number(gamma) * value

    return dual


DUALS: dict[str, Callable[..., Dual]] = {
    "relu": lambda m: two_slopes(m, 0, 1),
    "leaky": lambda m, slope: two_slopes(m, slope, 1),
    "abs": lambda m: two_slopes(m, -1, 1),
    "abrelu": two_slopes,
    "identity": lambda m: lambda a, b, c: (c, 0 * c + 1),
    "sign": sign,
    "step": lambda m: relu_power(m, 0),
    "erf": erf,
    "sigmoid_like": lambda m: erf(m, 1 / m.number(2.4020563531719796), 0.5, 0.5),
    "gelu": gelu,
    "sin": wave,
    "cos": lambda m: lambda a, b, c: wave(m)(a, b, c)[::-1],
    "exp": exponential,
    "gaussian": gaussian,
    "gabor": gabor,
    "rbf": rbf,
    "poly": lambda m, *coefficients: polynomial(m, coefficients),
    "monomial": lambda m, order: polynomial(m, [0] * order + [1]),
    "relupower": relu_power,
    "hermite": hermite,
    "tanh": lambda m: numerical(m, np.tanh, lambda z: 1 / np.cosh(z) ** 2),
    "sigmoid": lambda m: numerical(m, _sigmoid, lambda z: _sigmoid(z) * _sigmoid(-z)),
    "silu": lambda m: numerical(m, lambda z: z * _sigmoid(z), lambda z: _sigmoid(z) * (1 + z * _sigmoid(-z))),
    "softplus": lambda m: numerical(m, lambda z: np.logaddexp(0, z), _sigmoid),
    "mish": mish,
    "elu": elu,
    "selu": lambda m: elu(m, 1.6732632423543772848, 1.0507009873554804934),
    "hardswish": hardswish,
}
