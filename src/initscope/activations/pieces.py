"""Continuous piecewise polynomials: values, derivatives, jumps of the derivatives and Gaussian means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from initscope.activations.dual import Function
from initscope.activations.polynomials import differentiate
from initscope.errors import BadInput

_FAR = 40.0  # standard deviations beyond which the Gaussian has no mass


@dataclass(frozen=True)
class Pieces:
    """f = Σ_l coefficients[i][l] z^l between the kinks number i - 1 and i.

    >>> clip = Pieces((-1.0, 1.0), ((-1.0,), (0.0, 1.0), (1.0,)))
    >>> clip.degree, clip.jumps(1), clip.derivative(1)(torch.tensor([-3.0, 0.5])).tolist()
    (1, (1.0, -1.0), [0.0, 1.0])
    """

    kinks: tuple[float, ...]
    coefficients: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, place: str, fn: Function, kinks: tuple[float, ...], pieces: Sequence[Sequence[float]]) -> Pieces:
        """Take the pieces of fn, after a look at whether they are its pieces."""
        if list(kinks) != sorted(set(kinks)) or not kinks or len(pieces) != len(kinks) + 1:
            problem = f"{len(pieces)} pieces for the kinks {kinks}"
            raise BadInput(place, problem, "give rising kinks and one more piece than kinks")
        found = cls(tuple(map(float, kinks)), tuple(tuple(map(float, piece)) or (0.0,) for piece in pieces))
        edges = torch.tensor([kinks[0] - 9.0, *kinks, kinks[-1] + 9.0], dtype=torch.float64)
        inside = torch.linspace(0.03, 0.97, 12, dtype=torch.float64).unsqueeze(-1)
        probe = (edges[:-1] + edges.diff() * inside).flatten()
        size = fn(probe).abs().max() + 1
        if bool(((fn(probe) - found.derivative(0)(probe)).abs() > 1e-9 * size).any()):
            raise BadInput(
                place, "f differs from the pieces given", "give each piece's coefficients, lowest power first"
            )
        if any(abs(jump) > 1e-9 * float(size) for jump in found.jumps(0)):
            raise BadInput(
                place, "the pieces do not meet at the kinks", "leave the pieces out for a function that jumps"
            )
        return found

    @property
    def degree(self) -> int:
        return max(len(piece) for piece in self.coefficients) - 1

    def _differentiated(self, order: int) -> list[tuple[float, ...]]:
        pieces = list(self.coefficients)
        for _ in range(order):
            pieces = [differentiate(piece) for piece in pieces]
        return pieces

    def derivative(self, order: int) -> Function:
        """The function f^(order), away from the kinks."""
        table = _table(self._differentiated(order))

        def value(z: Tensor) -> Tensor:
            rows = table.to(z)
            where = torch.bucketize(z.detach(), torch.tensor(self.kinks, dtype=torch.float64).to(z))
            total = _pick(rows[-1], where)
            for row in reversed(rows[:-1]):
                total = total * z + _pick(row, where)
            return total

        return value

    def difference(self, u: Tensor, v: Tensor, gap: Tensor) -> Tensor:
        """f(u) - f(v) for gap = u - v, of full relative accuracy where no kink lies in between."""
        rows, edges = _table(self.coefficients).to(u), torch.tensor(self.kinks, dtype=torch.float64).to(u)
        first, second = torch.bucketize(u, edges), torch.bucketize(v, edges)
        at_u, at_v, quotient = _pick(rows[-1], first), _pick(rows[-1], second), torch.zeros_like(u)
        for row in reversed(rows[:-1]):
            quotient = quotient * u + at_v  # (f(u)-f(v)) / (u-v) by Horner's rule
            at_u, at_v = at_u * u + _pick(row, first), at_v * v + _pick(row, second)
        return torch.where(first == second, gap * quotient, at_u - at_v)

    def overlap(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """E f_n(az) f_n(bz) for the highest derivative, n = degree, constant between the kinks; and its rounding."""
        kinks = torch.tensor(self.kinks, dtype=a.dtype, device=a.device)
        cuts = torch.cat([kinks / a.unsqueeze(-1), kinks / b.unsqueeze(-1)], -1).sort(-1).values
        far = torch.full_like(cuts[:, :1], _FAR)
        low, high = torch.cat([-far, cuts], -1).clamp(-_FAR, _FAR), torch.cat([cuts, far], -1).clamp(-_FAR, _FAR)
        top = self.derivative(self.degree)
        middle = (low + high) / 2
        product = top(a.unsqueeze(-1) * middle) * top(b.unsqueeze(-1) * middle)
        mass = gaussian_mass(low, high)
        total = (product * mass).sum(-1)
        return total, 4e-16 * (product.abs() * mass).sum(-1)

    def jumps(self, order: int) -> tuple[float, ...]:
        """By how much f^(order) jumps at each kink."""
        pieces = self._differentiated(order)

        def at(piece: tuple[float, ...], k: float) -> float:
            return math.fsum(c * k**power for power, c in enumerate(piece))

        return tuple(at(right, k) - at(left, k) for k, left, right in zip(self.kinks, pieces, pieces[1:], strict=False))

    def moments(self, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """E f(u), E f(u)² and how far rounding may have moved them, for u of the variances A > 0.

        Piece by piece, Σ_l c_l s^l ∫ z^l φ(z) dz with ∫_x^y z^l φ = (l-1) ∫_x^y z^(l-2) φ + x^(l-1) φ(x) - y^(l-1) φ(y).
        """
        s = A.sqrt()
        far = torch.full_like(s, _FAR)
        marks = [-far, *((k / s).clamp(-_FAR, _FAR) for k in self.kinks), far]
        mean, square, size = torch.zeros_like(s), torch.zeros_like(s), torch.zeros_like(s)
        for piece, low, high in zip(self.coefficients, marks, marks[1:], strict=False):
            whole = np.polynomial.polynomial.polymul(piece, piece)
            inside = _incomplete(low, high, len(whole) - 1)
            for power, (moment, doubt) in enumerate(inside):
                scale = s**power
                if power < len(piece):
                    mean = mean + piece[power] * scale * moment
                square = square + whole[power] * scale * moment
                size = size + (abs(whole[power]) + (abs(piece[power]) if power < len(piece) else 0.0)) * scale * doubt
        return mean, square, 4e-16 * size

    def gaussian_mean(self, order: int, mean: Tensor, spread: Tensor) -> Tensor:
        """E f^(order)(w) for w of this mean and standard deviation.

        f^(order) is its leftmost polynomial plus Σ (jump of f^(order+l)) (w-k)^l_+ / l! over the kinks, and both
        kinds of moments obey M_l = μ M_(l-1) + (l-1) σ² M_(l-2).
        """
        total = torch.zeros_like(mean)
        base = self._differentiated(order)[0]
        if any(base):
            total = _weighed(base, torch.ones_like(mean), torch.zeros_like(mean), mean, spread)
        jumps = [self.jumps(order + power) for power in range(self.degree - order + 1)]
        for i, k in enumerate(self.kinks):
            z = (mean - k) / spread
            shares = [jump[i] / math.factorial(power) for power, jump in enumerate(jumps)]
            density = torch.exp(-z * z / 2) / (math.sqrt(2 * math.pi) * spread) if len(shares) > 1 else z
            beyond = (1 + torch.erf(z / math.sqrt(2))) / 2  # P(w > k)
            total = total + _weighed(shares, beyond, density, mean - k, spread)
        return total


def _incomplete(low: Tensor, high: Tensor, most: int) -> list[tuple[Tensor, Tensor]]:
    """∫ z^l φ(z) dz from low to high for l up to `most`, each with the size of what it is a sum of."""
    mass = gaussian_mass(low, high)
    density = [torch.exp(-x * x / 2) / math.sqrt(2 * math.pi) for x in (low, high)]
    found = [(mass, mass)]
    for power in range(1, most + 1):
        ends = [x ** (power - 1) * d for x, d in zip((low, high), density, strict=True)]
        before, doubt = found[power - 2] if power > 1 else (torch.zeros_like(mass), torch.zeros_like(mass))
        size = (power - 1) * doubt + ends[0].abs() + ends[1].abs()
        found.append(((power - 1) * before + ends[0] - ends[1], size))
    return found


def gaussian_mass(low: Tensor, high: Tensor) -> Tensor:
    """Φ(high) - Φ(low): about 0 by erf, in the tails by the tail."""
    inner, outer = torch.minimum(low.abs(), high.abs()), torch.maximum(low.abs(), high.abs())
    about = (torch.erf(high / math.sqrt(2)) - torch.erf(low / math.sqrt(2))) / 2
    tail = torch.special.ndtr(-inner) - torch.special.ndtr(-outer)
    return torch.where((low * high > 0) & (inner > 0.5), tail, about)


def _weighed(shares: Sequence[float], now: Tensor, before: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """Σ_l shares[l] M_l from M_0; the density of w at k stands for M_(-1) where M_l are moments of (w-k)_+."""
    total = shares[0] * now
    for power, share in enumerate(shares[1:]):
        now, before = mean * now + max(power, 1) * spread**2 * before, now
        total = total + share * now
    return total


def _table(pieces: Sequence[Sequence[float]]) -> Tensor:
    """The coefficients of every power, (powers, pieces)."""
    length = max(map(len, pieces))
    return torch.tensor([[*piece, *[0.0] * (length - len(piece))] for piece in pieces], dtype=torch.float64).T


def _pick(row: Tensor, where: Tensor) -> Tensor:
    """row[where], by the fastest of the ways to write it."""
    return row.index_select(0, where.flatten()).view(where.shape)
