"""What an entry of the zoo of trainable models is, and the batches that its entries share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from initscope.data import load

SAMPLES = 8
CLASSES = 10


@dataclass(frozen=True)
class Trainable:
    """A model that is known to train, and how to run it.

    build: makes the model with random weights. batch: what `check` takes. options: more arguments of `check`, such as target
    or loss. goal: what is learned where `check` gets no target. rate, steps: Adam's. needs: package it comes from.
    """

    build: Callable[[], nn.Module]
    batch: Callable[[], Any]
    options: dict[str, Any] = field(default_factory=dict)
    goal: Callable[[], Tensor] | None = None
    rate: float = 1e-3
    needs: str | None = None
    steps: int = 150


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal values."""
    return torch.randn(shape, generator=random(seed))


def images(size: int = 32, channels: int = 3, samples: int = SAMPLES) -> Tensor:
    """Photographs, standardized per channel."""
    return load("photos", count=samples, size=size, channels=channels, standardise=True).images


def labels(classes: int = CLASSES, samples: int = SAMPLES) -> Tensor:
    """A class for each sample; no class has more than its share."""
    return torch.arange(samples) % classes


def tokens(vocabulary: int, length: int = 16, samples: int = SAMPLES, seed: int = 0) -> Tensor:
    """Random tokens, the first four of the vocabulary (special ones in most models) left out."""
    return torch.randint(4, vocabulary, (samples, length), generator=random(seed))


def some_hidden(ids: Tensor, mask: int, share: float = 0.3) -> dict[str, Tensor]:
    """For masked language models: a share of the tokens is replaced by `mask` and has to be guessed."""
    hidden = torch.rand(ids.shape, generator=random(1)) < share
    return {"input_ids": ids.masked_fill(hidden, mask), "labels": ids.masked_fill(~hidden, -100)}
