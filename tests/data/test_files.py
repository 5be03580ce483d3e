"""Folders, npz and idx files: what is read, and what is refused with the name of the file."""

from __future__ import annotations

import gzip
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from initscope.data import load, load_pairs
from initscope.errors import BadInput


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)


def write(folder: Path, name: str, array: np.ndarray, **options: object) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(array).save(folder / name, **options)


def only(folder: Path, **options: object) -> torch.Tensor:
    return load(f"folder:{folder}", count=1, **options).images


def test_folder_is_searched_deeply_by_suffix(tmp_path: Path, pixels: np.ndarray) -> None:
    write(tmp_path, "a.png", pixels)
    write(tmp_path, "deep/er/b.PNG", pixels)
    write(tmp_path, "deep/c.bmp", pixels)
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / "folder.png").mkdir()
    assert load(f"folder:{tmp_path}", count=3).images.shape == (3, 3, 6, 5)
    assert load_pairs(f"folder:{tmp_path}", pairs=3).x.shape == (3, 3, 6, 5)
    with pytest.raises(BadInput, match="4 images asked for, 3 there"):
        load(f"folder:{tmp_path}", count=4)


def test_rgb_pixels_come_through_exactly(tmp_path: Path, pixels: np.ndarray) -> None:
    write(tmp_path, "a.png", pixels)
    expected = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
    assert torch.equal(only(tmp_path), expected)


def test_alpha_is_ignored(tmp_path: Path, pixels: np.ndarray) -> None:
    alpha = np.random.default_rng(1).integers(0, 256, (6, 5, 1), dtype=np.uint8)
    write(tmp_path, "a.png", np.concatenate([pixels, alpha], 2))
    assert torch.equal(only(tmp_path), torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255)
    write(tmp_path / "grey", "b.png", np.concatenate([pixels[..., :1], alpha], 2))
    assert torch.equal(only(tmp_path / "grey"), torch.from_numpy(pixels[..., 0])[None, None].float() / 255)


def test_palettes_are_resolved(tmp_path: Path, pixels: np.ndarray) -> None:
    picture = PIL.Image.fromarray(pixels).quantize(16)
    expected = np.asarray(picture.convert("RGB"))
    picture.save(tmp_path / "a.png", transparency=b"\x00\x80")
    assert torch.equal(only(tmp_path), torch.from_numpy(expected.copy()).permute(2, 0, 1)[None].float() / 255)


def test_sixteen_bits_are_kept(tmp_path: Path) -> None:
    deep = np.array([[0, 257, 65535], [1, 32768, 40000]], dtype=np.uint16)
    expected = torch.from_numpy(deep.astype(np.float32))[None, None] / 65535
    for suffix in ("png", "tif"):
        write(tmp_path / suffix, f"a.{suffix}", deep)
        torch.testing.assert_close(only(tmp_path / suffix), expected, rtol=1e-6, atol=0)


def test_unusual_modes(tmp_path: Path, pixels: np.ndarray) -> None:
    PIL.Image.fromarray(pixels).convert("CMYK").save(_in(tmp_path, "cmyk/a.tif"))
    assert (only(tmp_path / "cmyk") - torch.from_numpy(pixels).permute(2, 0, 1) / 255).abs().max() < 0.01
    PIL.Image.fromarray(pixels[..., 0] > 127).save(_in(tmp_path, "bits/a.png"))
    assert torch.equal(only(tmp_path / "bits")[0, 0], torch.from_numpy(pixels[..., 0] > 127).float())
    PIL.Image.fromarray(np.array([[0.25, -3.0]], dtype=np.float32)).save(_in(tmp_path, "float/a.tif"))
    assert only(tmp_path / "float").flatten().tolist() == [0.25, -3.0]
    PIL.Image.fromarray(np.array([[7, 70000]], dtype=np.int32)).save(_in(tmp_path, "wide/a.tif"))
    with pytest.raises(BadInput, match="32-bit"):
        only(tmp_path / "wide")
    PIL.Image.fromarray(np.array([[np.nan, 1.0]], dtype=np.float32)).save(_in(tmp_path, "nan/a.tif"))
    with pytest.raises(BadInput, match="1 of 2 pixels are NaN"):
        only(tmp_path / "nan")


def _in(folder: Path, name: str) -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    return folder / name


def test_orientation_tag_is_obeyed(tmp_path: Path, pixels: np.ndarray) -> None:
    tag = PIL.Image.Exif()
    tag[0x0112] = 6  # turned by a quarter
    write(tmp_path, "a.png", pixels, exif=tag)
    expected = torch.from_numpy(np.rot90(pixels, -1).copy()).permute(2, 0, 1)[None].float() / 255
    assert torch.equal(only(tmp_path), expected)


def test_size_covers_then_crops_at_the_centre(tmp_path: Path) -> None:
    wide = np.zeros((10, 40, 3), dtype=np.uint8)
    wide[:, 15:25] = 255
    write(tmp_path, "a.png", wide)
    assert torch.equal(only(tmp_path, size=10), torch.ones(1, 3, 10, 10))
    assert only(tmp_path, size=(33, 7)).shape == (1, 3, 33, 7)


def test_grey_among_colour_becomes_colour(tmp_path: Path, pixels: np.ndarray) -> None:
    write(tmp_path, "a.png", pixels)
    write(tmp_path, "b.png", pixels[..., 0])
    both = load(f"folder:{tmp_path}", count=2).images
    assert torch.equal(both, load(f"folder:{tmp_path}", count=2, channels=3).images)
    assert sum(torch.equal(image[0], image[2]) for image in both) == 1
    grey = load(f"folder:{tmp_path}", count=2, channels=1).images
    luma = torch.from_numpy(np.array(PIL.Image.fromarray(pixels).convert("L"))).float() / 255
    assert min((image[0] - luma).abs().max() for image in grey) < 0.005


def test_different_sizes_need_a_size(tmp_path: Path, pixels: np.ndarray) -> None:
    write(tmp_path, "a.png", pixels)
    write(tmp_path, "b.png", pixels[1:])
    with pytest.raises(BadInput, match=r"\(3, 5, 5\) and \(3, 6, 5\); pass size"):
        load(f"folder:{tmp_path}", count=2)
    assert load(f"folder:{tmp_path}", count=2, size=4).images.shape == (2, 3, 4, 4)


@pytest.mark.parametrize("content", [b"", b"not a picture", b"\x89PNG\r\n\x1a\n" + b"\0" * 40])
def test_unreadable_files_are_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.png").write_bytes(content)
    with pytest.raises(BadInput, match=r"broken\.png.*cannot be read"):
        only(tmp_path)


def test_truncated_pictures_are_named(tmp_path: Path) -> None:
    write(tmp_path, "cut.jpg", np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    whole = (tmp_path / "cut.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match=r"cut\.jpg"):
        only(tmp_path)


@pytest.mark.parametrize("side", [12, 20])
def test_decompression_bombs_are_refused(tmp_path: Path, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow warns above its limit and fails above twice the limit: both are refusals here."""
    write(tmp_path, "bomb.png", np.zeros((side, side), dtype=np.uint8))
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(BadInput, match=r"bomb\.png.*more than the 100 pixels"):
        only(tmp_path)


def test_folders_without_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no image files"):
        only(tmp_path)
    with pytest.raises(BadInput, match="does not exist"):
        only(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="is a file"):
        only(tmp_path / "file")


def test_npz_layouts(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    last = random.integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)
    np.savez(
        tmp_path / "a.npz",
        last=last,
        first=last.transpose(0, 3, 1, 2).astype(np.float32),
        grey=last[..., 0],
        deep=last[..., 0].astype(np.uint16) * 257,
        vectors=last.reshape(4, -1).astype(np.float64),
        both=random.random((4, 3, 7, 3)),
        alpha=random.random((4, 6, 5, 4)),
        mask=last[..., 0] > 100,
        signed=last[..., 0].astype(np.int16),
    )

    def read(key: str, **options: object) -> torch.Tensor:
        return load(f"npz:{tmp_path / 'a.npz'}:{key}", count=4, **options).images

    assert read("last").shape == (4, 3, 6, 5)
    torch.testing.assert_close(read("first") / 255, read("last"))
    torch.testing.assert_close(read("grey"), read("last")[:, :1])
    torch.testing.assert_close(read("deep"), read("grey"))
    torch.testing.assert_close(read("signed") / 255, read("grey"))
    assert read("vectors").shape == (4, 90)
    assert read("both").shape == (4, 3, 3, 7)  # channels last
    assert read("alpha").shape == (4, 4, 6, 5)
    assert torch.equal(read("alpha", channels=3), read("alpha")[:, :3])
    assert read("mask").unique().tolist() == [0.0, 1.0]
    assert read("last", size=3, channels=1).shape == (4, 1, 3, 3)
    with pytest.raises(BadInput, match="vectors, not images"):
        read("vectors", size=3)
    with pytest.raises(BadInput, match="cannot turn 3 channels into 2"):
        read("last", channels=2)


def test_npz_without_key_takes_the_only_candidate(tmp_path: Path) -> None:
    images = np.zeros((3, 4, 4, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.arange(3), names=np.array([["x"], ["y"]]))
    assert load(f"npz:{tmp_path / 'a.npz'}", count=3).images.shape == (3, 3, 4, 4)
    np.savez_compressed(tmp_path / "b.npz", x_train=images, x_test=images)
    with pytest.raises(BadInput, match="several arrays: x_train, x_test"):
        load(f"npz:{tmp_path / 'b.npz'}", count=1)
    np.savez(tmp_path / "c.npz", labels=np.arange(3))
    with pytest.raises(BadInput, match="none of the arrays labels"):
        load(f"npz:{tmp_path / 'c.npz'}", count=1)
    np.save(tmp_path / "d.npy", images)
    assert load(f"npz:{tmp_path / 'd.npy'}", count=2).images.shape == (2, 3, 4, 4)
    with pytest.raises(BadInput, match="no keys"):
        load(f"npz:{tmp_path / 'd.npy'}:x", count=2)


def test_npz_paths_may_contain_colons(tmp_path: Path) -> None:
    np.savez(tmp_path / "a:b.npz", images=np.ones((2, 4, 4)))
    assert load(f"npz:{tmp_path / 'a:b.npz'}", count=2).images.shape == (2, 1, 4, 4)
    assert load(f"npz:{tmp_path / 'a:b.npz'}:images", count=2).images.shape == (2, 1, 4, 4)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.ones(5), "not a set of images"),
        (np.ones((2, 3, 4, 4, 3)), "not a set of images"),
        (np.ones((2, 7, 4, 6)), "not a set of images"),
        (np.ones((0, 4, 4)), "is empty"),
        (np.ones((2, 0, 4)), "is empty"),
        (np.full((2, 4, 4), np.nan), "16 of 16 pixels are NaN or infinite"),
        (np.full((2, 4, 4), 1e300), "NaN or infinite"),
        (np.ones((2, 4, 4), dtype=np.complex64), "not numbers"),
        (np.full((2, 4, 4), "a"), "not numbers"),
        (np.full((2, 4, 4), None, dtype=object), "cannot be read"),
    ],
)
def test_npz_arrays_that_are_not_images_are_refused(tmp_path: Path, array: np.ndarray, words: str) -> None:
    np.savez(tmp_path / "a.npz", x=array)
    with pytest.raises(BadInput, match=words):
        load(f"npz:{tmp_path / 'a.npz'}:x", count=1)


def test_npz_files_that_are_not_npz_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with pytest.raises(BadInput, match="no file"):
        load(f"npz:{path}:x", count=1)
    for content in (b"", b"PK\x03\x04 broken", b"plain text"):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="cannot be read"):
            load(f"npz:{path}", count=1)
    np.savez(path, x=np.ones((2, 4, 4)))
    with pytest.raises(BadInput, match="the keys are x"):
        load(f"npz:{path}:y", count=1)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match="cannot be read"):
        load(f"npz:{path}", count=1)


def test_npz_that_promises_too_much_is_refused_unread(tmp_path: Path) -> None:
    header = {"shape": (99999, 9999, 4), "fortran_order": False, "descr": "|u1"}
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, archive.open("x.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, header)
        member.write(b"short")
    with pytest.raises(BadInput, match="promises 3999560004 numbers"):
        load(f"npz:{tmp_path / 'a.npz'}:x", count=1)


def idx_bytes(array: np.ndarray, code: int) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("zipped", [False, True])
def test_idx_images(tmp_path: Path, zipped: bool) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 7, 6), dtype=np.uint8)
    raw = idx_bytes(images, 0x08)
    path = tmp_path / "images-idx3-ubyte"
    path.write_bytes(gzip.compress(raw, mtime=0) if zipped else raw)
    got = load(f"idx:{path}", count=5, seed=1).images
    assert got.shape == (5, 1, 7, 6)
    expected = {image.tobytes() for image in images.astype(np.float32) / np.float32(255)}
    assert {image.numpy().tobytes() for image in got} == expected
    assert load(f"idx:{path}", count=2, size=14, channels=3).images.shape == (2, 3, 14, 14)


@pytest.mark.parametrize(("code", "dtype"), [(0x09, ">i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")])
def test_idx_number_types(tmp_path: Path, code: int, dtype: str) -> None:
    images = np.arange(24).reshape(1, 4, 6).astype(dtype)
    (tmp_path / "a").write_bytes(idx_bytes(images, code))
    assert load(f"idx:{tmp_path / 'a'}", count=1).images.flatten().tolist() == list(range(24))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "magic number"),
        (b"\0\0\x07\x03" + b"\0" * 40, "magic number 00000703"),
        (b"GIF89a" + b"\0" * 40, "magic number"),
        (idx_bytes(np.zeros(5, np.uint8), 8), "labels"),
        (idx_bytes(np.zeros((2, 3, 3), np.uint8), 8)[:-1], "has only 17"),
        (idx_bytes(np.zeros((2, 3, 3), np.uint8), 8) + b"\0", "has more"),
        (idx_bytes(np.zeros((2, 3, 3), np.uint8), 8)[:10], "inside its header"),
        (struct.pack(">4B3I", 0, 0, 8, 3, 2**31, 2**20, 2**20), "promises"),
        (idx_bytes(np.zeros((0, 3, 3), np.uint8), 8), "is empty"),
        (gzip.compress(idx_bytes(np.zeros((9, 30, 30), np.uint8), 8), mtime=0)[:-12], "cannot be read"),
        (b"\x1f\x8bnot gzip at all", "cannot be read"),
    ],
)
def test_damaged_idx_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(BadInput, match=words):
        load(f"idx:{tmp_path / 'a'}", count=1)


def test_missing_idx_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        load(f"idx:{tmp_path / 'nothing'}", count=1)


def test_real_samples_load() -> None:
    folder = os.environ.get("INITSCOPE_DATA")
    if not folder:
        pytest.skip("INITSCOPE_DATA is not set: no real samples to load")
    cifar = load(f"npz:{folder}/cifar10.npz:x_test", count=50).images
    assert cifar.shape == (50, 3, 32, 32)
    assert 0.3 < cifar.mean().item() < 0.6
    assert load(f"npz:{folder}/fashion_mnist.npz:x_test", count=5).images.shape == (5, 1, 28, 28)
    assert load(f"folder:{folder}/imagenet_jpeg", count=12, size=64).images.shape == (12, 3, 64, 64)
    assert load_pairs(f"folder:{folder}/photos", pairs=6, size=48, standardise=True).y.shape == (6, 3, 48, 48)
