"""What all commands share: the common options, the two consoles, devices, JSON."""

from __future__ import annotations

import functools
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import click

from initscope.cli.words import option_words, text_in_options
from initscope.errors import BadInput
from initscope.printable import printable
from initscope.results import jsonable

if TYPE_CHECKING:
    import torch
    from rich.console import Console
    from rich.progress import Progress, TaskID

DEVICES = ("auto", "cpu", "cuda", "mps")
_PIPED_WIDTH = 160  # nobody reads a pipe on a narrow screen: nothing is cut there


@dataclass(frozen=True)
class Settings:
    """The options that every command has."""

    json: bool
    seed: int
    device: str
    quiet: bool

    def stdout(self) -> Console:
        return _console(sys.stdout)

    def stderr(self) -> Console:
        return _console(sys.stderr)

    def say(self, message: str) -> None:
        """A line of progress on stderr, unless --quiet."""
        if not self.quiet:
            click.echo(printable(message, lines=True), err=True)

    def print_json(self, command: str, content: Mapping[str, Any]) -> None:
        """One JSON object on stdout; what is not a number is null."""
        document = {"schema": f"initscope.{command}/1", **content}
        click.echo(json.dumps(jsonable(document), indent=2, allow_nan=False))


def common_options(function: Callable[..., None]) -> Callable[..., None]:
    """--json, --seed, --device, --quiet, handed to the command as one `settings` argument."""

    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @click.option(
        "--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Seed of all randomness."
    )
    @click.option("--device", type=click.Choice(DEVICES), default="auto", show_default=True, help="Where to compute.")
    @click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings.")
    @functools.wraps(function)
    def with_settings(as_json: bool, seed: int, device: str, quiet: bool, **options: Any) -> None:
        settings = Settings(as_json, seed, device, quiet)
        with _warnings_on_stderr(settings), option_words(click.get_current_context().command):
            function(settings, **options)

    return with_settings


@contextmanager
def _warnings_on_stderr(settings: Settings) -> Iterator[None]:
    def show(message: Warning | str, *rest: Any, **more: Any) -> None:
        settings.say(f"warning: {text_in_options(str(message))}")

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def _console(stream: IO[str]) -> Console:
    from initscope.report.console import Console

    console = Console(file=stream, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(file=stream, highlight=False, width=_PIPED_WIDTH, color_system=None)
    return console


def progress_bar(settings: Settings) -> Progress:
    """A bar on stderr, shown only to a person: not with --quiet, not into a pipe."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = settings.stderr()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=settings.quiet or not console.is_terminal)


def advancing(bar: Progress, job: TaskID, *, since: float = 0.0, until: float = 1.0) -> Callable[[int, int], None]:
    """What the library calls with (done, total), moving the bar from `since` to `until`."""

    def advance(done: int, total: int) -> None:
        bar.update(job, completed=since + (until - since) * done / max(total, 1))

    return advance


def staging(bar: Progress, job: TaskID) -> Callable[[str, float], None]:
    """What `check` and `fix` call as `progress=` with (stage, share done): the bar shows both; a total of 1 is set."""

    def advance(stage: str, done: float) -> None:
        bar.update(job, description=printable(stage), total=1.0, completed=min(max(done, 0.0), 1.0))

    return advance


def pick_device(name: str, dtype: torch.dtype) -> torch.device:
    """The device to compute on; `auto` takes a GPU that can do the arithmetic, else the CPU."""
    import torch

    ready = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    no_double = dtype == torch.float64
    if name == "auto":
        name = "cuda" if ready["cuda"] else "mps" if ready["mps"] and not no_double else "cpu"
    if not ready[name]:
        raise BadInput("--device", f"{name} is not available here", "use --device cpu, or install a torch built for it")
    if name == "mps" and no_double:
        raise BadInput("--device", "mps has no float64", "add --dtype float32, or use --device cpu")
    return torch.device(name)
