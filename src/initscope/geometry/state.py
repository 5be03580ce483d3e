"""The state that travels through an infinitely wide network: squared norms, and of each pair its excess and its product.

For two inputs a, b and one unit (a channel at a position) the state holds `A = E u²`, `B = E v²`, the product `P = E uv` and
the excess `E = 2(√(AB) - P)`, the expectation being over the random weights, or, for raw data, the mean over channels. The
excess is the squared distance beyond what unequal norms make, `E = D - (√A - √B)²` with `D = E (u - v)²`, so that
`1 - cos t = E / 2√(AB)` keeps its relative accuracy for nearly parallel pairs whatever their norms; the product keeps its own
where pairs are far apart. Both are carried, neither is formed from the other by subtraction.

What a linear layer makes of the excess: with parts j of both sides that add up in squares, A' = Σ α_j², B' = Σ β_j²,

    E' = Σ_j E_j + Σ_j (s α_j - β_j / s)²,    s² = √B' / √A',

a sum of terms that are not negative (`unequal` is the second sum).

A tangent kernel Θ travels along in the layout of the product when it is asked for: every layer passes it on by the derivative of
its product in the product before it, norms kept.

Axes, in this order: `K` kinds of units (concatenated branches, groups of channels, flattened positions), images, positions.

| layout | norm, mean of x | norm, mean of y | excess, product, tangent |
| --- | --- | --- | --- |
| zipped pairs, same position | (K, n, *p) | (K, n, *p) | (K, n, *p) |
| zipped pairs, all positions | (K, n, *p) | (K, n, *p) | (K, n, *p, *p) |
| every pair, same position | (K, n, *p) | (K, m, *p) | (K, n, m, *p) |
| every pair, all positions | (K, n, *p) | (K, m, *p) | (K, n, m, *p, *p) |

with `*p` = (length,), (height, width) or (depth, height, width), and nothing for vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Generator, Tensor

from initscope.activations import Activation

Law = Literal["data", "gaussian", "normalised", "other"]
# Samples of units, (K, units, images, *positions): zipped pairs have x's images first, then y's; a joint batch has each once.
Draw = Callable[[int, Generator], Tensor]


@dataclass(frozen=True, eq=False)
class Side:
    """What is known of one set of inputs by itself."""

    norm: Tensor  # E u²
    mean: Tensor  # E u
    within: Tensor | None = None  # the excess between positions p, q of one image, (K, n, *p, *p)

    @property
    def root(self) -> Tensor:
        """√A."""
        return self.norm.sqrt()


View = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Block:
    """One family of pairs: side a with side b. `left` and `right` broadcast a side's tensors to `excess`.

    Pairs within one input have no `known` product: it is `√(AB) - E/2` there.
    """

    a: Side
    b: Side
    left: View
    right: View
    excess: Tensor
    known: Tensor | None = None

    @property
    def norm_a(self) -> Tensor:
        return self.left(self.a.norm)

    @property
    def norm_b(self) -> Tensor:
        return self.right(self.b.norm)

    @property
    def mean_a(self) -> Tensor:
        return self.left(self.a.mean)

    @property
    def mean_b(self) -> Tensor:
        return self.right(self.b.mean)

    @property
    def root_a(self) -> Tensor:
        return self.left(self.a.root)

    @property
    def root_b(self) -> Tensor:
        return self.right(self.b.root)

    @property
    def product(self) -> Tensor:
        """E uv."""
        return self.root_a * self.root_b - self.excess / 2 if self.known is None else self.known

    @property
    def distance(self) -> Tensor:
        """E (u - v)²."""
        return (self.root_a - self.root_b).square() + self.excess


@dataclass(frozen=True)
class Tilt:
    """One node of the integral over s that writes a normalised Gaussian as a mixture of Gaussians (THEORY 7)."""

    weight: Tensor  # (K,), for second moments
    mean_weight: Tensor  # (K,), for first moments
    make: Callable[[], State]  # the tilted Gaussian, built when asked for


@dataclass(frozen=True, eq=False)
class State:
    """Second moments of all units of one layer for a set of input pairs; the module's table has the shapes."""

    x: Side
    y: Side
    excess: Tensor
    product: Tensor
    shares: Tensor  # (K,) share of the units that each kind has; sums to one
    channels: int  # width of the finite network: units per position
    positions: tuple[int, ...]
    zipped: bool
    all_positions: bool
    law: Law = "gaussian"
    joint: bool = False  # x and y are one and the same batch
    independent_units: bool = True  # units are i.i.d. given the input (false once positions were flattened into units)
    alike: bool = True  # units of one kind have one law (false for the channels of raw data)
    tied: bool = False  # a depthwise layer ties each unit to the one it was made of, until filters mix channels
    draw: Draw | None = None
    activation: Activation | None = None  # set while the state is activation(before), before Gaussian
    before: State | None = None
    tilts: tuple[Tilt, ...] = field(default=(), repr=False)
    tangent: Tensor | None = None  # Θ of the pairs (x, y), where it is asked for

    @property
    def distance(self) -> Tensor:
        """E (u - v)² of the pairs (x, y)."""
        return self.cross().distance

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input: channels, then positions."""
        return (self.channels, *self.positions)

    @property
    def units(self) -> int:
        return self.channels * math.prod(self.positions)

    def blocks(self) -> tuple[Block, Block | None, Block | None]:
        """The pairs (x, y), and, with all positions, the pairs within x and within y."""
        return self.cross(), self._within(self.x), None if self.joint else self._within(self.y)

    def cross(self) -> Block:
        return Block(self.x, self.y, self._left, self._right, self.excess, self.product)

    def _within(self, side: Side) -> Block | None:
        if side.within is None:
            return None
        size = len(self.positions)
        return Block(side, side, _append(size), _insert(2, size), side.within)

    def _left(self, t: Tensor) -> Tensor:
        t = t if self.zipped else t.unsqueeze(2)
        return _append(len(self.positions))(t) if self.all_positions else t

    def _right(self, t: Tensor) -> Tensor:
        t = t if self.zipped else t.unsqueeze(1)
        return _insert(2 if self.zipped else 3, len(self.positions))(t) if self.all_positions else t

    def map(
        self,
        norm: Callable[[Side], Tensor],
        pairs: Callable[[Block, Tensor, Tensor], Pairs],
        mean: Callable[[Side], Tensor] | None = None,
        *,
        tangent: Callable[[Tensor], Tensor] | None = None,
        **changes: object,
    ) -> State:
        """A new state: `norm` and `mean` act on each side, `pairs` on each family of pairs and √A', √B' beside it.

        The mean is zero if not given. A tangent kernel is passed on by `tangent`, and lost where there is none.
        """
        cross, within_x, within_y = self.blocks()
        sides: list[Side] = []
        for side, block in ((self.x, within_x), (self.y, within_y)):
            if self.joint and sides:
                sides.append(sides[0])
                continue
            new_norm = norm(side)
            root = new_norm.sqrt()
            within = None if block is None else pairs(block, block.left(root), block.right(root)).excess
            sides.append(Side(new_norm, torch.zeros_like(new_norm) if mean is None else mean(side), within))
        new = pairs(cross, cross.left(sides[0].root), cross.right(sides[1].root))
        passed = None if self.tangent is None or tangent is None else tangent(self.tangent)
        cleared: dict[str, object] = {"activation": None, "before": None, "tilts": (), "draw": None}
        return replace(
            self, x=sides[0], y=sides[1], excess=new.excess, product=new.product, tangent=passed,
            **{**cleared, **changes},  # type: ignore[arg-type]
        )  # fmt: skip

    def same_position(self) -> State:
        """Keep only pairs of equal positions; what later layers cannot ask for is dropped."""
        if not self.all_positions:
            return self
        size = len(self.positions)
        x = replace(self.x, within=None)
        return replace(
            self,
            x=x,
            y=x if self.joint else replace(self.y, within=None),
            excess=diagonal(self.excess, size),
            product=diagonal(self.product, size),
            tangent=None if self.tangent is None else diagonal(self.tangent, size),
            all_positions=False,
            before=None if self.before is None else self.before.same_position(),
            tilts=tuple(replace(t, make=_same_position(t.make)) for t in self.tilts),
        )

    def collapse_kinds(self, t: Tensor) -> Tensor:
        """Mean over the kinds of units, weighted by their shares; keeps the axis."""
        return t if t.shape[0] == 1 else torch.tensordot(self.shares, t, dims=([0], [0])).unsqueeze(0)


@dataclass(frozen=True, eq=False)
class Pairs:
    """What a layer makes of a family of pairs."""

    excess: Tensor
    product: Tensor


def balance(a: Tensor, b: Tensor) -> Tensor:
    """s = √(b/a), by which sides of norms a and b become equally long, `s a = b/s`; 1 beside a norm of zero."""
    some = (a > 0) & (b > 0)
    return torch.where(some, b / torch.where(some, a, 1), 1).sqrt()


def unequal(parts: Iterable[tuple[Tensor, Tensor]], a: Tensor, b: Tensor) -> Tensor:
    """Σ_j (s α_j - β_j/s)², s² = b/a: the excess of sides that are made of parts of norms α_j, β_j, a² = Σ α_j², b² = Σ β_j².

    It is zero where the parts of both sides are in proportion, to the square of their rounding. A side of norm zero has none.

    >>> one = torch.ones((), dtype=torch.float64)
    >>> float(unequal([(3 * one, one), (4 * one, one)], 5 * one, 2**0.5 * one))  # 2 (5 √2 - 3 - 4)
    0.14213562373...
    """
    s = balance(a, b)
    inverse = 1 / s
    total = torch.zeros_like(s)
    for alpha, beta in parts:
        total += (s * alpha - inverse * beta).square()
    return torch.where((a > 0) & (b > 0), total, 0)


def excess_of(norm_a: Tensor, norm_b: Tensor, distance: Tensor) -> Tensor:
    """D - (√A - √B)², where a distance is all that is known."""
    a, b = norm_a.sqrt(), norm_b.sqrt()
    total = a + b
    gap = (norm_a - norm_b) / torch.where(total > 0, total, 1)
    return torch.minimum((distance - gap.square()).clamp_min(0), 4 * a * b)


def variance(second: Tensor, mean: Tensor) -> Tensor:
    """E u² - (E u)², and exactly zero where nothing but rounding is left of it.

    >>> variance(torch.tensor([2.0, 0.01]), torch.tensor([1.0, 0.1]))
    tensor([1., 0.])
    """
    rest = second - mean.square()
    return torch.where(rest > 16 * torch.finfo(rest.dtype).eps * second, rest, 0.0)


def diagonal(t: Tensor, size: int) -> Tensor:
    """Entries with equal positions: (..., *p, *p) -> (..., *p), for `size` position axes."""
    if size == 0:
        return t
    shape = t.shape[-size:]
    count = math.prod(shape)
    flat = t.reshape(*t.shape[: t.ndim - 2 * size], count, count)
    return flat.diagonal(dim1=-2, dim2=-1).reshape(*t.shape[: t.ndim - 2 * size], *shape)


def _same_position(make: Callable[[], State]) -> Callable[[], State]:
    return lambda: make().same_position()


def _append(size: int) -> View:
    return lambda t: t[(...,) + (None,) * size]


def _insert(at: int, size: int) -> View:
    return lambda t: t[(slice(None),) * at + (None,) * size]
