"""What a batch looks like at one place of a network: norms, angles, rank, dead and saturated units.

Everything comes from the Gram matrix of the batch, (samples, samples). Where samples have come so close that its entries no
longer tell them apart, the Gram matrix of the centred batch is used: distances survive in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

CLOSE = 1e-2  # a defect (1 - cosine) below this is measured again from the centred batch
TINY = 1e-30  # a squared norm below this may have lost its digits in float32
PIECE = 1 << 12  # values of a sample that go into one product
TILE = 1 << 22  # values of the batch that are centred at a time
DEAD = 1e-7  # a unit is dead if its largest value is this small beside that of the layer,
GONE = 1e-20  # or below this: GELU of -10 is not quite zero


@dataclass(frozen=True, eq=False)
class BatchGeometry:
    """Samples at one place: `norm` (n,), and for each pair i < j the squared distance and `defect` = 1 - cosine; float64."""

    norm: Tensor
    defect: Tensor
    gram: Tensor

    def scaled(self, factor: float) -> BatchGeometry:
        """Of the samples times a factor: the angles are the same."""
        return BatchGeometry(self.norm * factor, self.defect, self.gram * factor**2)

    @property
    def cosine(self) -> Tensor:
        return 1 - self.defect

    @cached_property
    def angle(self) -> Tensor:
        """In radians, accurate for small ones: sin²(t/2) = (1 - cos t)/2."""
        return 2 * (self.defect / 2).clamp(0, 1).sqrt().asin()

    @cached_property
    def centred_cosine(self) -> Tensor:
        """The cosines after the batch mean is taken away; NaN for samples that are that mean, as all are after a collapse."""
        middle = self.gram - self.gram.mean(0) - self.gram.mean(1, keepdim=True) + self.gram.mean()
        root = middle.diagonal().clamp_min(0).sqrt()
        root = root.where(root > 0, math.nan)
        return _pairs((middle / root.outer(root)).clamp(-1, 1))

    @cached_property
    def effective_rank(self) -> float:
        """exp of the entropy of the Gram matrix's normalised eigenvalues: 1 for collapsed, n for orthogonal samples."""
        if not bool(self.gram.isfinite().all()) or float(self.gram.trace()) <= 0:
            return math.nan
        share = torch.linalg.eigvalsh(self.gram).clamp_min(0)
        share = share / share.sum()
        return float(torch.exp(torch.special.entr(share).sum()))


def gram_by_channel(values: Tensor) -> Tensor | None:
    """Images (n, c, h, w) give the Gram matrix of each channel, (c, n, n) in float64, in one reading of the values.

    None for other shapes, and where these matrices are larger than the images.
    """
    if values.ndim != 4 or not values.is_floating_point() or len(values) > math.prod(values.shape[2:]):
        return None
    rows = values.detach().flatten(2).transpose(0, 1)
    rows = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    return (rows @ rows.transpose(1, 2)).double()


def batch_geometry(values: Tensor, by_channel: Tensor | None = None) -> BatchGeometry:
    """Norms and angles of the rows of `values`, (n, ...); `by_channel` is their `gram_by_channel`, if it is there.

    >>> g = batch_geometry(torch.tensor([[3.0, 4.0], [4.0, 3.0], [0.0, 5.0]]))
    >>> g.norm.tolist(), [round(c, 6) for c in g.cosine.tolist()]
    ([5.0, 5.0, 5.0], [0.96, 0.8, 0.6])
    """
    by_channel = gram_by_channel(values) if by_channel is None else by_channel
    rows = values.detach().reshape(len(values), -1)
    if rows.dtype not in (torch.float32, torch.float64):
        rows = rows.float()
    gram = _gram(rows) if by_channel is None else by_channel.sum(0)
    own = gram.diagonal()
    if not bool(own.isfinite().all()) or bool((own < TINY).any()):  # squares may leave the range of float32
        top = float(rows.abs().max()) if rows.numel() else 0.0
        if rows.dtype == torch.float32 and math.isfinite(top) and top > 0:
            return batch_geometry(rows.double() / top).scaled(top)
    geometry = _from_gram(gram)
    if len(rows) > 1 and bool((geometry.defect < CLOSE).any()):
        return _from_centred(rows)
    return geometry


def _gram(rows: Tensor) -> Tensor:
    """Long rows in pieces side by side: as one product of n x n numbers, it would leave cores idle."""
    pieces = rows.shape[1] // PIECE
    if pieces < 2:
        return (rows @ rows.T).double()
    cut = pieces * PIECE
    stack = rows[:, :cut].reshape(len(rows), pieces, PIECE).transpose(0, 1)
    rest = rows[:, cut:]
    return (stack @ stack.transpose(1, 2)).double().sum(0) + (rest @ rest.T).double()


def _from_gram(gram: Tensor) -> BatchGeometry:
    square = gram.diagonal()
    norm = square.clamp_min(0).sqrt()
    distance = square[:, None] + square - 2 * gram
    return BatchGeometry(norm, _defect(norm, square[:, None] - square, distance), gram)


def _from_centred(rows: Tensor) -> BatchGeometry:
    """|a|² - |b|² = 2 <m, a_c - b_c> + |a_c|² - |b_c|², the distances from the centred rows alone."""
    size = max(1, TILE // len(rows))
    centred = rows.new_zeros(len(rows), len(rows), dtype=torch.float64)
    shift = rows.new_zeros(len(rows), dtype=torch.float64)
    mean_square = rows.new_zeros((), dtype=torch.float64)
    for tile in torch.split(rows, size, 1):
        mean = tile.mean(0)
        off = tile - mean
        centred += (off @ off.T).double()
        shift += (off @ mean).double()
        mean_square += mean.double().square().sum()
    own = centred.diagonal()
    gram = centred + shift[:, None] + shift + mean_square
    norm = gram.diagonal().clamp_min(0).sqrt()
    difference = 2 * (shift[:, None] - shift) + own[:, None] - own
    return BatchGeometry(norm, _defect(norm, difference, own[:, None] + own - 2 * centred), gram)


def _defect(norm: Tensor, difference: Tensor, distance: Tensor) -> Tensor:
    """1 - cos = (D - (|a| - |b|)²) / (2|a||b|), with |a| - |b| = (|a|² - |b|²)/(|a| + |b|); NaN for zero vectors."""
    gap = difference / (norm[:, None] + norm)
    return _pairs(((distance - gap.square()) / (2 * norm.outer(norm))).clamp(0, 2))


def _pairs(matrix: Tensor) -> Tensor:
    i, j = torch.triu_indices(len(matrix), len(matrix), offset=1)
    return matrix[i, j]


def dead_fraction(values: Tensor) -> float:
    """Share of units (channels, or features) that are zero for every sample and position, but for rounding."""
    top = _over_units(values, lambda v, dims: torch.maximum(v.amax(dims), -v.amin(dims)))
    return float((top <= max(DEAD * float(top.max()), GONE)).double().mean())


def saturated_fraction(values: Tensor, low: float, high: float) -> float:
    """Share of values within 1 % of either end of an activation's range."""
    margin = 0.01 * (high - low)
    return float(((values <= low + margin) | (values >= high - margin)).double().mean())


def _over_units(values: Tensor, reduce: object) -> Tensor:
    """(n, c, h, w) has its units on axis 1, (n, ..., d) on the last."""
    unit = 1 if values.ndim == 4 else values.ndim - 1
    dims = tuple(d for d in range(values.ndim) if d != unit)
    return reduce(values.detach(), dims)  # type: ignore[operator, no-any-return]


def normalized_rms(values: Tensor, weight: Tensor | None, bias: Tensor | None) -> float:
    """Root mean square of what a batch norm (n, c, ...) gave, without its scale and shift; channels of scale 0 do not count."""
    flat = values.detach().transpose(0, 1).flatten(1).double()
    shift = flat.new_zeros(len(flat)) if bias is None else bias.detach().double()
    scale = flat.new_ones(len(flat)) if weight is None else weight.detach().double()
    used = scale != 0
    if not bool(used.any()):
        return math.nan
    inner = (flat[used] - shift[used, None]) / scale[used, None]
    return float(inner.square().mean().sqrt())
