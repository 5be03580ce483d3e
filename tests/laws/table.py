"""The table of laws: every layer in the settings that matter, with what scaling the input does to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from initscope.activations import ABS, RELU, TANH, leaky_relu
from initscope.layers import (
    Activate,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    GlobalMaxPool,
    GroupNorm,
    L2Pool,
    Layer,
    LayerNorm,
    MaxPool,
    Scale,
    Upsample,
)
from initscope.networks import Concat, Masked, Product, Residual, Sequential, Sum
from initscope.weights import DeltaOrthogonal, Gaussian, He, Orthogonal, TapCovariance, Uniform, ZeroSum

R = Activate(RELU)
SEQUENCE, VOLUME = (4, 7), (2, 3, 3, 4)
TINY = 1e-12  # an epsilon of batch norm that does not show; PyTorch refuses zero


@dataclass(frozen=True)
class Case:
    """A small network, by width. `degree`: norms scale like c^degree with the input, None where they do not."""

    name: str
    build: Callable[[int], list[Layer]]
    degree: int | None = 1
    vectors: bool = False
    shape: tuple[int, ...] = (4, 6, 6)  # of one input, unless it is a vector
    masks: bool = False  # some positions of the inputs are zero in all channels
    wide: bool = False  # the finite face has the exact law only with many channels

    def net(self, width: int) -> Sequential:
        return Sequential(*self.build(width))

    def inputs(self, pairs: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
        g = torch.Generator().manual_seed(5)
        shape = (pairs, 12) if self.vectors else (pairs, *self.shape)
        x = torch.rand(shape, generator=g, dtype=torch.float64) - (0.5 if self.vectors else 0.1)
        y = 0.6 * x + 0.5 * torch.rand(shape, generator=g, dtype=torch.float64) - 0.2
        if self.masks:
            x[..., -1], y[..., -2:], x[0, ..., 0] = 0, 0, 0
        return x, y

    def __str__(self) -> str:
        return self.name


def _decaying_taps() -> torch.Tensor:
    """A tap covariance that is neither diagonal nor centred."""
    i = torch.arange(9.0, dtype=torch.float64)
    return torch.exp(-(i[:, None] - i).abs() / 2)


LAYERS = [
    Case("conv circular", lambda c: [Conv(c), R]),
    Case("conv zero bias", lambda c: [Conv(c, padding="zero", bias=0.3), R], None),
    Case("conv reflect", lambda c: [Conv(c, 5, padding="reflect"), R]),
    Case("conv valid oblong", lambda c: [Conv(c, (1, 3), padding="valid"), R]),
    Case("conv stride dilation", lambda c: [Conv(c, 3, 2, padding="zero", dilation=2), R]),
    Case("conv even kernel", lambda c: [Conv(c, 4), R]),
    Case("conv margin", lambda c: [Conv(c, 3, 2, padding="zero", margin=2), R]),
    Case("conv groups of data", lambda c: [Conv(c, groups=2), R, Conv(c)]),
    Case("conv groups of groups", lambda c: [Conv(c, groups=4), R, Conv(c, groups=4)]),
    Case("conv groups split", lambda c: [Conv(c, groups=2), R, Conv(c, groups=4), R]),
    Case("conv groups joined", lambda c: [Conv(c, groups=4), R, Conv(c, groups=2), R]),
    Case("conv depthwise", lambda c: [Conv(c), R, Conv(c, groups=c), R]),
    Case("conv zero sum", lambda c: [Conv(c, weights=ZeroSum()), R]),
    Case("conv zero sum channel", lambda c: [Conv(c, weights=ZeroSum(over="channel")), R]),
    Case("conv zero sum deep", lambda c: [Conv(c), R, Conv(16, weights=ZeroSum()), GlobalAveragePool()], wide=True),
    Case(
        "conv zero sum channel deep",
        lambda c: [Conv(c, padding="zero"), R, Conv(c, padding="zero", weights=ZeroSum(over="channel"))],
    ),
    Case("conv tap covariance", lambda c: [Conv(c, padding="zero", weights=TapCovariance(_decaying_taps())), R]),
    Case("conv delta orthogonal", lambda c: [Conv(c, weights=DeltaOrthogonal()), Conv(c)]),
    Case("conv orthogonal", lambda c: [Conv(c, weights=Orthogonal()), Conv(c)]),
    Case("conv he fan out", lambda c: [Conv(c, weights=He("out")), R]),
    Case("conv glorot", lambda c: [Conv(c, weights=Gaussian(1.0, "mean"))]),
    Case("conv pytorch", lambda c: [Conv(c, weights=Uniform(1 / 3))]),
    Case("leaky", lambda c: [Conv(c), Activate(leaky_relu(0.2))]),
    Case("relu of relu", lambda c: [Conv(c), R, R]),
    Case("relu of data", lambda c: [R, Conv(c), R]),
    Case("average pool", lambda c: [Conv(c), R, AveragePool(2)]),
    Case("average pool overlapping", lambda c: [Conv(c), R, AveragePool(3, 1), Conv(c)]),
    Case("average pool of data", lambda c: [AveragePool(2), Conv(c), R]),
    Case("average pool before relu", lambda c: [Conv(c), AveragePool(2), R]),
    Case("global average pool", lambda c: [Conv(c), R, GlobalAveragePool()]),
    Case("global average pool, zero padding", lambda c: [Conv(c, padding="zero"), R, GlobalAveragePool(), Dense(c)]),
    Case("average pool of units", lambda c: [Dense(c), R, AveragePool(8)], vectors=True),
    Case("average pool of units, then relu", lambda c: [Dense(c), R, AveragePool(4), R], vectors=True),
    Case("max pool", lambda c: [Conv(c), R, MaxPool(2)]),
    Case("max pool overlapping", lambda c: [Conv(c), MaxPool(3, 2), R, Conv(c, 1)]),
    Case("global max pool", lambda c: [Conv(c), GlobalMaxPool()]),
    Case("max pool of units", lambda c: [Dense(c), R, MaxPool(8)], vectors=True),
    Case("max pool of linear units", lambda c: [Dense(c), MaxPool(8)], vectors=True),
    Case("max pool of leaky units", lambda c: [Dense(c), Activate(leaky_relu(0.3)), MaxPool(4)], vectors=True),
    Case("max pool of abs units", lambda c: [Dense(c), Activate(ABS), MaxPool(4)], vectors=True),
    Case("l2 pool", lambda c: [Conv(c), R, L2Pool(2)]),
    Case("l2 pool of units", lambda c: [Dense(c), L2Pool(8)], vectors=True),
    Case("l2 pool of relu units", lambda c: [Dense(c), R, L2Pool(8)], vectors=True),
    Case("batch norm", lambda c: [Conv(c), BatchNorm(TINY)], 0),
    Case("batch norm relu", lambda c: [Conv(c), BatchNorm(TINY), R, GlobalAveragePool()], 0),
    Case("batch norm tanh", lambda c: [Conv(c), BatchNorm(TINY), Activate(TANH)], 0),
    Case("batch norm after relu", lambda c: [Conv(c), R, BatchNorm(TINY), Conv(c)], 0),
    Case("batch norm of data", lambda c: [BatchNorm(TINY), Conv(c), R], 0),
    Case("batch norm of few", lambda c: [Dense(c), BatchNorm(TINY), R, Dense(c)], 0, vectors=True),
    Case("batch norm epsilon", lambda c: [Dense(c), BatchNorm(0.5), R], None, vectors=True),
    Case("layer norm", lambda c: [Conv(c), LayerNorm(epsilon=0.0), R], 0, wide=True),
    Case("layer norm after relu", lambda c: [Conv(c), R, LayerNorm(epsilon=0.0), GlobalAveragePool()], 0, wide=True),
    Case("layer norm over channels", lambda c: [Conv(c), R, LayerNorm("channels", 0.0)], 0, wide=True),
    Case("layer norm of vectors", lambda c: [Dense(c), R, LayerNorm(epsilon=0.0), Dense(16)], 0, True, wide=True),
    Case("layer norm of data", lambda c: [LayerNorm(epsilon=0.0), Conv(c), R], 0),
    Case("group norm", lambda c: [Conv(c), R, GroupNorm(4, 0.0)], 0, wide=True),
    Case(
        "group norm of branches",
        lambda c: [Concat(Conv(c), Sequential(Conv(c), Scale(10.0))), GroupNorm(2, 0.0), R],
        0,
        wide=True,
    ),
    Case("instance norm", lambda c: [Conv(c), GroupNorm(c, 0.0), R, GlobalAveragePool()], 0),
    Case("upsample nearest", lambda c: [Conv(c), R, Upsample(2), Conv(c)]),
    Case("upsample zeros", lambda c: [Conv(c), R, Upsample(2, "zeros"), Conv(c), GlobalAveragePool()]),
    Case("upsample zeros before relu", lambda c: [Conv(c), Upsample(3, "zeros"), R, AveragePool(3, 2)]),
    Case("flatten before relu", lambda c: [Conv(c, padding="zero"), Flatten(), R, Dense(c)]),
    Case("dropout", lambda c: [Conv(c), R, Dropout(0.3), GlobalAveragePool()]),
    Case("dropout of data", lambda c: [Dropout(0.3), Conv(c), R]),
    Case("dropout then batch norm", lambda c: [Conv(c), Dropout(0.3), BatchNorm(TINY)], 0),
    Case("scale", lambda c: [Conv(c), Scale(0.3), R]),
    Case("residual", lambda c: [Conv(c), Residual(R, Conv(c), scale=0.5)]),
    Case("residual of data", lambda c: [Residual(Conv(4), R), Conv(c)]),
    Case("residual of activated", lambda c: [Conv(c), R, Residual(Conv(c), R), GlobalAveragePool()]),
    Case("residual, relu outside", lambda c: [Conv(c), R, Residual(Conv(c)), R]),
    Case("residual in a branch", lambda c: [Conv(c), Residual(Conv(c), R, Residual(Conv(c))), GlobalAveragePool()]),
    Case(
        "residual with a separable branch",
        lambda c: [Conv(c), Residual(R, Conv(c, groups=c), R, Conv(c, 1))],
    ),
    Case("residual around a concat", lambda c: [Conv(2 * c), Residual(R, Concat(Conv(c), Conv(c, 1)))]),
    Case("depthwise after concat", lambda c: [Concat(Conv(c), Conv(c, 1)), R, Conv(2 * c, groups=2 * c), R]),
    Case("sum", lambda c: [Sum(Sequential(Conv(c), R), Sequential(Conv(c, 1), R))]),
    Case("concat", lambda c: [Concat(Conv(c // 2), Conv(c, 5)), R, Conv(c)]),
    Case("concat with skip", lambda c: [Conv(c), Concat(Sequential(), Conv(c)), R, GlobalAveragePool()]),
    Case("concat with data", lambda c: [Concat(Conv(c), Sequential()), GlobalAveragePool()]),
    Case("concat batch norm relu", lambda c: [Concat(Conv(c), Conv(c, 1)), BatchNorm(TINY), R], 0),
    Case(
        "concat along rows",
        lambda c: [Concat(Sequential(Conv(c), R), Conv(c, 1), axis=1), Conv(c), R, GlobalAveragePool()],
    ),
    Case("concat along columns", lambda c: [Conv(c), Concat(Sequential(), Sequential(Conv(c), R), axis=2), R, Conv(c)]),
    Case(
        "concat with data along a sequence",
        lambda c: [Concat(Sequential(), Conv(4), axis=1), Conv(c), R],
        shape=SEQUENCE,
    ),
    Case("product", lambda c: [Product(Sequential(Conv(c), R), Conv(c, 1)), GlobalAveragePool()], 2),
    Case("product of three", lambda c: [Product(Conv(c), Sequential(Conv(c, 1), R), Conv(c)), Conv(c)], 3),
    Case("product with data", lambda c: [Product(Sequential(), Sequential(Conv(4), Activate(TANH))), Conv(c), R], None),
    Case(
        "gated",
        lambda c: [Dense(c), R, Product(Sequential(), Sequential(Dense(c), Activate(TANH))), Dense(16)],
        None,
        True,
        wide=True,
    ),
    Case(
        "masked",
        lambda c: [Masked(Conv(c, bias=0.2), Activate(TANH), Conv(c, 2, 2, padding="zero"), R, GlobalAveragePool())],
        None,
        shape=SEQUENCE,
        masks=True,
    ),
    Case(
        "masked, positions kept",
        lambda c: [Masked(Conv(c, padding="valid"), R, AveragePool(2, 1)), Conv(c, 1)],
        masks=True,
    ),
    Case("masked max", lambda c: [Masked(Conv(c), MaxPool(2, 1), GlobalMaxPool())], shape=SEQUENCE, masks=True),
    Case(
        "masked branches",
        lambda c: [Masked(Conv(c), Residual(R, Conv(c)), Concat(Conv(c), Conv(c, 1)), R), Dense(c)],
        masks=True,
    ),
    Case(
        "masked layer norm",
        lambda c: [Masked(Conv(c), R, LayerNorm(epsilon=0.0), GlobalAveragePool())],
        0,
        wide=True,
        masks=True,
    ),
    Case(
        "masked data",
        lambda c: [Masked(AveragePool(3, 1, "same"), LayerNorm("channels", 0.0), Conv(c), R)],
        0,
        masks=True,
    ),
    Case("dense bias", lambda c: [Dense(c, bias=0.4), R], None, vectors=True),
    Case("dense zero sum", lambda c: [Dense(c, weights=ZeroSum()), R], vectors=True),
    Case("dense of images", lambda c: [Conv(c), R, Dense(c)]),
    Case("conv same stride", lambda c: [Conv(c, 3, 2, padding="same"), R, Conv(c, 2, 3, padding="same")]),
    Case("conv same stride pooled", lambda c: [Conv(c, 3, 2, padding="same"), R, GlobalAveragePool()], shape=(2, 5, 6)),
    Case("conv of sequences", lambda c: [Conv(c), R, Conv(c, 5, padding="zero"), R], shape=SEQUENCE),
    Case(
        "conv of sequences pooled",
        lambda c: [Conv(c, padding="same", stride=2), R, GlobalAveragePool()],
        shape=SEQUENCE,
    ),
    Case("conv of sequences zero sum", lambda c: [Conv(c, weights=ZeroSum(over="channel")), R], shape=SEQUENCE),
    Case("conv of sequences depthwise", lambda c: [Conv(c), R, Conv(c, groups=c), R], shape=SEQUENCE),
    Case("conv of volumes", lambda c: [Conv(c), R, Conv(c, (1, 3, 2), padding="zero"), R], shape=VOLUME),
    Case("conv of volumes pooled", lambda c: [Conv(c, padding="zero"), R, GlobalAveragePool(), Dense(c)], shape=VOLUME),
    Case("conv of volumes delta orthogonal", lambda c: [Conv(c, weights=DeltaOrthogonal()), Conv(c)], shape=VOLUME),
    Case("average pool of volumes", lambda c: [Conv(c), R, AveragePool((1, 2, 3), 1)], shape=VOLUME),
    Case("max pool of sequences", lambda c: [Conv(c), MaxPool(3, 2, "same"), R], shape=SEQUENCE),
    Case("global max pool of sequences", lambda c: [Conv(c), GlobalMaxPool()], shape=SEQUENCE),
    Case(
        "upsample zeros of volumes",
        lambda c: [Conv(c, 2), Upsample(2, "zeros"), R, AveragePool(3, 2)],
        shape=(2, 2, 2, 3),
    ),
    Case("flatten sequences", lambda c: [Conv(c, padding="zero"), Flatten(), R, Dense(c)], shape=SEQUENCE),
    Case("dropout of sequences", lambda c: [Conv(c), R, Dropout(0.3), GlobalAveragePool()], shape=SEQUENCE),
    Case("batch norm of sequences", lambda c: [Conv(c), BatchNorm(TINY), R], 0, shape=SEQUENCE),
    Case("average pool oblong", lambda c: [Conv(c), R, AveragePool((3, 2), (2, 1))]),
    Case("average pool padded", lambda c: [Conv(c), R, AveragePool(3, 2, "zero", 1), Conv(c, 1), GlobalAveragePool()]),
    Case("average pool padded, edges skipped", lambda c: [Conv(c), R, AveragePool(3, 2, "same", edges="skip"), R]),
    Case("average pool padded before relu", lambda c: [Conv(c), AveragePool((3, 5), 2, "same"), R]),
    Case("max pool oblong padded", lambda c: [Conv(c), R, MaxPool((3, 2), 2, "zero", (1, 0))]),
    Case("l2 pool padded", lambda c: [Conv(c), R, L2Pool(3, 2, "zero", 1)]),
    Case("layer norm over rows", lambda c: [Conv(c), R, LayerNorm((0, 2), 0.0), Conv(16)], 0, wide=True),
    Case("layer norm over columns", lambda c: [Conv(c), LayerNorm((0, 1), 0.0), GlobalAveragePool()], 0, wide=True),
    Case("layer norm of data over rows", lambda c: [LayerNorm((2, 0), 0.0), Conv(c), R], 0),
]
