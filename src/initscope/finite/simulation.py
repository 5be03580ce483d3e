"""`simulate`: finite random networks, drawn again and again, and what they do to pairs of inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, get_args

import torch
from torch import Generator, Tensor

from initscope.errors import BadInput, UndefinedSimilarity
from initscope.finite.averages import Average, averaging, squares
from initscope.finite.estimate import Estimate, part
from initscope.finite.planning import plan_draws
from initscope.finite.stopping import Stopping, collect, widest
from initscope.geometry import check_inputs, generator
from initscope.layers import Layer
from initscope.networks import Sequential, as_network
from initscope.networks.prediction import QUANTITIES, warn_zero_layers
from initscope.networks.progress import Progress
from initscope.results import shown


@dataclass(frozen=True)
class LayerEstimate:
    """Pairs of inputs after one layer of the sampled networks: the quantities of `LayerGeometry`, each an `Estimate`."""

    name: str
    shape: tuple[int, ...]
    norm_x: Estimate
    norm_y: Estimate
    distance: Estimate
    defect: Estimate
    cosine: Estimate
    angle: Estimate

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), **{q: getattr(self, q).to_dict() for q in QUANTITIES}}


@dataclass(frozen=True)
class Simulation:
    """The estimates at the input and after each layer, in order, and how many networks they come from.

    `reached`: whether all intervals of the cosine became as narrow as `until`; None if no width was asked for.
    """

    layers: tuple[LayerEstimate, ...]
    seed: int
    draws: int
    average: Average = "moments"
    until: float | None = None
    level: float = 0.95
    reached: bool | None = None

    @property
    def widest(self) -> float:
        """Width of the widest interval of the cosine at `level`, over layers and pairs."""
        return max(widest(layer.cosine, self.level) for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        stop = {"until": self.until, "level": self.level, "reached": self.reached}
        layers = [layer.to_dict() for layer in self.layers]
        return {"layers": layers, "seed": self.seed, "draws": self.draws, "average": self.average, **stop}

    def __repr__(self) -> str:
        first, last = (float(self.layers[i].cosine.value.nanmean()) for i in (0, -1))
        counts = f"{len(self.layers[0].cosine.value)} pairs, {len(self.layers) - 1} layers, {self.draws} networks"
        return f"Simulation({counts}, cosine {first:.4f} -> {last:.4f})"

    def __str__(self) -> str:
        """The table that `initscope simulate` prints."""
        return str(shown("similarity_views", "simulation_text", self))

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        return str(shown("similarity_views", "simulation_html", self))

    def summary(self) -> str:
        """What happens to the pairs, in two or three sentences."""
        return str(shown("similarity_views", "simulation_summary", self))


def simulate(
    net: Layer,
    x: Tensor,
    y: Tensor,
    *,
    draws: int | None = None,
    seed: int = 0,
    until: float | None = None,
    level: float = 0.95,
    average: Average = "moments",
    materialise: bool = False,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Simulation:
    """Norms, distances and angles of zipped pairs after each layer of `draws` independent finite networks (default 100).

    x, y: (n, d) or (n, c, *positions). `average="moments"`: estimates of what `predict` computes, √E|h|² and the ratio of
    expectations (JL eq. 1); `"networks"`: means of each network's own norm, cosine and angle.

    `until`: stop as soon as no interval of the cosine at `level`, from end to end, is wider; `draws` is then the most that may be
    drawn (default 10,000). Draw i depends on (seed, i) alone, on any number of threads and in any memory.

    Dense layers with Gaussian weights draw their outputs, which have the same law, instead of the weights;
    `materialise=True` draws the weights, so that draw i is `net.sample(shape, generator=generator(seed, i))`.

    >>> from initscope.layers import Dense, ReLU
    >>> x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> low, high = simulate(Sequential(Dense(400), ReLU()), x, y, draws=200).layers[-1].cosine.interval()
    >>> bool(low < 1 / torch.pi < high)
    True
    """
    check_inputs(x, y, zipped=True)
    stopping = Stopping.checked("simulate", draws, until, level)
    if average not in get_args(Average):
        raise BadInput("simulate", f"average is {average!r}", "use 'moments' or 'networks'")
    net = as_network("simulate", net)
    shape = tuple(x.shape[1:])
    net.output_shape(shape)
    generator(seed)  # refuses what is no seed before the work begins
    dtype = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
    both = torch.cat([x.detach().to(dtype), y.detach().to(dtype)])
    plan = plan_draws("simulate", net, both, draws=stopping.draws, memory=memory, group=2)
    networks = _Networks(net, both, seed, plan.tile, materialise)
    averages = averaging(average)
    reached = collect(
        networks.draw, averages.add, lambda: averages.estimates()["cosine"], stopping, plan.workers, progress
    )
    layers = _layers(net, shape, averages.estimates())
    _warn_undefined(layers)
    return Simulation(layers, seed, averages.draws, average, until, level, reached)


@dataclass(frozen=True)
class _Networks:
    """The random networks of one simulation, and what each does to the pairs (first half, second half) of a batch."""

    net: Sequential
    both: Tensor
    seed: int
    tile: int  # pairs that travel together
    materialise: bool

    @torch.no_grad()
    def draw(self, index: int, check: Callable[[], None]) -> Tensor:
        """`squares` at the input and after each layer, (layers + 1, 3, n)."""
        source = generator(self.seed, index)
        x, y = self.both.chunk(2)
        if self.tile >= len(x):
            steps = _layer_steps(self.net, source, self.materialise)
            return _squares_along(self.both, steps, check)
        # One network for all tiles: its weights are drawn first.
        module = self.net.sample(tuple(x.shape[1:]), generator=source, dtype=x.dtype).to(x.device)
        tiles = zip(torch.split(x, self.tile), torch.split(y, self.tile), strict=True)
        return torch.cat([_squares_along(torch.cat(tile), iter(module), check) for tile in tiles], -1)


def _layer_steps(net: Sequential, source: Generator, materialise: bool) -> Iterator[Callable[[Tensor], Tensor]]:
    """One random layer after the other: what it needs is drawn when its turn comes, and dropped after it."""
    for layer in net.layers:
        # The method of the base class samples a module, whatever the layer knows about its outputs.
        yield partial(Layer.draw, layer, generator=source) if materialise else partial(layer.draw, generator=source)


def _walk(h: Tensor, steps: Iterable[Callable[[Tensor], Tensor]]) -> Iterator[Tensor]:
    yield h
    for step in steps:
        h = step(h)
        yield h


def _squares_along(h: Tensor, steps: Iterable[Callable[[Tensor], Tensor]], check: Callable[[], None]) -> Tensor:
    rows = []
    for values in _walk(h, steps):
        check()
        rows.append(squares(values))
    return torch.stack(rows).cpu()


@torch.no_grad()
def activations(net: Sequential, inputs: Tensor, seed: int, draw: int = 0) -> Iterator[Tensor]:
    """The inputs and what each layer of one sampled network makes of them."""
    yield from _walk(inputs, _layer_steps(net, generator(seed, draw), materialise=True))


def _layers(net: Sequential, shape: tuple[int, ...], found: dict[str, Estimate]) -> tuple[LayerEstimate, ...]:
    names = ["input", *(f"{i} {layer.word}" for i, layer in enumerate(net.layers, start=1))]
    shapes = list(accumulate(net.layers, lambda s, layer: layer.output_shape(s), initial=shape))
    rows = []
    for i, (name, size) in enumerate(zip(names, shapes, strict=True)):
        values = {q: part(e, i) for q, e in found.items()}
        rows.append(LayerEstimate(name=name, shape=size, **values))
    return tuple(rows)


def _warn_undefined(layers: tuple[LayerEstimate, ...]) -> None:
    warn_zero_layers("simulate", [(layer.name, layer.norm_x.value, layer.norm_y.value) for layer in layers])
    for layer in layers:
        alive = (layer.norm_x.value > 0) & (layer.norm_y.value > 0)
        if bool((alive & layer.cosine.value.isnan()).any()):
            warnings.warn(
                f"simulate, {layer.name}: some of the networks make an input zero, so that the mean of their angles does not "
                "exist, the answer is NaN; use average='moments' or wider layers",
                UndefinedSimilarity,
                stacklevel=3,
            )
            return
