"""`simulate_gradients`: how long the gradients are in finite random networks, layer by layer (OP eq. 2)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor, nn

from initscope.errors import BadInput, UndefinedSimilarity
from initscope.finite.averages import Average, Lengths
from initscope.finite.estimate import Estimate, part
from initscope.finite.losses import LossFunction, LossName, make_loss
from initscope.finite.per_sample import Loss, sample_gradients, weight_layers
from initscope.finite.planning import plan_draws
from initscope.finite.stopping import Stopping, collect, widest
from initscope.geometry import check_inputs, generator, ordinary
from initscope.layers import Conv, Dense, Layer
from initscope.networks import Sequential, as_network
from initscope.networks.composition import Composition
from initscope.networks.progress import Progress
from initscope.results import shown
from initscope.weights import Gaussian


@dataclass(frozen=True)
class GradientEstimate:
    """One weight layer of the sampled networks; estimates of shape (n,), one value per input x.

    weight: |∂ℓ/∂W_l| / (|δ||x|) (OP eq. 2); output: |∂ℓ/∂a_l| / |δ|, a_l being the layer's output and δ the gradient at the
    output of the last weight layer (OP eq. 5).
    """

    name: str
    weight: Estimate
    output: Estimate

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "weight": self.weight.to_dict(), "output": self.output.to_dict()}


@dataclass(frozen=True)
class GradientSimulation:
    """The weight layers in order; `reached`: whether all intervals of the weight ratio became as narrow as `until`."""

    layers: tuple[GradientEstimate, ...]
    seed: int
    draws: int
    loss: str
    average: Average = "moments"
    until: float | None = None
    level: float = 0.95
    reached: bool | None = None

    @property
    def widest(self) -> float:
        """Width of the widest interval of the weight ratio at `level`, over layers and inputs."""
        return max(widest(layer.weight, self.level) for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        settings = {"loss": self.loss, "average": self.average, "until": self.until, "level": self.level}
        layers = [layer.to_dict() for layer in self.layers]
        return {"layers": layers, "seed": self.seed, "draws": self.draws, **settings, "reached": self.reached}

    def __repr__(self) -> str:
        first, last = (float(self.layers[i].weight.value.nanmean()) for i in (0, -1))
        counts = f"{len(self.layers[0].weight.value)} inputs, {len(self.layers)} weight layers, {self.draws} networks"
        return f"GradientSimulation({counts}, {self.loss}, weight ratio {first:.3g} -> {last:.3g})"

    def __str__(self) -> str:
        """The table that `initscope simulate --gradients` prints."""
        return str(shown("similarity_views", "gradients_text", self))

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        return str(shown("similarity_views", "gradients_html", self))

    def summary(self) -> str:
        """How the gradients change from the first weight layer to the last, in two sentences."""
        return str(shown("similarity_views", "gradients_summary", self))


@torch.inference_mode(False)
def simulate_gradients(
    net: Layer,
    x: Tensor,
    *,
    loss: LossName | LossFunction = "cross-entropy",
    targets: Tensor | None = None,
    head: int | None = None,
    draws: int | None = None,
    seed: int = 0,
    until: float | None = None,
    level: float = 0.95,
    average: Average = "moments",
    memory: int | None = None,
    progress: Progress | None = None,
) -> GradientSimulation:
    """Each input's gradient norms at each weight layer of independent finite networks, over |δ| and |x| (OP eq. 2).

    x: (n, d) or (n, c, *positions). δ is the gradient at the output of the network's last weight layer. `head=k` puts a linear
    read-out to k outputs (Var w = 1/fan-in) between the network and the loss, as in OP section 4.1: it is not part of the
    network, so δ stays where it was.

    `loss`: "cross-entropy" (targets: classes), "mse" (targets shaped like the outputs), or a function of (outputs, targets)
    that gives n losses, or their sum or mean, and runs in several threads. Without targets the named losses draw some.

    `average="moments"`: √E r² of the ratios r over the networks, `"networks"`: their mean. `draws`, `seed`, `until`, `level`:
    as in `simulate`, `until` being the width of the intervals of the weight ratio.

    >>> from initscope.layers import ReLU
    >>> net = Sequential(Dense(100), ReLU(), Dense(100), ReLU())
    >>> found = simulate_gradients(net, torch.eye(100)[:3], head=10, draws=20)
    >>> [layer.name for layer in found.layers], found.layers[0].weight.value.shape
    (['1 dense(100)', '3 dense(100)'], torch.Size([3]))
    """
    check_inputs(x, None, zipped=False)
    stopping = Stopping.checked("simulate_gradients", draws, until, level)
    if average not in get_args(Average):
        raise BadInput("simulate_gradients", f"average is {average!r}", "use 'moments' or 'networks'")
    generator(seed)  # refuses what is no seed before the work begins
    inputs = ordinary(x.detach().to(torch.promote_types(x.dtype, torch.float32)))
    targets = ordinary(targets) if isinstance(targets, Tensor) else targets
    networks = _Networks.checked(net, head, inputs, seed)
    function, targets = make_loss(loss, targets, networks.full.output_shape(tuple(x.shape[1:])), inputs, seed)
    plan = plan_draws("simulate_gradients", networks.full, inputs, draws=stopping.draws, memory=memory, backward=True)
    lengths = Lengths(average)

    def work(draw: int, check: Callable[[], None]) -> Tensor:
        return networks.ratios(draw, function, targets, plan.tile, check)

    def weights() -> Estimate:
        return part(lengths.estimate(), (slice(None), 0))

    reached = collect(work, lengths.add, weights, stopping, plan.workers, progress)
    layers = _layers(networks.names, lengths.estimate())
    _warn_undefined(layers, inputs)
    label = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return GradientSimulation(layers, seed, lengths.draws, label, average, until, level, reached)


@dataclass(frozen=True)
class _Networks:
    """The random networks of one simulation."""

    net: Sequential
    full: Sequential  # with the head, if there is one
    names: tuple[str, ...]  # of the weight layers of `net`
    last: int  # which layer of `net` holds the last weights
    inputs: Tensor
    seed: int

    @classmethod
    def checked(cls, net: Layer, head: int | None, inputs: Tensor, seed: int) -> _Networks:
        net = as_network("simulate_gradients", net)
        full = net
        if head is not None:
            if isinstance(head, bool) or not isinstance(head, int) or head < 1:
                raise BadInput(
                    "head", f"got {head!r}, expected a whole number of at least 1", "pass for example head=10"
                )
            full = Sequential(*net.layers, Dense(head, weights=Gaussian(1.0)))
        shape = tuple(inputs.shape[1:])
        full.output_shape(shape)
        counts = [_count(layer) for layer in net.layers]
        if not any(counts):
            raise BadInput("simulate_gradients", "the network has no weights", "add a dense or conv layer")
        names = []
        for i, (layer, count) in enumerate(zip(net.layers, counts, strict=True), start=1):
            names += [f"{i} {layer.word}" + (f" [{k}]" if count > 1 else "") for k in range(1, count + 1)]
        last = max(i for i, count in enumerate(counts) if count)
        return cls(net, full, tuple(names), last, inputs, seed)

    def ratios(
        self, index: int, loss: LossFunction, targets: Tensor | None, tile: int, check: Callable[[], None]
    ) -> Tensor:
        """|∂ℓ/∂W_l| / (|δ||x|) and |∂ℓ/∂a_l| / |δ| of one network, (layers, 2, n)."""
        shape = tuple(self.inputs.shape[1:])
        source = generator(self.seed, index)
        module = self.full.sample(shape, generator=source, dtype=self.inputs.dtype).to(self.inputs.device)
        module.requires_grad_(self.full.needs_joint_batch)
        parts = [part for layer in list(module)[: len(self.net.layers)] for part in weight_layers(layer)]
        rows = []
        for i, x in enumerate(torch.split(self.inputs, tile)):
            check()
            wanted = None if targets is None else targets[i * tile : i * tile + len(x)]
            rows.append(self._ratios(module, parts, x, partial(_applied, loss, wanted)))
        return torch.cat(rows, -1).cpu()

    def _ratios(self, module: nn.Sequential, parts: list[nn.Module], x: Tensor, loss: Loss) -> Tensor:
        at, coupled = module[self.last], self.full.needs_joint_batch
        found = sample_gradients(module, parts, x, loss, at=at, coupled=coupled)
        length = torch.linalg.vector_norm(x.flatten(1), dim=1, dtype=torch.float64)
        return torch.stack([found.weight / (found.delta * length), found.output / found.delta], 1)


def _applied(loss: LossFunction, targets: Tensor | None, outputs: Tensor) -> Tensor:
    return loss(outputs, targets)


def _count(layer: Layer) -> int:
    """Weight layers inside a layer."""
    if isinstance(layer, Composition):
        return sum(_count(part) for part in layer.parts)
    return int(isinstance(layer, Dense | Conv))


def _layers(names: tuple[str, ...], found: Estimate) -> tuple[GradientEstimate, ...]:
    rows = []
    for i, name in enumerate(names):
        rows.append(GradientEstimate(name, weight=part(found, (i, 0)), output=part(found, (i, 1))))
    return tuple(rows)


def _warn_undefined(layers: tuple[GradientEstimate, ...], inputs: Tensor) -> None:
    undefined = torch.stack([layer.weight.value.isnan() for layer in layers]).any(0)
    zero = (inputs == 0).flatten(1).all(1).cpu()
    for mask, reason in ((undefined & zero, "are zero"), (undefined & ~zero, "have no gradient in some networks")):
        if bool(mask.any()):
            indices = ", ".join(str(int(i)) for i in mask.nonzero().flatten()[:10])
            more = f" and {int(mask.sum()) - 10} more" if int(mask.sum()) > 10 else ""
            warnings.warn(
                f"simulate_gradients: inputs {indices}{more} {reason}, the ratio is NaN there",
                UndefinedSimilarity,
                stacklevel=3,
            )
