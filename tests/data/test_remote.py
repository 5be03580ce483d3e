"""torchvision: and hf: with stand-in packages, and without the packages."""

from __future__ import annotations

import builtins
import importlib
import sys
import types
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from initscope.data import load, load_pairs
from initscope.errors import BadInput, MissingExtra


def picture(value: int) -> PIL.Image.Image:
    return PIL.Image.fromarray(np.full((8, 9, 3), value, dtype=np.uint8))


class Digits:
    """A data set in torchvision's manner: (picture, label) tuples."""

    roots: list[tuple[str, bool]] = []  # noqa: RUF012

    def __init__(self, root: str, download: bool = False) -> None:
        self.roots.append((root, download))

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[PIL.Image.Image, int]:
        return picture(25 * index), index


class Local(Digits):
    """One that cannot be downloaded and hands out tensors."""

    def __init__(self, root: str) -> None:
        super().__init__(root)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3, 8, 9), float(index))


class Broken:
    def __init__(self, root: str, download: bool = False) -> None:
        raise OSError("no route to host")


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    package, datasets = types.ModuleType("torchvision"), types.ModuleType("torchvision.datasets")
    datasets.Digits, datasets.Local, datasets.Broken = Digits, Local, Broken
    datasets.__all__ = ["Digits", "Local", "Broken"]
    package.datasets = datasets
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", datasets)
    Digits.roots.clear()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(name: str, split: str) -> list[dict[str, object]]:
        if name == "nobody/nothing":
            raise FileNotFoundError(name)
        rows = {"train": 6, "test": 3, "empty": 0}[split]
        column = {"text/only": {"text": "words"}}.get(name)
        return [column or {"label": i, "img": picture(40 * i)} for i in range(rows)]

    package = types.ModuleType("datasets")
    package.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", package)


@pytest.mark.usefixtures("torchvision")
def test_torchvision_pictures(tmp_path: Path) -> None:
    images = load(f"torchvision:Digits:{tmp_path}", count=10).images
    assert images.shape == (10, 3, 8, 9)
    assert sorted((images[:, 0, 0, 0] * 255).round().tolist()) == [25.0 * i for i in range(10)]
    assert Digits.roots == [(str(tmp_path), True)]
    assert load_pairs(f"torchvision:Digits:{tmp_path}", pairs=5, size=4, channels=1).x.shape == (5, 1, 4, 4)
    assert load(f"torchvision:Local:{tmp_path}", count=2).images.shape == (2, 3, 8, 9)


@pytest.mark.usefixtures("torchvision")
def test_torchvision_keeps_its_files_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load("torchvision:Digits", count=1)
    assert Digits.roots == [(str(tmp_path / "initscope" / "torchvision"), True)]


@pytest.mark.usefixtures("torchvision")
def test_torchvision_trouble_is_named() -> None:
    with pytest.raises(BadInput, match=r"no data set 'Nothing'.*Broken, Digits, Local"):
        load("torchvision:Nothing", count=1)
    with pytest.raises(BadInput, match="OSError: no route to host"):
        load("torchvision:Broken", count=1)


@pytest.mark.usefixtures("hub")
def test_hub_pictures() -> None:
    images = load("hf:someone/pictures", count=6).images
    assert sorted((images[:, 0, 0, 0] * 255).round().tolist()) == [40.0 * i for i in range(6)]
    assert load("hf:someone/pictures:test", count=3).images.shape == (3, 3, 8, 9)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hf:nobody/nothing", "FileNotFoundError"),
        ("hf:text/only", "no column holds pictures, only text"),
        ("hf:someone/pictures:empty", "is empty"),
        ("hf:someone/pictures:nosplit", "KeyError"),
    ],
)
def test_hub_trouble_is_named(name: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load(name, count=1)


@pytest.mark.parametrize(("name", "package"), [("torchvision:CIFAR10", "torchvision"), ("hf:cifar10", "datasets")])
def test_missing_packages_are_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(wanted: str, *rest: object) -> object:
        raise ImportError(f"No module named {wanted!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtra, match=rf"not installed.*pip install {package}"):
        load(name, count=1)


def test_torchvision_that_does_not_fit_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def misfit(wanted: str, *rest: object) -> object:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(importlib, "import_module", misfit)
    with pytest.raises(MissingExtra, match=r"does not fit torch .*nms.*pip install"):
        load("torchvision:CIFAR10", count=1)


def test_data_room_needs_neither_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def guarded(name: str, *rest: object, **more: object) -> object:
        assert name.partition(".")[0] not in ("torchvision", "datasets", "skimage")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", guarded)
    assert load("photos", count=1).images.shape == (1, 3, 32, 32)
