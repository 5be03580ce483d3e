"""The data, and the training that decides whether a network trains."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from initscope.errors import BadInput
from networks import SIDE, Design, build

STEPS, BATCH, LAST = 300, 32, 50  # the accuracy is the mean over the last 50 of 300 batches of 32
TRAINS = 0.5  # a network of this accuracy over 10 classes trains; chance is 0.1
MAIN, SECOND = "adam", "sgd"  # which is the main one was fixed before any network was trained
PROBE = 64  # images that every score and baseline sees


@dataclass(frozen=True)
class Images:
    x: Tensor  # (n, 1, 14, 14)
    y: Tensor  # (n,)

    def probe(self) -> Images:
        return Images(self.x[:PROBE], self.y[:PROBE])


@lru_cache
def load(kind: str) -> Images:
    """Fashion-MNIST at half its size, in a fixed random order; "centred" or "raw"."""
    folder = os.environ.get("INITSCOPE_DATA")
    if folder is None:
        problem = "INITSCOPE_DATA is not set"
        raise BadInput("trainability", problem, "set it to a folder that holds fashion_mnist.npz (x_train, y_train)")
    with np.load(Path(folder) / "fashion_mnist.npz") as file:
        x, y = file["x_train"], file["y_train"]
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    images = F.avg_pool2d(torch.from_numpy(x)[order, None].float() / 255, x.shape[1] // SIDE)
    if kind == "centred":
        images = (images - images.mean()) / images.std()
    return Images(images, torch.from_numpy(y).long()[order])


def train(d: Design, optimizer: str) -> dict[str, float | None]:
    """Accuracy over the last batches, first and last loss; a loss that is no number ends the training at chance."""
    started = time.perf_counter()
    images, net = load(d.data), build(d)
    if optimizer == MAIN:
        rule: torch.optim.Optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    else:
        rule = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    order = torch.Generator().manual_seed(1)
    right: list[float] = []
    losses: list[float] = []
    for _ in range(STEPS):
        chosen = torch.randint(len(images.x), (BATCH,), generator=order)
        output, target = net(images.x[chosen]), images.y[chosen]
        loss = F.cross_entropy(output, target)
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            right = [1 / 10]
            break
        right.append(float((output.detach().argmax(1) == target).double().mean()))
        rule.zero_grad()
        loss.backward()
        rule.step()
    return {
        "accuracy": sum(right[-LAST:]) / len(right[-LAST:]),
        "first_loss": losses[0] if math.isfinite(losses[0]) else None,
        "last_loss": losses[-1] if math.isfinite(losses[-1]) else None,
        "seconds": time.perf_counter() - started,
    }
