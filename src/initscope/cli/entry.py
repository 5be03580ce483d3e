"""The `initscope` command: finds the commands, and turns errors into messages and exit codes.

Nothing here or in a command's module imports torch: `initscope --help` answers at once, and a command imports what it
needs when it runs.
"""

from __future__ import annotations

import difflib
import importlib
import io
import os
import re
import sys
import traceback
from typing import Any

import click

from initscope import __version__
from initscope.errors import InitscopeError
from initscope.printable import one_line, printable

INTERRUPTED = 130
UNEXPECTED = 70  # EX_SOFTWARE: 1 and 2 have their meanings
_MEMORY = "out of memory; use fewer or smaller images, or --dtype float32"
_NO_MEMORY = re.compile(r"can't allocate memory|not enough memory|out of memory|alloc_cpu")  # torch's own words
DEBUG = "INITSCOPE_DEBUG"  # an environment variable

# In the order of `initscope --help`; each module holds its click command as `command`.
COMMANDS = {
    "demo": "initscope.cli.demo",
    "check": "initscope.cli.check",
    "fix": "initscope.cli.fix",
    "predict": "initscope.cli.predict",
    "simulate": "initscope.cli.simulate",
    "kernel": "initscope.cli.kernel",
    "width": "initscope.cli.width",
    "papers": "initscope.cli.papers",
    "reconstruct": "initscope.cli.reconstruct",
    "stylize": "initscope.cli.stylize",
    "train-decoder": "initscope.cli.train_decoder",
}


class _Refused(click.ClickException):
    """Bad input, said as click says wrong use: one message on stderr, exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {printable(self.message, lines=True)}", err=True)


class _Broken(click.ClickException):
    """An error that nobody expected: one line, the traceback only for who asks."""

    exit_code = UNEXPECTED

    def show(self, file: Any = None) -> None:
        if os.environ.get(DEBUG) and self.__cause__ is not None:
            said = "".join(traceback.format_exception(self.__cause__))
            click.echo(printable(said, lines=True), err=True, nl=False)
        click.echo(f"error: {one_line(self.message)}; {DEBUG}=1 shows where it comes from", err=True)


class _Group(click.Group):
    """Commands loaded when they are asked for; every error of initscope becomes a message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the commands are {', '.join(COMMANDS)}"
            ctx.fail(f"no command '{args[0]}'; {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        _forgive_encodings()
        # Torch's threads spin while they wait for each other; on a busy machine that costs a factor of forty. Read when
        # torch is loaded, which happens later, inside the command.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        try:
            return self._invoke_and_flush(ctx)
        except InitscopeError as error:
            drawn = error.place.startswith("architecture")  # shows the line, and a mark below the word that is wrong
            raise _Refused(str(error) if drawn else one_line(str(error))) from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except MemoryError as error:
            raise _Refused(_MEMORY) from error
        except click.ClickException as error:
            error.message = printable(error.message, lines=True)  # type: ignore[misc]  # what its own `show` prints
            raise
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click's own
        except OSError as error:
            _leave_stdout()
            raise _Refused(_disk_words(error)) from error
        except Exception as error:
            if isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error)):
                raise _Refused(_MEMORY) from error
            said = next(iter(str(error).strip().splitlines()), "")
            raise _Broken(f"unexpected {type(error).__name__}{': ' + said if said else ''}") from error

    def _invoke_and_flush(self, ctx: click.Context) -> Any:
        """What is not written yet can still meet a full disk: while there is somebody to say so."""
        try:
            result = super().invoke(ctx)
        except click.exceptions.Exit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return result


def _disk_words(error: OSError) -> str:
    """Files that commands read and write have messages of their own; this is what the system says of all others."""
    place = "output" if error.filename is None else str(error.filename)
    return f"{place}: cannot be read or written ({error.strerror or error}); check the place, its permissions and its space"


def _leave_stdout() -> None:
    """What a full disk did not take is given up; at its end, Python would try again and end with another exit code."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _forgive_encodings() -> None:
    """A terminal that cannot show a character shows a question mark instead of stopping the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="initscope")
def main() -> None:
    """What a neural network does to the geometry of its data, before a single training step.

    Start with: initscope demo
    """
