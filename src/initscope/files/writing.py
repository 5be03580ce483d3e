"""Files in and out: refused before the work when the place is wrong, and never half written."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO

from initscope.errors import BadInput

PART = ".part"  # files under construction end in this; they are never read


def is_file(path: Path) -> bool:
    """Whether the path names a file that can be reached; names that no file can have name none.

    >>> is_file(Path("a" * 5000)), is_file(Path("a\\0b"))
    (False, False)
    """
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long, a folder that may not be searched, a null byte
        return False


def is_folder(path: Path) -> bool:
    """Whether the path names a folder that can be reached."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def check_writable(path: Path, name: str) -> None:
    """Refuse, before any work, a file that could not be written at the end."""
    folder = path.parent
    try:
        if path.is_dir():
            raise BadInput(name, f"{path} is a folder, expected a file", f"give a file in it, such as {path / 'out'}")
        if not folder.is_dir():
            raise BadInput(name, f"the folder {folder} does not exist", f"create it first: mkdir -p {folder}")
        _refuse_devices(path, name)
        # Permission bits do not tell about read-only disks or root: only a real file does.
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    except OSError as error:
        raise BadInput(name, f"cannot write in {folder} ({error.strerror})", "choose another folder") from error
    os.close(handle)
    os.unlink(temporary)


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], name: str) -> None:
    """Write beside the target and rename: a reader, or an interrupt, never meets half a file.

    Raises BadInput where the disk does not take it.
    """
    _refuse_devices(path, name)
    try:
        _replace(path, write)
    except Exception as error:
        said = _disk_error(error)
        if said is None:
            raise
        problem = f"cannot write {path} ({said.strerror or said})"
        raise BadInput(name, problem, "free some space or choose another place") from error


def write_file(path: Path, content: bytes) -> None:
    """As `write_atomically`, in a folder that is made if needed; raises OSError where the disk does not take it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, lambda file: file.write(content))


def remove_parts(folder: Path) -> None:
    """Take away what killed writers left."""
    for path in folder.rglob(f".*{PART}"):
        path.unlink(missing_ok=True)


def _replace(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    # The process number stands before the suffix: who cleans up later can tell whether the writer still lives.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.{os.getpid()}{PART}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _refuse_devices(path: Path, name: str) -> None:
    """Renaming over a device or a pipe would put a file in its place."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise BadInput(name, f"{path} is a device or a pipe, expected a file", "name a file")


def _disk_error(error: BaseException | None) -> OSError | None:
    """The error of the disk behind another one: archives and encoders fail again while they close a full disk's file."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error
