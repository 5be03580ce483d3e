"""What a batch looks like at one place of a network: norms, angles, rank, dead and saturated units.

Everything comes from the Gram matrix of the batch, (samples, samples). Where samples have come so close that its entries no
longer tell them apart, the Gram matrix of the centred batch is used: distances survive in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

CLOSE = 1e-2  # a defect (1 - cosine) below this is measured again from the centred batch
TINY = 1e-30  # a squared norm below this may have lost its digits in float32
PIECE = 1 << 12  # values of a sample that go into one product
TILE = 1 << 22  # values of the batch that are centred at a time
ROOM = 1 << 19  # entries of Gram matrices that are summarized together
DEAD = 1e-7  # a unit is dead if its largest value is this small beside that of the layer,
GONE = 1e-20  # or below this: GELU of -10 is not quite zero


class Summary(NamedTuple):
    """Numbers of a batch; means are over samples or pairs, NaN where none has a value."""

    norm: float
    rms: float  # of the norms
    cosine: float
    spread: float  # standard deviation of the cosines
    defect: float
    most: float  # the largest defect
    angle: float


class Spectrum(NamedTuple):
    """What the eigenvalues and the mean of a batch tell."""

    centred: float  # mean cosine after the batch mean is taken away
    rank: float  # effective rank


@dataclass(frozen=True, eq=False)
class BatchGeometry:
    """Samples at one place, by their Gram matrix, (n, n) in float64.

    Where some have come close, `close` has the Gram matrix of the centred batch and the products of its rows with the mean. Where
    samples have fewer values than there are samples, `moments` are the products of their values, with the same eigenvalues.
    """

    gram: Tensor
    close: tuple[Tensor, Tensor] | None = None
    moments: Tensor | None = None

    def scaled(self, factor: float) -> BatchGeometry:
        """Of the samples times a factor: the angles are the same."""
        square = factor**2
        close = self.close and (self.close[0] * square, self.close[1] * square)
        return BatchGeometry(self.gram * square, close, None if self.moments is None else self.moments * square)

    @cached_property
    def norm(self) -> Tensor:
        """(n,)."""
        return self.gram.diagonal().clamp_min(0).sqrt()

    @property
    def defect(self) -> Tensor:
        """1 - cosine of each pair i < j."""
        return _defects([self])[0]

    @property
    def cosine(self) -> Tensor:
        return 1 - self.defect

    @property
    def angle(self) -> Tensor:
        """In radians, accurate for small ones: sin²(t/2) = (1 - cos t)/2."""
        return _angles(self.defect)

    @property
    def centred_cosine(self) -> Tensor:
        """The cosines after the batch mean is taken away; NaN for samples that are that mean, as all are after a collapse."""
        return _pairs(_centred_cosines(self.gram[None]))[0]

    @property
    def effective_rank(self) -> float:
        """exp of the entropy of the Gram matrix's normalised eigenvalues: 1 for collapsed, n for orthogonal samples."""
        return self.spectrum.rank

    @cached_property
    def summary(self) -> Summary:
        return _summaries([self])[0]

    @cached_property
    def spectrum(self) -> Spectrum:
        return _spectra([self])[0]


def summarize(geometries: Iterable[BatchGeometry], *, spectra: bool = True) -> None:
    """Fills in the summaries of many batches, those of one size together: few large operations are faster than many small."""
    groups: dict[object, list[BatchGeometry]] = {}
    for geometry in geometries:
        groups.setdefault((len(geometry.gram), geometry.gram.device), []).append(geometry)
    for alike in groups.values():
        size = max(1, ROOM // max(alike[0].gram.numel(), 1))
        for first in range(0, len(alike), size):
            part = alike[first : first + size]
            for geometry, summary in zip(part, _summaries(part), strict=True):
                geometry.__dict__["summary"] = summary
            for geometry, spectrum in zip(part, _spectra(part) if spectra else (), strict=spectra):
                geometry.__dict__["spectrum"] = spectrum


def _summaries(alike: Sequence[BatchGeometry]) -> list[Summary]:
    """Of batches of one size, (g, n, n)."""
    grams = torch.stack([geometry.gram for geometry in alike])
    square = grams.diagonal(dim1=1, dim2=2).clamp_min(0)
    defect = _defects(alike)
    cosine = 1 - defect
    columns = (
        square.sqrt().mean(1),
        square.mean(1).sqrt(),
        cosine.nanmean(1),
        _deviation(cosine),
        defect.nanmean(1),
        defect.nan_to_num(-1.0).amax(1) if defect.shape[1] else square.new_full((len(alike),), -1.0),
        _angles(defect).nanmean(1),
    )
    return [Summary(*row) for row in torch.stack(columns, 1).tolist()]


def _spectra(alike: Sequence[BatchGeometry]) -> list[Spectrum]:
    grams = torch.stack([geometry.gram for geometry in alike])
    matrices = [geometry.gram if geometry.moments is None else geometry.moments for geometry in alike]
    ranks = grams.new_empty(len(alike))
    for size in {len(matrix) for matrix in matrices}:
        some = [i for i, matrix in enumerate(matrices) if len(matrix) == size]
        ranks[some] = _ranks(torch.stack([matrices[i] for i in some]))
    columns = (_pairs(_centred_cosines(grams)).nanmean(1), ranks)
    return [Spectrum(*row) for row in torch.stack(columns, 1).tolist()]


def _deviation(values: Tensor) -> Tensor:
    """Of each row, over what is finite in it."""
    known = values.isfinite()
    count = known.sum(1)
    mean = values.where(known, 0).sum(1) / count
    return ((values - mean[:, None]).where(known, 0).square().sum(1) / count).sqrt()


def _defects(alike: Sequence[BatchGeometry]) -> Tensor:
    """1 - cos = (D - (|a| - |b|)²) / (2|a||b|), with |a| - |b| = (|a|² - |b|²)/(|a| + |b|), of every pair i < j; NaN for zero
    vectors. (g, pairs).

    Of a centred batch |a|² - |b|² = 2 <m, a_c - b_c> + |a_c|² - |b_c|², and the distances are those of the centred rows alone.
    """
    grams = torch.stack([geometry.gram for geometry in alike])
    norm = grams.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
    inner = torch.stack([g.gram if g.close is None else g.close[0] for g in alike])
    own = inner.diagonal(dim1=1, dim2=2)
    shift = torch.stack(
        [own[i].new_zeros(own.shape[1]) if g.close is None else g.close[1] for i, g in enumerate(alike)]
    )
    size = own + 2 * shift
    (norm_i, norm_j), (size_i, size_j), (own_i, own_j) = map(_both, (norm, size, own))
    gap = size_i.sub_(size_j).div_(norm_i + norm_j)
    distance = own_i.add_(own_j).sub_(_pairs(inner).mul_(2))
    return distance.sub_(gap.square_()).div_(norm_i.mul_(2).mul_(norm_j)).clamp_(0, 2)


def _both(each: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers of both samples of every pair i < j, (g, n) -> two of (g, pairs)."""
    i, j = _upper(each.shape[1], each.device)
    return each.index_select(1, i), each.index_select(1, j)


def _angles(defect: Tensor) -> Tensor:
    return 2 * (defect / 2).clamp(0, 1).sqrt().asin()


def _centred_cosines(grams: Tensor) -> Tensor:
    middle = grams - grams.mean(1, keepdim=True) - grams.mean(2, keepdim=True) + grams.mean((1, 2), keepdim=True)
    root = middle.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
    root = root.where(root > 0, math.nan)
    return (middle / (root[:, :, None] * root[:, None])).clamp(-1, 1)


def _ranks(grams: Tensor) -> Tensor:
    trace = grams.diagonal(dim1=1, dim2=2).sum(1)
    known = grams.isfinite().all(2).all(1) & (trace > 0)
    share = torch.linalg.eigvalsh(grams.where(known[:, None, None], 0)).clamp_min(0)
    share = share / share.sum(1, keepdim=True)
    return torch.exp(torch.special.entr(share).sum(1)).where(known, math.nan)


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
    if not bool(((own >= TINY) & own.isfinite()).all()):  # squares may leave the range of float32
        top = float(rows.abs().max()) if rows.numel() else 0.0
        if rows.dtype == torch.float32 and math.isfinite(top) and top > 0:
            return batch_geometry(rows.double() / top).scaled(top)
    moments = (rows.T @ rows).double() if 0 < rows.shape[1] < len(rows) else None
    found = _centred(rows) if len(rows) > 1 and _some_close(gram) else BatchGeometry(gram)
    return replace(found, moments=moments)


def _some_close(gram: Tensor) -> bool:
    """Whether any defect is too small to be known from the Gram matrix."""
    root = gram.diagonal().clamp_min(0).sqrt()
    cosine = (gram / root).div_(root[:, None])
    return bool((cosine.fill_diagonal_(-1) > 1 - CLOSE).any())


def _gram(rows: Tensor) -> Tensor:
    """Long rows in pieces side by side: as one product of n x n numbers, it would leave cores idle."""
    pieces = rows.shape[1] // PIECE
    if pieces < 2:
        return (rows @ rows.T).double()
    cut = pieces * PIECE
    stack = rows[:, :cut].reshape(len(rows), pieces, PIECE).transpose(0, 1)
    rest = rows[:, cut:]
    return (stack @ stack.transpose(1, 2)).double().sum(0) + (rest @ rest.T).double()


def _centred(rows: Tensor) -> BatchGeometry:
    """From the Gram matrix of the rows less their mean, and the products of these with the mean."""
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
    return BatchGeometry(centred + shift[:, None] + shift + mean_square, (centred, shift))


def _pairs(matrices: Tensor) -> Tensor:
    """The entries above the diagonal, (g, n, n) -> (g, pairs)."""
    i, j = _upper(matrices.shape[1], matrices.device)
    return matrices.flatten(1).index_select(1, i * matrices.shape[1] + j)


@lru_cache(maxsize=8)
def _upper(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """i and j of the pairs i < j."""
    i, j = torch.triu_indices(size, size, offset=1, device=device)
    return i, j


def dead_fraction(values: Tensor) -> float | None:
    """Share of units (channels, or features) that are zero everywhere, but for rounding; None without units."""
    if not values.numel():
        return None
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
