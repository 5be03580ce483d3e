"""The parts of encoders and decoders: filters, pooling, upsampling."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from initscope.errors import BadInput
from initscope.images.architectures import ConvPlan, PoolPlan, Size
from initscope.images.laws import Source

Pooling = Literal["max", "average", "l2"]
Upsampling = Literal["zeros", "nearest"]
LEAK = 0.2  # slope of the leaky ReLU where a decoder is trained (DC A.1.1)


class Filters(nn.Module):
    """A convolution with zeros around the image, and its activation: max(t, 0) + slope · min(t, 0), or none at all.

    `weight` is None where the filters do not fit into memory: then every call draws them again, a block at a time.
    """

    def __init__(self, source: Source, slope: float | None, *, bias: bool = False, keep: bool = True) -> None:
        super().__init__()
        self.plan, self.slope, self.source = source.plan, slope, source
        self.weight = nn.Parameter(source.all()) if keep else None
        self.bias = nn.Parameter(torch.zeros(self.plan.outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        padded, margin = self._padded(x)
        if self.weight is not None:
            out = F.conv2d(padded, self.weight, self.bias, self.plan.stride, margin)
        else:
            out = self._drawn(padded, margin)
        if self.slope is None:
            return out
        return F.relu_(out) if self.slope == 0 else F.leaky_relu_(out, self.slope)

    def _padded(self, x: Tensor) -> tuple[Tensor, int]:
        """Padding that convolutions do by themselves where it is the same on all sides, which saves a copy."""
        before, after = self.plan.before, self.plan.after
        short = [max(0, self.plan.kernel - n - before - after) for n in x.shape[-2:]]
        if before == after and not any(short):
            return x, before
        return F.pad(x, (before, after + short[1], before, after + short[0])), 0

    def _drawn(self, x: Tensor, margin: int) -> Tensor:
        plan, out = self.plan, None
        for rows, weight in self.source.blocks():
            bias = None if self.bias is None else self.bias[rows]
            part = F.conv2d(x, weight.to(x), bias, plan.stride, margin)
            if out is None:
                out = part.new_empty(len(x), plan.outputs, *part.shape[-2:])
            out[:, rows] = part
        assert out is not None
        return out

    def extra_repr(self) -> str:
        plan = self.plan
        return f"{plan.inputs}, {plan.outputs}, kernel={plan.kernel}, stride={plan.stride}, slope={self.slope}"


class Pool(nn.Module):
    """Pooling over windows: the largest value, the mean, or the Euclidean norm; edges as in `PoolPlan`."""

    def __init__(self, plan: PoolPlan, kind: Pooling) -> None:
        super().__init__()
        if kind not in get_args(Pooling):
            raise BadInput("pooling", f"got {kind!r}", f"choose from {', '.join(get_args(Pooling))}")
        self.plan, self.kind = plan, kind

    def forward(self, x: Tensor) -> Tensor:
        window, stride = self.plan.window, self.plan.stride
        short = [(self.plan.output_size(n) - 1) * stride + window - n for n in x.shape[-2:]]
        reach = (0, max(0, short[1]), 0, max(0, short[0]))
        if self.kind == "max":
            return F.max_pool2d(F.pad(x, reach, value=-math.inf) if any(reach) else x, window, stride)
        if self.kind == "average":
            if not any(reach):
                return F.avg_pool2d(x, window, stride)
            sums = F.avg_pool2d(F.pad(x, reach), window, stride, divisor_override=1)
            inside = F.pad(x.new_ones(1, 1, *x.shape[-2:]), reach)
            return sums / F.avg_pool2d(inside, window, stride, divisor_override=1)
        padded = F.pad(x, reach) if any(reach) else x
        if window == stride and not any(n % stride for n in padded.shape[-2:]):
            pooled: Tensor = _Norms.apply(padded, stride)  # type: ignore[no-untyped-call]
            return pooled
        squares = F.avg_pool2d(padded.square(), window, stride, divisor_override=1)
        alive = squares > 0  # the root has no slope at zero, and the gradient there is taken as zero
        return torch.where(alive, squares, 1.0).sqrt() * alive

    def extra_repr(self) -> str:
        return f"{self.kind}, window={self.plan.window}, stride={self.plan.stride}"


class _Norms(torch.autograd.Function):
    """Euclidean norms of windows side by side; the gradient by hand, x / norm and 0 where the norm is, is one product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, side: int) -> Tensor:
        parts = [x[..., top::side, left::side] for top in range(side) for left in range(side)]
        found = parts[0].square()
        for part in parts[1:]:
            found.addcmul_(part, part)
        found.sqrt_()
        ctx.side = side
        ctx.save_for_backward(x, found)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, norm = ctx.saved_tensors
        share = (grad / norm).masked_fill_(norm == 0, 0.0)
        windows = x.unflatten(-1, (-1, ctx.side)).unflatten(-3, (-1, ctx.side))
        return (windows * share[..., :, None, :, None]).view(x.shape), None


class Unpool(nn.Module):
    """Undoes the size of a pooling: a value goes to the middle of its window, zeros around it (DC A.3.1), or is repeated."""

    def __init__(self, plan: PoolPlan | ConvPlan, kind: Upsampling) -> None:
        super().__init__()
        if kind not in get_args(Upsampling):
            raise BadInput("upsampling", f"got {kind!r}", f"choose from {', '.join(get_args(Upsampling))}")
        self.stride, self.offset, self.kind = plan.stride, plan.offset, kind

    def forward(self, x: Tensor, size: Size) -> Tensor:
        """(n, c, h, w) -> at least (n, c, stride·h, stride·w), and at least `size`."""
        k = self.stride
        height, width = (max(k * n, wanted) for n, wanted in zip(x.shape[-2:], size, strict=True))
        if self.kind == "zeros":
            wide = x.new_zeros(*x.shape[:-2], height, width)
            room = wide[..., self.offset :: k, self.offset :: k]
            rows, columns = (min(a, b) for a, b in zip(room.shape[-2:], x.shape[-2:], strict=True))
            room[..., :rows, :columns] = x[..., :rows, :columns]
            return wide
        wide = x.repeat_interleave(k, -2).repeat_interleave(k, -1)
        return F.pad(wide, (0, width - wide.shape[-1], 0, height - wide.shape[-2]), mode="replicate")

    def extra_repr(self) -> str:
        return f"{self.kind}, stride={self.stride}, offset={self.offset}"
