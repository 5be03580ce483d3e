"""Small files that ask for much memory are read within bounds, or refused before anything is allocated."""

from __future__ import annotations

import gzip
import io
import logging
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from initscope.data import load, load_pairs, request
from initscope.data.pixels import fit
from initscope.errors import BadInput

_LIMITED = """
import resource, sys, torch
from initscope.data import load
load("gaussian", count=1, size=8)
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (600 << 20),) * 2)
for source in sys.argv[1:]:
    print(tuple(load(source, count=1, size=32).images.shape))
"""


def test_strips_are_scaled_within_bounds(tmp_path: Path) -> None:
    """With 600 MiB to spare; a strip of 500000 x 1 scaled as a whole would take 6 GiB and more."""
    sources = []
    for number, size in enumerate([(500_000, 1), (1, 500_000), (3_000_000, 2)]):
        (tmp_path / str(number)).mkdir()
        PIL.Image.new("RGB", size, (10, 20, 30)).save(tmp_path / str(number) / "strip.png")
        sources.append(f"folder:{tmp_path / str(number)}")
    done = subprocess.run([sys.executable, "-c", _LIMITED, *sources], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["(1, 3, 32, 32)"] * 3 + [""]


@pytest.mark.parametrize(("height", "width"), [(6, 900), (900, 6), (5, 801)])
def test_the_crop_of_a_strip_is_that_of_the_scaled_strip(
    monkeypatch: pytest.MonkeyPatch, height: int, width: int
) -> None:
    """A smooth picture: a whole pixel of the strip is the most that the two crops may be apart."""
    rows, columns = torch.linspace(0, 1, height)[:, None], torch.linspace(0, 1, width)
    strip = (rows + 3 * columns)[None, None]
    scaled = fit(strip, (32, 32))
    monkeypatch.setattr("initscope.data.pixels._MOST_DROPPED", 1)
    cropped = fit(strip, (32, 32))
    assert cropped.shape == (1, 1, 32, 32)
    step = 1 / (height - 1) + 3 / (width - 1)
    assert float((cropped - scaled).abs().max()) < step
    assert not torch.equal(cropped, scaled)


def test_pictures_that_do_not_fit_are_refused_before_they_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PIL.Image.new("RGB", (3000, 2000)).save(tmp_path / "large.png")
    monkeypatch.setattr(request, "free_memory", lambda device: 100 << 20)
    monkeypatch.setattr(PIL.Image.Image, "load", lambda *_: pytest.fail("it was decoded"))
    with pytest.raises(BadInput, match=r"large\.png: 3000 x 2000 pixels need about 160\.2 MiB of memory, 100\.0 MiB"):
        load(f"folder:{tmp_path}", count=1, size=32)


def test_many_pictures_are_refused_when_they_become_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        PIL.Image.new("RGB", (800, 800)).save(tmp_path / f"{number}.png")
    monkeypatch.setattr(request, "free_memory", lambda device: 60 << 20)
    with pytest.raises(BadInput, match="size: 3 of 4 images need about 65"):
        load(f"folder:{tmp_path}", count=4)
    assert len(load(f"folder:{tmp_path}", count=4, size=8)) == 4


def header(text: bytes, version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text


def described(shape: str, descr: str = "'|u1'") -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()


@pytest.mark.parametrize(
    "content",
    [
        header(described("(4, 4)")[:-9]),
        header(b"{'descr': '|u1', 'fortran_order': False, 'shape': (4, 4 ** 10 ** 9)}\n"),
        header(b"\x00" * 40),
        header(b"(" * 5000),
        header(described("(-1, 4)")) + bytes(16),
        header(described("(10000000000, 10000000000)")),
        header(described("(4, 4)", "'|O'")) + bytes(128),
        header(described("(4, 4)", "'|u1', 'x'")),
        header(described("(4, 4)", "[('a', '<f4')]")) + bytes(64),
        header(described("('4', 4)")) + bytes(16),
        header(described("(True, 4.0)")) + bytes(16),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 100,
        b"\x93NUMPY\x09\x00\x10\x00" + b" " * 100,
        b"\x93NUMPY",
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_damaged_npy_headers_are_one_refusal(tmp_path: Path, content: bytes, inside: bool) -> None:
    path = tmp_path / "x.npz"
    if inside:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", content)
    else:
        path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        load(f"npz:{path}", count=1)
    assert len(str(caught.value).splitlines()) == 1


def test_a_header_that_unpacks_to_gigabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        member.write(b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 26))
        for _ in range(1 << 6):
            member.write(b" " * (1 << 20))
    assert path.stat().st_size < 1 << 17
    with pytest.raises(BadInput, match="its header promises 67108864 bytes"):
        load(f"npz:{path}", count=1)


def test_archives_that_unpack_to_more_than_is_free_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((400, 400, 200), np.float64))
    monkeypatch.setattr(request, "free_memory", lambda device: 100 << 20)
    with pytest.raises(BadInput, match="the numbers of 'x' need about 244"):
        load(f"npz:{tmp_path / 'x.npz'}", count=1, size=8)
    with gzip.open(tmp_path / "x.gz", "wb") as file:
        file.write(struct.pack(">BBBBIII", 0, 0, 0x0E, 3, 400, 400, 200) + bytes(8 * 400 * 400 * 200))
    with pytest.raises(BadInput, match="its numbers need about 488"):
        load(f"idx:{tmp_path / 'x.gz'}", count=1, size=8)


@pytest.mark.parametrize("shape", [(2, 2**36), (2**38, 1), (2, 2**19, 2**17)])
def test_sparse_files_are_refused_by_their_size(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """A file may hold more than memory and take no room on the disk."""
    path = tmp_path / "x.npy"
    start = io.BytesIO()
    np.lib.format.write_array_header_1_0(start, {"descr": "|u1", "fortran_order": False, "shape": shape})
    path.write_bytes(start.getvalue())
    try:
        with path.open("r+b") as file:
            file.truncate(len(start.getvalue()) + int(np.prod(shape, dtype=object)))
    except OSError:
        pytest.skip("this file system has no files so large")
    with pytest.raises(BadInput, match="need"):
        load(f"npz:{path}", count=1, **({} if len(shape) == 2 else {"size": 8}))  # type: ignore[arg-type]


@pytest.mark.parametrize("axes", [5, 64, 65, 255])
def test_idx_files_of_too_many_axes(tmp_path: Path, axes: int) -> None:
    path = tmp_path / "x.idx"
    path.write_bytes(bytes([0, 0, 8, axes]) + struct.pack(f">{axes}I", *[1] * axes) + b"\0")
    with pytest.raises(BadInput, match=f"{axes} axes, expected 2 to 4"):
        load(f"idx:{path}", count=1)


@pytest.mark.parametrize("kind", ["npz", "idx", "folder"])
@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "\ud800"])
def test_names_that_no_file_has(kind: str, name: str) -> None:
    with pytest.raises(BadInput):
        load(f"{kind}:{name}", count=1)


def test_more_pairs_than_can_be_told_apart() -> None:
    with pytest.raises(BadInput, match="pairs"):
        load_pairs("photos", pairs=10**13, size=1)


def test_pillow_says_nothing_beside_our_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a TIFF file with ten samples per pixel it would log an error, which Python prints where nobody handles it."""
    path = tmp_path / "x.tif"
    PIL.Image.new("RGB", (3, 3)).save(path)
    content = path.read_bytes()
    entry = struct.pack("<HHI", 277, 3, 1)  # SamplesPerPixel, one short
    place = content.index(entry) + len(entry)
    path.write_bytes(content[:place] + struct.pack("<H", 10) + content[place + 2 :])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of pytest
    with pytest.raises(BadInput, match="cannot be read as an image"):
        load(f"folder:{tmp_path}", count=1)
    assert capsys.readouterr().err == ""
