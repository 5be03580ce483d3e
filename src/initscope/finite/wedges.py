"""A pair of Gaussian units under f(z) = g₊ z (z > 0), g₋ z (z < 0): expectations as integrals over an angle.

Write u = a R cos(ψ + t/2), v = b R cos(ψ - t/2), where R² is twice a standard exponential variable and independent of ψ,
which is uniform on the circle, and t is the angle of the correlation. Every form of degree two,

    W = ½ (β f(u)² + γ f(v)² - μ (f(u) - f(v))²),

is R² times a function h(ψ), so that E W^k = 2^k k! · mean of h^k. On each of the four wedges in which the signs of u and v
do not change, h is a trigonometric polynomial of degree two. Two wedges, where the signs agree, have the opening π - t, and two
the opening t. The difference f(u) - f(v) is never formed by subtraction where the signs agree, so nothing is lost for nearly
parallel pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from initscope.activations.rules import gauss
from initscope.activations.triangle import triangle

_ORDER = 24  # h⁴ has frequency 8 on wedges no wider than π: this many Gauss-Legendre nodes integrate it to rounding
_NODES_AT_ONCE = 1 << 18
Slopes = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Form:
    """The coefficients β, γ, μ of W, numbers or tensors that broadcast to the pairs."""

    beta: Tensor | float
    gamma: Tensor | float
    mu: float


@dataclass(frozen=True, eq=False)
class UnitPair:
    """Standard deviations `a`, `b` of the units, their angle `t`, its supplement, and the slopes of f; tensors of one shape."""

    a: Tensor
    b: Tensor
    t: Tensor
    supplement: Tensor
    slopes: Slopes

    @classmethod
    def of(cls, A: Tensor, B: Tensor, D: Tensor, slopes: Slopes) -> UnitPair:
        """From E u², E v² and E (u - v)².

        >>> one = torch.ones(1, dtype=torch.float64)
        >>> round(float(UnitPair.of(one, one, one, (1.0, 0.0)).t) * 180 / math.pi, 9)
        60.0
        """
        shape = triangle(A, B, D)
        return cls(shape.a, shape.b, shape.angle, shape.supplement, slopes)

    def scaled(self, by_a: Tensor, by_b: Tensor) -> UnitPair:
        """The pair (u / by_a, v / by_b)."""
        return UnitPair(self.a / by_a, self.b / by_b, self.t, self.supplement, self.slopes)

    def second_moment(self, form: Form) -> Tensor:
        """E W² = 8 · mean of h², in closed form where the signs agree."""
        plus, minus = self.slopes
        constant, cosine, sine = self._agreeing(form)
        turn = (2 * self.t).sin() / 4
        agree = (  # ∫ (c₀ + c cos 2ψ + s sin 2ψ)² over |ψ| < (π - t)/2
            constant.square() * self.supplement
            + 2 * constant * cosine * self.t.sin()
            + cosine.square() * (self.supplement / 2 - turn)
            + sine.square() * (self.supplement / 2 + turn)
        )
        total = (plus**4 + minus**4) * agree
        by_u, by_v, by_uv = (_column(form.beta, self.a) - form.mu, _column(form.gamma, self.a) - form.mu, 2 * form.mu)
        for uuuu, vvvv, uuvv, uuuv, uvvv in self._mixed_quartics:
            total = (
                total
                + (
                    by_u.square() * uuuu
                    + by_v.square() * vvvv
                    + (2 * by_u * by_v + by_uv**2) * uuvv
                    + 2 * by_uv * (by_u * uuuv + by_v * uvvv)
                )
                / 4
            )
        return 8 * total.clamp_min(0) / (2 * math.pi)

    def peak(self, form: Form) -> Tensor:
        """2 max |h|, or a little more: then E |W|^k ≤ (k!/2) E W² peak^(k-2) for every k ≥ 2."""
        plus, minus = self.slopes
        largest = max(plus**2, minus**2) * _largest(*self._agreeing(form), self.supplement)
        for first, second in ((plus, minus), (minus, plus)):
            if first or second:
                largest = torch.maximum(largest, _largest(*self._mixed(form, first, second), self.t))
        return 2 * largest

    def nodes(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """f(u), f(v), f(u) - f(v) at R = 1 and the weights of a rule for the mean over ψ, each (..., nodes)."""
        plus, minus = self.slopes
        node, weight = (s.to(self.a.device) for s in gauss("legendre", _ORDER))
        width = self.supplement[..., None] / 2
        psi, half, a, b = width * node, self.t[..., None] / 2, self.a[..., None], self.b[..., None]
        u, v = a * (psi + half).cos(), b * (psi - half).cos()
        gap = (a - b) * psi.cos() * half.cos() - (a + b) * psi.sin() * half.sin()
        parts = [(g * u, g * v, g * gap, width * weight) for g in (plus, minus)]
        for first, second in ((plus, minus), (minus, plus)):
            u, v, mass = _mixed_nodes(self.a, self.b, self.t, first, second)
            parts.append((u, v, u - v, mass))
        fu, fv, gaps, weights = (torch.cat(columns, -1) for columns in zip(*parts, strict=True))
        return fu, fv, gaps, weights / (2 * math.pi)

    def _agreeing(self, form: Form) -> tuple[Tensor, Tensor, Tensor]:
        """h = c₀ + c cos 2ψ + s sin 2ψ where the signs agree, for slope one."""
        cos, sin = self.t.cos(), self.t.sin()
        near, far = (self.a - self.b) * (self.t / 2).cos(), (self.a + self.b) * (self.t / 2).sin()  # of u - v
        u, v = _column(form.beta, self.a) * self.a.square(), _column(form.gamma, self.a) * self.b.square()
        constant = (u + v - form.mu * (near.square() + far.square())) / 4
        cosine = ((u + v) * cos - form.mu * (near - far) * (near + far)) / 4
        sine = ((v - u) * sin + 2 * form.mu * near * far) / 4
        return constant, cosine, sine

    @cached_property
    def _mixed_quartics(self) -> list[tuple[Tensor, ...]]:
        """∫ over χ of f(u)⁴, f(v)⁴, f(u)²f(v)², f(u)³f(v), f(u)f(v)³ on each wedge where the signs differ."""
        plus, minus = self.slopes
        return [self._quartics(*slopes) for slopes in ((plus, minus), (minus, plus)) if any(slopes)]

    def _quartics(self, first: float, second: float) -> tuple[Tensor, ...]:
        rows = max(1, _NODES_AT_ONCE // _ORDER)
        columns = [torch.empty_like(self.a).flatten() for _ in range(5)]
        for start in range(0, self.a.numel(), rows):
            part = slice(start, start + rows)
            a, b, t = (x.flatten()[part] for x in (self.a, self.b, self.t))
            u, v, weight = _mixed_nodes(a, b, t, first, second)
            uu, vv, uv = u * u, v * v, u * v
            for column, value in zip(columns, (uu * uu, vv * vv, uv * uv, uu * uv, uv * vv), strict=True):
                column[part] = (value * weight).sum(-1)
        return tuple(column.view_as(self.a) for column in columns)

    def _mixed(self, form: Form, first: float, second: float) -> tuple[Tensor, Tensor, Tensor]:
        """The same where the signs differ, in 2χ."""
        u, v, product = (first * self.a).square(), (second * self.b).square(), first * second * self.a * self.b
        u, v = (_column(form.beta, u) - form.mu) * u, (_column(form.gamma, v) - form.mu) * v
        cos, sin = self.t.cos(), self.t.sin()
        cross = 2 * form.mu * product
        return (u + v + cross * cos) / 4, -((u + v) * cos + cross) / 4, (u - v) * sin / 4


def _mixed_nodes(a: Tensor, b: Tensor, t: Tensor, first: float, second: float) -> tuple[Tensor, Tensor, Tensor]:
    """f(u), f(v) and weights on a wedge where the signs differ: u = a sin(χ + t/2), v = b sin(χ - t/2), |χ| < t/2."""
    node, weight = (s.to(a.device) for s in gauss("legendre", _ORDER))
    half = t[..., None] / 2
    chi = half * node
    return first * a[..., None] * (chi + half).sin(), second * b[..., None] * (chi - half).sin(), half * weight


def _column(coefficient: Tensor | float, like: Tensor) -> Tensor:
    return torch.as_tensor(coefficient, dtype=like.dtype, device=like.device).expand_as(like)


def _largest(constant: Tensor, cosine: Tensor, sine: Tensor, width: Tensor) -> Tensor:
    """max |c₀ + c cos θ + s sin θ| over |θ| ≤ width ≤ π, rounded up where the terms cancel."""
    size, start = torch.hypot(cosine, sine), torch.atan2(sine, cosine)
    ends = torch.stack([(width - start).cos(), (width + start).cos()])
    high = torch.where(start.abs() <= width, 1.0, ends.amax(0))
    low = torch.where(math.pi - start.abs() <= width, -1.0, ends.amin(0))
    extreme = torch.maximum((constant + size * high).abs(), (constant + size * low).abs())
    return extreme + 4 * torch.finfo(extreme.dtype).eps * (constant.abs() + size)
