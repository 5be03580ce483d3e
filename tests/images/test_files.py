"""Pictures that are damaged, odd or too large, and places that cannot be written: one clear message, no file."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from initscope.errors import BadInput
from initscope.images import Encoder, read_picture, reconstruct, stylize, train_decoder, write_picture


def png_of(width: int, height: int) -> bytes:
    """A PNG file that says how large it is and holds next to nothing."""

    def chunk(name: bytes, content: bytes) -> bytes:
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"0"))


def test_text_named_as_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_text("not a picture")
    with pytest.raises(BadInput, match=r"photo\.jpg: cannot be read as an image"):
        reconstruct(path)


def test_truncated_picture(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.jpg", tmp_path / "cut.jpg"
    PIL.Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(whole)
    cut.write_bytes(whole.read_bytes()[:-400])
    with pytest.raises(BadInput, match=r"cut\.jpg: cannot be read as an image"):
        reconstruct(cut)


def test_huge_header_is_refused_before_decoding(tmp_path: Path) -> None:
    path = tmp_path / "huge.png"
    path.write_bytes(png_of(30000, 30000))
    with pytest.raises(BadInput, match="pixels that are decoded; use a smaller picture"):
        reconstruct(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        reconstruct(tmp_path / "none.png")
    with pytest.raises(BadInput, match="is a folder"):
        reconstruct(tmp_path)


@pytest.mark.parametrize("arch", ["vgg16", "alexnet"])
def test_one_pixel(tmp_path: Path, arch: str) -> None:
    path = tmp_path / "dot.png"
    PIL.Image.new("RGB", (1, 1), (10, 200, 30)).save(path)
    found = reconstruct(path, arch, depth=2, channels=8)
    assert found.image.shape == (3, 1, 1)
    assert found.ssim is None
    assert any("11x11" in note for note in found.notes)


def test_16_bits_and_palettes_and_alpha(tmp_path: Path) -> None:
    deep = tmp_path / "deep.png"
    PIL.Image.fromarray(np.arange(400, dtype=np.uint16).reshape(20, 20) * 100).save(deep)
    assert float(read_picture(deep).max()) == pytest.approx(39900 / 65535)
    assert reconstruct(deep, channels=4).image.shape == (1, 20, 20)
    colours = PIL.Image.new("P", (20, 14))
    colours.putpalette([255, 0, 0, 0, 0, 255] + [0] * 762)
    colours.putpixel((3, 3), 1)
    palette = tmp_path / "palette.png"
    colours.save(palette)
    assert read_picture(palette)[0, :, 3, 3].tolist() == [0.0, 0.0, 1.0]
    assert reconstruct(palette, channels=4).image.shape == (3, 14, 20)
    glass = tmp_path / "glass.png"
    PIL.Image.new("RGBA", (12, 12), (255, 0, 0, 3)).save(glass)
    assert read_picture(glass).shape == (1, 3, 12, 12)
    assert read_picture(torch.rand(2, 5, 5)).shape == (1, 1, 5, 5)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (torch.rand(5, 4, 4), "expected \\(c, h, w\\)"),
        (torch.rand(2, 3, 4, 4), "pass one picture"),
        (torch.rand(3, 0, 4), "pass one picture"),
        (torch.full((3, 4, 4), 2.0), "expected 0 to 1"),
        (torch.full((3, 4, 4), float("nan")), "expected 0 to 1"),
        (torch.zeros(3, 4, 4, dtype=torch.int64), "expected uint8 or floating point"),
    ],
)
def test_wrong_tensors(image: torch.Tensor, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        reconstruct(image)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".bmp", ".tif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_written_pictures_come_back(tmp_path: Path, suffix: str, channels: int) -> None:
    picture = torch.linspace(0, 1, 20).expand(channels, 16, 20)
    path = write_picture(picture, tmp_path / f"out{suffix}")
    back = read_picture(path)[0]
    allowed = 0.04 if suffix in (".jpg", ".webp") else 0.5 / 255 + 1e-6
    assert float((back[:1] - picture[:1]).abs().max()) <= allowed
    assert [p.name for p in tmp_path.iterdir()] == [f"out{suffix}"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    picture = torch.zeros(3, 4, 4)
    with pytest.raises(BadInput, match="expected one of"):
        write_picture(picture, tmp_path / "out.txt")
    with pytest.raises(BadInput, match="does not exist"):
        write_picture(picture, tmp_path / "none" / "out.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(BadInput, match="is a folder"):
        write_picture(picture, tmp_path / "folder.png")
    assert [p.name for p in tmp_path.iterdir()] == ["folder.png"]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, file: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PIL.Image.Image, "save", broken)
    with pytest.raises(BadInput, match="No space left on device"):
        write_picture(torch.zeros(3, 4, 4), tmp_path / "out.png")
    assert not list(tmp_path.iterdir())


def test_running_out_of_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("initscope.images.reconstruction.run_tiles", full)
    with pytest.raises(BadInput, match="memory: there is not enough of it"):
        reconstruct(torch.rand(3, 8, 8), channels=2)

    monkeypatch.setattr("initscope.images.style.stylizing.search", full)
    with pytest.raises(BadInput, match="not enough of it; use a smaller size"):
        stylize(torch.rand(3, 16, 16), torch.rand(3, 16, 16), size=None, channels=2)
    monkeypatch.setattr("initscope.images.training.loop._steps", full)
    with pytest.raises(BadInput, match="not enough of it; use a smaller batch"):
        train_decoder(Encoder("vgg16", "1_1", channels=2), torch.rand(4, 3, 8, 8))

    def other(*arguments: object, **options: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr("initscope.images.reconstruction.run_tiles", other)
    with pytest.raises(RuntimeError, match="something else"):
        reconstruct(torch.rand(3, 8, 8), channels=2)
