"""Random ReLU networks as OP draws them, and the norms that it measures in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope.finite import sample_gradients
from initscope.layers import Dense, ReLU
from initscope.networks import Sequential
from initscope.papers.item import Sampled
from initscope.weights import Gaussian, Glorot, He, WeightLaw

INPUTS = 500  # OP §4.1: samples in R^500
CLASSES = 20
LAWS: dict[str, WeightLaw] = {"He": He("out"), "Glorot": Glorot()}


@dataclass(frozen=True)
class Ratios:
    """Of one network: |h_l|/|x| and |∂W_l|/(|δ||x|), l = 1..L, for every sample; both (L, n)."""

    activation: Tensor
    gradient: Tensor


def inputs(count: int, seed: int, dimension: int = INPUTS) -> Tensor:
    """(count, dimension) standard normal samples."""
    return torch.randn(count, dimension, generator=torch.Generator().manual_seed(seed))


def deep_net(widths: Sequence[int], law: WeightLaw, *, classes: int | None = CLASSES) -> Sequential:
    """ReLU layers of these widths, then a linear read-out of `classes` outputs; None: the last layer stays linear."""
    parts = [part for width in widths for part in (Dense(width, weights=law), ReLU())]
    if classes is None:
        return Sequential(*parts[:-1])
    return Sequential(*parts, Dense(classes, weights=Gaussian(1.0)))


def measure(net: Sequential, x: Tensor, loss: Callable[[Tensor], Tensor], seed: int, *, read_out: bool) -> Ratios:
    """Draw one network and push the samples through it, forwards and backwards.

    By OP eq. 19 |∂W_l| = |∂a_l||h_{l-1}|, so that the norms of the activations come with those of the gradients. Without a
    read-out the last layer has no activation norm of its own, and that row is missing.
    """
    module = net.sample(tuple(x.shape[1:]), generator=torch.Generator().manual_seed(seed))
    module.requires_grad_(False)
    parts = [part for part in module.modules() if isinstance(part, nn.Linear)]
    at = parts[-2] if read_out else parts[-1]
    found = sample_gradients(module, parts, x, loss, at=at)
    size = torch.linalg.vector_norm(x.double(), dim=1)
    hidden = found.weight / found.output / size  # |h_{l-1}|/|x|, beginning with the input itself
    weight = found.weight / (found.delta * size)
    return Ratios(hidden[1:], weight[:-1] if read_out else weight)


def cross_entropy(count: int, seed: int, classes: int = CLASSES) -> Callable[[Tensor], Tensor]:
    """Cross-entropy on labels drawn at random."""
    labels = torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))
    return lambda outputs: F.cross_entropy(outputs, labels, reduction="none")


def given_error(count: int, width: int, seed: int) -> Callable[[Tensor], Tensor]:
    """A loss whose gradient at the outputs is drawn before the weights: ∂ℓ/∂a_L = δ, standard normal."""
    delta = torch.randn(count, width, generator=torch.Generator().manual_seed(seed))
    return lambda outputs: (outputs * delta).sum(1)


def over_networks(values: Sequence[float]) -> Sampled:
    """Mean over independent networks; its error comes from their spread, since samples share a network."""
    spread = torch.tensor(values, dtype=torch.float64)
    return Sampled(float(spread.mean()), float(spread.std()) / math.sqrt(len(values)), len(values))
