"""E f(u)² and 1 - cosine of f(u), f(v) for every activation of the catalogue, in mpmath; `activation_accuracy.py` compares.

A function that is analytic in a strip is summed by the trapezoidal rule over the plane, which then converges
exponentially (Trefethen & Weideman 2014); one that consists of polynomials and exponentials between kinks by truncated
moments of one Gaussian given the other, and Gauss-Legendre rules between the kinks.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mpmath as mp
from mpmath import mpf
from mpmath.calculus.quadrature import GaussLegendre

Function = Callable[[mpf], mpf]
DIGITS = 34
_REACH = 9.5  # standard deviations at which a sum over the plane ends
_LOSS = 41.0  # exp(-_LOSS) is what its step may cost
_WIDEST = 0.45  # step that is fine for the Gaussian alone
_PIECE, _END = 0.75, 14.0  # width of a Gauss-Legendre piece, and where they end


@dataclass(frozen=True)
class Smooth:
    """A function that is analytic within `strip` of the real line; infinite if it is entire."""

    fn: Function
    strip: float = math.inf
    growth: float = 0.0  # f grows like exp(growth u)

    def second_moment(self, s: mpf) -> mpf:
        return _line(lambda z: self.fn(s * z) ** 2, self._step(float(s)), self._reach(float(s)))

    def defect(self, s: mpf, t: mpf, q: mpf) -> mpf:
        """E (f(u)/√E f(u)² - f(v)/√E f(v)²)² / 2 at the cosine 1 - q, with u = s (Cx + Sy), v = t (Cx - Sy)."""
        C, S = mp.sqrt(1 - q / 2), mp.sqrt(q / 2)
        a, b = mp.sqrt(self.second_moment(s)), mp.sqrt(self.second_moment(t))
        widest = float(max(s, t))
        rules = [_nodes(self._step(widest * float(w)), self._reach(widest * float(w))) for w in (C, S)]

        def inner(y: mpf) -> mpf:
            return mp.fsum(
                w * (self.fn(s * (C * x + S * y)) / a - self.fn(t * (C * x - S * y)) / b) ** 2 for x, w in rules[0]
            )

        if s == t:  # symmetric in y
            return mp.fsum((1 if y == 0 else 2) * w * inner(y) for y, w in rules[1] if y >= 0) / 2
        return mp.fsum(w * inner(y) for y, w in rules[1]) / 2

    def _step(self, scale: float) -> float:
        """Nodes apart along a coordinate that f sees stretched by `scale`."""
        if self.strip < math.inf:
            return min(_WIDEST, 2 * math.pi * self.strip / _LOSS / max(scale, 1e-9))
        return min(_WIDEST, math.pi * math.sqrt(2 / _LOSS / (1 + 4 * scale**2)))

    def _reach(self, scale: float) -> float:
        return _REACH + 2 * self.growth * scale


def _nodes(step: float, reach: float) -> list[tuple[mpf, mpf]]:
    h = mpf(step)
    return [(i * h, h * mp.npdf(i * h)) for i in range(-math.ceil(reach / step), math.ceil(reach / step) + 1)]


def _line(fn: Function, step: float, reach: float) -> mpf:
    return mp.fsum(w * fn(z) for z, w in _nodes(step / 2, reach + 2))


@dataclass(frozen=True)
class Broken:
    """Between the kinks the sum of c_n z^n and of e times exp(z): ((c_0, c_1, ...), e) for each piece."""

    kinks: tuple[float, ...]
    pieces: tuple[tuple[tuple[float, ...], float], ...]

    def second_moment(self, s: mpf) -> mpf:
        edges = _edges([(mpf(k) / s, mpf(0)) for k in self.kinks])
        return mp.fsum(w * self._at(s * z, (low + high) / 2 * s) ** 2 for z, w, low, high in _pieces(edges))

    def defect(self, s: mpf, t: mpf, q: mpf) -> mpf:
        rho, spread = 1 - q, t * mp.sqrt(q * (2 - q))
        places = [(mpf(k) / s, mpf(0)) for k in self.kinks]
        if rho:
            places += [(mpf(k) / (t * rho), spread / abs(t * rho)) for k in self.kinks]
        total = mpf(0)
        for z, w, low, high in _pieces(_edges(places)):
            middle = (low + high) / 2
            mean = t * rho * z
            other = self._mean(mean, spread) if spread else self._at(mean, t * rho * middle)
            total += w * self._at(s * z, s * middle) * other
        defect = 1 - total / mp.sqrt(self.second_moment(s) * self.second_moment(t))
        return defect if abs(defect) > mpf(10) ** (8 - DIGITS) else mpf(0)

    def _at(self, z: mpf, where: mpf) -> mpf:
        """The piece to which `where` belongs, at z."""
        powers, e = self.pieces[sum(where > k for k in self.kinks)]
        return mp.fsum(mpf(c) * z**n for n, c in enumerate(powers)) + (mpf(e) * mp.exp(z) if e else 0)

    def _mean(self, mean: mpf, spread: mpf) -> mpf:
        """E f of a Gaussian."""
        ends = [-mp.inf, *(mpf(k) for k in self.kinks), mp.inf]
        total = mpf(0)
        for (powers, e), low, high in zip(self.pieces, ends, ends[1:], strict=False):
            if any(powers):
                moments = _truncated(mean, spread, low, high, len(powers))
                total += mp.fsum(mpf(c) * m for c, m in zip(powers, moments, strict=True))
            if e:
                shifted = mean + spread**2
                total += mpf(e) * mp.exp(mean + spread**2 / 2) * _mass(shifted, spread, low, high)
        return total


def _mass(mean: mpf, spread: mpf, low: mpf, high: mpf) -> mpf:
    below, above = (low - mean) / spread, (high - mean) / spread
    return mp.ncdf(above) - mp.ncdf(below) if below < 0 else mp.ncdf(-below) - mp.ncdf(-above)


def _truncated(mean: mpf, spread: mpf, low: mpf, high: mpf, count: int) -> list[mpf]:
    """E z^n for z between low and high, n = 0 ... count - 1, by partial integration."""

    def end(z: mpf, n: int) -> mpf:
        return mpf(0) if mp.isinf(z) else z**n * mp.npdf(z, mean, spread)

    moments = [_mass(mean, spread, low, high)]
    for n in range(1, count):
        before = (n - 1) * moments[n - 2] if n > 1 else 0
        moments.append(mean * moments[n - 1] + spread**2 * (before + end(low, n - 1) - end(high, n - 1)))
    return moments


def _edges(places: list[tuple[mpf, mpf]]) -> list[mpf]:
    """Pieces of equal width, cut at the places and graded towards those that are smoothed over some width."""
    count = math.ceil(2 * _END / _PIECE)
    edges = {-mpf(_END) + 2 * mpf(_END) * i / count for i in range(count + 1)}
    for place, width in places:
        edges.add(place)
        while 0 < width < _PIECE:
            edges |= {place - width, place + width}
            width *= 2
    return sorted(e for e in edges if abs(e) <= _END)


def _pieces(edges: list[mpf]) -> Iterator[tuple[mpf, mpf, mpf, mpf]]:
    """Nodes, weights times the density, and the ends of their piece."""
    for low, high in itertools.pairwise(edges):
        middle, half = (low + high) / 2, (high - low) / 2
        for x, w in _gauss():
            z = middle + half * x
            yield z, half * w * mp.npdf(z), low, high


@functools.cache
def _gauss() -> list[tuple[mpf, mpf]]:
    """The 24 nodes and weights on [-1, 1]."""
    return list(GaussLegendre(mp.mp).calc_nodes(4, mp.mp.prec))


_SCALE, _ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
_RELU: tuple[float, ...] = (0, 1)


def _line_pieces(*pieces: tuple[float, ...]) -> tuple[tuple[tuple[float, ...], float], ...]:
    return tuple((powers, 0.0) for powers in pieces)


REFERENCES: dict[str, Smooth | Broken] = {
    "relu": Broken((0.0,), _line_pieces((0,), _RELU)),
    "leaky_relu(0.2)": Broken((0.0,), _line_pieces((0, 0.2), _RELU)),
    "abs": Broken((0.0,), _line_pieces((0, -1), _RELU)),
    "relupower(2)": Broken((0.0,), _line_pieces((0,), (0, 0, 1))),
    "step": Broken((0.0,), _line_pieces((0,), (1,))),
    "sign": Broken((0.0,), _line_pieces((-1,), (1,))),
    "elu": Broken((0.0,), (((-1,), 1.0), (_RELU, 0.0))),
    "selu": Broken((0.0,), (((-_SCALE * _ALPHA,), _SCALE * _ALPHA), ((0, _SCALE), 0.0))),
    "hardswish": Broken((-3.0, 3.0), _line_pieces((0,), (0, 0.5, 1 / 6), _RELU)),
    "relu6": Broken((0.0, 6.0), _line_pieces((0,), _RELU, (6,))),
    "hardtanh": Broken((-1.0, 1.0), _line_pieces((-1,), _RELU, (1,))),
    "identity": Smooth(lambda z: z),
    "poly(0.5, -1, 0.25)": Smooth(lambda z: mpf("0.5") - z + z * z / 4),
    "hermite(3)": Smooth(lambda z: (z**3 - 3 * z) / mp.sqrt(6)),
    "erf": Smooth(mp.erf),
    "gelu": Smooth(lambda z: z * mp.ncdf(z)),
    "sin": Smooth(mp.sin),
    "cos": Smooth(mp.cos),
    "exp": Smooth(mp.exp, growth=1.0),
    "gaussian": Smooth(lambda z: mp.exp(-z * z / 2)),
    "tanh": Smooth(mp.tanh, math.pi / 2),
    "sigmoid": Smooth(lambda z: 1 / (1 + mp.exp(-z)), math.pi),
    "silu": Smooth(lambda z: z / (1 + mp.exp(-z)), math.pi),
    "softplus": Smooth(lambda z: mp.log1p(mp.exp(z)), math.pi),
    "mish": Smooth(lambda z: z * mp.tanh(mp.log1p(mp.exp(z))), 3 * math.pi / 4),
}
