"""Options that the commands on data share, and what they load."""

from __future__ import annotations

import functools
import re
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


_UNITS = {
    "": 1,
    "k": 1000,
    "m": 1000**2,
    "g": 1000**3,
    "t": 1000**4,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


def memory_size(text: str) -> int:
    """Bytes of a text such as 2GiB, 500MB or 1000000.

    >>> memory_size("2GiB"), memory_size("1.5 kB"), memory_size("800")
    (2147483648, 1500, 800)
    """
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmgt]?i?)b?\s*", text, re.IGNORECASE)
    if match is None or match.group(2).lower() not in _UNITS:
        raise BadInput("--memory", f"got '{text}', expected a size", "write for example 2GiB or 500MB")
    size = int(float(match.group(1)) * _UNITS[match.group(2).lower()])
    if size < 1:
        raise BadInput("--memory", f"got '{text}', which is nothing", "write for example 2GiB")
    return size


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
