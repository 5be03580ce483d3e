"""The trainings behind DC Figures 10 to 13."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from initscope.errors import BadInput
from initscope.images import Encoder, Recipe, TrainedDecoder, pretrained_encoder, train_decoder
from initscope.papers.item import Check, Desk, claim

SET = "imagenet224"
LAWS = ("dc_gaussian", "dc_uniform", "dc_logistic", "dc_laplace")  # DC A.1.2
NETWORKS = {"VGG16": "vgg16", "AlexNet": "alexnet2014"}
SAME = 2.0  # how we read "the same magnitude" and "similar": within that factor
SCALED = "features divided by their root mean square, so that laws are compared and not their scales"


@dataclass(frozen=True)
class Budget:
    """What a training may take, and on what."""

    images: Tensor
    held_out: Tensor
    steps: int
    seeds: tuple[int, ...]

    @property
    def words(self) -> str:
        count, side = len(self.images), self.images.shape[-1]
        return (
            f"{count} images of {side}x{side} to train on, {len(self.held_out)} others, {self.steps} steps of 4 images, "
            f"rate 0.001, seeds: {len(self.seeds)}; DC: ImageNet, 200,000 steps of 32, rate 0.0001"
        )

    @property
    def short(self) -> str:
        """Why a claim about a long training may fail here."""
        side = self.images.shape[-1]
        return f"after {self.steps} steps on images of {side}x{side}; DC trained for 200,000 on larger ones"

    def train(self, encoder: Encoder, seed: int, *, scaled: bool = False) -> TrainedDecoder:
        recipe = Recipe(
            steps=self.steps, batch=4, rate=1e-3, evaluate_every=self.steps, scale_features=scaled, seed=seed
        )
        return train_decoder(encoder, self.images, self.held_out, recipe)


def make_budget(desk: Desk, quick: int, normal: int, full: int, *, seeds: int = 2) -> Budget:
    """`quick`, `normal`, `full`: steps."""
    count, side, held_out = desk.pick((24, 16, 12), (96, 32, 48), (300, 64, 100))
    pixels = desk.images(SET, count=count + held_out, size=side, channels=3).images.float()
    steps: int = desk.pick(quick, normal, full)
    return Budget(pixels[:count], pixels[count:], steps, tuple(desk.seed + k for k in range(seeds)))


def last(runs: Sequence[TrainedDecoder]) -> list[float]:
    """Held-out losses at the end."""
    return [run.held_out[-1][1] for run in runs]


def mean(runs: Sequence[TrainedDecoder]) -> float:
    return statistics.fmean(last(runs))


def below(says: str, lower: Sequence[float], upper: Sequence[float], why: str) -> Check:
    """That the first losses are below the second, seed by seed; the number is the largest ratio."""
    worst = max(a / b for a, b in zip(lower, upper, strict=True))
    return claim(f"{says}: largest ratio", worst < 1, exact=worst, why="" if worst < 1 else why)


def pretrained_or_why(arch: str, depth: int) -> Encoder | str:
    """The encoder, or why there is none."""
    try:
        return pretrained_encoder(arch, depth)
    except BadInput as error:
        return f"{error.problem}; {error.remedy}"
