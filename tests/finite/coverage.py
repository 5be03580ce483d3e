"""How often the intervals of `simulate` hold what `predict` says: one fresh simulation for each case."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from initscope.finite import simulate
from initscope.networks import Prediction, Sequential, parse, predict
from initscope.networks.planning import simulates
from laws.table import LAYERS, Case

QUANTITIES = ("norm_x", "norm_y", "distance", "cosine", "angle")
DEEP = "10x(dense(1000) relu)"


@cache
def exact_cases() -> list[tuple[Case, Sequential, Prediction]]:
    """The rows of the table of laws that have an exact prediction; a simulated one has an error of its own.

    Rows whose finite face has the exact law only with many channels get 1024 of them, the others 32.
    """
    found = []
    for case in LAYERS:
        net = case.net(1024 if case.wide else 32)
        x, y = case.inputs()
        if not simulates(net, x):
            found.append((case, net, predict(net, x, y)))
    return found


def table_hits(draws: int, seeds: range, **options: object) -> Iterator[bool]:
    """Every layer kind, every seed: whether the interval of one layer, pair and quantity, in turn, holds the prediction."""
    for number, (case, net, exact) in enumerate(exact_cases()):
        x, y = case.inputs()
        for seed in seeds:
            # A seed of its own for each case: no two share a network.
            found = simulate(net, x, y, draws=draws, seed=1000 * number + seed, **options)  # type: ignore[arg-type]
            random = [i for i, layer in enumerate(found.layers) if bool((layer.norm_x.stderr > 0).all())]
            i, pair = random[seed % len(random)], seed % 3
            quantity = QUANTITIES[(seed + number) % len(QUANTITIES)]
            low, high = getattr(found.layers[i], quantity).interval()
            truth = getattr(exact.layers[i], quantity)
            yield bool((low[pair] <= truth[pair]) & (truth[pair] <= high[pair]))


def deep_hits(draws: int, seeds: range, **options: object) -> Iterator[tuple[int, bool]]:
    """Ten dense ReLU layers of width 1000: (layer, whether it holds), for one layer and quantity of each seed, in turn."""
    net = parse(DEEP)
    x, y = deep_inputs()
    exact = predict(net, x, y)
    for seed in seeds:
        found = simulate(net, x, y, draws=draws, seed=seed, **options)  # type: ignore[arg-type]
        i = 1 + seed % 20
        quantity = QUANTITIES[seed // 20 % len(QUANTITIES)]
        low, high = getattr(found.layers[i], quantity).interval()
        yield i, bool(low <= getattr(exact.layers[i], quantity) <= high)


def deep_inputs() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(3)
    x = torch.randn(1, 100, generator=g)
    return x, 0.5 * x + torch.randn(1, 100, generator=g)
