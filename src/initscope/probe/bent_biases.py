"""How far biases that are not Gaussian, which theory takes as Gaussian, move the angle behind an activation.

The defect of near inputs is proportional to E f'(u)² / E f(u)². With given biases a layer's units are a mixture of Gaussians, one
around each bias; the logarithm of what that makes of the ratio, beside a Gaussian of the same second moment, is how far the
predicted defect may be off. It is nothing for ReLU and symmetric biases, and hardly anything where biases are small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initscope.activations import Activation
from initscope.probe.arguments import Arguments
from initscope.probe.trace import Call

Array = np.ndarray[Any, Any]
FEWEST = 8  # biases that say something of their law
LITTLE = 1e-4  # share of the variance below which biases move nothing
CENTERS = 64  # of a mixture
SHARPEST = 0.05  # standard deviation of its parts, beside that of the whole
REACH, STEPS = 8.0, 2001  # of the grid for integrals
FARTHER = 2.0  # times what near inputs show, for those that are not near
LARGEST = 3.0  # of a logarithm


@dataclass(frozen=True, eq=False)
class BiasShape:
    """Biases (quantiles of them) and the standard deviation around them, beside the root mean square of the units."""

    centers: Array
    around: float

    @classmethod
    def of(cls, call: Call, square: float) -> BiasShape | None:
        """Of a dense or convolutional call whose units have the mean square `square`; None where biases count for nothing."""
        bias = Arguments(call).get(2, "bias")
        if not isinstance(bias, Tensor) or bias.numel() < FEWEST or not 0 < square < math.inf:
            return None
        values = bias.detach().double().flatten() / math.sqrt(square)
        share = float(values.square().mean())
        if not LITTLE <= share < math.inf:
            return None
        places = torch.linspace(0, len(values) - 1, min(len(values), CENTERS)).round().long()
        return cls(values.sort().values[places].cpu().numpy(), max(math.sqrt(max(1 - share, 0.0)), SHARPEST))

    def moves(self, f: Activation, square: float) -> float:
        """The logarithm of how far the defect behind f may be off, at most `LARGEST`."""
        z, s = np.linspace(-REACH, REACH, STEPS), math.sqrt(square)
        value = f(torch.from_numpy(s * z)).numpy()
        squares, slopes = value**2, np.gradient(value, s * z) ** 2
        mixture = np.exp(-(((z - self.centers[:, None]) / self.around) ** 2) / 2).sum(0)
        with np.errstate(all="ignore"):
            ratios = [float(slopes @ weight) / float(squares @ weight) for weight in (mixture, np.exp(-z * z / 2))]
            moved = FARTHER * abs(math.log(ratios[0] / ratios[1])) if min(ratios) > 0 else LARGEST
        return min(moved, LARGEST) if math.isfinite(moved) else LARGEST
