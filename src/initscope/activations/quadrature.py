"""The quadrature rung: the dual map of any elementwise function, from values of f and f' alone.

The distance is the integral of the squared difference, E (f(u)-f(v))², never a difference of integrals. Where u and v
are so close that f(u) - f(v) itself would lose digits, it is taken from f' at two points in between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from initscope.activations import series_pairs
from initscope.activations.batches import MANY, flat
from initscope.activations.coordinates import Plane
from initscope.activations.doubts import overlooked
from initscope.activations.dual import Dual, DualValue, Function, Pair, PairValue, covariance
from initscope.activations.evidence import heard, tell
from initscope.activations.hermite import Expansion
from initscope.activations.interpolant import interpolate, interpolate_line, mehler_grid
from initscope.activations.pieces import Pieces
from initscope.activations.plane import Kernel, integrate, integrate_line, integrate_plane
from initscope.activations.price import AngleIntegral
from initscope.activations.rules import TOLERANCE
from initscope.activations.triangle import call, triangle
from initscope.errors import NoExactForm

_CLOSE = 1e-8
_LEFT = (1 - 1 / math.sqrt(3)) / 2  # the two Gauss-Legendre points of [0, 1]
_UNEQUAL = 8.0  # ratio of the norms of f(u) and f(v) from which their distance hides the angle
_SEVERAL = 400  # from how many states on an interpolant of a series pays; MANY for one of integrals on its grid


def product_of(fn: Function) -> Kernel:
    """The integrand f(u) f(v)."""
    return lambda u, v, _: fn(u) * fn(v)


@dataclass(frozen=True, eq=False)
class QuadratureDual(Dual):
    """Integrals of f split at its kinks, in float64, with the error read off two orders of the rule.

    `jumps` says that f itself, not only f', is discontinuous at a kink; f' is then not a function. With `pieces`, the
    polynomials of which f consists, one integral takes the place of two. Moments and distances can be differentiated
    in A, B, D; the derivative products cannot, since f'' is not at hand.
    """

    fn: Function
    slope: Function
    kinks: tuple[float, ...] = ()
    jumps: bool = False
    pieces: Pieces | None = None
    rung = "quadrature"

    @cached_property
    def expansion(self) -> Expansion:
        """The Hermite coefficients of f."""
        return Expansion(self.fn, self.slope, self.kinks, self.jumps)

    def _by_pieces(self, A: Tensor) -> tuple[Tensor, Tensor] | None:
        """E f(u)² and E f(u) in closed form, where rounding leaves it the precision of an integral."""
        if self.pieces is None or A.requires_grad or not bool((A > 0).all() & A.isfinite().all()):
            return None
        mean, square, error = self.pieces.moments(A)
        if not bool((error <= TOLERANCE * torch.minimum(square, square.sqrt())).all()):
            return None
        tell(self.rung, error, square)
        return square, mean

    def second_moment(self, A: Tensor) -> Tensor:
        known = self._by_pieces(A)
        if known is not None:
            return known[0]
        many = series_pairs.moments(self.expansion, A)
        if many is not None:
            return many[0]
        # dS/dA = E f(u) f'(u) u / A, from u = √A z
        return call(_Moment, A, self, self._square, lambda u, v, _: 2 * self.fn(u) * self.slope(u) * u)

    def mean(self, A: Tensor) -> Tensor:
        known = self._by_pieces(A)
        if known is not None:
            return known[1]
        many = series_pairs.moments(self.expansion, A)
        if many is not None:
            return many[1]
        return call(_Moment, A, self, lambda u, v, _: self.fn(u), lambda u, v, _: self.slope(u) * u)

    def derivative_second_moment(self, A: Tensor) -> Tensor:
        if self.jumps:
            return torch.full_like(A, math.inf)
        return self.line(lambda u, v, _: self.slope(u) ** 2, A)

    def _tell(self, value: Tensor, error: Tensor, A: Tensor, B: Tensor, kernel: Kernel) -> None:
        """Tell the error beside the roots of the second moments; those cost integrals, so only where it matters."""
        if not heard():
            return
        scale = value
        if not bool((error <= 3 * TOLERANCE * value.abs()).all()):
            moments = [self.line_with_error(kernel, x)[0].abs().sqrt() for x in (A, B)]
            scale = moments[0] * moments[1]
        tell(self.rung, error, scale)

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        if A.requires_grad or B.requires_grad or D.requires_grad:
            return call(_Distance, A, B, D, self)
        return self.distance_with_error(A, B, D)[0]

    def distance_with_error(self, A: Tensor, B: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
        """The distance and an estimate of its absolute error."""
        return series_pairs.distance(self.expansion, Pair.of(A, B, D), self._integrated_distance)

    def _integrated_distance(self, pair: Pair) -> tuple[Tensor, Tensor]:
        A, B, D = pair.A, pair.B, pair.distance
        many = None if self.jumps or self.pieces else self._interpolated_distance
        value, error = flat(self._direct_distance, A, B, D, many, self._enough)
        value, error = torch.where(D > 0, value, 0), torch.where(D > 0, error, 0)
        self._tell(value, error, A, B, self._square)
        return value, error

    def _square(self, u: Tensor, v: Tensor, gap: Tensor) -> Tensor:
        return self.fn(u) ** 2

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        first, second = self.second_moment(A), self.second_moment(B)
        if A.requires_grad or B.requires_grad or D.requires_grad:
            return (first + second - self.distance(A, B, D)) / 2
        return self.carry(Pair.of(A, B, D), first.sqrt(), second.sqrt()).product

    def slopes(self, pair: Pair) -> Tensor:
        return series_pairs.slopes(self.expansion, pair, self._integrated_slopes)

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        if self.jumps:
            raise NoExactForm(
                "quadrature",
                f"f jumps at one of {self.kinks}, so its derivative is a delta function with no values to integrate",
                "use the closed forms STEP or SIGN, or give the derivative dual by hand",
            )
        return self.slopes(Pair.of(A, B, D))

    def _integrated_slopes(self, pair: Pair) -> Tensor:
        A, B, D = pair.A, pair.B, pair.distance
        many = None if self.pieces else self._interpolated_slopes
        value, error = flat(self._direct_slopes, A, B, D, many, self._enough)
        self._tell(value, error, A, B, lambda u, v, _: self.slope(u) ** 2)
        return value

    def carry(self, pair: Pair, a: Tensor, b: Tensor) -> PairValue:
        return series_pairs.carry(self.expansion, pair, a, b, self._integrated)

    def _integrated(self, pair: Pair, a: Tensor, b: Tensor) -> PairValue:
        """By the distance; where the norms of f(u) and f(v) differ much it hides the angle, and the product is asked."""
        unequal = _unequal(a, b)
        if not bool(unequal.any()):
            return PairValue.of_distance(self.distance(pair.A, pair.B, pair.distance), a, b)
        given = (pair.A, pair.B, pair.distance, pair.triangle.angle, a, b, unequal)
        A, B, D, angle, a, b, unequal = (t.expand_as(pair.excess) for t in given)
        excess, product, alike = torch.empty_like(D), torch.empty_like(D), ~unequal
        near = PairValue.of_distance(self.distance(A[alike], B[alike], D[alike]), a[alike], b[alike])
        excess[alike], product[alike] = near.excess, near.product
        both, cosine = a[unequal] * b[unequal], self._cosine(A[unequal], B[unequal], angle[unequal])
        excess[unequal] = torch.minimum((2 * both * (1 - cosine)).clamp_min(0), 4 * both)
        product[unequal] = both * cosine
        return PairValue(excess, product)

    def evaluate(self, A: Tensor, B: Tensor, D: Tensor) -> DualValue:
        distance, error = self.distance_with_error(A, B, D)
        first, second = self.second_moment(A), self.second_moment(B)
        product, a, b = (first + second - distance) / 2, first.sqrt(), second.sqrt()
        unequal = _unequal(a, b)
        if bool(unequal.any()):
            angle = triangle(A, B, D).angle[unequal]
            product[unequal] = (a * b)[unequal] * self._cosine(A[unequal], B[unequal], angle)
        return DualValue(distance, product, error, self.rung)

    def _cosine(self, A: Tensor, B: Tensor, angle: Tensor) -> Tensor:
        """E f(u) f(v) / √(E f(u)² E f(v)²) at the angle between u and v."""
        value, error = flat(self._direct_cosine, A, B, angle, self._interpolated_cosine, self._enough)
        tell(self.rung, error, torch.ones_like(error))
        return value

    @property
    def _enough(self) -> int:
        return MANY if self.kinks else _SEVERAL

    def line(self, kernel: Kernel, A: Tensor) -> Tensor:
        """E kernel(u, u, 0)."""
        value, error = self.line_with_error(kernel, A)
        if heard():
            size = value
            if not bool((error <= 3 * TOLERANCE * value.abs()).all()):
                size = self.line_with_error(lambda u, v, gap: kernel(u, v, gap).abs(), A)[0]
            tell(self.rung, error, size)
        return value

    def line_with_error(self, kernel: Kernel, A: Tensor) -> tuple[Tensor, Tensor]:
        """The same with its error, equal variances once."""
        variances, where = torch.unique(A.detach().flatten(), return_inverse=True)

        def direct(x: Tensor) -> tuple[Tensor, Tensor]:
            return integrate_line(kernel, x, x, self.kinks)

        answer = interpolate_line(direct, variances) if len(variances) >= _SEVERAL else None
        value, error = direct(variances) if answer is None else answer
        return value[where].view(A.shape), error[where].view(A.shape)

    def difference(self, u: Tensor, v: Tensor, gap: Tensor) -> Tensor:
        """f(u) - f(v) for a small gap = u - v: gap times f' between them, unless a kink lies there."""
        if self.pieces is not None:
            return self.pieces.difference(u, v, gap)
        inside = gap * (self.slope(u - _LEFT * gap) + self.slope(v + _LEFT * gap)) / 2
        if not self.kinks:
            return inside
        edges = torch.tensor(self.kinks, dtype=u.dtype, device=u.device)
        together = torch.bucketize(u, edges) == torch.bucketize(v, edges)
        return torch.where(together, inside, self.fn(u) - self.fn(v))

    def _direct_distance(self, A: Tensor, B: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
        value, error = self._by_angle(A, B, D, 0)
        left = ~(error <= TOLERANCE * value.abs())

        def far(u: Tensor, v: Tensor, _: Tensor) -> Tensor:
            return (self.fn(u) - self.fn(v)) ** 2

        def near(u: Tensor, v: Tensor, gap: Tensor) -> Tensor:
            return self.difference(u, v, gap) ** 2

        for chosen, kernel in ((left & (D < _CLOSE), near), (left & (D >= _CLOSE), far)):
            if bool(chosen.any()):
                states = A[chosen], B[chosen], D[chosen]
                value[chosen], doubt = integrate(kernel, *states, self.kinks)
                if not self.jumps and self.pieces is None:
                    doubt = doubt + overlooked(self.fn, self.slope, self.kinks, value[chosen], *states)
                if kernel is far:
                    doubt = doubt + self._rounding(value[chosen], *states[:2])
                error[chosen] = doubt.nan_to_num(nan=math.inf, posinf=math.inf)
        return value, error

    def _rounding(self, value: Tensor, A: Tensor, B: Tensor) -> Tensor:
        """What the rounding of u, v, f(u) and f(v) does to E (f(u)-f(v))², by Cauchy and Schwarz."""
        noise = torch.zeros_like(value)
        for x in (A, B):
            noise += self.line_with_error(lambda u, v, _: self.fn(u) ** 2 + (u * self.slope(u)) ** 2, x)[0]
        return 8 * torch.finfo(value.dtype).eps * (value.abs() * noise).sqrt().nan_to_num(nan=math.inf, posinf=math.inf)

    def _direct_slopes(self, A: Tensor, B: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
        value, error = self._by_angle(A, B, D, 1)
        left = ~(error <= TOLERANCE * value.abs())
        if bool(left.any()):
            value[left], error[left] = integrate(product_of(self.slope), A[left], B[left], D[left], self.kinks)
        return value, error

    def _direct_cosine(self, A: Tensor, B: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
        plane = Plane.at_angle(A.sqrt(), B.sqrt(), angle)
        value, error = integrate_plane(product_of(self.fn), plane, self.kinks)
        sizes = [self.line_with_error(self._square, x) for x in (A, B)]
        scale = (sizes[0][0] * sizes[1][0]).sqrt()
        off = sum(doubt / size for size, doubt in sizes)
        return value / scale, (error / scale + off).nan_to_num(nan=math.inf, posinf=math.inf)

    def _by_angle(self, A: Tensor, B: Tensor, D: Tensor, drop: int) -> tuple[Tensor, Tensor]:
        """The distance (drop = 0) or its slope (1) of a piecewise polynomial; an infinite error where there is none."""
        value, error = torch.full_like(A, math.nan), torch.full_like(A, math.inf)
        inside = torch.nonzero((A > 0) & (B > 0)).flatten()
        if self.pieces is None or not len(inside):
            return value, error
        A, B, D = A[inside], B[inside], D[inside]
        shape = triangle(A, B, D)
        start, off = [], torch.zeros_like(A)
        for n in range(1, self.pieces.degree + 1):
            if n == self.pieces.degree:
                L, doubt = self.pieces.overlap(shape.a, shape.b)
            else:
                L, doubt = integrate_line(product_of(self.pieces.derivative(n)), A, B, self.kinks)
            start.append(L)
            off += doubt * (2 * shape.a * shape.b * shape.q) ** (n - drop)
        turned, doubt = AngleIntegral(self.pieces, shape, start, drop).solve()
        if drop:
            value[inside], error[inside] = turned, doubt + off
        else:
            stretch, slack = self._stretch(A, B)
            value[inside] = shape.gap**2 * stretch + 2 * turned
            error[inside] = shape.gap**2 * slack + 2 * (doubt + off) + 1e-14 * value[inside].abs()
        return value, error

    def _stretch(self, A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
        """E ((f(az)-f(bz)) / (a-b))², the part of the distance due to unequal norms, and its error."""
        gap = triangle(A, B, torch.zeros_like(A)).gap

        def mean_slope(u: Tensor, v: Tensor, difference: Tensor) -> Tensor:
            between = self.difference(u, v, difference) ** 2
            if self.pieces is not None:
                return between
            return torch.where(difference.abs() < 1e-3, between, (self.fn(u) - self.fn(v)) ** 2)

        def touching(u: Tensor, v: Tensor, _: Tensor) -> Tensor:
            return (self.slope(u) * u) ** 2

        value, error = torch.empty_like(A), torch.empty_like(A)
        equal = gap.abs() <= 1e-9 * A.sqrt()
        for chosen, kernel, divisor in ((equal, touching, A), (~equal, mean_slope, gap**2)):
            if bool(chosen.any()):
                other = A if kernel is touching else B
                whole, doubt = integrate_line(kernel, A[chosen], other[chosen], self.kinks)
                value[chosen], error[chosen] = whole / divisor[chosen], doubt / divisor[chosen]
        return value, error

    def _interpolated_distance(self, A: Tensor, B: Tensor, D: Tensor) -> tuple[Tensor, Tensor] | None:
        return interpolate(self._slope_grid, A, B, D, self._direct_distance, lambda a, b: self._stretch(a, b)[0])

    def _interpolated_slopes(self, A: Tensor, B: Tensor, D: Tensor) -> tuple[Tensor, Tensor] | None:
        return interpolate(self._slope_grid, A, B, D, self._direct_slopes, None)

    def _interpolated_cosine(self, A: Tensor, B: Tensor, angle: Tensor) -> tuple[Tensor, Tensor] | None:
        a, b = A.sqrt(), B.sqrt()
        D = (a - b).square() + 4 * a * b * (angle / 2).sin().square()
        return interpolate(
            self._cosine_grid, A, B, D, lambda A, B, D: self._direct_cosine(A, B, triangle(A, B, D).angle), None
        )

    def _slope_grid(self, a: Tensor, b: Tensor, t: Tensor, limit: int) -> Tensor | None:
        return self._grid(self.slope, a, b, t, limit)

    def _cosine_grid(self, a: Tensor, b: Tensor, t: Tensor, limit: int) -> Tensor | None:
        grid = self._grid(self.fn, a, b, t, limit)
        first, second = (self.line_with_error(self._square, x.square())[0].sqrt() for x in (a, b))
        return None if grid is None else grid / torch.outer(first, second).flatten()[:, None]

    def _grid(self, fn: Function, a: Tensor, b: Tensor, t: Tensor, limit: int) -> Tensor | None:
        """E f(u) f(v) on the grid of norms a, b and angles t, (len(a) × len(b), len(t)); None beyond the limit."""
        series = None if self.kinks else mehler_grid(fn, a, b, t)
        if series is not None or len(a) * len(b) * len(t) > limit:
            return series
        first, second, angle = (x.flatten() for x in torch.meshgrid(a, b, t, indexing="ij"))
        plane = Plane.at_angle(first, second, angle)
        return integrate_plane(product_of(fn), plane, self.kinks)[0].view(-1, len(t))


def _unequal(a: Tensor, b: Tensor) -> Tensor:
    """Whether the distance of f(u) and f(v), of norms a and b, is little more than the larger norm."""
    return (torch.maximum(a, b) > _UNEQUAL * torch.minimum(a, b)) & (torch.minimum(a, b) > 0)


class _Moment(torch.autograd.Function):
    """E g(u) with the slope in A, E g'(u) u / 2A, both by the line rule."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, dual: QuadratureDual, kernel: Kernel, stretched: Kernel) -> Tensor:
        ctx.save_for_backward(A)
        ctx.dual, ctx.stretched = dual, stretched
        return dual.line(kernel, A)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (A,) = ctx.saved_tensors
        slope = ctx.dual.line(ctx.stretched, A) / torch.where(A > 0, 2 * A, 1)
        return grad * torch.where(A > 0, slope, 0), None, None, None


class _Distance(torch.autograd.Function):
    """Slopes by Price's theorem: ∂/∂D is E f'(u) f'(v); ∂/∂A at fixed angle is E (f(u)-f(v)) f'(u) u / A."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor, D: Tensor, dual: QuadratureDual) -> Tensor:
        ctx.save_for_backward(A, B, D)
        ctx.dual = dual
        return dual.distance_with_error(A, B, D)[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        A, B, D = ctx.saved_tensors
        dual: QuadratureDual = ctx.dual
        by_d = dual.derivative_product(A, B, D)
        c = covariance(A, B, D)

        def stretched(u: Tensor, v: Tensor, gap: Tensor) -> Tensor:
            return dual.difference(u, v, gap) * dual.slope(u) * u

        def plain(u: Tensor, v: Tensor, _: Tensor) -> Tensor:
            return (dual.fn(u) - dual.fn(v)) * dual.slope(u) * u

        def split(a: Tensor, b: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
            value, error = integrate(plain, a, b, d, dual.kinks)
            close = d < _CLOSE
            if bool(close.any()):
                value[close], error[close] = integrate(stretched, a[close], b[close], d[close], dual.kinks)
            return value, error

        def along(first: Tensor, second: Tensor) -> Tensor:
            rule = flat(split, first, second, D, None)[0]
            safe = torch.where(first > 0, first, 1)
            return torch.where(first > 0, rule / safe - by_d * (1 - c / safe), 0)

        return grad * along(A, B), grad * along(B, A), grad * by_d, None
