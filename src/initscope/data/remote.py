"""`torchvision:NAME[:ROOT]` and `hf:NAME[:SPLIT]`: data sets of optional packages, downloaded where missing."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from torch import Tensor

from initscope.data.arrays import store_of
from initscope.data.decode import from_pillow
from initscope.data.store import Store
from initscope.errors import BadInput, InitscopeError, MissingExtra, first_line


def open_torchvision(rest: str) -> Store:
    """A data set of `torchvision.datasets`, kept below ROOT (by default the user's cache folder)."""
    name, _, root = rest.partition(":")
    place = f"torchvision:{rest}"
    datasets = _optional(place, "torchvision.datasets", "torchvision")
    factory = getattr(datasets, name, None)
    if not isinstance(factory, type):
        known = ", ".join(sorted(n for n in getattr(datasets, "__all__", ()) if n[:1].isupper())[:8])
        raise BadInput(place, f"torchvision has no data set {name!r}", f"names are like {known or 'CIFAR10'}")
    folder = Path(root).expanduser() if root else _cache() / "torchvision"
    dataset = _guarded(place, lambda: _with_download(factory, folder))
    return _items(place, f"torchvision's {name}", dataset, lambda item: item[0] if isinstance(item, tuple) else item)


def open_hf(rest: str) -> Store:
    """A data set of the Hugging Face hub; SPLIT is `train` by default, the first column with pictures is taken."""
    name, _, split = rest.partition(":")
    place = f"hf:{rest}"
    package = _optional(place, "datasets", "datasets")
    dataset = _guarded(place, lambda: package.load_dataset(name, split=split or "train"))
    if len(dataset) == 0:
        raise BadInput(place, "the data set is empty", "choose another split")
    first: dict[str, Any] = dataset[0]
    column = next((key for key, value in first.items() if isinstance(value, PIL.Image.Image)), None)
    if column is None:
        raise BadInput(place, f"no column holds pictures, only {', '.join(first)}", "choose an image data set")
    return _items(place, f"{name} of the Hugging Face hub", dataset, lambda item: item[column])


def _optional(place: str, module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(place, f"{package} is not installed ({error})", f"pip install {package}") from error
    except RuntimeError as error:
        # torchvision built for another torch fails while it registers its operators.
        problem = f"{package} is installed but does not fit torch {torch.__version__} ({error})"
        raise MissingExtra(place, problem, f"pip install --force-reinstall {package} torch") from error


def _with_download(factory: Callable[..., Any], folder: Path) -> Any:
    try:
        return factory(root=str(folder), download=True)
    except TypeError:  # not every data set can be fetched; those take a root alone
        return factory(root=str(folder))


def _guarded(place: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except InitscopeError:
        raise
    except Exception as error:  # offline, unknown name, broken archive: each package has its own exceptions
        problem = f"cannot be opened ({first_line(error)})"
        raise BadInput(place, problem, "check the name and the network, or use folder:PATH or npz:PATH") from error


def _items(place: str, words: str, dataset: Any, picture: Callable[[Any], Any]) -> Store:
    def read(indices: Sequence[int]) -> Iterator[Tensor]:
        return (_guarded(f"{place} image {i}", lambda i=i: _tensor(place, picture(dataset[i]))) for i in indices)  # type: ignore[misc]

    if len(dataset) == 0:
        raise BadInput(place, "the data set is empty", "choose another")
    return Store(place, words, len(dataset), read)


def _tensor(place: str, item: Any) -> Tensor:
    if isinstance(item, PIL.Image.Image):
        return from_pillow(place, item)
    if isinstance(item, Tensor) and item.dim() in (2, 3):
        return next(store_of(place, "", item.numpy()[None]).read([0]))
    if isinstance(item, np.ndarray) and item.ndim in (2, 3):
        return next(store_of(place, "", item[None]).read([0]))
    raise BadInput(place, f"got a {type(item).__name__}, not a picture", "choose an image data set")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "initscope"
