"""What a row of the table of planted mistakes is, and short ways to write one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

Build = Callable[[], nn.Module]
Change = Callable[[nn.Module], None]

# Names of remedies of `fix`; one that is made of two counts if either part is among them.
REDRAW = frozenset(
    ("he-fan-in", "he-fan-out", "he-geometric", "orthogonal", "delta-orthogonal", "zero-sum", "data-scaling")
)
RESIDUAL = frozenset(("residual-scaling",))
SIREN = frozenset(("siren",))
STATISTICS = frozenset(("reset-statistics",))
NORM = frozenset(("reset-norms",))
EMBEDDING = frozenset(("scale-embedding",))
HEAD = frozenset(("scale-head",))

FAIL, WARN, HEALTHY = frozenset(("fail",)), frozenset(("warn",)), frozenset(("healthy",))
BAD, MILD = FAIL | WARN, WARN | HEALTHY


Pair = tuple[Any, Tensor | None]


@dataclass(frozen=True, eq=False)
class Planted:
    """One model on one batch, and what `check` is expected to say about it.

    options: for `check`; verdicts: those allowed; kind: of the finding that must be there; steps: acceptable places of that
    finding, where the mistake is and not where it shows, None where it is about the whole network or the batch; remedy:
    names of acceptable remedies of `fix`, None where no change of the weights can help; advice: what to do then; fresh:
    other batches of the same task with their targets, by seed; twin: the same task without the mistake.
    """

    build: Build
    batch: Callable[[], Any]
    options: Mapping[str, Any]
    verdicts: frozenset[str] = HEALTHY
    kind: str | None = None
    steps: frozenset[str] | None = None
    remedy: frozenset[str] | None = None
    advice: str = ""
    fresh: Callable[[int], Pair] | None = field(default=None, kw_only=True)
    twin: Planted | None = field(default=None, kw_only=True)


def seeded(make: Build, *changes: Change, seed: int = 0) -> Build:
    """Builds with weights drawn from `seed`, then makes the changes; the global random state stays as it is."""

    def build() -> nn.Module:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            model = make()
            for change in changes:
                change(model)
        return model

    return build


@dataclass(frozen=True, eq=False)
class Setting:
    """A model that trains, and a task that it can learn: inputs and targets, by seed."""

    make: Build
    task: Callable[[int], Pair]

    def row(self, verdicts: frozenset[str] = HEALTHY, **options: Any) -> Planted:
        """As it is."""
        options = {"target": self.task(1)[1], **options}
        return Planted(seeded(self.make), lambda: self.task(1)[0], options, verdicts, fresh=self.task)

    def healthy(
        self, *changes: Change, make: Build | None = None, verdicts: frozenset[str] = HEALTHY, **options: Any
    ) -> Planted:
        """Changed, but no mistake."""
        twin = self.row(**{name: value for name, value in options.items() if name == "train"})
        return replace(self.row(verdicts, **options), build=seeded(make or self.make, *changes), twin=twin)

    def mistake(
        self,
        kind: str,
        *changes: Change,
        steps: tuple[str, ...] | None = None,
        make: Build | None = None,
        verdicts: frozenset[str] = FAIL,
        remedy: frozenset[str] | None = None,
        advice: str = "",
        **options: Any,
    ) -> Planted:
        """The changed model, or another one, beside the one that trains."""
        row = self.healthy(*changes, make=make, verdicts=verdicts, **options)
        places = None if steps is None else frozenset(steps)
        return replace(row, kind=kind, steps=places, remedy=remedy, advice=advice)

    def bad_data(
        self, kind: str, spoil: Callable[[Tensor], Tensor], *, verdicts: frozenset[str], advice: str, **options: Any
    ) -> Planted:
        """The model that trains, on spoiled inputs."""

        def task(seed: int) -> Pair:
            x, y = self.task(seed)
            return spoil(x), y

        row = Setting(self.make, task).row(verdicts, **options)
        return replace(row, kind=kind, advice=advice, twin=self.row())


def scale(path: str, factor: float) -> Change:
    """Multiplies the weight of one module."""
    return lambda model: _module(model, path).weight.mul_(factor)


def bias(path: str, value: float) -> Change:
    """Every entry of the bias of one module."""
    return lambda model: _module(model, path).bias.fill_(value)


def weight(path: str, value: float) -> Change:
    """Every entry of the weight of one module."""
    return lambda model: _module(model, path).weight.fill_(value)


def zero(path: str) -> Change:
    """All parameters of one module."""

    def change(model: nn.Module) -> None:
        for parameter in model.get_submodule(path).parameters():
            parameter.zero_()

    return change


def every(kinds: type | tuple[type, ...], change: Callable[[Any], object]) -> Change:
    """The same change to all modules of a type."""

    def changes(model: nn.Module) -> None:
        for module in model.modules():
            if isinstance(module, kinds):
                change(module)

    return changes


def _module(model: nn.Module, path: str) -> Any:
    return model.get_submodule(path)
