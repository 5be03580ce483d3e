"""Where an item's pictures come from: the real sets, the user's own data, or photographs in their place."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from initscope.data import FORMS, load, load_pairs
from initscope.data.arrays import path_and_key
from initscope.data.folder import SUFFIXES
from initscope.data.load import split_name
from initscope.errors import BadInput
from initscope.papers.item import Desk, Item
from initscope.papers.published import published

VARIABLE = "INITSCOPE_DATA"
SIZES = ("quick", "normal", "full")


@dataclass(frozen=True)
class RealSet:
    """A set that the papers use: its title, the array to take from `NAME.npz`, its channels and side."""

    title: str
    array: str
    channels: int
    side: int


REAL_SETS = {
    "fashion_mnist": RealSet("Fashion-MNIST", "x_train", 1, 28),
    "mnist": RealSet("MNIST", "x_train", 1, 28),
    "cifar10": RealSet("CIFAR-10", "x_train", 3, 32),
    "cifar100": RealSet("CIFAR-100", "x_train", 3, 32),
    "imagenet224": RealSet("ImageNet", "images", 3, 224),
}
IN_PLACE = " in place of "  # between what an item was given and what it asked for
_KINDS = {form.partition(":")[0].partition("[")[0] for form in FORMS}


@dataclass(frozen=True)
class Source:
    """Where the sets of the papers are read: `folder` holds NAME.npz files, `name` stands in for all of them.

    `identity(set)` changes when the pictures do; `source_of(set)` is a name for `data.load`, None for photographs.
    """

    folder: Path | None = None
    name: str | None = None

    def source_of(self, name: str) -> str | None:
        """The name under which the data room finds a set, e.g. `cifar10` or `cifar10:x_test`."""
        if self.name is not None:
            return self.name
        kind, _, array = name.partition(":")
        path = self.file_of(kind)
        return None if path is None else f"npz:{path}:{array or REAL_SETS[kind].array}"

    def file_of(self, kind: str) -> Path | None:
        path = None if self.folder is None else self.folder / f"{kind}.npz"
        return path if path is not None and path.is_file() else None

    def words(self, name: str) -> str:
        """What the run says about a set."""
        title = REAL_SETS[name.partition(":")[0]].title
        if self.name is not None:
            return f"{self.name}{IN_PLACE}{title}"
        return title if self.file_of(name.partition(":")[0]) else f"photographs of the same shape{IN_PLACE}{title}"

    def identity(self, name: str) -> str:
        """A text that is another one when the pictures of a set are others."""
        kind = name.partition(":")[0]
        path = self.file_of(kind)
        if self.name is None and path is not None:
            return f"{kind} {_digest(path, path.stat().st_mtime_ns)}"
        stand_in = self.name or "photos"
        return f"{stand_in}{IN_PLACE}{kind} {_listing(stand_in)}"


def choose_source(data: str | None = None) -> Source:
    """The source that `--data` names: a folder of NAME.npz files, or a name of the data room; else $INITSCOPE_DATA.

    >>> choose_source("photos").words("cifar10")
    'photos in place of CIFAR-10'
    """
    if data is None:
        data, place = os.environ.get(VARIABLE) or None, VARIABLE
    else:
        place = "--data"
    if data is None:
        return Source()
    folder = Path(data).expanduser()
    if folder.is_dir():
        if not any((folder / f"{name}.npz").is_file() for name in REAL_SETS):
            names = ", ".join(f"{name}.npz" for name in REAL_SETS)
            remedy = f"it should hold some of {names}; for a folder of pictures write folder:{data}"
            raise BadInput(place, f"the folder {data} holds none of the papers' sets", remedy)
        return Source(folder=folder)
    if place == "--data" and data.partition(":")[0] in _KINDS:
        load_pairs(data, pairs=1, size=8)  # refuses what cannot be read before any work is done
        return Source(name=data)
    remedy = "give a folder with files such as cifar10.npz"
    if place == "--data":
        remedy += f", or one of {', '.join(FORMS)}"
    raise BadInput(place, f"no folder {data!r}", remedy)


@dataclass
class Told:
    """What an item was given, in the order of asking."""

    words: dict[str, None] = field(default_factory=dict)

    @property
    def stand_ins(self) -> list[str]:
        """Which pictures stood in for which sets."""
        return stand_ins(self.words)


def stand_ins(given: Iterable[str]) -> list[str]:
    """Of what items were given, what was not the set that they asked for.

    >>> stand_ins(["MNIST", "photos in place of CIFAR-10"])
    ['photos in place of CIFAR-10']
    """
    return [words for words in dict.fromkeys(given) if IN_PLACE in words]


def make_desk(
    item: Item,
    source: Source,
    *,
    size: str = "normal",
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Desk, Told]:
    """The desk for one item, and the record of what it was given."""
    if size not in SIZES:
        raise BadInput("size", f"got {size!r}", f"use {', '.join(SIZES)}")
    told = Told()

    def resolved(call: Callable[..., Any]) -> Callable[..., Any]:
        def get(name: str, **arguments: Any) -> Any:
            chosen = _resolve(item, source, told, name, {"seed": seed, **arguments})
            return call(chosen.pop("name"), **chosen)

        return get

    desk = Desk(
        images=resolved(load),
        pairs=resolved(load_pairs),
        published=published(item.key),
        quick=size == "quick",
        full=size == "full",
        seed=seed,
        progress=progress or (lambda done, total: None),
    )
    return desk, told


def _resolve(item: Item, source: Source, told: Told, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    kind = name.partition(":")[0]
    if kind not in REAL_SETS:
        return {"name": name, **arguments}
    if kind not in {listed.partition(":")[0] for listed in item.sets}:
        raise BadInput(item.key, f"asks for {kind}, which its `sets` do not name", f"add {kind!r} to `sets`")
    told.words[source.words(name)] = None
    place = source.source_of(name)
    if place is not None and source.name is None:
        return {"name": place, **arguments}
    real = REAL_SETS[kind]
    shape = {"size": real.side, "channels": real.channels}
    given = {key: value for key, value in arguments.items() if value is not None}
    return {"name": place or "photos", **shape, **given}


@functools.cache
def _digest(path: Path, changed: int) -> str:
    """The digest of a file's bytes; `changed` is its time stamp, so that another file is read anew."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listing(name: str) -> str:
    """Names, sizes and times of the files that a source reads, by digest; empty where none is on this disk."""
    kind, rest = split_name(name)
    path = Path(rest).expanduser()
    files: list[Path] = []
    if kind == "folder":
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    elif kind in ("npz", "idx"):
        files = [path if kind == "idx" else path_and_key(rest)[0]]
    facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return hashlib.sha256(repr(facts).encode()).hexdigest() if facts else ""
