"""Mistakes in the batch, its scale, the statistics of norms, and dropout."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from probe.planting import bases
from probe.planting.bases import dense
from probe.planting.row import BAD, MILD, REDRAW, STATISTICS, WARN, Planted, Setting
from probe.planting.settings import CONV, SHALLOW


class Features(nn.Module):
    """A network whose body is called f."""

    def __init__(self) -> None:
        super().__init__()
        layers = bases.conv(3, norm=True)
        self.f, self.head = layers[:9], layers[9:]

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.f(x))
        return out


class Evaluated(Features):
    """With the statistics of the batch, from some passes in training mode."""

    def __init__(self) -> None:
        super().__init__()
        for _ in range(60):
            self(bases.images()[0])


STATISTIC = Setting(Evaluated, bases.images)


def wrong_statistics(model: nn.Module) -> None:
    norm = model.get_submodule("f.4")
    norm.running_mean.fill_(1000.0)
    norm.running_var.fill_(1e-4)


def _tiny_variance(model: nn.Module) -> None:
    model.get_submodule("f.4").running_var.fill_(1e-8)


def pixels(x: Tensor) -> Tensor:
    """Whole numbers from 0 to 255."""
    return ((x + 5) * 25.5).round().clamp(0, 255)


def income(x: Tensor) -> Tensor:
    """One feature in other units."""
    return torch.cat([x[:, :1] * 2e4 + 5e4, x[:, 1:]], 1)


def same(x: Tensor) -> Tensor:
    return x[:1].expand_as(x).clone()


def duplicates(x: Tensor) -> Tensor:
    """One sample with noise of 1e-4."""
    return same(x) + 1e-4 * x


def dropped(rate: float, at: int = 4) -> nn.Sequential:
    layers = list(dense(4))
    return nn.Sequential(*layers[:at], nn.Dropout(rate), *layers[at:])


def regression(seed: int) -> tuple[Tensor, Tensor]:
    """A linear function of the features."""
    x = bases.vectors(seed)[0]
    return x, x @ torch.randn(bases.INPUTS, 1, generator=bases.generator(903)) / bases.INPUTS**0.5


def far(seed: int) -> tuple[Tensor, Tensor]:
    x, y = regression(seed)
    return x, y + 1000


def prices(seed: int) -> tuple[Tensor, Tensor]:
    x, y = regression(seed)
    return x, 5e5 + 2e5 * y


def flat(seed: int) -> tuple[Tensor, Tensor]:
    x, y = regression(seed)
    return x, y[:, 0]


def squared(output: Tensor, target: Tensor) -> Tensor:
    """As people write it; it does not look at shapes."""
    return ((output - target) ** 2).mean()


REGRESSION = Setting(partial(dense, 4, outputs=1), regression)

ROWS: dict[str, Planted] = {
    "raw pixels from 0 to 255": replace(
        CONV.bad_data("input-scale", pixels, verdicts=WARN, advice="divide by 255 and subtract the mean"),
        remedy=REDRAW,
    ),
    "one feature in the ten thousands": SHALLOW.bad_data(
        "input-scale", income, verdicts=BAD, advice="standardize every feature"
    ),
    "identical rows": SHALLOW.bad_data("batch-degenerate", same, verdicts=BAD, advice="check how the batch is loaded"),
    "batch of zeros": SHALLOW.bad_data(
        "batch-degenerate", torch.zeros_like, verdicts=BAD, advice="check how the batch is loaded"
    ),
    "near-duplicates": SHALLOW.bad_data(
        "batch-degenerate", duplicates, verdicts=BAD, advice="check with samples that differ"
    ),
    "targets around 1000": replace(
        Setting(REGRESSION.make, far).mistake("target-scale", verdicts=BAD, advice="standardize the targets"),
        twin=REGRESSION.row(),
    ),
    "prices as targets": replace(
        Setting(REGRESSION.make, prices).mistake("target-scale", advice="standardize the targets"),
        twin=REGRESSION.row(),
    ),
    "ReLU behind outputs that should be negative too": REGRESSION.mistake(
        "output-range",
        make=lambda: nn.Sequential(*dense(4, outputs=1), nn.ReLU()),
        steps=("9",),
        advice="leave out the ReLU",
    ),
    "sigmoid behind outputs with standardized targets": REGRESSION.mistake(
        "output-range",
        make=lambda: nn.Sequential(*dense(4, outputs=1), nn.Sigmoid()),
        steps=("9",),
        advice="leave out the sigmoid",
    ),
    "targets (n,) for outputs (n, 1)": replace(
        Setting(REGRESSION.make, flat).mistake(
            "target-shape", loss=squared, advice="give both the same shape: output.squeeze(-1)"
        ),
        twin=REGRESSION.row(),
    ),
    "running statistics that do not fit": STATISTIC.mistake(
        "norm-statistics",
        wrong_statistics,
        steps=("f.4",),
        verdicts=BAD,
        remedy=STATISTICS,
        train=False,
    ),
    "running variance of almost zero": STATISTIC.mistake(
        "norm-statistics",
        _tiny_variance,
        steps=("f.4",),
        verdicts=BAD,
        remedy=STATISTICS,
        train=False,
    ),
    "dropout 0.98": SHALLOW.mistake(
        "dropout-rate", make=partial(dropped, 0.98), steps=("4",), verdicts=BAD, advice="0.1 to 0.5 is usual"
    ),
    "dropout 1.0": SHALLOW.mistake(
        "dropout-rate",
        make=partial(dropped, 1.0),
        steps=("4",),
        advice="dropout takes the share that is dropped, not kept",
    ),
    "batch norm on one feature in the ten thousands": replace(
        Setting(lambda: nn.Sequential(nn.BatchNorm1d(bases.INPUTS), *dense(4)), bases.vectors).bad_data(
            "input-scale", income, verdicts=MILD, advice="nothing: the first layer standardizes every feature"
        ),
        kind=None,
    ),
}
