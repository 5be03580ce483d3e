"""Result files: refused before the work when the place is wrong, and never half written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from initscope.errors import BadInput


def check_writable(path: Path, name: str) -> None:
    """Refuse, before any work, a file that could not be written at the end."""
    folder = path.parent
    if path.is_dir():
        raise BadInput(name, f"{path} is a folder, expected a file", f"give a file in it, such as {path / 'out'}")
    if not folder.is_dir():
        raise BadInput(name, f"the folder {folder} does not exist", f"create it first: mkdir -p {folder}")
    try:
        # Permission bits do not tell about read-only disks or root: only a real file does.
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    except OSError as error:
        raise BadInput(name, f"cannot write in {folder} ({error.strerror})", "choose another folder") from error
    os.close(handle)
    os.unlink(temporary)


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], name: str) -> None:
    """Write beside the target and rename: a reader, or an interrupt, never meets half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        problem = f"cannot write {path} ({error.strerror})"
        raise BadInput(name, problem, "free some space or choose another place") from error
    finally:
        temporary.unlink(missing_ok=True)
