"""What can be said about each parameter of a model: is it trained, is it reached, is it zero, do its units repeat each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from initscope.probe.trace import Call
from initscope.probe.uses import weight_of

BEGINNING = 16  # entries of a row that are looked at first
ROUNDING = 1e-13  # of their projections in float64
SAME = 1e-5  # projections of rows that are this close, against the largest, are compared entry by entry


@dataclass(frozen=True)
class WeightFacts:
    """One parameter. `gradient` is the norm of the loss's gradient, None where the loss does not reach it.

    used: it, or the module that holds it, took part in the forward pass. elsewhere: another output of the model reaches it.
    duplicates: share of its output units that repeat another one; repeated_inputs: the same for its inputs, 0 where that
    is not known.
    """

    name: str
    shape: tuple[int, ...]
    weight: float
    gradient: float | None
    trainable: bool
    used: bool
    elsewhere: bool
    size: int
    duplicates: float = 0.0
    repeated_inputs: float = 0.0
    units: int = 0  # output units, 0 where that is not known
    recurrent_gain: float = 0.0  # n Var(w) of a matrix that is applied again at every time step

    @property
    def zero(self) -> bool:
        return self.weight == 0

    @property
    def constant(self) -> bool:
        """All of its output units are one: nothing passes backwards where their gradients cancel."""
        return self.units > 1 and self.duplicates >= 1 - 1.5 / self.units


def weight_facts(
    model: nn.Module, calls: Sequence[Call], entered: set[str], outputs: Sequence[Tensor]
) -> list[WeightFacts]:
    """All parameters of the model, before the backward pass; `entered` are the paths of the modules that ran."""
    used = {name for call in calls for name in (*call.sources, *call.parameters)}
    reached = _reached(outputs)
    repeats = {}
    for call in calls:
        use = weight_of(call) if call.kind in ("dense", "conv") else None
        if use is not None and use.groups == 1 and use.weight.numel() == use.parameter.numel():
            alike = repeated_rows(use.by_output()), repeated_rows(use.by_input())
            repeats[id(use.parameter)] = *alike, use.shape[0]
    found = []
    for name, p in model.named_parameters():
        outputs_twice, inputs_twice, units = repeats.get(id(p), (0.0, 0.0, 0))
        found.append(
            WeightFacts(
                name=name,
                shape=tuple(p.shape),
                weight=float(p.detach().norm()) if p.is_floating_point() else float(p.detach().abs().sum()),
                gradient=None,
                trainable=p.requires_grad,
                used=name in used or name.rpartition(".")[0] in entered,
                elsewhere=id(p) in reached,
                size=p.numel(),
                duplicates=outputs_twice,
                repeated_inputs=inputs_twice,
                units=units,
                recurrent_gain=p.shape[1] * float(p.detach().var())
                if ".weight_hh" in f".{name}" and p.ndim > 1
                else 0.0,
            )
        )
    return found


def repeated_rows(matrix: Tensor) -> float:
    """Share of the rows that equal another one which is counted already.

    Rows that two projections cannot tell apart lie next to each other in their order, and are then compared entry by entry.

    >>> repeated_rows(torch.ones(4, 3)), repeated_rows(torch.eye(4))
    (0.75, 0.0)
    """
    if len(matrix) < 2 or not matrix.is_floating_point() or not _beginnings_repeat(matrix):
        return 0.0
    matrix = matrix if matrix.dtype in (torch.float32, torch.float64) else matrix.float()
    projected = matrix @ _directions(matrix, 2)
    order = projected[:, 0].argsort()
    close = (projected[order][1:] - projected[order][:-1]).abs() <= SAME * projected.abs().amax()
    places = close.all(1).nonzero().flatten()
    if len(places) == 0:
        return 0.0
    equal = (matrix[order[places]] == matrix[order[places + 1]]).all(1)
    return float(equal.sum()) / len(matrix)


def _beginnings_repeat(matrix: Tensor) -> bool:
    """Whether the first few entries of any two rows may be the same: if not, no row has to be read to its end."""
    few = matrix[:, :BEGINNING].double()
    projected = (few @ _directions(few, 1))[:, 0].sort().values
    apart = projected[1:] - projected[:-1] > ROUNDING * projected.abs().amax()
    return not bool(apart.all())


def _directions(matrix: Tensor, count: int) -> Tensor:
    return _random(matrix.shape[1], count).to(matrix)


@lru_cache(maxsize=16)
def _random(size: int, count: int) -> Tensor:
    return torch.rand(size, count, generator=torch.Generator().manual_seed(0)) + 0.5


def _reached(outputs: Iterable[Tensor]) -> set[int]:
    """Identities of the leaves that gradients of the outputs would arrive at."""
    return {id(leaf) for leaf in _leaves(outputs)}


def _leaves(outputs: Iterable[Tensor]) -> Iterator[Tensor]:
    found = (getattr(node, "variable", None) for node in graph_nodes(outputs))
    return (variable for variable in found if variable is not None)


@dataclass(frozen=True)
class Stranger:
    """A weight that learns and takes part in the pass, but is no parameter of the model; `step` uses it first."""

    shape: tuple[int, ...]
    size: int
    step: int | None


def unregistered(model: nn.Module, met: Mapping[int, tuple[Tensor, int]], outputs: Sequence[Tensor]) -> list[Stranger]:
    """Leaves of autograd's graph behind the outputs that no optimizer gets from `model.parameters()`.

    `met`: those that were seen in a call, and at which step; a leaf that none was seen with counts if it is a parameter.
    """
    known = {id(p) for p in model.parameters()}
    found = []
    for leaf in _leaves(outputs):
        if id(leaf) not in known and (id(leaf) in met or isinstance(leaf, nn.Parameter)):
            step = met[id(leaf)][1] if id(leaf) in met else None
            found.append(Stranger(tuple(leaf.shape), leaf.numel(), step))
    return sorted(found, key=lambda s: math.inf if s.step is None else s.step)


def graph_nodes(outputs: Iterable[Tensor]) -> Iterator[Any]:
    """All functions of autograd's graph behind some tensors."""
    waiting: list[Any] = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
