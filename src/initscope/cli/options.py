"""Options that the commands on data share, and what they load."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from initscope.cli.common import Settings, pick_device
from initscope.errors import BadInput

if TYPE_CHECKING:
    import torch

    from initscope.data import Images, Pairs
    from initscope.networks import Sequential

DATA_HELP = (
    "photos, gaussian[:CORRELATION], dead-leaves, shapes, "
    "folder:PATH, npz:PATH[:KEY], idx:PATH, torchvision:NAME or hf:NAME."
)


def memory_size(text: str) -> int:
    """Bytes of a text such as 2GiB, 500MB or 1000000."""
    from initscope.networks.planning import memory_bytes

    return memory_bytes(text, "--memory")


def numbers(
    text: str | None, option: str, kind: type[int] | type[float] = int, example: str = "64, or 64,128,256"
) -> tuple[Any, ...] | None:
    """One number, or several with commas between.

    >>> numbers("64,128", "--channels"), numbers(None, "--channels")
    ((64, 128), None)
    """
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        words = "whole numbers" if kind is int else "numbers"
        raise BadInput(option, f"got '{text}', expected {words}", f"write {example}") from error


memory_option = click.option(
    "--memory",
    default=None,
    metavar="SIZE",
    callback=lambda ctx, parameter, text: None if text is None else memory_size(text),
    help="Memory to use, such as 2GiB [default: a quarter of what is free].",
)


@dataclass(frozen=True)
class Task:
    """A network as text and where its inputs come from."""

    architecture: str
    data: str
    size: int | None
    channels: int | None
    centre: bool
    width: int
    dtype: str

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        return torch.float32 if self.dtype == "float32" else torch.float64

    def network(self) -> Sequential:
        from initscope.networks.language import parse

        return parse(self.architecture, width=self.width)

    def pairs(self, settings: Settings, count: int) -> tuple[Pairs, torch.Tensor, torch.Tensor]:
        """The pairs, and their two sides on the device in the wanted precision."""
        from initscope.data import load_pairs

        device = pick_device(settings.device, self.torch_dtype)
        pairs = load_pairs(self.data, pairs=count, **self._shape(settings))
        return pairs, pairs.x.to(device, self.torch_dtype), pairs.y.to(device, self.torch_dtype)

    def images(self, settings: Settings, count: int) -> tuple[Images, torch.Tensor]:
        from initscope.data import load

        device = pick_device(settings.device, self.torch_dtype)
        images = load(self.data, count=count, **self._shape(settings))
        return images, images.images.to(device, self.torch_dtype)

    def _shape(self, settings: Settings) -> dict[str, Any]:
        return {"size": self.size, "channels": self.channels, "seed": settings.seed, "centre": self.centre}


def task_options(data: str, dtype: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """ARCH and the data options, handed to the command as one `task` argument."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @click.argument("architecture", metavar="ARCH")
        @click.option("--data", default=data, show_default=True, metavar="NAME", help=DATA_HELP)
        @click.option(
            "--size", type=click.IntRange(1), default=None, help="Height and width [default: 32; files keep theirs]."
        )
        @click.option(
            "--channels",
            type=click.IntRange(1),
            default=None,
            help="Channels of the images [default: 3; files keep theirs].",
        )
        @click.option("--centre", is_flag=True, help="Subtract the mean of each channel.")
        @click.option(
            "--width",
            type=click.IntRange(1, 1_000_000),
            default=64,
            show_default=True,
            help="Channels of a layer that gives none.",
        )
        @click.option(
            "--dtype", type=click.Choice(["float64", "float32"]), default=dtype, show_default=True, help="Precision."
        )
        @functools.wraps(function)
        def with_task(settings: Settings, architecture: str, **options: Any) -> None:
            names = ("data", "size", "channels", "centre", "width", "dtype")
            task = Task(architecture, **{name: options.pop(name) for name in names})
            function(settings, task, **options)

        return with_task

    return decorate
