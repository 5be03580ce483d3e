"""What is averaged over draws: second moments, as `predict` has them, or each network's own norms and angles."""

from __future__ import annotations

import math
import threading
from typing import Literal, Protocol

import torch
from torch import Tensor

from initscope.finite.estimate import Estimate
from initscope.finite.running import Running
from initscope.geometry import excess_of
from initscope.networks.prediction import geometry

Average = Literal["moments", "networks"]
_BLOCK = 1 << 17  # numbers of each side turned to float64 at once: copies stay in the cache

_LOCAL = threading.local()

# The skewness of squared lengths is between 1.8 (one layer of ReLU) and more than 3 (many layers, where they are log-normal)
# times their coefficient of variation. From few draws that is known better than from their third moment. Of a ratio of
# moments, and of each network's own lengths and angles, it is about twice that of what they are made of.
_SQUARES_SKEW, _RATIO_SKEW, _OWN_SKEW = 2.5, 2.0, 2.0

# Rows of `Moments`: A, B, their sum S, T = A - B, and D.
_A, _B, _S, _T, _D = range(5)
_PAIRS = ((_A, _A), (_B, _B), (_S, _S), (_S, _T), (_S, _D), (_T, _T), (_T, _D), (_D, _D))


def _room(size: int, device: torch.device) -> Tensor:
    """Working memory of this thread, kept: fresh pages for every layer would cost as much as the sums."""
    room: Tensor | None = getattr(_LOCAL, "room", None)
    if room is None or room.device != device or len(room) < size:
        room = _LOCAL.room = torch.empty(size, dtype=torch.float64, device=device)
    return room[:size]


@torch.no_grad()
def squares(both: Tensor) -> Tensor:
    """A = |x|², B = |y|² and D = |x - y|² of the pairs (first half, second half) of a batch, (3, n), summed in float64.

    >>> squares(torch.tensor([[3.0, 4.0], [3.0, 0.0]]))[:, 0]
    tensor([25.,  9., 16.], dtype=torch.float64)
    """
    sides = both.flatten(1).chunk(2)
    count, length = sides[0].shape
    rows, columns = max(1, min(count, _BLOCK // length)), min(length, _BLOCK)
    work = _room(3 * rows * columns, both.device).view(3, rows, columns)  # x, y, x - y
    total = torch.zeros(3, count, dtype=torch.float64, device=both.device)
    for top in range(0, count, rows):
        for left in range(0, length, columns):
            x, y = (t[top : top + rows, left : left + columns] for t in sides)
            block = work[:, : x.shape[0], : x.shape[1]]
            block[0], block[1] = x, y
            torch.sub(block[0], block[1], out=block[2])
            total[:, top : top + rows] += torch.linalg.vector_norm(block, dim=2).square()
    return total


class Averaging(Protocol):
    """Takes one draw after the other, (layers, 3, n) as `squares` gives them, and answers with estimates (layers, n)."""

    @property
    def draws(self) -> int: ...

    def add(self, rows: Tensor) -> None: ...

    def estimates(self) -> dict[str, Estimate]: ...


class Moments:
    """√E|h(x)|², √E|h(y)|², √E|h(x) - h(y)|², and E<h(x), h(y)> / √(E|h(x)|² E|h(y)|²) (JL eq. 1), E the mean over draws.

    Standard errors to first order. With P = 2√(AB), the defect is 1 + (D - S)/P, whose derivatives
    by S, T and D are (T² - DS)/P³, (D - S)T/P³ and 1/P: no digits are lost where x and y nearly agree.
    """

    def __init__(self) -> None:
        self._running = Running(_PAIRS)
        self._exponent = torch.empty(0)

    @property
    def draws(self) -> int:
        return self._running.draws

    def add(self, rows: Tensor) -> None:
        a, b, d = rows.unbind(-2)
        if not self.draws:
            # Squares of squares leave the range of float64 in networks that explode or vanish: powers of two, exact.
            self._exponent = torch.frexp(a + b).exponent.unsqueeze(-2)
        self._running.add(torch.ldexp(torch.stack([a, b, a + b, a - b, d], -2), -self._exponent))

    def estimates(self) -> dict[str, Estimate]:
        a, b, s, t, d = self._running.mean.unbind(-2)
        product = 2 * a.sqrt() * b.sqrt()
        s, t, ratio = s / product, t / product, d / product
        slopes = {_S: t.square() - ratio * s, _T: (ratio - s) * t, _D: torch.ones_like(s)}
        variance = sum(
            ((1 if i == j else 2) * slopes[i] * slopes[j] * self._covariance(i, j) for i, j in _PAIRS if i in slopes),
            torch.zeros_like(s),
        )
        defect = torch.where(product > 0, variance.clamp_min(0).sqrt() / product, torch.nan)
        unit = torch.ldexp(torch.ones_like(s), self._exponent.squeeze(-2)).sqrt()
        lengths, variations = {}, []
        for name, row, i in (("norm_x", a, _A), ("norm_y", b, _B), ("distance", d, _D)):
            error = self._covariance(i, i).sqrt()
            variations.append(_safe_ratio(math.sqrt(self.draws) * error, row))
            length = unit * row.sqrt()
            lengths[name] = length, unit * _safe_ratio(error, 2 * row.sqrt()), _SQUARES_SKEW * variations[-1]
        skewness = _RATIO_SKEW * torch.stack(variations).square().mean(0).sqrt()
        angles = geometry(a, b, excess_of(a, b, d))
        angle = _safe_ratio(defect, (angles["defect"] * (2 - angles["defect"])).sqrt())  # dt = d(1 - cos t) / sin t
        errors = {"defect": defect, "cosine": defect, "angle": angle}
        found = {**lengths, **{name: (angles[name], errors[name], skewness) for name in angles}}
        return {name: Estimate(value, stderr, self.draws, skew) for name, (value, stderr, skew) in found.items()}

    def _covariance(self, i: int, j: int) -> Tensor:
        """Of the means over the draws."""
        return self._running.covariance(i, j) / self.draws


class Networks:
    """The mean over networks of each network's own norms, distance, defect, cosine and angle.

    What a single random network shows on average: at finite width another number than the ratio of means, by O(1/width).
    """

    def __init__(self) -> None:
        self._running = Running([(i, i) for i in range(5)])

    @property
    def draws(self) -> int:
        return self._running.draws

    def add(self, rows: Tensor) -> None:
        a, b, d = rows.unbind(-2)
        angles = geometry(a, b, excess_of(a, b, d))
        self._running.add(torch.stack([a.sqrt(), b.sqrt(), d.sqrt(), angles["defect"], angles["angle"]], -2))

    def estimates(self) -> dict[str, Estimate]:
        found = {}
        for i, name in enumerate(("norm_x", "norm_y", "distance", "defect", "angle")):
            mean, spread = self._running.mean[..., i, :], self._running.covariance(i, i).sqrt()
            skewness = _OWN_SKEW * _safe_ratio(spread, mean)
            found[name] = Estimate(mean, spread / math.sqrt(self.draws), self.draws, skewness)
        defect = found["defect"]
        return {**found, "cosine": Estimate(1 - defect.value, defect.stderr, self.draws, defect.skewness)}


def averaging(average: Average) -> Averaging:
    return Moments() if average == "moments" else Networks()


class Lengths:
    """Lengths (..., k, n) over draws: "moments" is √E r², the scale of `predict`, "networks" the plain mean E r."""

    def __init__(self, average: Average) -> None:
        self._squared = average == "moments"
        self._running: Running | None = None
        self._exponent = torch.empty(0)

    @property
    def draws(self) -> int:
        return self._running.draws if self._running is not None else 0

    def add(self, lengths: Tensor) -> None:
        if self._running is None:
            self._running = Running([(i, i) for i in range(lengths.shape[-2])])
            self._exponent = torch.frexp(lengths).exponent
        scaled = torch.ldexp(lengths, -self._exponent)
        self._running.add(scaled.square() if self._squared else scaled)

    def estimate(self) -> Estimate:
        """Of shape (..., k, n)."""
        assert self._running is not None
        mean = self._running.mean
        variance = torch.stack([self._running.covariance(i, i) for i in range(mean.shape[-2])], -2)
        stderr = (variance / self.draws).sqrt()
        skewness = (_SQUARES_SKEW if self._squared else _OWN_SKEW) * _safe_ratio(variance.sqrt(), mean)
        if self._squared:
            mean, stderr = mean.sqrt(), _safe_ratio(stderr, 2 * mean.sqrt())
        return Estimate(torch.ldexp(mean, self._exponent), torch.ldexp(stderr, self._exponent), self.draws, skewness)


def _safe_ratio(above: Tensor, below: Tensor) -> Tensor:
    """Zero over zero is zero: what never varies has no error."""
    return torch.where(above == 0, 0.0, above / below)
