"""One run at a time in one place. The system gives a lock back however the process ends, so none is ever stale."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from initscope.errors import BadInput

# What systems say of a lock that somebody else holds; anything else is a file system without locks.
_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)


@contextmanager
def locked(path: Path, place: str, work: str) -> Iterator[None]:
    """Hold the lock of the file `path`, which is there only meanwhile.

    Another holder is an error at once: `place` is where its message points, `work` what must not be done twice.
    """
    file = _acquire(path, place, work)
    try:
        yield
    finally:
        # Removed while it is held: who waits at the door finds that the file is gone, and opens the next one.
        path.unlink(missing_ok=True)
        file.close()


def _acquire(path: Path, place: str, work: str) -> IO[str]:
    while True:
        try:
            file = path.open("a+")
        except OSError as error:
            problem = f"cannot write in {path.parent} ({error.strerror})"
            raise BadInput(place, problem, "choose another folder") from error
        try:
            _lock(file)
        except OSError as error:
            holder = _holder(file)
            file.close()
            if error.errno in _HELD:
                problem = f"another run is {work}{holder}"
                raise BadInput(place, problem, "wait for it, or stop it and start this one again") from error
            return path.open("a+")  # a network file system without locks: two runs at once would waste work
        if _same(file, path):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            return file
        file.close()


def _lock(file: IO[str]) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(1 << 20)  # a locked byte cannot be read there: not one of the number's
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _same(file: IO[str], path: Path) -> bool:
    """Whether the path still leads to the open file: its last holder removes it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _holder(file: IO[str]) -> str:
    """The number of the process that wrote it there, for people; the lock does not depend on it."""
    try:
        file.seek(0)
        number = file.read(20).strip()
    except (OSError, ValueError):
        return ""
    return f" (process {number})" if number.isdigit() else ""
