"""What `check` and `fix` share: the model, the batch and the loss, from the command line's words."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from initscope.cli.batches import BATCH_HELP, shape_of, users_batch
from initscope.cli.common import Settings, pick_device
from initscope.cli.losses import LOSS_HELP, LOSSES, find_loss
from initscope.cli.models import find_model
from initscope.cli.options import DATA_HELP
from initscope.errors import BadInput

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from initscope.probe.losses import LossFunction

Announce = Callable[["nn.Module", Any, int], None]
_MOST_NUMBERS = 2**31  # of a batch that is made up here: 8 GiB


@dataclass(frozen=True)
class Subject:
    """What is looked at: a module or what builds it, the batch, the loss, and where the batch came from."""

    model: nn.Module | Callable[[], nn.Module]
    batch: Any
    loss: LossFunction | None
    description: str


@dataclass(frozen=True)
class Job:
    """The options as they were given."""

    model: str
    data: str | None
    batch: str | None
    samples: int | None
    size: int | None
    channels: int | None
    centre: bool
    shape: str | None
    ints: str | None
    seeds: int
    loss: str | None
    evaluate: bool

    def load(self, settings: Settings, announce: Announce, *, trains: bool = False) -> Subject:
        """Everything that the library needs; call it inside `users_code`.

        announce: is told the model, some samples of the batch and their full number, before a large batch is loaded.
        trains: something has to be learned.
        """
        import torch

        device = pick_device(settings.device, torch.float32)
        if self.batch is not None:
            return self._load_users(settings, self.batch, device, announce, trains)
        count = _SAMPLES if self.samples is None else self.samples
        part, words = self._few(settings.seed, count)
        model, first = _built(_on(find_model(self.model, tuple(part.shape[1:])), device), settings.seed)
        dtype = next((p.dtype for p in first.parameters() if p.is_floating_point()), None)

        def fitted(batch: Tensor) -> Tensor:
            return batch.to(device, dtype) if batch.is_floating_point() and dtype is not None else batch.to(device)

        announce(first, fitted(part), count)
        batch = part if len(part) == count else self._batch(settings.seed, count)[0]
        return Subject(model, fitted(batch), self._loss(settings, trains), words)

    def _load_users(
        self, settings: Settings, name: str, device: torch.device, announce: Announce, trains: bool
    ) -> Subject:
        """The batch is what the user's function returns, with targets if it has any."""
        from initscope.probe.batches import as_batch

        options = {**self._about_data, "--data": self.data, "--samples": self.samples, "--centre": self.centre or None}
        clash = [option for option, value in options.items() if value is not None]
        if clash:
            problem = f"does not go with {', '.join(clash)}: the function returns the whole batch"
            raise BadInput("--batch", problem, "leave one of them out")
        batch = users_batch(name, device)
        model, first = _built(_on(find_model(self.model, shape_of(batch)), device), settings.seed)
        given = as_batch(batch, first)
        announce(first, batch, given.samples)
        words = f"{name}, {given.samples} samples of {'x'.join(map(str, given.data.shape[1:])) or 'one number'}"
        return Subject(model, batch, self._loss(settings, trains and given.target is None), words)

    def _loss(self, settings: Settings, learned: bool) -> LossFunction | None:
        """None: the library's own choice, by the targets; `learned`: there are none, and something has to be learned."""
        name = self.loss or ("cross-entropy" if learned else None)
        return None if name is None else find_loss(name, settings.seed)

    @property
    def _about_data(self) -> dict[str, Any]:
        return {"--size": self.size, "--channels": self.channels, "--shape": self.shape, "--ints": self.ints}

    def shell(self, settings: Settings) -> str:
        """The model, the data and the draws as the command line names them, for commands that can be pasted."""
        words = [self.model]
        pairs = {"--data": self.data, "--batch": self.batch, **self._about_data, "--loss": self.loss}
        for name, value in {**pairs, "--samples": self.samples}.items():
            words += [] if value is None else [name, str(value)]
        words += [] if self.seeds == _SEEDS else ["--seeds", str(self.seeds)]
        words += [] if settings.seed == 0 else ["--seed", str(settings.seed)]
        words += [] if settings.device == "auto" else ["--device", settings.device]
        words += (["--centre"] if self.centre else []) + (["--eval"] if self.evaluate else [])
        return shlex.join(words)

    def _few(self, seed: int, count: int) -> tuple[Tensor, str]:
        """The samples if they are loaded quickly, else some of them; errors are about the number asked for."""
        try:
            return self._batch(seed, min(count, _QUICK))
        except BadInput:
            return self._batch(seed, count)

    def _batch(self, seed: int, count: int) -> tuple[Tensor, str]:
        import torch

        made_up = [name for name, value in (("--shape", self.shape), ("--ints", self.ints)) if value is not None]
        named = self.data is not None and self.data != "gaussian"
        if len(made_up) > 1 or (made_up and named):
            problem = f"{made_up[0]} and {'--data' if named else made_up[-1]} both say what the data are"
            raise BadInput("--data", problem, "give one of --data, --shape, --ints")
        if made_up and (self.size is not None or self.channels is not None or self.centre):
            raise BadInput(made_up[0], "goes without --size, --channels and --centre", "leave them out")
        generator = torch.Generator().manual_seed(seed)
        if self.shape is not None:
            shape = (count, *_sides(self.shape))
            _check_size(shape)
            return torch.randn(shape, generator=generator), f"gaussian {self.shape}"
        if self.ints is not None:
            vocabulary, length = _vocabulary(self.ints)
            _check_size((count, length))
            indices = torch.randint(vocabulary, (count, length), generator=generator)
            return indices, f"{length} random integers below {vocabulary}"
        from initscope.data import load

        options = {"size": self.size, "channels": self.channels, "seed": seed, "centre": self.centre}
        images = load(self.data or "photos", count=count, **options)  # type: ignore[arg-type]
        return images.images, f"{images.source} {'x'.join(map(str, images.images.shape[1:]))}"


_SAMPLES = 16
_QUICK = 64  # samples that are loaded before anything is said about more of them
_SEEDS = 3


def job_options(function: Callable[..., None]) -> Callable[..., None]:
    """MODEL and the options of data and measurement, handed to the command as one `job` argument."""

    @click.argument("model", metavar="MODEL")
    @click.option("--data", default=None, metavar="NAME", help=f"{DATA_HELP} [default: photos]")
    @click.option("--batch", default=None, metavar="NAME", help=BATCH_HELP)
    @click.option(
        "--samples", type=click.IntRange(2), default=None, help=f"How many samples, 2 or more [default: {_SAMPLES}]."
    )
    @click.option(
        "--size", type=click.IntRange(1), default=None, help="Height and width [default: 32; files keep theirs]."
    )
    @click.option("--channels", type=click.IntRange(1), default=None, help="Channels [default: 3; files keep theirs].")
    @click.option("--centre", is_flag=True, help="Subtract the mean of each channel.")
    @click.option(
        "--shape", default=None, metavar="3x224x224", help="Gaussian samples of this shape instead of --data."
    )
    @click.option(
        "--ints", default=None, metavar="VOCAB:LENGTH", help="Random integers instead of --data, for token models."
    )
    @click.option(
        "--seeds", type=click.IntRange(1), default=_SEEDS, show_default=True, help="Draws of the initialization."
    )
    @click.option(
        "--loss", default=None, metavar="NAME", help=f"{LOSS_HELP} [default: what fits the targets, or {LOSSES[0]}]"
    )
    @click.option("--eval", "evaluate", is_flag=True, help="Evaluation mode: batch norm uses its running statistics.")
    @functools.wraps(function)
    def with_job(settings: Settings, **options: Any) -> None:
        job = Job(**{name: options.pop(name) for name in Job.__dataclass_fields__})
        function(settings, job, **options)

    return with_job


def _on(model: nn.Module | Callable[[], nn.Module], device: torch.device) -> nn.Module | Callable[[], nn.Module]:
    from torch import nn

    if isinstance(model, nn.Module):
        return model.to(device)
    if device.type == "cpu":
        return model
    return lambda: model().to(device)


def _built(
    model: nn.Module | Callable[[], nn.Module], seed: int
) -> tuple[nn.Module | Callable[[], nn.Module], nn.Module]:
    """The model, and a module to look at; the first product of a factory is what it hands out first."""
    from torch import nn

    from initscope.probe.checking import build

    if isinstance(model, nn.Module):
        return model, model
    first = build(model, seed)
    waiting, factory = [first], model
    return lambda: waiting.pop() if waiting else factory(), first


def _sides(text: str) -> list[int]:
    parts = text.lower().split("x")
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise BadInput(
            "--shape", f"got '{text}', expected the sides of one sample", "write for example 3x224x224 or 128"
        )
    return [int(part) for part in parts]


def _vocabulary(text: str) -> tuple[int, int]:
    parts = text.split(":")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise BadInput("--ints", f"got '{text}', expected VOCAB:LENGTH", "write for example 50257:64")
    return int(parts[0]), int(parts[1])


def _check_size(shape: tuple[int, ...]) -> None:
    import math

    if math.prod(shape) > _MOST_NUMBERS:
        raise BadInput(
            "--shape", f"{' x '.join(map(str, shape))} numbers do not fit", "ask for fewer or smaller samples"
        )
