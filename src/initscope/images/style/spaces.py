"""What is optimised: the pixels, the feature vectors of Conv[k], or changes of the picture as these feature vectors
see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from initscope.errors import BadInput
from initscope.images.architectures import ConvPlan, Layout, Size
from initscope.images.networks import Encoder

Method = Literal["features", "pixels"]
Tie = Literal["patches", "free"]
Decode = Callable[[Tensor, Size], Tensor]
_RIDGE = 1e-4  # of the mean square of a patch: neighbouring pixels are nearly equal
_ROWS = 32  # rows of features whose patches are held at once
_MOST_UNKNOWNS = 1300


class Space(Protocol):
    """A variable, and what it means."""

    first: int  # the stage of the encoder that comes next
    variable: Tensor

    def features(self) -> Tensor:
        """What that stage is given, differentiable."""

    def picture(self) -> Tensor:
        """(1, 3, h, w), of any range."""


class Pixels:
    """The picture itself, seen by the whole encoder (Gatys et al. 2016)."""

    first = 0

    def __init__(self, start: Tensor) -> None:
        self.variable = start.clone(memory_format=torch.contiguous_format).requires_grad_()

    def features(self) -> Tensor:
        return self.variable

    def picture(self) -> Tensor:
        return self.variable.detach()


class FreeFeatures:
    """Feature vectors V of Conv[k], each coordinate by itself (DC A.4), decoded at the end.

    They are held in units of their root mean square, so that steps mean the same for every weight law.
    """

    def __init__(self, start: Tensor, size: Size, depth: int, decode: Decode) -> None:
        self.first, self._size, self._decode = depth, size, decode
        self._unit = max(float(start.square().mean().sqrt()), 1e-12)
        self.variable = (start / self._unit).contiguous().requires_grad_()

    def features(self) -> Tensor:
        return (self.variable * self._unit).clamp_min(0)

    def picture(self) -> Tensor:
        with torch.no_grad():
            return self._decode(self.features(), self._size)


class TiedFeatures:
    """V = max(V_0 + K * change, 0): only such changes of V as a change of the picture makes, to first order.

    V has many times the numbers of a picture. Left free, it meets the losses in directions that no picture has and no
    decoder shows. K is the linear map from patches to V with the least squared error (`fit_patches`): one thin
    convolution in place of the encoder's.
    """

    def __init__(self, start: Tensor, size: Size, depth: int, decode: Decode, patches: Patches) -> None:
        self.first, self._size, self._decode = depth, size, decode
        self._start, self._patches = start, patches
        self.variable = start.new_zeros(1, patches.weight.shape[1], *size).requires_grad_()

    def features(self) -> Tensor:
        return F.relu_(self._patches(self.variable).add_(self._start))

    def picture(self) -> Tensor:
        with torch.no_grad():
            return self._decode(self.features(), self._size)


class Patches:
    """The linear map from patches of a picture to features: a convolution of the encoder's reach and stride, no
    constant."""

    def __init__(self, weight: Tensor, plan: Layout, explained: float) -> None:
        self.weight, self.plan = weight, plan
        self.explained = explained  # share of the features' variance
        self.reach, self.stride, self.before = reach_of(plan)

    def __call__(self, picture: Tensor) -> Tensor:
        return F.conv2d(_framed(picture, self.plan), self.weight, stride=self.stride)


def reach_of(plan: Layout) -> tuple[int, int, int]:
    """Side of the patch that one feature sees, its stride, and how far the first patch reaches over the edge.

    >>> from initscope.images.architectures import layout
    >>> reach_of(layout("vgg16", 1)), reach_of(layout("vgg16", 2))
    ((5, 1, 2), (14, 2, 6))
    """
    reach, stride, before = 1, 1, 0
    for step in plan.steps:
        side, margin = (step.kernel, step.before) if isinstance(step, ConvPlan) else (step.window, 0)
        reach, before = reach + (side - 1) * stride, before + margin * stride
        stride *= step.stride
    return reach, stride, before


@torch.no_grad()
def fit_patches(encoder: Encoder, plan: Layout, pictures: Sequence[Tensor]) -> Patches:
    """Least squares from patches to the features of the stages in `plan`, over all positions of the pictures.

    `(A'A + λ) K = A'V` with A the patches, each with a constant that is then dropped: only changes are mapped.
    """
    reach, stride, before = reach_of(plan)
    unknowns = plan.inputs * reach**2 + 1
    if unknowns > _MOST_UNKNOWNS:
        problem = f"a feature at depth {plan.depth} sees patches of {reach}x{reach} pixels, too many numbers to fit"
        raise BadInput("tie", problem, "use tie='free', or a smaller depth or kernel")
    device = pictures[0].device
    square = torch.zeros(unknowns, unknowns, dtype=torch.float64, device=device)
    right = torch.zeros(unknowns, plan.outputs, dtype=torch.float64, device=device)
    total, count, power = torch.zeros(plan.outputs, dtype=torch.float64, device=device), 0, 0.0
    for picture in pictures:
        features, framed = _inside(encode(encoder, plan, picture), _framed(picture, plan), stride, before)
        for top in range(0, features.shape[-2], _ROWS):
            rows = features[..., top : top + _ROWS, :]
            strip = framed[..., top * stride : (top + rows.shape[-2] - 1) * stride + reach, :]
            patches = F.unfold(strip, reach, stride=stride)[0].T
            patches = torch.cat([patches, patches.new_ones(len(patches), 1)], 1)
            values = rows[0].flatten(1).T
            square += (patches.T @ patches).double()
            right += (patches.T @ values).double()
            total, count = total + values.sum(0).double(), count + len(values)
            power += float(values.double().square().sum())
    held = square.clone()
    held.diagonal()[:-1] += _RIDGE * square.diagonal()[:-1].mean() + 1e-12
    solution = torch.linalg.solve(held, right)
    left = power - 2 * float((solution * right).sum()) + float((solution * (square @ solution)).sum())
    spread = power - float(total.square().sum()) / count
    weight = solution[:-1].T.reshape(plan.outputs, plan.inputs, reach, reach).float()
    explained = 1 - left / spread if spread > 0 else 1.0
    return Patches(weight.contiguous(memory_format=torch.channels_last), plan, explained)


def _inside(features: Tensor, framed: Tensor, stride: int, before: int) -> tuple[Tensor, Tensor]:
    """Without the positions that see the zeros around the picture, which are no linear function of it; if others remain."""
    edge = -(-before // stride)
    if min(features.shape[-2:]) <= 4 * edge:
        return features, framed
    height, width = features.shape[-2:]
    cut = features[..., edge : height - edge, edge : width - edge]
    last = framed.shape[-2] - edge * stride, framed.shape[-1] - edge * stride
    return cut, framed[..., edge * stride : last[0], edge * stride : last[1]]


def encode(encoder: Encoder, plan: Layout, picture: Tensor) -> Tensor:
    """The features after the stages of `plan`."""
    for stage in encoder.stages[: len(plan.stages)]:
        picture = stage(picture)
    return picture


def _framed(picture: Tensor, plan: Layout) -> Tensor:
    """Zeros around the picture, as many as the encoder's layers add, and cut to what they see."""
    reach, stride, before = reach_of(plan)
    height, width = picture.shape[-2:]
    rows, columns = plan.sizes((height, width))[-1]
    after = [(count - 1) * stride + reach - before - n for count, n in ((rows, height), (columns, width))]
    return F.pad(picture, (before, after[1], before, after[0]))
