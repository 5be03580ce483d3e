"""Gaussian images with independent pixels, and pairs of them with a given correlation (JL Theorem 4, eq. 14).

The name is `gaussian[:CORRELATION[:MEAN]]`: `gaussian`, `gaussian:0.5`, `gaussian:0.5:1`, `gaussian::1`.
Pixels have variance 1; JL's eq. 14 has 1/n², which makes the expected norm one and changes no similarity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from initscope.data.request import Request
from initscope.errors import BadInput

_REMEDY = "write gaussian[:CORRELATION[:MEAN]] with a correlation in [-1, 1], e.g. gaussian:0.5"


@dataclass(frozen=True)
class Law:
    """The correlation between two images (None: not fixed) and the mean of all pixels."""

    correlation: float | None
    mean: float

    @property
    def words(self) -> str:
        """The law as a description."""
        mean = f", mean {self.mean:g}" if self.mean else ""
        shared = "" if self.correlation is None else f", correlation {self.correlation:g} between images"
        return f"Gaussian images, independent pixels of variance 1{mean}{shared}"


def parse(rest: str) -> Law:
    """The law from what follows `gaussian:`.

    >>> parse("0.5"), parse(":2")
    (Law(correlation=0.5, mean=0.0), Law(correlation=None, mean=2.0))
    """
    parts = rest.split(":")
    if len(parts) > 2:
        raise BadInput(f"gaussian:{rest}", "more than two parts", _REMEDY)
    correlation = _number(rest, parts[0]) if parts[0] else None
    mean = _number(rest, parts[1]) if len(parts) == 2 and parts[1] else 0.0
    if correlation is not None and abs(correlation) > 1:
        raise BadInput(f"gaussian:{rest}", f"correlation {correlation:g} is outside [-1, 1]", _REMEDY)
    return Law(correlation, mean)


def make(law: Law, request: Request) -> Tensor:
    """(n, c, h, w): every two images have the correlation of the law, pixel by pixel (0 if none is given)."""
    channels, height, width = request.shape(3)
    n, rho = request.count, law.correlation or 0.0
    if n > 1 and rho < -1 / (n - 1):
        problem = f"{n} images cannot all have correlation {rho:g} with each other (at least {-1 / (n - 1):.3g})"
        raise BadInput(f"gaussian:{rho:g}", problem, "ask for pairs, or for fewer images")
    noise = request.random().standard_normal((n, channels, height, width), dtype=np.float32)
    # The square root of (1 - rho) I + rho 11' acts on the common part of the noise and on the rest separately.
    common = noise.mean(0, keepdims=True)
    images = math.sqrt(1 - rho) * (noise - common) + math.sqrt(max(0.0, 1 + (n - 1) * rho)) * common
    return torch.from_numpy((images + law.mean).astype(np.float32))


def make_pairs(law: Law, request: Request) -> tuple[Tensor, Tensor, Tensor]:
    """x, y of shape (n, c, h, w) and the correlation of each pair: the law's, or evenly spread over [-1, 1]."""
    channels, height, width = request.shape(3)
    random = request.random()
    rho: npt.NDArray[np.float64] = np.full(request.count, law.correlation or 0.0)
    if law.correlation is None and request.count > 1:
        rho = np.linspace(-1.0, 1.0, request.count)
    shape = (request.count, channels, height, width)
    x = torch.from_numpy(random.standard_normal(shape, dtype=np.float32))
    fresh = torch.from_numpy(random.standard_normal(shape, dtype=np.float32))
    weight = torch.from_numpy(rho).float().view(-1, 1, 1, 1)
    rest = torch.from_numpy(np.sqrt((1 - rho) * (1 + rho))).float().view(-1, 1, 1, 1)
    return x + law.mean, weight * x + rest * fresh + law.mean, torch.from_numpy(rho)


def _number(rest: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise BadInput(f"gaussian:{rest}", f"{text!r} is not a number", _REMEDY) from error
    if not math.isfinite(value):
        raise BadInput(f"gaussian:{rest}", f"{text!r} is not finite", _REMEDY)
    return value
