"""What is kept of a finished item: one JSON file and one SVG file, and the key that tells whether they still hold."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from initscope import __version__
from initscope.errors import BadInput
from initscope.files import check_writable, is_whole, sealed, write_atomically
from initscope.files.checksums import SEAL
from initscope.images.pretrained import FOLDER
from initscope.papers.desk import Source
from initscope.papers.item import Check, Item, Sampled
from initscope.papers.published import package_of

SCHEMA = "initscope.papers.item/1"


@dataclass(frozen=True)
class Record:
    """A finished or failed item with everything that a page or a table shows of it.

    `problem` is empty unless the item failed. `given` says which pictures it had, `reused` whether it was found finished
    in the folder. `words` describe the figure to a screen reader.
    """

    key: str
    title: str
    says: str
    size: str
    seed: int
    checks: tuple[Check, ...] = ()
    data: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    svg: str | None = None
    seconds: float = 0.0
    problem: str = ""
    digest: str = ""
    version: str = __version__
    reused: bool = False

    @property
    def failed(self) -> bool:
        return bool(self.problem)

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON, without the drawing."""
        kept = ("key", "title", "says", "size", "seed", "notes", "given", "seconds", "problem", "digest", "version")
        content = {name: getattr(self, name) for name in kept}
        checks = [{**asdict(check), "interval": interval(check)} for check in self.checks]
        return plain({**content, "checks": checks, "data": self.data})  # type: ignore[no-any-return]


def interval(check: Check) -> tuple[float, float] | None:
    """The 95 % interval of what was sampled."""
    return None if check.sampled is None else check.sampled.interval()


def digest_of(item: Item, source: Source, *, size: str, seed: int) -> str:
    """Another text for another item, size, seed, version, text of the paper's modules, data, or pre-trained filters."""
    parts = [
        SCHEMA, __version__, item.key, item.title, item.says, size, str(seed), _sources(package_of(item.key)),
        *(f"{name} {source.identity(name)}" for name in item.sets),
        *(f"{name} {_filters(name)}" for name in item.filters),
    ]  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _filters(name: str) -> str:
    """Which file of pre-trained filters is at hand."""
    file = Path(os.environ.get(FOLDER, "")).expanduser() / f"{name}.safetensors"
    if not file.is_file():
        return "none"
    stat = file.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


@cache
def _sources(package: str) -> str:
    """The digest of a paper's modules and printed figures: an item may use helpers of its neighbours."""
    total = hashlib.sha256()
    if find_spec(package) is not None:
        for file in sorted(resources.files(package).iterdir(), key=lambda file: file.name):
            if file.name.endswith((".py", ".toml")):
                total.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()


def paths(folder: Path, key: str) -> tuple[Path, Path]:
    """Where the JSON and the SVG of an item are kept.

    >>> [path.as_posix() for path in paths(Path("out"), "overparam/fig1")]
    ['out/overparam/fig1.json', 'out/overparam/fig1.svg']
    """
    paper, _, name = key.partition("/")
    return folder / paper / f"{name}.json", folder / paper / f"{name}.svg"


def save(record: Record, folder: Path) -> None:
    """Write the drawing, then the JSON that vouches for it: whoever finds the second finds the first."""
    document, drawing = paths(folder, record.key)
    drawing.parent.mkdir(parents=True, exist_ok=True)
    content = {"schema": SCHEMA, **record.to_dict(), "svg": None}
    if record.svg is None:
        drawing.unlink(missing_ok=True)
    else:
        text = record.svg.encode()
        content["svg"] = {"file": drawing.name, "sha256": hashlib.sha256(text).hexdigest()}
        write_atomically(drawing, lambda file: file.write(text), "--out")
    whole = json.dumps(sealed(content), indent=1, allow_nan=False, ensure_ascii=False).encode()
    write_atomically(document, lambda file: file.write(whole), "--out")


def read(folder: Path, key: str) -> Record | None:
    """What the folder holds of an item; None where nothing whole is there."""
    document, drawing = paths(folder, key)
    try:
        content = json.loads(document.read_bytes())
        if not is_whole(content) or content.pop("schema") != SCHEMA:
            return None
        content.pop(SEAL)
        kept = content.pop("svg")
        svg = None if kept is None else drawing.read_bytes()
        if svg is not None and hashlib.sha256(svg).hexdigest() != kept["sha256"]:
            return None
        checks = tuple(_check(line) for line in content.pop("checks"))
        content["notes"], content["given"] = tuple(content["notes"]), tuple(content["given"])
        return Record(**content, checks=checks, svg=None if svg is None else svg.decode(), reused=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def forget(folder: Path, key: str) -> None:
    """Remove what an item left behind with other settings."""
    for path in paths(folder, key):
        path.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove the unfinished files of processes that are gone."""
    for path in folder.glob("**/.*.part"):
        number = path.name.split(".")[-2]
        if number.isdigit() and not _alive(int(number)):
            path.unlink(missing_ok=True)


def check_folder(folder: Path) -> None:
    """Create the folder, or refuse before any work what could not be written at the end."""
    if folder.exists() and not folder.is_dir():
        raise BadInput("--out", f"{folder} is a file, expected a folder", "name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput("--out", f"cannot create {folder} ({error.strerror})", "choose another folder") from error
    check_writable(folder / "index.html", "--out")


def plain(value: Any) -> Any:
    """Numbers, text, lists and dictionaries that JSON knows; NaN and infinity become None.

    >>> plain({"a": (1.0, float("nan")), "b": None})
    {'a': [1.0, None], 'b': None}
    """
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Sequence):
        return [plain(inner) for inner in value]
    raise BadInput("data of an item", f"got a {type(value).__name__}", "give numbers, texts, lists and dictionaries")


def _check(line: dict[str, Any]) -> Check:
    line.pop("interval")
    sampled = line.pop("sampled")
    return Check(**line, sampled=None if sampled is None else Sampled(**sampled))


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
