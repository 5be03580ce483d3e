"""The triangle with sides √A, √B, √D that a Gaussian pair spans, without cancellation at either end of the angle.

For a zero-mean pair (u, v) with A = E u², B = E v², D = E (u-v)² the angle t of the correlation cos t obeys

    q = sin²(t/2) = (D - (√A-√B)²) / (4√A√B),    p = cos²(t/2) = (2(A+B) - D - (√A-√B)²) / (4√A√B),

and both keep their relative accuracy when the other one is nearly 1, which cos t itself cannot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Triangle:
    """The sides `a`, `b`, their difference `gap` = a - b, and `q` = sin²(t/2), `p` = cos²(t/2)."""

    a: Tensor
    b: Tensor
    gap: Tensor
    q: Tensor
    p: Tensor

    @property
    def angle(self) -> Tensor:
        """t in [0, π]: zero exactly at correlation 1."""
        return 2 * torch.atan2(self.q.sqrt(), self.p.sqrt())

    @property
    def supplement(self) -> Tensor:
        """π - t, relatively accurate near correlation -1."""
        return 2 * torch.atan2(self.p.sqrt(), self.q.sqrt())

    @property
    def sine(self) -> Tensor:
        """sin t."""
        return 2 * (self.p * self.q).sqrt()


def triangle(A: Tensor, B: Tensor, D: Tensor) -> Triangle:
    """Resolve the state (A, B, D), broadcast together; a side of length zero stands at a right angle to anything.

    >>> one = torch.ones((), dtype=torch.float64)
    >>> round(float(triangle(one, one, one).angle) * 180 / math.pi, 12)
    60.0
    """
    A, B, D = broadcast(A, B, D)
    a, b = A.sqrt(), B.sqrt()
    total = a + b
    gap = (A - B) / torch.where(total > 0, total, 1)
    # One side after the other: 4ab overflows, or vanishes, where its quotients do not.
    first, second = (torch.where(side > 0, side, 1) for side in (a, b))
    q, p = (((chord - gap * gap) / first / second / 4).clamp(0, 1) for chord in (D, opposite(A, B, D)))
    # Where norms of very different size leave q + p = 1 to rounding, or to nothing, the sum must survive.
    both = p + q
    known = (a > 0) & (b > 0) & (both > 0)
    both = torch.where(known, both, 1)
    return Triangle(a, b, gap, torch.where(known, q / both, 0.5), torch.where(known, p / both, 0.5))


def resolved(A: Tensor, B: Tensor, excess: Tensor) -> Triangle:
    """The triangle of A, B and the excess D - (√A-√B)²: q loses nothing where the sides are of unequal length.

    >>> one = torch.ones((), dtype=torch.float64)
    >>> float(resolved(one, 1e12 * one, 4e-10 * one).q)
    1e-16
    """
    a, b = A.sqrt(), B.sqrt()
    total = a + b
    gap = (A - B) / torch.where(total > 0, total, 1)
    quadruple = 4 * a * b
    q = torch.where(quadruple > 0, (excess / torch.where(quadruple > 0, quadruple, 1)).clamp(0, 1), 0.5)
    p = 1 - q
    # A p of a few roundings is 0: its root, the angle between opposite sides, would be rounding of half as many digits.
    return Triangle(a, b, gap, q, torch.where(p > 4 * torch.finfo(p.dtype).eps, p, 0))


def opposite(A: Tensor, B: Tensor, D: Tensor) -> Tensor:
    """E (u+v)² = 2(A+B) - D, subtracted side by side so that it stays accurate where it is tiny."""
    return (2 * A - D / 2) + (2 * B - D / 2)


def sine_minus(t: Tensor) -> Tensor:
    """sin t - t cos t for t in [0, π], relatively accurate: = Σ_{k>=1} (-1)^(k+1) 2k t^(2k+1) / (2k+1)!.

    >>> float(sine_minus(torch.tensor(1e-6, dtype=torch.float64)))
    3.33333333333...e-19
    """
    square = t * t
    series = torch.zeros_like(t)
    for k in range(11, 0, -1):
        series = series * square + (-1) ** (k + 1) * 2 * k / math.factorial(2 * k + 1)
    return torch.where(t < 1.2, series * square * t, t.sin() - t * t.cos())


def minus_sine(t: Tensor) -> Tensor:
    """t - sin t for t in [0, π], relatively accurate: = Σ_{k>=1} (-1)^(k+1) t^(2k+1) / (2k+1)!."""
    square = t * t
    series = torch.zeros_like(t)
    for k in range(11, 0, -1):
        series = series * square + (-1) ** (k + 1) / math.factorial(2 * k + 1)
    return torch.where(t < 1.2, series * square * t, t - t.sin())


def _over(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, and 0 where the denominator is 0: the finite part of a slope at a vanishing side."""
    return torch.where(denominator > 0, numerator / torch.where(denominator > 0, denominator, 1), 0)


class _AbsDistance(torch.autograd.Function):
    """E (|u|-|v|)² = (a-b)² + 2ab g(q), g = 2m - (2/π)(sin s - s cos s), m = sin²(s/2) = min(q, p)."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        ctx.save_for_backward(A, B, D)
        shape = triangle(A, B, D)
        return shape.gap**2 + 2 * shape.a * shape.b * folded_defect(shape.q, shape.p)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shape = triangle(*ctx.saved_tensors)
        t, sine = shape.angle, shape.sine
        by_a = 2 / math.pi * (minus_sine(t) + _over(shape.gap * sine, shape.a))  # (2/π)(t - (b/a) sin t)
        by_b = 2 / math.pi * (minus_sine(t) - _over(shape.gap * sine, shape.b))
        return grad * by_a, grad * by_b, grad * (1 - 2 * t / math.pi)


class _ReluProduct(torch.autograd.Function):
    """E relu(u) relu(v) = (ab/2π) (sin τ - τ cos τ), τ = π - t (J1 of Cho & Saul 2009); of u and -v with τ = t."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor, D: Tensor, flipped: bool) -> Tensor:
        ctx.save_for_backward(A, B, D)
        ctx.flipped = flipped
        shape = triangle(A, B, D)
        return shape.a * shape.b / (2 * math.pi) * sine_minus(shape.angle if flipped else shape.supplement)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        shape = triangle(*ctx.saved_tensors)
        tau, sine = shape.angle if ctx.flipped else shape.supplement, shape.sine
        sign = -1 if ctx.flipped else 1  # E (u+v)² = 2(A+B) - D takes the place of D
        by_a = (sign * tau + _over(shape.b * sine, shape.a)) / (4 * math.pi)
        by_b = (sign * tau + _over(shape.a * sine, shape.b)) / (4 * math.pi)
        return grad * by_a, grad * by_b, -sign * grad * tau / (4 * math.pi), None


class _FoldedDefect(torch.autograd.Function):
    """1 - E|u||v| at unit variances as a function of q; its slope in q, 2 - 4t/π, is finite at both ends."""

    @staticmethod
    def forward(ctx: Any, q: Tensor) -> Tensor:
        ctx.save_for_backward(q)
        return folded_defect(q, 1 - q)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (q,) = ctx.saved_tensors
        return grad * (2 - 8 / math.pi * torch.atan2(q.sqrt(), (1 - q).sqrt()))


class _Angle(torch.autograd.Function):
    """t itself; its slope is infinite at t = 0 and t = π, as is the truth."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        ctx.save_for_backward(A, B, D)
        return triangle(A, B, D).angle

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        A, B, D = ctx.saved_tensors
        shape = triangle(A, B, D)
        a, b, gap, sine = shape.a, shape.b, shape.gap, shape.sine
        by_a = -(gap + 2 * b * shape.q) / (2 * A * b * sine)  # (b cos t - a) / (2 A b sin t)
        by_b = -(-gap + 2 * a * shape.q) / (2 * B * a * sine)
        by_d = 1 / (2 * a * b * sine)
        zero = a * b == 0
        slopes = (torch.where(zero | slope.isnan(), 0, slope) for slope in (by_a, by_b, by_d))
        first, second, third = (torch.where(grad == 0, 0, grad * slope) for slope in slopes)
        return first, second, third


class _Gram(torch.autograd.Function):
    """(AB - c²) / ((1+A)(1+B)) with AB - c² = 4AB p q, the determinant of the covariance matrix."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        shape = triangle(A, B, D)
        value = 4 * (A / (1 + A)) * (B / (1 + B)) * shape.p * shape.q
        ctx.save_for_backward(A, B, D, value)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        A, B, D, value = ctx.saved_tensors
        c = (A + B - D) / 2
        by_a = ((B - c) / (1 + B) - value) / (1 + A)
        by_b = ((A - c) / (1 + A) - value) / (1 + B)
        return grad * by_a, grad * by_b, grad * (c / (1 + A) / (1 + B))


def folded_defect(q: Tensor, p: Tensor) -> Tensor:
    """1 - (2/π)(sin t + (π/2 - t) cos t), the same for t and π - t, relatively accurate at both ends."""
    least = torch.minimum(q, p)
    return 2 * least - 2 / math.pi * sine_minus(2 * least.sqrt().asin())


def abs_distance(A: Tensor, B: Tensor, D: Tensor) -> Tensor:
    """E (|u|-|v|)², with finite slopes everywhere.

    >>> one = torch.ones((), dtype=torch.float64)
    >>> float(abs_distance(one, one, 4 * one))
    0.0
    """
    return call(_AbsDistance, *broadcast(A, B, D))


def relu_product(A: Tensor, B: Tensor, D: Tensor, flipped: bool = False) -> Tensor:
    """E relu(u) relu(v), relatively accurate down to correlation -1; flipped: E relu(u) relu(-v)."""
    return call(_ReluProduct, *broadcast(A, B, D), flipped)


def abs_defect(d: Tensor) -> Tensor:
    """1 - E|u||v| for unit variances and correlation 1 - d, d in [0, 2]."""
    return call(_FoldedDefect, (d / 2).clamp(0, 1))


def angle(A: Tensor, B: Tensor, D: Tensor) -> Tensor:
    """The angle t between u and v, π/2 where either vanishes."""
    return call(_Angle, *broadcast(A, B, D))


def gram(A: Tensor, B: Tensor, D: Tensor) -> Tensor:
    """(AB - c²) / ((1+A)(1+B)) with c = E uv: between 0 and 1, so that no variance is too large for it."""
    return call(_Gram, *broadcast(A, B, D))


def call(function: Any, *inputs: Any) -> Tensor:
    """Apply an autograd function, whose own `apply` has no type."""
    value = function.apply(*inputs)
    assert isinstance(value, Tensor)
    return value


def broadcast(A: Tensor, B: Tensor, D: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A, B, D with one shape."""
    if A.shape == B.shape == D.shape:
        return A, B, D
    shape = np.broadcast_shapes(A.shape, B.shape, D.shape)
    return A.expand(shape), B.expand(shape), D.expand(shape)
