"""Ways to decode without training the encoder: one random decoder, several, matched filters, least squares."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope.errors import BadInput
from initscope.images.architectures import ConvPlan, Layout, Size
from initscope.images.modules import Filters
from initscope.images.networks import Decoder, Encoder
from initscope.images.tiling import Move, encoder_moves, plan_tiles
from initscope.weights import Fans

DecoderKind = Literal["random", "averaged", "matched", "least-squares"]
_RIDGE = 1e-6  # of the mean squared feature: keeps the solution bounded, and changes no picture visibly
_ROWS = 4096  # positions whose products are added up at once


class Averaged(nn.Module):
    """Several random decoders side by side: (n, outputs · count + 1, h, w), the last channel being the mean of their features.

    A random last layer has no sign of its own, so that plain means would cancel. The mean over the channels before it is
    brighter where the image is (DC Theorem 1): `combine` turns every output to its side before it averages.
    """

    def __init__(self, make: Callable[[int], Decoder], count: int) -> None:
        super().__init__()
        self.decoders = nn.ModuleList(make(number) for number in range(count))

    def forward(self, features: Tensor, size: Size) -> Tensor:
        outputs, brightness = [], None
        for decoder in self.decoders:
            assert isinstance(decoder, Decoder)
            hidden = decoder.hidden(features, size)
            last = decoder.last(hidden)[..., : size[0], : size[1]]
            outputs.append(last)
            mean = hidden.mean(1, keepdim=True)[..., : size[0], : size[1]]
            brightness = mean if brightness is None else brightness + mean
        assert brightness is not None
        return torch.cat([*outputs, brightness], 1)


def combine(outputs: Tensor, channels: int) -> Tensor:
    """(n, channels · count + 1, h, w) of `Averaged` to (n, channels, h, w): Σ_m ρ_m (o_m - mean) / deviation.

    ρ_m is the correlation of output m with the mean feature: outputs that show little of it weigh little.
    """
    brightness = _standard(outputs[:, -1:])
    each = _standard(outputs[:, :-1])
    weight = (each * brightness).mean((2, 3), keepdim=True)
    count, _, height, width = each.shape
    return (each * weight).reshape(count, -1, channels, height, width).sum(1)


def _standard(t: Tensor) -> Tensor:
    centred = t - t.mean((2, 3), keepdim=True)
    deviation = centred.square().mean((2, 3), keepdim=True).sqrt()
    return centred / torch.where(deviation > 0, deviation, 1.0)


class Matched(nn.Module):
    """The encoder's own filters, transposed: an unbiased estimate of the image, in pixels.

    A law that is the same for w and -w has E[w ReLU(<w, y>)] = ½ Var(w) y, since ReLU(t) = (t + |t|)/2 and w |<w, y>| has
    mean zero. So Σ_o w_o ReLU(<w_o, y>) is on the average N Var(w)/2 times the patch y, and each pixel lies in as many
    patches as windows cover it. Layer by layer, with nothing non-linear between, the mean over filters is the image.
    Pooled features are repeated; behind l2 pooling they are divided by the root of the window's size.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.layout, self.pooling, self.slope = encoder.layout, encoder.pooling, encoder.slope
        self.filters = [conv for stage in encoder.stages for conv in stage.convs]  # type: ignore[union-attr]
        self.law = encoder.law

    def forward(self, features: Tensor, size: Size) -> Tensor:
        sizes = self.layout.sizes(size)
        filters = iter(reversed(self.filters))
        x = features
        for number in reversed(range(len(self.layout.steps))):
            step, wanted = self.layout.steps[number], sizes[number]
            if isinstance(step, ConvPlan):
                x = self._back(x, next(filters), wanted)
            else:
                x = _repeated(x, step.stride, wanted)
                x = x / step.window if self.pooling == "l2" else x
        return x

    def _back(self, x: Tensor, conv: Filters, size: Size) -> Tensor:
        plan, source = conv.plan, conv.source
        total: Tensor | None = None
        blocks = [(slice(None), conv.weight)] if conv.weight is not None else source.blocks()
        for rows, weight in blocks:
            part = _transposed(x[:, rows], weight.to(x), plan, size)
            total = part if total is None else total.add_(part)
        assert total is not None
        seen = x.new_ones(1, 1, *x.shape[-2:])
        covered = _transposed(seen, seen.new_ones(1, 1, plan.kernel, plan.kernel), plan, size)
        variance = self.law.variance(Fans(plan.inputs, plan.outputs, plan.kernel**2)) * source.scale**2
        # Pixels that no window sees (strides) stay zero.
        return total / (covered.clamp_min(1) * (plan.outputs * variance * (1 + self.slope) / 2))


def _transposed(x: Tensor, weight: Tensor, plan: ConvPlan, size: Size) -> Tensor:
    """The adjoint of the convolution, on images of `size`."""
    wide = F.conv_transpose2d(x, weight, None, plan.stride)
    short = [max(0, n + plan.before - have) for n, have in zip(size, wide.shape[-2:], strict=True)]
    if any(short):
        wide = F.pad(wide, (0, short[1], 0, short[0]))
    return wide[..., plan.before : plan.before + size[0], plan.before : plan.before + size[1]]


def _repeated(x: Tensor, stride: int, size: Size) -> Tensor:
    """Every value `stride` times along both axes, cut or continued to `size`."""
    wide = x.repeat_interleave(stride, -2).repeat_interleave(stride, -1)[..., : size[0], : size[1]]
    short = [n - have for n, have in zip(size, wide.shape[-2:], strict=True)]
    return F.pad(wide, (0, short[1], 0, short[0]), mode="replicate") if any(short) else wide


class LeastSquares(nn.Module):
    """The linear map from the feature at one position to the pixels of its block, (n, N, h', w') -> (n, c, h, w)."""

    def __init__(self, weight: Tensor, bias: Tensor, block: int) -> None:
        super().__init__()
        self.weight, self.bias, self.block = nn.Parameter(weight), nn.Parameter(bias), block

    def forward(self, features: Tensor, size: Size) -> Tensor:
        x = F.conv2d(features, self.weight[..., None, None], self.bias)
        blocks = [-(-n // self.block) for n in size]
        x = _repeated(x, 1, (blocks[0], blocks[1]))
        return F.pixel_shuffle(x, self.block)[..., : size[0], : size[1]]


def least_squares_moves(plan: Layout, channels: int) -> list[Move]:
    """Encoder and least-squares decoder, as tiles see them."""
    wide = channels * plan.stride**2
    return [*encoder_moves(plan), Move("gather", wide), Move("spread", channels, stride=plan.stride)]


@torch.no_grad()
def fit_least_squares(
    encoder: Encoder, images: Sequence[Tensor], allowed: int, progress: Callable[[int, int], None] | None = None
) -> LeastSquares:
    """The decoder with the least squared error on the images, each (1, c, h, w): normal equations, added up over tiles.

    `(A'A + λ) W = A'Y` with A the features of all positions and a constant, Y the pixels of their blocks.
    """
    plan, channels = encoder.layout, images[0].shape[1]
    block, unknowns = plan.stride, plan.outputs + 1
    device = images[0].device
    gram = torch.zeros(unknowns, unknowns, dtype=torch.float64, device=device)
    right = torch.zeros(unknowns, channels * block**2, dtype=torch.float64, device=device)
    moves = least_squares_moves(plan, channels)
    for number, image in enumerate(images):
        if image.shape[1] != channels:
            raise BadInput("examples", f"{image.shape[1]} channels, the picture has {channels}", "use alike pictures")
        tiles = plan_tiles(moves, channels, (image.shape[-2], image.shape[-1]), allowed)
        if tiles is None:
            raise BadInput("examples", "do not fit into the memory allowed", "raise memory=, or use fewer channels")
        for tile in tiles.tiles:
            features = encoder(image[..., tile.source_rows, tile.source_columns])
            rows, columns = (slice(s.start // block, -(-s.stop // block)) for s in tile.inside)
            _add_products(gram, right, features[..., rows, columns], image[..., tile.rows, tile.columns], block)
        if progress is not None:
            progress(number + 1, len(images))
    ridge = _RIDGE * gram.diagonal()[:-1].mean()
    gram.diagonal()[:-1] += ridge if float(ridge) > 0 else 1.0
    solution = torch.linalg.solve(gram, right).float()
    return LeastSquares(solution[:-1].T.contiguous(), solution[-1].clone(), block)


def _add_products(gram: Tensor, right: Tensor, features: Tensor, pixels: Tensor, block: int) -> None:
    blocks = [-(-n // block) for n in pixels.shape[-2:]]
    features = _repeated(features, 1, (blocks[0], blocks[1]))
    short = [b * block - n for b, n in zip(blocks, pixels.shape[-2:], strict=True)]
    targets = F.pixel_unshuffle(F.pad(pixels, (0, short[1], 0, short[0]), mode="replicate"), block)
    a, y = (t[0].flatten(1).T for t in (features, targets))
    for part in range(0, len(a), _ROWS):
        some = a[
            part : part + _ROWS
        ].double()  # features are much alike: products rounded to float32 would tell them apart badly
        some = torch.cat([some, some.new_ones(len(some), 1)], 1)
        gram += some.T @ some
        right += some.T @ y[part : part + _ROWS].double()


def count_parameters(decoder: LeastSquares) -> int:
    """Numbers that were fitted."""
    return math.prod(decoder.weight.shape) + len(decoder.bias)
