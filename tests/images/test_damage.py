"""A training that was damaged on the disk is not gone on with, and two trainings do not share a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from files.disks import full_disk
from initscope.errors import BadInput
from initscope.files import locked
from initscope.images import Encoder, Recipe, load_decoder, train_decoder

RECIPE = Recipe(steps=2, batch=2, save_every=1)


def train(folder: Path, **options: object) -> object:
    pixels = torch.rand(3, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    return train_decoder(Encoder("vgg16", "1_1", channels=2), pixels, None, RECIPE, out=folder, **options)  # type: ignore[arg-type]


def test_every_flipped_byte_of_a_checkpoint_is_found(tmp_path: Path) -> None:
    train(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    whole = path.read_bytes()
    decoder = (tmp_path / "decoder.safetensors").read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 60)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match=r"checkpoint\.safetensors: .*--restart"):
            train(tmp_path)
        assert (tmp_path / "decoder.safetensors").read_bytes() == decoder
        assert path.read_bytes() == damaged
    train(tmp_path, restart=True)
    assert (tmp_path / "decoder.safetensors").read_bytes() == decoder


def test_every_flipped_byte_of_a_decoder_is_found(tmp_path: Path) -> None:
    train(tmp_path)
    path = tmp_path / "decoder.safetensors"
    whole = path.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 200)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match=r"decoder\.safetensors"):
            load_decoder(tmp_path)


@pytest.mark.parametrize("damage", ["empty", "cut", "folder", "other"])
def test_checkpoints_that_are_none(tmp_path: Path, damage: str) -> None:
    train(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    whole = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage == "other":
        shutil.copy(tmp_path / "decoder.safetensors", path)
    else:
        path.write_bytes(whole[: len(whole) // 2 if damage == "cut" else 0])
    with pytest.raises(BadInput, match="is no checkpoint of a decoder"):
        train(tmp_path)


def test_two_trainings_do_not_share_a_folder(tmp_path: Path) -> None:
    train(tmp_path)
    with (
        locked(tmp_path / ".lock", "out", "testing"),
        pytest.raises(BadInput, match=f"out: another run is training in {tmp_path}"),
    ):
        train(tmp_path, restart=True)
    assert (tmp_path / "checkpoint.safetensors").exists()
    train(tmp_path)


def test_a_full_disk_while_training(tmp_path: Path) -> None:
    train(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with full_disk(64), pytest.raises(BadInput, match="cannot write"):
        train(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
