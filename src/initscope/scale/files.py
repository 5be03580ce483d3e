"""Files that are whole or absent, checksums, and a lock that a killed process cannot keep."""

from __future__ import annotations

import errno
import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from initscope.errors import BadInput

PART = ".part"  # files under construction end in this; they are never read


def write_file(path: Path, content: bytes) -> None:
    """Write beside the target, force it to the disk, rename: a reader or a kill never meets half a file."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{PART}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_parts(folder: Path) -> None:
    """Take away what killed writers left."""
    for path in folder.rglob(f".*{PART}"):
        path.unlink(missing_ok=True)


def checksum(*contents: bytes | memoryview) -> str:
    """SHA-256 of the contents, one after the other.

    >>> checksum(b"ab") == checksum(b"a", b"b")
    True
    """
    digest = hashlib.sha256()
    for content in contents:
        digest.update(content)
    return digest.hexdigest()


@contextmanager
def locked(path: Path, place: str) -> Iterator[None]:
    """Hold the file's lock; the system gives it back however the process ends. Another holder is an error."""
    try:
        import fcntl
    except ImportError:  # no such lock on this system: two runs at once would only waste work
        yield
        return
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                problem = f"another run is writing to {path.parent.parent}"
                raise BadInput(place, problem, "wait for it, or stop it and resume") from error
            # A network file system without locks: as above.
        yield
