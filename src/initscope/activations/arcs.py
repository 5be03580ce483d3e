"""What no finite series reaches at a kink at 0: products of u^i sgn u and v^j sgn v, in closed form.

relu^j = (u^j + u^j sgn u) / 2: the first half has finitely many Hermite coefficients, the second infinitely many. For powers of
the same parity, with P_ij = E u^i v^j at unit variances,

    E (u^i sgn u)(v^j sgn v) / 4 = M_ij(t) = [(π/2 - t) P_ij(cos t) + sin t Q_ij(cos t)] / 2π,

and Q follows from ∂M_ij/∂ρ = ij M_(i-1)(j-1), coefficient by coefficient [cho2009]. Next to t = 0

    M_ij(0) - M_ij(t) = [(π/2) (P_ij(1) - P_ij(ρ)) + (-1)^i U_ij(t)] / 2π,    U_ij = O(t³),

where U is written in sin t - t cos t, t - sin t cos t and sin³ t, so that nothing of lower order has to cancel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property

import torch
from torch import Tensor

from initscope.activations.rectified_series import rectified_constants
from initscope.activations.triangle import Triangle, minus_sine, sine_minus


def _odd_factorial(n: int) -> int:
    """(n-1)!!."""
    return math.prod(range(n - 1, 0, -2))


@cache
def _mixed(i: int, j: int) -> tuple[Fraction, ...]:
    """P_ij(ρ) = Σ_n n! C(i,n) C(j,n) (i-n-1)!! (j-n-1)!! ρ^n over n of the parity of i and j."""
    return tuple(
        Fraction(
            0 if (i - n) % 2 else math.factorial(n) * math.comb(i, n) * math.comb(j, n)
            * _odd_factorial(i - n) * _odd_factorial(j - n)
        )
        for n in range(min(i, j) + 1)
    )  # fmt: skip


@cache
def _sine_factor(i: int, j: int) -> tuple[Fraction, ...]:
    """Q_ij, i <= j: P - ρQ + (1-ρ²)Q' = (1-ρ²) ij Q_(i-1)(j-1), or for i = 0 the density of u at 0 times a half moment."""
    P = _mixed(i, j)
    right: dict[int, Fraction] = {}
    if i > 0:
        for n, c in enumerate(_sine_factor(i - 1, j - 1)):
            right[n] = right.get(n, Fraction(0)) + i * j * c
            right[n + 2] = right.get(n + 2, Fraction(0)) - i * j * c
    elif j > 0:
        half = j // 2
        for n in range(half + 1):  # κ (1-ρ²)^(j/2), κ = j 2^(j/2-1) (j/2-1)!
            size = j * 2 ** (half - 1) * math.factorial(half - 1) * math.comb(half, n)
            right[2 * n] = Fraction((-1) ** n * size)
    found: dict[int, Fraction] = {}
    for n in range(j, 0, -1):
        mixed = P[n] if n < len(P) else Fraction(0)
        found[n - 1] = (mixed + (n + 1) * found.get(n + 1, Fraction(0)) - right.get(n, Fraction(0))) / n
    return tuple(found.get(n, Fraction(0)) for n in range(j))


@cache
def _cubic_factor(i: int, j: int) -> tuple[Fraction, ...]:
    """B_ij(z), z = cos² t: what of U_ij is sin³ t (times cos t for even powers) beside the terms with P_ij."""
    P, Q = _mixed(i, j), _sine_factor(i, j)
    length = max(len(P), len(Q)) + 2
    p, q = ([*x, *[Fraction(0)] * (length - len(x))] for x in (P, Q))
    if i % 2:
        rest = [q[2 * n] - p[2 * n + 1] for n in range(length // 2)]
    else:
        rest = [p[2 * n + 2] - q[2 * n + 1] for n in range((length - 1) // 2)]
        rest[0] += p[0]
    total, quotient = Fraction(0), []
    for c in rest:  # divided by 1 - z
        total += c
        quotient.append(total)
    return tuple(quotient)


@cache
def arcs_of(powers: tuple[int, ...]) -> Arcs:
    """The arcs of these powers, whose tables are made once."""
    return Arcs(powers)


@dataclass(frozen=True)
class Arcs:
    """Σ_ij x_i y_j M_ij over powers i, j of the same parity, for the shares x_i = c_i √A^i, y_j = c_j √B^j of two sides.

    Shares have the shape (powers, ...) and broadcast against the angle.
    """

    powers: tuple[int, ...]

    def constants(self, orders: Sequence[int]) -> Tensor:
        """Hermite coefficients of u^j sgn u / 2, (powers, orders)."""
        rows = [rectified_constants(j, tuple(orders)) for j in self.powers]
        even = torch.tensor(orders) % 2
        return torch.stack([torch.where(even == j % 2, 0.0, row) for j, row in zip(self.powers, rows, strict=True)])

    @cached_property
    def whole(self) -> Tensor:
        """M_ij at t = 0, P_ij(1) / 4, (powers, powers)."""
        return torch.tensor(
            [[float(sum(_mixed(i, j))) / 4 if (i - j) % 2 == 0 else 0.0 for j in self.powers] for i in self.powers],
            dtype=torch.float64,
        )

    @cached_property
    def _polynomial(self) -> Tensor:
        """x -> the Hermite coefficients of Σ x_i u^i, (orders, powers): √n! C(i,n) (i-n-1)!!."""
        return torch.tensor(
            [
                [0.0 if (i - n) % 2 or n > i else math.sqrt(math.factorial(n)) * math.comb(i, n) * _odd_factorial(i - n)
                 for i in self.powers]
                for n in range(max(self.powers) + 1)
            ],
            dtype=torch.float64,
        )  # fmt: skip

    def _forms(self, parity: int, factor: str) -> list[Tensor]:
        """The coefficients of each power of cos t (or its square) as bilinear forms, (powers, powers)."""
        rule = _sine_factor if factor == "sine" else _cubic_factor
        table = {
            (a, b): rule(min(i, j), max(i, j))
            for a, i in enumerate(self.powers)
            for b, j in enumerate(self.powers)
            if i % 2 == parity and j % 2 == parity
        }
        forms = []
        for n in range(max((len(c) for c in table.values()), default=0)):
            form = torch.zeros(len(self.powers), len(self.powers), dtype=torch.float64)
            for (a, b), c in table.items():
                form[a, b] = float(c[n]) if n < len(c) else 0.0
            forms.append(form)
        return forms

    @cached_property
    def _sine_forms(self) -> list[Tensor]:
        even, odd = self._forms(0, "sine"), self._forms(1, "sine")
        zero = torch.zeros(len(self.powers), len(self.powers), dtype=torch.float64)
        count = max(len(even), len(odd))
        return [sum((f[n] for f in (even, odd) if n < len(f)), zero) for n in range(count)]

    @cached_property
    def _cubic_forms(self) -> tuple[list[Tensor], list[Tensor]]:
        return self._forms(0, "cubic"), self._forms(1, "cubic")

    def value(self, x: Tensor, y: Tensor, shape: Triangle) -> Tensor:
        """Σ x_i y_j M_ij(t)."""
        t, rho = shape.angle, shape.p - shape.q
        smooth = torch.zeros_like(rho)
        for one, two in zip(reversed(_times(self._polynomial, x)), reversed(_times(self._polynomial, y)), strict=True):
            smooth = smooth * rho + one * two
        steep = _bilinear(self._sine_forms, x, y, rho)
        return ((math.pi / 2 - t) * smooth + shape.sine * steep) / (2 * math.pi)

    def defect(self, x: Tensor, y: Tensor, shape: Triangle) -> Tensor:
        """Σ x_i y_j (M_ij(0) - M_ij(t)), accurate beside t²."""
        t, rho, sine = shape.angle, shape.p - shape.q, shape.sine
        square, first = rho * rho, sine_minus(t)
        parts = [one * two for one, two in zip(_times(self._polynomial, x), _times(self._polynomial, y), strict=True)]
        turned, rest = torch.zeros_like(rho), torch.zeros_like(rho)
        even, odd = torch.zeros_like(rho), torch.zeros_like(rho)
        for n in range(len(parts) - 1, 0, -1):  # P(1) - P(ρ) = (1-ρ) Σ ρ^n (Σ_(m>n) ...)
            rest = rest + parts[n]
            turned = turned * rho + rest
            if n % 2:
                odd = odd * square + parts[n]  # P_odd / ρ
            else:
                even = even * square + parts[n]  # (P_even - P_even(0)) / ρ²
        cubic = sine * sine * sine
        even_arc = parts[0] * (minus_sine(t) + 2 * sine * shape.q) - rho * first * even
        even_arc = even_arc + cubic * rho * _bilinear(self._cubic_forms[0], x, y, square)
        odd_arc = first * odd + cubic * _bilinear(self._cubic_forms[1], x, y, square)
        total: Tensor = (math.pi * shape.q * turned + even_arc - odd_arc) / (2 * math.pi)
        return total


def _times(matrix: Tensor, x: Tensor) -> Tensor:
    total: Tensor = torch.tensordot(matrix.to(x.device), x, dims=1)
    return total


def _bilinear(forms: list[Tensor], x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Σ_n z^n x' F_n y, the smaller side multiplied first."""
    if x.numel() > y.numel():
        x, y = y, x  # the forms are symmetric
    total = torch.zeros_like(z)
    for form in reversed(forms):
        used = torch.nonzero(form.abs().sum(0)).flatten().tolist()
        total = total * z
        for i in used:
            total = total + torch.tensordot(form[i].to(x.device), x, dims=1) * y[i]
    return total
